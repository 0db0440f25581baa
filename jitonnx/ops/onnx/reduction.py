"""Reductions over axes: sums, means, extrema, norms, and the positions of extrema."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import maximum, product
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType, contents_array
from jitonnx.ops.base import (
    count_of,
    integers_of,
    lower_halves,
    normalize_axis,
    normalize_axis_of_any,
    open_like,
    via_float32,
)
from jitonnx.ops.onnx.cast import convert, truncated

_KERNEL_TYPES = frozenset({DType.FLOAT, DType.DOUBLE, DType.INT32, DType.INT64})
_ORDERED, _WRAPPING = ("max", "min"), ("sum", "prod", "sum_square", "l1")
_OF_FLOATS = ("l2", "log_sum", "log_sum_exp")
_LEAST = -(2**63)


def _extreme(dtype: np.dtype[Any], *, largest: bool) -> Any:
    """The type's neutral element of min (largest) or max."""
    if dtype.kind == "b":
        return largest
    if dtype.kind in "iu":
        return np.iinfo(dtype).max if largest else np.iinfo(dtype).min
    return math.inf if largest else -math.inf


def reduced(x: np.ndarray, *, kind: str, axes: tuple[int, ...], keepdims: bool) -> Any:
    """x reduced over axes; means of integers are cut off, and what is no sum of integers may be wider than these."""
    if kind in ("max", "min"):
        return getattr(x, kind)(axis=axes, keepdims=keepdims, initial=_extreme(x.dtype, largest=kind == "min"))
    if kind == "prod":
        return x.prod(axis=axes, keepdims=keepdims, dtype=x.dtype)
    if kind == "log_sum_exp":  # without forming exponentials of large numbers
        wide = x if x.dtype.kind == "f" else x.astype(np.float64)
        largest = wide.max(axis=axes, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(largest), largest, wide.dtype.type(0))
        total = np.log(np.exp(wide - shift).sum(axis=axes, keepdims=keepdims))
        return total + shift.reshape(total.shape)
    terms = np.abs(x) if kind == "l1" else np.square(x) if kind in ("l2", "sum_square") else x
    total = terms.sum(axis=axes, keepdims=keepdims, dtype=x.dtype if kind in ("sum", "sum_square") else None)
    if kind == "mean":
        count = math.prod(x.shape[axis] for axis in axes)
        if x.dtype.kind == "f":
            return total / x.dtype.type(count)
        count = total.dtype.type(max(count, 1))
        return total // count + ((total < 0) & (total % count != 0))
    return np.sqrt(total) if kind == "l2" else np.log(total) if kind == "log_sum" else total


