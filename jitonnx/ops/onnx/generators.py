"""Tensors made of no other: ranges, constants, identity matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import Dim, DimLike, ceil_divide
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator, Tensor
from jitonnx.ir.types import TensorType, contents_array
from jitonnx.ops.base import integers, non_negative, open_rank


class Range(Operator):
    """start, start + delta, ... up to before limit."""

    symbolic = True

    stash_type: int = 1

    def infer(self, context: InferenceContext, start: Value, limit: Value, delta: Value) -> TensorType:
        for value, name in ((start, "start"), (limit, "limit"), (delta, "delta")):
            if not all(context.demand_equal(size, 1) for size in value.shape):
                raise InferenceError(f"{name} is {value.type}; one element is needed")
        # delta first: where it is not known the size is none, and start and limit are not taken for sizes.
        (step,) = context.constant_of(delta, "delta", signed=True)
        if isinstance(step, Dim):
            raise DataDependentError("which way a range goes depends on data")
        (first,), (last,) = (context.constant_of(value, name) for value, name in ((start, "start"), (limit, "limit")))
        return TensorType(start.dtype, (_range_size(first, last, step),))

    def infer_open(self, start: Value, limit: Value, delta: Value) -> TensorType:
        return TensorType(start.dtype, (None,))  # type: ignore[arg-type]

    def evaluate(self, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
        first, last, step = start.item(), limit.item(), delta.item()
        size = _range_size(first, last, step)
        if not isinstance(size, int):
            raise DataDependentError("a range of symbolic length")
        if size * start.dtype.itemsize >= 1 << 63:
            raise MemoryError(f"a range of {size} numbers")  # NumPy wraps around
        return _numbers(start, delta, size)

    def lower(self, to: Lowering, start: Value, limit: Value, delta: Value) -> Value:
        return _lower_range(to, start, delta)


def _numbers(start: np.ndarray, delta: np.ndarray, size: int) -> np.ndarray:
    first, step = start.item(), delta.item()
    if start.dtype == object:
        return contents_array([first + i * step for i in range(size)], (size,))
    wide = np.float64 if start.dtype == np.float64 else np.float32 if start.dtype.kind not in "iu" else start.dtype
    counted = np.arange(size, dtype=np.int32 if size < 1 << 31 else np.int64)  # of floats it is half as fast
    result = counted.astype(wide, copy=False)
    if step != 1:
        result *= delta.reshape(()).astype(wide)
    if first != 0:
        result += start.reshape(()).astype(wide)
    return result.astype(start.dtype, copy=False)


def _lower_range(to: Lowering, start: Value, delta: Value) -> Value:
    """start, start + delta, ..., as many as the node's output has."""
    dtype = start.dtype
    wide = DType.FLOAT if dtype in (DType.FLOAT16, DType.BFLOAT16) else dtype
    if start.constant is not None and delta.constant is not None:
        first, step = (e.constant(known.item(), wide) for known in (start.constant, delta.constant))
        return to.fill(e.cast(e.cast(e.index(0), wide) * step + first, dtype), to.shape)
    counted = to.fill(e.cast(e.index(0), wide), to.shape)
    position, first, step = (e.operand(i, kind) for i, kind in enumerate((wide, dtype, dtype)))
    expression = e.cast(position * e.cast(step, wide) + e.cast(first, wide), dtype)
    return to.map(expression, counted, to.reshape(start, ()), to.reshape(delta, ()))


