"""Matrices of few bits an element, which lie in bytes, with a scale for each block: products with them, and rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.computation import computations as c
from jitonnx.computation import expr as e
from jitonnx.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import lower_halves, widen

LONGEST_BLOCK = 256
"""Of a computation: sums of its quantised elements fit into 32 bits."""


def unpacked(whole: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of `bits` bits, the first in the lowest bits of a byte: uint8 [..., bytes] -> [..., numbers]."""
    if bits == 8:
        return whole
    places = [(whole >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(places, -1).reshape(*whole.shape[:-1], -1)


def packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """What `unpacked` unpacks: uint8 [..., numbers] -> [..., bytes], the last byte filled up with 0."""
    places = 8 // bits
    short = -numbers.shape[-1] % places
    if short:
        numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, short)])
    result = np.zeros((*numbers.shape[:-1], numbers.shape[-1] // places), np.uint8)
    for place in range(places):
        result |= numbers[..., place::places] << (bits * place)
    return result


class MatMulNBits(Operator):
    """A [..., K] times the transpose of a constant matrix [N, K] of `bits` bits an element, plus a bias [N].

    B [N, blocks, block_size * bits / 8] holds the numbers q; an element is (q - zero point) * scale, by blocks of
    `block_size` along K, or, with g_idx [K], by g_idx[k]. zero_points are of A's type [N, blocks], or packed as B is:
    uint8 [N, ceil(blocks * bits / 8)]; without, they are 2 ** (bits - 1).

    A is never quantised to less than float32 holds, whatever accuracy_level allows.
    """

    domain = "com.microsoft"

    K: int
    N: int
    block_size: int
    bits: int = 4
    accuracy_level: int = 0
    weight_prepacked: int = 0

    @property
    def blocks(self) -> int:
        return -(-self.K // self.block_size)

    def infer(
        self,
        context: InferenceContext,
        a: Value,
        b: Value,
        scales: Value,
        zeros: Value | None = None,
        groups: Value | None = None,
        bias: Value | None = None,
    ) -> TensorType:
        if self.bits not in (2, 4, 8):
            raise InferenceError(f"bits is {self.bits}: only 2, 4 and 8 are supported")
        if self.block_size < 16 or self.block_size & (self.block_size - 1):
            raise InferenceError(f"block_size is {self.block_size}: a power of two from 16 on expected")
        if self.weight_prepacked:
            raise InferenceError(
                f"weight_prepacked is {self.weight_prepacked}: such weights are laid out for GPUs; "
                "export the model for CPUs, with weight_prepacked 0"
            )
        shape = a.shape
        if not shape or not context.demand_equal(shape[-1], self.K):
            raise InferenceError(f"A is {a.type}; its last size is to be K, {self.K}")
        n, blocks = self.N, self.blocks
        wanted = [("B", b, n * blocks * (self.block_size * self.bits // 8)), ("scales", scales, n * blocks)]
        if zeros is not None:
            each = -(-blocks * self.bits // 8) if zeros.dtype is DType.UINT8 else blocks
            wanted.append(("zero_points", zeros, n * each))
        wanted += [(name, x, size) for name, x, size in (("g_idx", groups, self.K), ("bias", bias, n)) if x is not None]
        for name, x, size in wanted:
            elements: Any = 1
            for dim in x.shape:
                elements = elements * dim
            if not context.demand_equal(elements, size):
                raise InferenceError(
                    f"{name} is {x.type}; with K {self.K}, N {n}, block_size {self.block_size} and {self.bits} bits it "
                    f"has {size} elements"
                )
        return TensorType(a.dtype, (*shape[:-1], n))

    def evaluate(
        self,
        a: np.ndarray,
        b: np.ndarray,
        scales: np.ndarray,
        zeros: np.ndarray | None = None,
        groups: np.ndarray | None = None,
        bias: np.ndarray | None = None,
    ) -> np.ndarray:
        n, blocks = self.N, self.blocks
        numbers = unpacked(b.reshape(n, -1), self.bits)[:, : self.K].astype(np.float32)
        of = np.arange(self.K) // self.block_size if groups is None else groups.astype(np.int64)
        z = np.float32(1 << (self.bits - 1)) if zeros is None else self._zeros(zeros).astype(np.float32)[:, of]
        y = widen(a) @ ((numbers - z) * widen(scales).reshape(n, blocks)[:, of]).T
        return (y if bias is None else y + widen(bias)).astype(a.dtype)

    def _zeros(self, zeros: np.ndarray) -> np.ndarray:
        """Zero points as [N, blocks]."""
        if zeros.dtype == np.uint8:
            zeros = unpacked(zeros.reshape(self.N, -1), self.bits)[:, : self.blocks]
        return zeros.reshape(self.N, self.blocks)

    @lower_halves
    def lower(
        self,
        to: Lowering,
        a: Value,
        b: Value,
        scales: Value,
        zeros: Value | None = None,
        groups: Value | None = None,
        bias: Value | None = None,
    ) -> Value:
        constant = all(value is None or value.constant is not None for value in (b, scales, zeros, groups))
        order = self._order(groups) if constant else None
        if order is None:
            y = to.matmul(a, to.transpose(self._lower_widened(to, b, scales, zeros, groups), (1, 0)))
        else:
            assert b.constant is not None and scales.constant is not None
            numbers = b.constant.reshape(self.N, self.blocks, -1)
            if groups is not None:  # numbers of a block are put side by side, and so are the elements of A
                numbers = self._reordered(numbers, order)
                places = to.constant(order)
                a = to.emit(c.Gather(len(a.shape) - 1), (a, places), a.type)
            of_blocks = [scales.constant.reshape(self.N, self.blocks)]
            if zeros is not None:
                assert zeros.constant is not None
                of_blocks.append(np.ascontiguousarray(self._zeros(zeros.constant)))
            block = min(self.block_size, LONGEST_BLOCK)
            if block < self.block_size:  # kernels take it as several
                times = self.block_size // block
                numbers = numbers.reshape(self.N, self.blocks * times, -1)
                of_blocks = [np.repeat(x, times, 1) for x in of_blocks]
            operands = [a, *map(to.constant, (numbers, *of_blocks))]
            y = to.emit(c.NBitsMatMul(self.bits, block), operands, TensorType(DType.FLOAT, to.shape))
        if bias is None:
            return y
        return to.map(e.operand(0, DType.FLOAT) + e.operand(1, DType.FLOAT), y, to.reshape(bias, (self.N,)))

    def _order(self, groups: Value | None) -> np.ndarray | None:
        """The elements of K, those of each block side by side; None where g_idx gives blocks other sizes."""
        if groups is None:
            return np.arange(self.K)
        assert groups.constant is not None
        of = groups.constant.reshape(-1).astype(np.int64)
        order = np.argsort(of, kind="stable")
        usual = np.array_equal(of[order], np.arange(self.K) // self.block_size)
        return order if usual else None

    def _reordered(self, numbers: np.ndarray, order: np.ndarray) -> np.ndarray:
        """B with its numbers along K in another order."""
        whole = unpacked(numbers.reshape(self.N, -1), self.bits)
        whole = np.concatenate([whole[:, order], whole[:, self.K :]], 1)
        return packed(whole, self.bits).reshape(numbers.shape)

    def _lower_widened(self, to: Lowering, b: Value, scales: Value, zeros: Value | None, groups: Value | None) -> Value:
        """The matrix [N, K] as float32, where it or the blocks' elements are known only in a run."""
        n, blocks, size = self.N, self.blocks, self.block_size
        whole = blocks * size
        numbers = _lower_unpacked(to, to.reshape(b, (n, whole * self.bits // 8)), self.bits)
        scale = to.reshape(scales, (n, blocks))
        zero = None
        if zeros is not None and zeros.dtype is DType.UINT8:
            zero = _lower_unpacked(to, to.reshape(zeros, (n, -(-blocks * self.bits // 8))), self.bits)
            zero = to.slice(zero, (0, 0), (1, 1), (n, blocks))
        elif zeros is not None:
            zero = to.reshape(zeros, (n, blocks))
        q, s, z = (e.operand(i, DType.FLOAT) for i in range(3))
        usual = e.constant(float(1 << (self.bits - 1)), DType.FLOAT)
        of_blocks = [scale] if zero is None else [scale, zero]
        expression = (q - (usual if zero is None else z)) * s
        if groups is None:
            spread = [to.reshape(x, (n, blocks, 1)) for x in of_blocks]
            w = to.map(expression, to.reshape(numbers, (n, blocks, size)), *spread)
            return to.slice(to.reshape(w, (n, whole)), (0, 0), (1, 1), (n, self.K))
        places = to.cast(to.reshape(groups, (self.K,)), DType.INT64)
        spread = [to.emit(c.Gather(1), (x, places), TensorType(DType.FLOAT, (n, self.K))) for x in of_blocks]
        return to.map(expression, to.slice(numbers, (0, 0), (1, 1), (n, self.K)), *spread)


def _lower_unpacked(to: Lowering, whole: Value, bits: int) -> Value:
    """`unpacked` of a matrix, as float32."""
    rows, count = whole.shape
    assert isinstance(count, int), "Bug: a constant size is open"
    x, places = e.operand(0, DType.UINT8), 8 // bits
    parts = []
    for place in range(places):
        shifted = e.shift_right(x, e.constant(bits * place, DType.UINT8)) if place else x
        number = e.bitwise_and(shifted, e.constant((1 << bits) - 1, DType.UINT8)) if bits < 8 else x
        parts.append(to.reshape(to.map(e.cast(number, DType.FLOAT), whole), (rows, count, 1)))
    return to.reshape(parts[0] if places == 1 else to.concat(parts, 2), (rows, count * places))


OPERATORS = (MatMulNBits,)