class _Reduce(Operator):
    """Goes over `axes`; over all of them if there are none given (over none with noop_with_empty_axes)."""

    kind: ClassVar[c.ReductionKind]
    """The computation's kind (see `jitonnx.ir.computation.computations.Reduce`)."""
    axes_since: ClassVar[int] = 18
    """The axes are an input since this version."""

    keepdims: int = 1
    noop_with_empty_axes: int = 0

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < cls.axes_since:
            node.attribute_to_input("axes", 1)

    def _axes(self, rank: int, axes: list[Any] | None) -> tuple[int, ...]:
        if not axes:
            return () if self.noop_with_empty_axes else tuple(range(rank))
        over = {normalize_axis_of_any(axis, rank, "axes") for axis in axes}
        return tuple(sorted(over)) if rank else ()

    def axes_of(self, data: Value, axes: Value | None) -> tuple[int, ...]:
        return self._axes(len(data.shape), None if axes is None else integers_of(axes, "axes"))

    def infer(self, context: InferenceContext, data: Value, axes: Value | None = None) -> TensorType:
        gone = self.axes_of(data, axes)
        sizes = (
            (1 if axis in gone else size) for axis, size in enumerate(data.shape) if self.keepdims or axis not in gone
        )
        return TensorType(data.dtype, tuple(sizes))

    def infer_open(self, data: Value, axes: Value | None = None) -> TensorType:
        if self.keepdims:
            return open_like(data)
        if not count_of(axes):
            raise DataDependentError("a rank depends on data")
        return TensorType(data.dtype, (None,) * (len(data.shape) - count_of(axes)))  # type: ignore[arg-type]

    @via_float32
    def evaluate(self, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
        over = self._axes(data.ndim, None if axes is None else axes.ravel().tolist())
        y = reduced(data, kind=self.kind, axes=over, keepdims=bool(self.keepdims))
        return convert(np.asarray(y), of_numpy(data.dtype))

    @lower_halves
    def lower(self, to: Lowering, data: Value, axes: Value | None = None) -> Value:
        over = self.axes_of(data, axes)
        if any(data.shape[axis] == 0 for axis in over):
            with np.errstate(all="ignore"):
                nothing = reduced(np.empty(0, data.dtype.numpy), kind=self.kind, axes=(0,), keepdims=False)
            return to.fill(e.constant(nothing.item(), data.dtype), to.shape)
        if self.kind in _ORDERED and data.dtype in (DType.INT8, DType.UINT8):
            widened = TensorType(DType.INT32, to.shape)  # kernels widen bytes as they read them
            found = to.emit(c.Reduce(self.kind, over, bool(self.keepdims)), (data,), widened)
            return to.cast(found, data.dtype)
        wide = None if self.kind in _OF_FLOATS and data.dtype.is_integer else _widened(to, data, self.kind)
        if wide is None:
            return self._lower_integers(to, data, over)
        kind = "sum" if self.kind == "l1" and data.dtype is DType.UINT64 else self.kind
        return _narrowed(to, to.reduce(kind, wide, over, keepdims=bool(self.keepdims)), data.dtype, kind)

    def _lower_integers(self, to: Lowering, data: Value, axes: tuple[int, ...]) -> Value:
        """Reduce integers as kernels for them do not: norms, logarithms, means of what no signed type holds."""
        raise NotImplementedError

    def _of_total(
        self,
        to: Lowering,
        addend: e.Expr,
        data: Value,
        axes: tuple[int, ...],
        function: Callable[[e.Expr], e.Expr],
    ) -> Value:
        """function of the sum of `addend`, an expression of the elements, in double; cut off to the operator's type.

        Sums are of 64 bits, signed or not as the elements are.
        """
        total = to.reduce("sum", to.map(e.cast(addend, DType.INT64), data), axes, keepdims=bool(self.keepdims))
        unsigned = data.dtype in (DType.UINT32, DType.UINT64)
        summed = e.cast(e.operand(0, DType.INT64), DType.UINT64 if unsigned else DType.INT64)
        return to.map(truncated(function(e.cast(summed, DType.DOUBLE)), data.dtype), total)


class ReduceL1(_Reduce):
    """The sum of absolute values."""

    kind = "l1"


class ReduceL2(_Reduce):
    """The square root of the sum of squares."""

    kind = "l2"

    def _lower_integers(self, to: Lowering, data: Value, axes: tuple[int, ...]) -> Value:
        element = e.operand(0, data.dtype)
        return self._of_total(to, element * element, data, axes, e.sqrt)


class ReduceLogSum(_Reduce):
    """The logarithm of the sum."""

    kind = "log_sum"

    def _lower_integers(self, to: Lowering, data: Value, axes: tuple[int, ...]) -> Value:
        return self._of_total(to, e.operand(0, data.dtype), data, axes, e.log)


class ReduceLogSumExp(_Reduce):
    """The logarithm of the sum of exponentials, without forming those of large numbers."""

    kind = "log_sum_exp"

    def _lower_integers(self, to: Lowering, data: Value, axes: tuple[int, ...]) -> Value:
        wide = to.cast(data, DType.DOUBLE)
        result = to.reduce(self.kind, wide, axes, keepdims=bool(self.keepdims))
        return to.map(truncated(e.operand(0, DType.DOUBLE), data.dtype), result)


class ReduceMax(_Reduce):
    """The largest element; NaN if one is NaN. Of nothing: minus infinity, or the smallest integer, or False."""

    kind = "max"


class ReduceMin(_Reduce):
    """The smallest element; NaN if one is NaN. Of nothing: infinity, or the largest integer, or True."""

    kind = "min"


class ReduceMean(_Reduce):
    """The mean. Integers truncate towards zero."""

    kind = "mean"

    def _lower_integers(self, to: Lowering, data: Value, axes: tuple[int, ...]) -> Value:
        count = maximum(product(data.shape[axis] for axis in axes), 1)
        number = to.cast(to.dimensions(contents_array((count,), ())), data.dtype)
        total = to.reduce("sum", to.cast(data, DType.INT64), axes, keepdims=bool(self.keepdims))
        summed = e.cast(e.operand(0, DType.INT64), data.dtype)
        return to.map(summed / e.operand(1, data.dtype), total, number)


class ReduceProd(_Reduce):
    """The product; 1 of nothing."""

    kind = "prod"
    symbolic = True

    def evaluate(self, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
        if data.dtype == object:
            over = self._axes(data.ndim, None if axes is None else axes.ravel().tolist())
            return np.asarray(data.prod(axis=over, keepdims=bool(self.keepdims)), object)
        return super().evaluate(data, axes)


class ReduceSum(_Reduce):
    """The sum; 0 of nothing."""

    kind = "sum"
    axes_since = 13


class ReduceSumSquare(_Reduce):
    """The sum of squares."""

    kind = "sum_square"


def arg_reduce(x: np.ndarray, *, kind: str, axis: int, keepdims: bool, last: bool) -> np.ndarray:
    """The index of the largest or smallest element along an axis: the first of equal ones, or the last."""
    find = np.argmax if kind == "max" else np.argmin
    if not last:
        return np.asarray(find(x, axis=axis, keepdims=keepdims), np.int64)
    found = find(np.flip(x, axis), axis=axis, keepdims=keepdims)
    return np.asarray(x.shape[axis] - 1 - found, np.int64)


class _ArgReduce(Operator):
    """The position of an extremum along `axis`; of equal ones the first, or with select_last_index the last."""

    kind: ClassVar[c.Extremum]

    axis: int = 0
    keepdims: int = 1
    select_last_index: int = 0

    def infer(self, context: InferenceContext, data: Value) -> TensorType:
        axis = normalize_axis(self.axis, len(data.shape))
        if data.shape and not context.demand_some(data.shape[axis]):
            raise InferenceError(f"axis {axis} of {data.type} has no elements")
        kept = (1,) if self.keepdims else ()
        return TensorType(DType.INT64, (*data.shape[:axis], *kept, *data.shape[axis + 1 :]))

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        axis, keepdims = normalize_axis(self.axis, data.ndim), bool(self.keepdims)
        return arg_reduce(data, kind=self.kind, axis=axis, keepdims=keepdims, last=bool(self.select_last_index))

    @lower_halves
    def lower(self, to: Lowering, data: Value) -> Value:
        axis = normalize_axis(self.axis, len(data.shape))
        computation = c.ArgReduce(self.kind, axis, bool(self.keepdims), bool(self.select_last_index))
        wide = _widened(to, data, self.kind)
        assert wide is not None, "Bug: there is a type of the kernels for elements of every order"
        return to.emit(computation, (wide,), to.type)


class ArgMax(_ArgReduce):
    """The position of the largest element along an axis."""

    kind = "max"


class ArgMin(_ArgReduce):
    """The position of the smallest element along an axis."""

    kind = "min"


def _widened(to: Lowering, x: Value, kind: c.ReductionKind) -> Value | None:
    """x in an element type that the kernels reduce, which gives the same results; None if there is none.

    Small integers and truth are int32, uint32 is int64, and so is int32 where the mean fits but the sum may not. Of
    uint64, sums and products wrap around as those of int64 do, and order is that of int64 once the highest bit is
    turned.
    """
    if x.dtype in _KERNEL_TYPES and not (x.dtype is DType.INT32 and kind == "mean"):
        return x
    if x.dtype is not DType.UINT64:
        return to.cast(x, DType.INT64 if x.dtype in (DType.INT32, DType.UINT32) else DType.INT32)
    if kind in _WRAPPING:
        return to.cast(x, DType.INT64)
    return _turned(to, to.cast(x, DType.INT64)) if kind in _ORDERED else None


def _narrowed(to: Lowering, y: Value, dtype: DType, kind: c.ReductionKind) -> Value:
    """What was reduced in a type of the kernels, in the operator's."""
    if dtype is DType.UINT64 and kind in _ORDERED:
        y = _turned(to, y)
    return to.cast(y, dtype)


def _turned(to: Lowering, x: Value) -> Value:
    return to.map(e.operand(0, DType.INT64) + e.constant(_LEAST, DType.INT64), x)


REDUCTIONS = (
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    ReduceSumSquare,
)
"""Those that fold elements into one; rewrites move transposes past them."""
