"""Matrices of few bits an element, which lie in bytes, with a scale for each block: products with them, and rows."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import lower_halves, normalize_axis, widen
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.arithmetic import BitShift
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.logic import BitwiseAnd
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.quantization import DequantizeLinear
from jitonnx.ops.onnx.shape import Expand, Reshape, Unsqueeze
from jitonnx.ops.onnx.shape import Shape as ShapeOf
from jitonnx.ops.onnx.slice import Slice

_BFLOAT16_LEVEL = 3
"""accuracy_level from which on operands may be rounded to bfloat16."""
_INT8_LEVEL = 4
"""accuracy_level from which on rows may be quantised to int8, by blocks."""
LONGEST_BLOCK = 256
"""A computation's blocks are not longer: sums of its quantised elements fit into 32 bits."""


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


def _check_block(size: int) -> None:
    if size < 16 or size & (size - 1):
        raise InferenceError(f"block_size is {size}: a power of two from 16 on expected")


class MatMulNBits(Operator):
    """A [..., K] times the transpose of a constant matrix [N, K] of `bits` bits an element, plus a bias [N].

    B [N, blocks, block_size * bits / 8] holds the numbers q; an element is (q - zero point) * scale, by blocks of
    `block_size` along K, or, with g_idx [K], by g_idx[k]. zero_points are of A's type [N, blocks], or packed as B is:
    uint8 [N, ceil(blocks * bits / 8)]; without, they are 2 ** (bits - 1).

    accuracy_level is the least that the computation has to hold of an element: 0 and 1 float32, 2 float16, 3 bfloat16,
    4 int8, by blocks. With 3 and 4, products of many rows are those of bfloat16 where the CPU has tile registers for
    these, which hold more of most elements than int8. Without these, 4 quantises A to int8 where the CPU multiplies
    bytes: a = factor * A, factor = max |a| / 127 of each block, as onnxruntime does. Else A is float32.
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
        _check_block(self.block_size)
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
            if not context.demand_equal(product(x.shape), size):
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
            rounds, quantises = (self.accuracy_level >= level for level in (_BFLOAT16_LEVEL, _INT8_LEVEL))
            multiply = c.NBitsMatMul(self.bits, block, rounds, quantises)
            y = to.emit(multiply, operands, TensorType(DType.FLOAT, to.shape))
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


class GatherBlockQuantized(Contributed):
    """Rows of a table of few bits an element, dequantised: ONNX's Gather, then DequantizeLinear by blocks.

    data is of 4-bit integers, with zero points of 0 where none are given, or of uint8 with `bits` bits a number, packed
    along the last axis, the first in the lowest bits, and zero points of 2 ** (bits - 1). An index out of range is an
    error, where onnxruntime gives zeros.
    """

    bits: int = 4
    block_size: int = 128
    gather_axis: int = 0
    quantize_axis: int = 1

    def compose(self, parts: Parts, data: Value, indices: Value, scales: Value, zeros: Value | None = None) -> Value:
        rank = len(data.shape)
        gathered, blocked = (normalize_axis(axis, rank) for axis in (self.gather_axis, self.quantize_axis))
        _check_block(self.block_size)
        if gathered == blocked:
            raise InferenceError(f"gather_axis and quantize_axis are both {gathered}: they have to differ")
        if data.dtype is DType.UINT8 and (self.bits not in (2, 4, 8) or gathered != 0):
            raise InferenceError(
                f"bits is {self.bits}, gather_axis {gathered}: uint8 holds 2, 4 or 8 bits, gathered by row"
            )
        if data.dtype not in (DType.UINT8, DType.UINT4, DType.INT4):
            raise InferenceError(f"data is {data.type}: integers of 4 bits, or uint8, are supported")
        bits = self.bits if data.dtype is DType.UINT8 else 8
        numbers, offsets = (self._rows(parts, x, indices, gathered, bits) for x in (data, zeros))
        assert numbers is not None
        scale = parts.add(Gather(axis=gathered), scales, indices)
        if offsets is not None and bits < 8:  # whole bytes may hold more than there are blocks
            size = parts.add(ShapeOf(start=-1), scale)
            first, axes = (parts.constant(np.array([number], np.int64)) for number in (0, -1))
            offsets = parts.add(Slice(), offsets, first, size, axes)
        if zeros is None and data.dtype is DType.UINT8:
            usual = parts.constant(np.uint8(1 << (self.bits - 1)))
            offsets = parts.add(Expand(), usual, parts.add(ShapeOf(), scale))
        axis = blocked if blocked < gathered else blocked + len(indices.shape) - 1
        operator = DequantizeLinear(axis=axis, block_size=self.block_size)
        return parts.add(operator, numbers, scale, *([] if offsets is None else [offsets]))

    def _rows(self, parts: Parts, x: Value | None, indices: Value, axis: int, bits: int) -> Value | None:
        """The rows of numbers of 4 bits or in whole bytes, gathered, as bytes."""
        if x is None:
            return None
        if x.dtype in (DType.INT4, DType.UINT4):
            x = parts.add(Cast(to=int(DType.INT8 if x.dtype is DType.INT4 else DType.UINT8)), x)
        rows = parts.add(Gather(axis=axis), x, indices)
        if bits == 8:
            return rows
        mask, last = parts.constant(np.uint8((1 << bits) - 1)), parts.constant(np.array([-1], np.int64))
        places = []
        for shift in range(0, 8, bits):
            shifted = parts.add(BitShift(direction="RIGHT"), rows, parts.constant(np.uint8(shift))) if shift else rows
            places.append(parts.add(Unsqueeze(), parts.add(BitwiseAnd(), shifted, mask), last))
        whole = parts.add(Concat(axis=-1), *places)
        rank = len(rows.shape)
        shape = parts.constant(np.array([*[0] * (rank - 1), -1], np.int64))
        return parts.add(Reshape(), whole, shape)


_FP4 = (0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_TABLES = (
    np.array([*_FP4, *(-x for x in _FP4)], np.float32),
    np.array(
        [
            *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
            *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
            *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
            *(0.7229568362236023, 1.0),
        ],
        np.float32,
    ),
)
"""What the 16 numbers of FP4 and of NF4 stand for."""


class MatMulBnb4(Contributed):
    """A times a constant matrix [N, K] of FP4 (quant_type 0) or NF4 (1) numbers, transposed if transB, times a factor
    of each block of block_size numbers, row after row. It is widened to float32 when the model is loaded.

    B holds two numbers a byte, the first in the upper half.
    """

    K: int
    N: int
    block_size: int
    quant_type: int
    training_mode: int = 0
    transB: int = 1

    def compose(self, parts: Parts, a: Value, b: Value, factors: Value) -> Value:
        if self.quant_type not in (0, 1):
            raise InferenceError(f"quant_type is {self.quant_type}: 0 (FP4) and 1 (NF4) are known")
        if not (isinstance(b.contents, np.ndarray) and isinstance(factors.contents, np.ndarray)):
            raise InferenceError("B and absmax are to be constants")
        count = self.N * self.K
        bytes_of, of_blocks = b.contents.reshape(-1), widen(factors.contents).reshape(-1)
        if bytes_of.size != -(-count // 2) or of_blocks.size != -(-count // self.block_size):
            raise InferenceError(f"B is {b.type} and absmax {factors.type}, which do not fit [{self.N}, {self.K}]")
        numbers = np.stack([bytes_of >> 4, bytes_of & 15], -1).reshape(-1)[:count]
        w = _TABLES[self.quant_type][numbers] * np.repeat(of_blocks, self.block_size)[:count]
        matrix = w.reshape(self.N, self.K).astype(a.dtype.numpy)
        return parts.add(MatMul(), a, parts.constant(matrix.T if self.transB else matrix))
