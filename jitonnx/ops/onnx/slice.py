"""Slices: every so-manieth element between two bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, ceil_divide, maximum, minimum, not_negative
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape as Dims
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import count_of, integers, integers_of, non_negative, normalize_axis, open_like


class Slice(Operator):
    """data[starts:ends:steps] along `axes`, with Python's rules for negative and overshooting positions."""

    symbolic = True

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 10:
            for position, name in enumerate(("starts", "ends", "axes"), 1):
                node.attribute_to_input(name, position)

    def _extents(
        self, context: InferenceContext, shape: Dims, *bounds: list[Any] | None
    ) -> tuple[list[DimLike], list[int], list[DimLike]]:
        """First position, step and size of the result on every axis."""
        starts, ends, axes, steps = bounds
        assert starts is not None and ends is not None
        rank = len(shape)
        axes = [normalize_axis(axis, rank, "axes") for axis in axes] if axes is not None else list(range(len(starts)))
        steps = steps if steps is not None else [1] * len(starts)
        if not len(starts) == len(ends) == len(axes) == len(steps) or len(axes) > rank or len(set(axes)) < len(axes):
            raise InferenceError(f"starts {starts}, ends {ends}, axes {axes} and steps {steps} do not fit rank {rank}")
        first: list[DimLike] = [0] * rank
        step = [1] * rank
        sizes = list(shape)
        for axis, start, end, stride in zip(axes, starts, ends, steps, strict=True):
            if not isinstance(stride, int) or stride == 0:
                raise InferenceError(f"step {stride} on axis {axis}")
            step[axis] = stride
            first[axis], sizes[axis] = _extent(context, start, end, stride, shape[axis])
        return first, step, sizes

    def infer(
        self,
        context: InferenceContext,
        data: Value,
        starts: Value,
        ends: Value,
        axes: Value | None = None,
        steps: Value | None = None,
    ) -> TensorType:
        _, _, sizes = self._extents(context, data.shape, *_bounds(context, starts, ends, axes, steps))
        return TensorType(data.dtype, tuple(sizes))

    def begins(self, context: InferenceContext, node: Node) -> tuple[list[DimLike], list[int]]:
        """First position and step on every axis of the input of a node, whose other inputs are known."""
        data, *bounds = node.inputs
        assert data is not None
        given = [None if value is None else _elements(value) for value in (*bounds, None, None)[:4]]
        first, step, _ = self._extents(context, data.shape, *given)
        return first, step

    def infer_open(
        self, data: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
    ) -> TensorType:
        if axes is None:
            return open_like(data, range(count_of(starts)))
        return open_like(data, None if axes.constant is None else integers_of(axes, "axes"))

    def evaluate(
        self,
        data: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        axes: np.ndarray | None = None,
        steps: np.ndarray | None = None,
    ) -> np.ndarray:
        bounds = (None if x is None else integers(x, "bounds").ravel().tolist() for x in (starts, ends, axes, steps))
        first, step, sizes = self._extents(EXACT, data.shape, *bounds)
        parts = []
        for start, stride, size in zip(first, step, sizes, strict=True):
            assert isinstance(start, int) and isinstance(size, int)
            end = start + stride * size
            parts.append(slice(start, end if end >= 0 else None, stride) if size else slice(0, 0))
        return data[tuple(parts)]

    def lower(
        self,
        to: Lowering,
        data: Value,
        starts: Value,
        ends: Value,
        axes: Value | None = None,
        steps: Value | None = None,
    ) -> Value:
        first, step, sizes = self._extents(to.context, data.shape, *_bounds(to.context, starts, ends, axes, steps))
        return to.slice(data, first, step, sizes)


def _elements(value: Value) -> list[Any]:
    if value.contents is None:
        raise DataDependentError(f"the elements of {value.name!r} are not known")
    return list(value.contents.ravel().tolist())


def _bounds(
    context: InferenceContext, starts: Value, ends: Value, axes: Value | None, steps: Value | None
) -> list[list[Any] | None]:
    named = (("axes", axes), ("steps", steps))
    return [
        context.constant_of(starts, "starts", signed=True),
        context.constant_of(ends, "ends", signed=True),
        *(None if value is None else integers_of(value, name) for name, value in named),
    ]


def _extent(
    context: InferenceContext, start: DimLike, end: DimLike, step: int, size: DimLike
) -> tuple[DimLike, DimLike]:
    """First position, and number of elements, of start:end:step on an axis of `size`.

    Where there are no elements the first position may lie outside.
    """
    if step > 0:
        first, last = (
            _at_least(context, _from_front(context, start, size), 0),
            _at_most(context, _from_front(context, end, size), size),
        )
        return first, non_negative(ceil_divide(last - first, step))
    first, last = (
        _last_at_most(context, _from_front(context, start, size), size),
        _at_least(context, _from_front(context, end, size), -1),
    )
    return first, non_negative(ceil_divide(first - last, -step))


def _from_front(context: InferenceContext, position: DimLike, size: DimLike) -> DimLike:
    """A position that may count from the end. One of an uncertain sign, computed from sizes, is assumed not to; one
    that is no more than 0, as `-n:` of the last n, is assumed to."""
    if isinstance(position, int):
        return position if position >= 0 else size + position
    if not_negative(-position):
        if context.assume_equal(maximum(position + 1, 0), 0):
            return size + position
        return 0 if context.assume_equal(position, 0) else position
    if any(coefficient < 0 for _, coefficient in position.terms) and not context.assume_equal(
        maximum(position, 0), position
    ):
        context.assume_equal(maximum(position + 1, 0), 0)
        return size + position
    return position


def _at_least(context: InferenceContext, position: DimLike, lowest: int) -> DimLike:
    """max(position, lowest). Exporters' "from the very start" is known to be below; other unknown ones are assumed not
    to be, as max would stay in every shape that follows."""
    if isinstance(position, int):
        return max(position, lowest)
    if any(not monomial and coefficient < -(2**30) for monomial, coefficient in position.terms):
        return lowest
    if not context.assume_equal(maximum(position, lowest), position) and context.assume_equal(
        maximum(position, lowest), lowest
    ):
        return lowest
    return position


def _at_most(context: InferenceContext, position: DimLike, highest: DimLike) -> DimLike:
    """min(position, highest). A position computed from sizes is assumed not to overshoot; one in the model may."""
    if isinstance(position, int) and isinstance(highest, int):
        return min(position, highest)
    if isinstance(position, int):
        return highest if position >= 2**31 - 1 else position if position <= 0 else minimum(position, highest)
    if not_negative(position - highest):
        return highest
    if not context.assume_equal(minimum(position, highest), position) and context.assume_equal(
        minimum(position, highest), highest
    ):
        return highest
    return position


def _last_at_most(context: InferenceContext, position: DimLike, size: DimLike) -> DimLike:
    """The element that a slice of a negative step begins with: one before the first is the first, and one behind the
    last is the last; -1 of no elements."""
    if position == size - 1:
        return position
    position = _at_least(context, position, 0)
    return minimum(0, size - 1) if position == 0 else _at_most(context, position, size - 1)