def _range_size(start: Any, limit: Any, delta: Any) -> DimLike:
    if delta == 0:
        raise InferenceError("delta is 0")
    if isinstance(start, Dim) or isinstance(limit, Dim):
        return non_negative(ceil_divide(limit - start, delta) if delta > 0 else ceil_divide(start - limit, -delta))
    if isinstance(start, int) and isinstance(limit, int) and isinstance(delta, int):
        return max(-((start - limit) // delta), 0)
    return max(math.ceil((limit - start) / delta), 0) if math.isfinite(limit - start) else 0


class RangeSize(Operator):
    """How many numbers a Range has whose start, limit and delta only a run tells."""

    domain = "jitonnx"

    def infer(self, context: InferenceContext, start: Value, limit: Value, delta: Value) -> TensorType:
        return TensorType(DType.INT64, ())

    def evaluate(self, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
        return np.array(_range_size(start.item(), limit.item(), delta.item()), np.int64)

    def lower(self, to: Lowering, start: Value, limit: Value, delta: Value) -> Value:
        scalars = [to.reshape(value, ()) for value in (start, limit, delta)]
        given = [e.operand(place, value.dtype) for place, value in enumerate(scalars)]
        to.check(to.map(e.equal(e.operand(0, delta.dtype), 0), scalars[2]), "delta is 0")
        first, last, step = (e.cast(x, DType.DOUBLE) for x in given)
        span, quotient = last - first, (last - first) / e.where(e.equal(step, 0), 1, step)
        if not start.dtype.is_integer:  # between infinities is nothing
            quotient = e.where(e.absolute(span) < math.inf, quotient, 0)
        beyond = e.absolute(quotient) >= float(_MOST_NUMBERS)
        if start.dtype is DType.INT64:  # whose differences may wrap around
            beyond = e.logical_or(beyond, e.absolute(span) >= float(_MOST_NUMBERS))
        to.check(to.map(beyond, *scalars), f"{_MOST_NUMBERS} numbers or more, whose bytes are beyond all memory")
        if not start.dtype.is_integer:
            rounded = e.where(e.logical_and(quotient > 0, e.logical_not(beyond)), e.ceil(quotient), 0)
            return to.map(e.cast(rounded, DType.INT64), *scalars)
        begin, end, each = (e.cast(x, DType.INT64) for x in given)
        distance = e.where(each > 0, end - begin, begin - end)
        each = e.where(e.equal(each, 0), 1, e.absolute(each))
        return to.map(e.where(distance > 0, (distance - 1) / each + 1, 0), *scalars)


_MOST_NUMBERS = 1 << 60
"""So many of 8 bytes each would take all addresses."""


class RangeOfSize(Operator):
    """start, start + delta, ...: `size` numbers."""

    domain = "jitonnx"

    def infer(self, context: InferenceContext, start: Value, delta: Value, size: Value) -> TensorType:
        return TensorType(start.dtype, tuple(context.constant_of(size, "size")))

    def infer_open(self, start: Value, delta: Value, size: Value) -> TensorType:
        return TensorType(start.dtype, (None,))  # type: ignore[arg-type]

    def evaluate(self, start: np.ndarray, delta: np.ndarray, size: np.ndarray) -> np.ndarray:
        return _numbers(start, delta, int(size))

    def lower(self, to: Lowering, start: Value, delta: Value, size: Value) -> Value:
        return _lower_range(to, start, delta)


class ConstantOfShape(Operator):
    """A tensor of the shape given, all elements equal to `value` (a tensor of one element; float 0 by default)."""

    symbolic = True

    value: Tensor = Tensor(np.zeros(1, np.float32))

    def infer(self, context: InferenceContext, shape: Value) -> TensorType:
        if self.value.array.size != 1:
            raise InferenceError(f"value has {self.value.array.size} elements; one is needed")
        sizes = context.constant_of(shape, "input")
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise InferenceError(f"shape {sizes} has a negative size")
        return TensorType(of_numpy(self.value.array.dtype), tuple(sizes))

    def infer_open(self, shape: Value) -> TensorType:
        return open_rank(of_numpy(self.value.array.dtype), shape)

    def evaluate(self, shape: np.ndarray) -> np.ndarray:
        return np.full(tuple(integers(shape, "input").tolist()), self.value.array.reshape(()))

    def lower(self, to: Lowering, shape: Value) -> Value:
        return to.fill(e.constant(self.value.array.item(), of_numpy(self.value.array.dtype)), to.shape)


class EyeLike(Operator):
    """Ones on diagonal `k` of a matrix of the input's shape, zeros elsewhere; of type `dtype`, or the input's."""

    dtype: int | None = None
    k: int = 0

    def _dtype(self, given: DType) -> DType:
        return given if self.dtype is None else DType(self.dtype)

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if len(x.shape) != 2:
            raise InferenceError(f"{x.type} is no matrix")
        return TensorType(self._dtype(x.dtype), x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.eye(x.shape[0], x.shape[1], self.k).astype(self._dtype(of_numpy(x.dtype)).numpy)

    def lower(self, to: Lowering, x: Value) -> Value:
        diagonal = e.equal(e.index(1), e.index(0) + self.k)
        return to.fill(e.cast(diagonal, self._dtype(x.dtype)), x.shape)
