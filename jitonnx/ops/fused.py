"""Operators of our own domain "jitonnx", which rewrites make of what ONNX spells out. No model can name them."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.sparse import Coordinates
from jitonnx.ir.types import SparseTensorType, TensorType
from jitonnx.ops.base import lower_halves, widen
from jitonnx.ops.onnx.quantization import bounded_quotient
from jitonnx.ops.onnx.recurrent import GRU, LSTM, RNN


class Attention(Operator):
    """softmax(scale * q kᵀ + mask) v for q [B, H, S, D], k [B, Hkv, T, D], v [B, Hkv, T, Dv]; Hkv divides H.

    mask is broadcast to [B, H, S, T]; a boolean one blocks where it is false. causal: row i sees columns up to i only.
    masked_rows_zero: a row that would be NaN because everything in it is blocked is 0.
    """

    domain = "jitonnx"

    scale: float = 1.0
    causal: bool = False
    masked_rows_zero: bool = False

    def infer(self, context: InferenceContext, q: Value, k: Value, v: Value, mask: Value | None = None) -> TensorType:
        if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
            raise InferenceError(f"q, k and v must have 4 axes: {q.type}, {k.type} and {v.type} given")
        fits = (
            context.assume_equal(q.shape[0], k.shape[0])
            and context.assume_equal(q.shape[3], k.shape[3])
            and all(context.assume_equal(one, other) for one, other in zip(k.shape[:3], v.shape[:3], strict=False))
        )
        heads, shared = q.shape[1], k.shape[1]
        if not fits or (isinstance(heads, int) and isinstance(shared, int) and heads % shared):
            raise InferenceError(f"q {q.type}, k {k.type} and v {v.type} do not belong together")
        return TensorType(q.dtype, (*q.shape[:3], v.shape[3]))

    def evaluate(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        dtype, groups = q.dtype, q.shape[1] // k.shape[1]
        q, k, v = (widen(array) for array in (q, k, v))
        k, v = (np.repeat(array, groups, axis=1) for array in (k, v))
        scores = np.matmul(q, k.swapaxes(2, 3)) * q.dtype.type(self.scale)
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + widen(mask)
        if self.causal:
            scores = np.where(np.tri(*scores.shape[2:]) > 0, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=3, keepdims=True, initial=-np.inf))
        weights = weights / weights.sum(axis=3, keepdims=True)
        if self.masked_rows_zero:
            weights = np.where(np.isnan(weights), 0, weights)
        return np.matmul(weights.astype(v.dtype, copy=False), v).astype(dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, q: Value, k: Value, v: Value, mask: Value | None = None) -> Value:
        computation = c.Attention(self.scale, self.causal, self.masked_rows_zero)
        return to.emit(computation, (q, k, v) if mask is None else (q, k, v, mask), to.type)


class Pointwise(Operator):
    """`expression` of the elements of its inputs, broadcast: what the derivative of an elementwise operator is."""

    domain = "jitonnx"
    elementwise = True

    expression: e.Expr

    def infer(self, context: InferenceContext, *inputs: Value) -> TensorType:
        return TensorType(self.expression.dtype, context.broadcast(*inputs))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        return np.broadcast_to(e.evaluate(self.expression, arrays, shape), shape)

    def lower(self, to: Lowering, *inputs: Value) -> Value:
        return to.map(self.expression, *inputs)


class SparseOutput(Operator):
    """A sparse initializer or Constant as the model's output; operators read it filled up.

    values: the stored elements [n]; indices: int64, [n] into the flat tensor or [n, rank]. Evaluated by the host.
    """

    domain = "jitonnx"

    shape: tuple[int, ...] = ()

    def infer(self, context: InferenceContext, values: Value, indices: Value) -> SparseTensorType:
        return SparseTensorType(values.dtype, self.shape)

    def evaluate(self, values: np.ndarray, indices: np.ndarray) -> tuple[Coordinates]:
        if indices.ndim == 2:
            indices = np.ravel_multi_index(tuple(indices.T), self.shape)
        return (Coordinates(self.shape, values, indices),)


class Lookup(Operator):
    """table [256] at the places that the bytes of x, int8 or uint8, are as unsigned numbers."""

    domain = "jitonnx"

    def infer(self, context: InferenceContext, x: Value, table: Value) -> TensorType:
        return TensorType(table.dtype, x.shape)

    def evaluate(self, x: np.ndarray, table: np.ndarray) -> np.ndarray:
        return table[x.view(np.uint8)]

    def lower(self, to: Lowering, x: Value, table: Value) -> Value:
        return to.emit(c.Lookup(), (x, table), TensorType(table.dtype, x.shape))


class ReduceSegments(Operator):
    """Rows offsets[i] to offsets[i + 1] of x [n, ...], reduced to row i; zeros of no rows. Offsets are int64 [s + 1],
    between 0 and n and in order."""

    domain = "jitonnx"

    kind: c.SegmentsKind

    def infer(self, context: InferenceContext, x: Value, offsets: Value) -> TensorType:
        return TensorType(x.dtype, (offsets.shape[0] - 1, *x.shape[1:]))

    def evaluate(self, x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        if offsets[0] < 0 or offsets[-1] > len(x) or (np.diff(offsets) < 0).any():
            raise ValueError("offsets of bags are negative, beyond the last row, or not in order")
        y = np.zeros((len(offsets) - 1, *x.shape[1:]), x.dtype)
        for row, first, end in zip(y, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            if first < end:
                row[...] = getattr(widen(x[first:end]), self.kind)(axis=0)
        return y

    @lower_halves
    def lower(self, to: Lowering, x: Value, offsets: Value) -> Value:
        return to.emit(c.ReduceSegments(self.kind), (x, offsets), TensorType(x.dtype, to.type.shape))


class SumOfBytes(Operator):
    """The sums of int8 or uint8 over `axes`, which stay as size 1 if keepdims, in int32, or in int64 if `wide`."""

    domain = "jitonnx"

    axes: tuple[int, ...]
    keepdims: bool = True
    wide: bool = False

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        kept = tuple(size if axis not in self.axes else 1 for axis, size in enumerate(x.shape))
        dtype = DType.INT64 if self.wide else DType.INT32
        return TensorType(dtype, tuple(n for axis, n in enumerate(kept) if self.keepdims or axis not in self.axes))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.sum(axis=self.axes, keepdims=self.keepdims, dtype=np.int64 if self.wide else np.int32))

    def lower(self, to: Lowering, x: Value) -> Value:
        return to.emit(c.Reduce("sum", self.axes, self.keepdims, self.wide), (x,), to.type)


ROUNDED = Pointwise(expression=e.round_even(e.within(*(e.operand(position, DType.FLOAT) for position in range(3)))))
"""A float32 rounded to the nearest whole number, ties to even, between the second operand and the third."""

ROUNDED_QUOTIENT = Pointwise(
    expression=e.round_even(bounded_quotient(*(e.operand(position, DType.FLOAT) for position in range(5))))
)
"""The first operand, brought between the third and the fourth, divided by the second, whose reciprocal is the fifth,
and rounded as `ROUNDED`."""


class ProjectedLayer(Operator):
    """LSTM, GRU or RNN, layout 0, whose X [T, N, directions * gates * H] has been multiplied with W already.

    layer: the operator that it stands for; other inputs and outputs are as for that.
    """

    domain = "jitonnx"

    layer: LSTM | GRU | RNN

    def infer(self, context: InferenceContext, x: Value, r: Value, *others: Value | None) -> tuple[TensorType, ...]:
        return self.layer.results(x, r.shape[2])

    def evaluate(self, x: np.ndarray, r: np.ndarray, *others: np.ndarray | None) -> tuple[np.ndarray, ...]:
        return self.layer.run(x, None, r, *others)

    @lower_halves
    def lower(self, to: Lowering, x: Value, r: Value, *others: Value | None) -> Any:
        hidden = to.shape[-1]
        if not isinstance(hidden, int):
            return to.host(self, (x, r, *others))
        computation = self.layer.computation(hidden, projected=True)
        return to.emit_many(computation, (x, None, r, *others), self.layer.results(x, hidden))
