"""Matrix products: MatMul and Gemm."""

from __future__ import annotations

from typing import Literal

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape, TensorType
from jitonnx.ops.base import factor, lower_products, widen
from jitonnx.ops.onnx.cast import convert, truncated

PIECE_BYTES = 1 << 20
"""A piece of a matrix that is copied to be multiplied has so many: a part of the second-level cache."""


class MatMul(Operator):
    """NumPy's matmul: [..., m, k] times [..., k, n], leading axes broadcast; a vector is a row on the left, a column on
    the right, and its axis is not in the result."""

    def infer(self, context: InferenceContext, a: Value, b: Value) -> TensorType:
        if not a.shape or not b.shape:
            raise InferenceError("a scalar has no matrix product: rank 1 at least expected")
        depth = b.shape[-2] if len(b.shape) > 1 else b.shape[0]
        if not context.demand_equal(a.shape[-1], depth):
            raise InferenceError(f"the last axis of A ({a.shape[-1]}) and the next to last of B ({depth}) differ")
        batch = context.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if batch is None:
            raise InferenceError(f"leading axes do not broadcast: {a.type} and {b.type}")
        return TensorType(a.dtype, (*batch, *a.shape[-2:-1], *(b.shape[-1:] if len(b.shape) > 1 else ())))

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return multiply(widen(a), widen(b)).astype(a.dtype, copy=False)

    @lower_products
    def lower(self, to: Lowering, a: Value, b: Value) -> Value:
        left = to.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
        right = to.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
        product = to.matmul(left, right)
        return product if len(a.shape) > 1 and len(b.shape) > 1 else to.reshape(product, to.shape)


class Gemm(Operator):
    """alpha * A' B' + beta * C, where A' and B' are the matrices A and B or their transposes; C is broadcast to it."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: bool = False
    transB: bool = False

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.drop("broadcast")  # before 7 it had to be asked for; a C of the full shape is broadcast to itself

    def infer(self, context: InferenceContext, a: Value, b: Value, c: Value | None = None) -> TensorType:
        if len(a.shape) != 2 or len(b.shape) != 2:
            raise InferenceError(f"A and B must be matrices: {a.type} and {b.type} given (MatMul takes other ranks)")
        rows, depth = reversed(a.shape) if self.transA else a.shape
        other, columns = reversed(b.shape) if self.transB else b.shape
        if not context.demand_equal(depth, other):
            raise InferenceError(f"inner axes of A ({depth}) and B ({other}) differ (transA, transB counted in)")
        if c is not None and not _fits(context, context.broadcast_shapes((rows, columns), c.shape), (rows, columns)):
            raise InferenceError(f"C ({c.type}) does not broadcast to [{rows},{columns}]")
        return TensorType(a.dtype, (rows, columns))

    def evaluate(self, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
        y = multiply(widen(a.T if self.transA else a), widen(b.T if self.transB else b))
        if self.alpha != 1:
            y = y * self.alpha
        if c is not None and self.beta != 0:
            y = y + (widen(c) if self.beta == 1 else widen(c) * self.beta)
        return convert(y, of_numpy(a.dtype))

    def lower(self, to: Lowering, a: Value, b: Value, c: Value | None = None) -> Value:
        if not a.dtype.is_integer or (self.alpha == 1 and self.beta in (0, 1)):
            return self._lower(to, a, b, c)
        product = self._product(to, a, b)  # scaled in double, and cut off
        values = [product] if c is None else [product, c]
        doubles = [e.cast(e.operand(i, a.dtype), DType.DOUBLE) for i in range(len(values))]
        return to.map(truncated(self._sum(*doubles), a.dtype), *values)

    @lower_products
    def _lower(self, to: Lowering, a: Value, b: Value, c: Value | None) -> Value:
        values = [self._multiplied(to, a, b), *([] if c is None or self.beta == 0 else [c])]
        if len(values) == 1 and self.alpha == 1:
            return values[0]
        return to.map(self._sum(*(e.operand(i, a.dtype) for i in range(len(values)))), *values)

    @lower_products
    def _product(self, to: Lowering, a: Value, b: Value) -> Value:
        return self._multiplied(to, a, b)

    def _multiplied(self, to: Lowering, a: Value, b: Value) -> Value:
        left = to.transpose(a, (1, 0)) if self.transA else a
        right = to.transpose(b, (1, 0)) if self.transB else b
        return to.matmul(left, right)

    def _sum(self, product: e.Expr, c: e.Expr | None = None) -> e.Expr:
        scaled = _scaled(product, self.alpha)
        return scaled if c is None or self.beta == 0 else scaled + _scaled(c, self.beta)


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NumPy's matmul, also fast where the elements of a matrix `b` are not aligned.

    Files put weights at any address, and NumPy multiplies those without BLAS, some forty times slower. They are copied
    in pieces that stay in the cache.
    """
    if b.flags.aligned or b.ndim != 2 or not b.size:
        return np.asarray(np.matmul(a, factor(b)))
    a = factor(a)
    y = np.empty((*a.shape[:-1], b.shape[1]), np.result_type(a, b))
    width = min(b.shape[1], max(64, PIECE_BYTES // (b.shape[0] * b.itemsize)))
    order: Literal["C", "F"] = "F" if b.flags.f_contiguous else "C"
    memory = np.empty(b.shape[0] * width, b.dtype)
    for first in range(0, b.shape[1], width):
        source = b[:, first : first + width]
        piece = memory[: source.size].reshape(source.shape, order=order)
        piece[...] = source
        np.matmul(a, piece, out=y[..., first : first + width])
    return y


def _scaled(x: e.Expr, factor: float) -> e.Expr:
    return x if factor == 1 else x * factor


def _fits(context: InferenceContext, shape: Shape | None, expected: Shape) -> bool:
    return shape is not None and len(shape) == 2 and all(map(context.demand_equal, shape, expected))
