"""Tensors cut into pieces, and put together of such: slicing and splitting; joining, repeating and padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir import computation as c
from jitonnx.ir.assumptions import assume_equal, demand_equal, demand_some
from jitonnx.ir.dims import DimLike, ceil_divide, maximum, minimum, not_negative
from jitonnx.ir.graph import Value
from jitonnx.ir.lowering import Lowering
from jitonnx.ir.operator import InferenceError, Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape as Dims
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import (
    constant_of,
    count_of,
    integers,
    integers_of,
    non_negative,
    normalize_axis,
    open_like,
    same_dtype,
)

# ---------------------------------------------------------------------------------------------- slicing


class Slice(Operator):
    """data[starts:ends:steps] along `axes`, with Python's rules for negative and overshooting positions."""

    versions = (1, 10, 11, 13)
    inputs = ("data", "starts", "ends", "axes?", "steps?")
    outputs = ("output",)
    symbolic = True

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 10:
            for position, name in enumerate(("starts", "ends", "axes"), 1):
                node.attribute_to_input(name, position)

    def _extents(self, shape: Dims, *bounds: list[Any] | None) -> tuple[list[DimLike], list[int], list[DimLike]]:
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
            first[axis], sizes[axis] = _extent(start, end, stride, shape[axis])
        return first, step, sizes

    def infer(
        self, data: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
    ) -> TensorType:
        _, _, sizes = self._extents(data.shape, *_bounds(starts, ends, axes, steps))
        return TensorType(data.dtype, tuple(sizes))

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
        first, step, sizes = self._extents(data.shape, *bounds)
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
        first, step, sizes = self._extents(data.shape, *_bounds(starts, ends, axes, steps))
        return to.slice(data, first, step, sizes)


def _bounds(starts: Value, ends: Value, axes: Value | None, steps: Value | None) -> list[list[Any] | None]:
    named = (("axes", axes), ("steps", steps))
    return [
        constant_of(starts, "starts", signed=True),
        constant_of(ends, "ends", signed=True),
        *(None if value is None else integers_of(value, name) for name, value in named),
    ]


def _extent(start: DimLike, end: DimLike, step: int, size: DimLike) -> tuple[DimLike, DimLike]:
    """First position, and number of elements, of start:end:step on an axis of `size`.

    Where there are no elements the first position may lie outside.
    """
    if step > 0:
        first, last = _at_least(_from_front(start, size), 0), _at_most(_from_front(end, size), size)
        return first, non_negative(ceil_divide(last - first, step))
    first, last = _at_most(_from_front(start, size), size - 1), _at_least(_from_front(end, size), -1)
    return first, non_negative(ceil_divide(first - last, -step))


def _from_front(position: DimLike, size: DimLike) -> DimLike:
    """A position that may count from the end. One of an uncertain sign, computed from sizes, is assumed not to."""
    if isinstance(position, int):
        return position if position >= 0 else size + position
    if any(coefficient < 0 for _, coefficient in position.terms) and not assume_equal(maximum(position, 0), position):
        assume_equal(maximum(position + 1, 0), 0)
        return size + position
    return position


def _at_least(position: DimLike, lowest: int) -> DimLike:
    """max(position, lowest). Exporters' "from the very start" is known to be below; other unknown ones are assumed not
    to be, as max would stay in every shape that follows."""
    if isinstance(position, int):
        return max(position, lowest)
    if any(not monomial and coefficient < -(2**30) for monomial, coefficient in position.terms):
        return lowest
    if not assume_equal(maximum(position, lowest), position) and assume_equal(maximum(position, lowest), lowest):
        return lowest
    return position


def _at_most(position: DimLike, highest: DimLike) -> DimLike:
    """min(position, highest). A position computed from sizes is assumed not to overshoot; one in the model may."""
    if isinstance(position, int) and isinstance(highest, int):
        return min(position, highest)
    if isinstance(position, int):
        return highest if position >= 2**31 - 1 else position if position <= 0 else minimum(position, highest)
    if not_negative(position - highest):
        return highest
    if not assume_equal(minimum(position, highest), position) and assume_equal(minimum(position, highest), highest):
        return highest
    return position


class Split(Operator):
    """Parts of the input along `axis`: of sizes `split`, or one an output, equal but for the last."""

    versions = (1, 2, 11, 13, 18)
    inputs = ("input", "split?")
    outputs = ("outputs*",)

    axis: int = 0
    num_outputs: int | None = None
    equal: bool = internal(default=False)
    """Before version 18 an axis had to be divisible."""

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 13:
            node.attribute_to_input("split", 1)
        if len(node.inputs) < 2:
            node.attributes["num_outputs"] = len(node.outputs)
            node.attributes["equal"] = True

    def _sizes(self, size: DimLike, split: list[Any] | None) -> list[DimLike]:
        if split is not None:
            if not demand_equal(size, sum(split)):
                raise InferenceError(f"split {split} does not add up to {size}, the size of axis {self.axis}")
            return split
        if self.num_outputs is None or self.num_outputs < 1:
            raise InferenceError("either the input split or num_outputs >= 1 is needed")
        count = self.num_outputs
        if not isinstance(size, int):
            part = size // count
            if (demand_equal if self.equal else assume_equal)(part * count, size):
                return [part] * count
        if self.equal and size % count != 0:
            raise InferenceError(f"axis {self.axis} of size {size} does not divide into {count} equal parts")
        whole = ceil_divide(size, count)
        return [minimum(whole, maximum(size - position * whole, 0)) for position in range(count)]

    def infer(self, x: Value, split: Value | None = None) -> tuple[TensorType, ...]:
        axis = normalize_axis(self.axis, len(x.shape))
        sizes = self._sizes(x.shape[axis], None if split is None else constant_of(split, "split"))
        return tuple(TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes)

    def infer_open(self, x: Value, split: Value | None = None) -> tuple[TensorType, ...]:
        return (open_like(x, (self.axis,)),) * count_of(split)

    def evaluate(self, x: np.ndarray, split: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        axis = normalize_axis(self.axis, x.ndim)
        sizes = self._sizes(x.shape[axis], None if split is None else split.tolist())
        ends = np.cumsum(np.array(sizes, np.int64))
        return tuple(np.split(x, ends[:-1], axis))

    def lower(self, to: Lowering, x: Value, split: Value | None = None) -> tuple[Value, ...]:
        axis = normalize_axis(self.axis, len(x.shape))
        parts: list[Value] = []
        position: DimLike = 0
        for type in self.infer(x, split):
            starts: list[DimLike] = [0] * len(x.shape)
            starts[axis] = position
            parts.append(to.slice(x, starts, (1,) * len(x.shape), type.shape))  # type: ignore[arg-type]
            position = position + type.shape[axis]  # type: ignore[index]
        return tuple(parts)


# ---------------------------------------------------------------------------------------------- joining and repeating


class Concat(Operator):
    """The inputs one behind the other along `axis`."""

    versions = (1, 4, 11, 13)
    inputs = ("inputs*",)
    outputs = ("concat_result",)
    symbolic = True

    axis: int

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 4:
            node.attributes.setdefault("axis", 1)

    def infer(self, *inputs: Value) -> TensorType:
        if not inputs:
            raise InferenceError("at least one input is needed")
        same_dtype(*inputs)
        first = inputs[0].shape
        if not first:
            raise InferenceError("scalars cannot be concatenated")
        axis = normalize_axis(self.axis, len(first))
        shape = list(first)
        for value in inputs[1:]:
            if len(value.shape) != len(first) or not all(
                demand_equal(a, b)
                for position, (a, b) in enumerate(zip(shape, value.shape, strict=True))
                if position != axis
            ):
                types = ", ".join(str(v.type) for v in inputs)
                raise InferenceError(f"inputs differ outside axis {axis}: {types}")
            shape = [min_known(a, b) for a, b in zip(shape, value.shape, strict=True)]
        shape[axis] = sum(value.shape[axis] for value in inputs)  # type: ignore[arg-type]
        return TensorType(inputs[0].dtype, tuple(shape))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return np.concatenate(arrays, axis=self.axis)

    def lower(self, to: Lowering, *inputs: Value) -> Value:
        axis = normalize_axis(self.axis, len(inputs[0].shape))
        return to.emit(c.Concat(axis), inputs, self.infer(*inputs))


def min_known(a: DimLike, b: DimLike) -> DimLike:
    """Of two sizes assumed equal, the one that is a number."""
    return b if isinstance(b, int) else a


class Tile(Operator):
    """The input repeated repeats[i] times along each axis i."""

    versions = (1, 6, 13)
    inputs = ("input", "repeats")
    outputs = ("output",)
    symbolic = True

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        """Version 1 took the number of repeats and the axis as two scalars (of the input's type in some files)."""
        if node.version > 1 or node.inputs[0] is None:
            return
        rank = len(node.inputs[0].shape)
        (tiles,), (axis,) = constant_of(node.inputs[1], "tiles"), constant_of(node.inputs[2], "axis")
        repeats = [1] * rank
        repeats[normalize_axis(int(axis), rank)] = int(tiles)
        node.inputs[1:] = [node.add_constant(np.array(repeats, np.int64))]

    def _repeats(self, shape: Dims, repeats: list[DimLike]) -> list[DimLike]:
        if len(repeats) != len(shape):
            raise InferenceError(f"{len(repeats)} repeats given for {len(shape)} axes")
        return repeats

    def infer(self, x: Value, repeats: Value) -> TensorType:
        times = self._repeats(x.shape, constant_of(repeats, "repeats"))
        return TensorType(x.dtype, tuple(size * count for size, count in zip(x.shape, times, strict=True)))

    def infer_open(self, x: Value, repeats: Value) -> TensorType:
        return open_like(x)

    def evaluate(self, x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
        return np.tile(x, self._repeats(x.shape, integers(repeats, "repeats").tolist()))  # type: ignore[arg-type]

    def lower(self, to: Lowering, x: Value, repeats: Value) -> Value:
        times = constant_of(repeats, "repeats")
        split = [part for size in x.shape for part in (1, size)]
        spread = [part for size, count in zip(x.shape, times, strict=True) for part in (count, size)]
        return to.reshape(to.broadcast(to.reshape(x, split), spread), self.infer(x, repeats).shape)  # type: ignore[arg-type]


class Pad(Operator):
    """Elements added (or, negative, cut) before and after each axis in `axes`.

    mode constant: constant_value, or 0; reflect, edge and wrap continue from the input.
    """

    versions = (1, 2, 11, 13, 18, 19, 21, 23, 24, 25)
    inputs = ("data", "pads", "constant_value?", "axes?")
    outputs = ("output",)

    mode: str = "constant"

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version >= 11 or node.inputs[0] is None:
            return
        if node.version == 1:
            node.attributes["pads"] = node.attributes.pop("paddings", None)
        kind = node.inputs[0].dtype.numpy
        node.attribute_to_input("pads", 1)
        node.attribute_to_input("value", 2, kind, 0.0)

    def _pads(self, rank: int, pads: list[Any], axes: list[Any] | None) -> tuple[list[DimLike], list[DimLike]]:
        """Elements added before and after every axis."""
        if self.mode not in ("constant", "reflect", "edge", "wrap"):
            raise InferenceError(f"mode is {self.mode!r}; constant, reflect, edge and wrap are known")
        chosen = [normalize_axis(axis, rank, "axes") for axis in axes] if axes is not None else list(range(rank))
        if len(pads) != 2 * len(chosen):
            raise InferenceError(f"{len(pads)} pads given for {len(chosen)} axes; two an axis are needed")
        before: list[DimLike] = [0] * rank
        after: list[DimLike] = [0] * rank
        for axis, low, high in zip(chosen, pads[: len(chosen)], pads[len(chosen) :], strict=True):
            before[axis], after[axis] = low, high
        return before, after

    def _of(self, data: Value, pads: Value, axes: Value | None) -> tuple[list[DimLike], list[DimLike]]:
        chosen = None if axes is None else integers_of(axes, "axes")
        return self._pads(len(data.shape), constant_of(pads, "pads", signed=True), chosen)

    def infer(
        self, data: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None
    ) -> TensorType:
        if constant_value is not None:
            same_dtype(data, constant_value)
        before, after = self._of(data, pads, axes)
        if self.mode != "constant":
            for low, size, high in zip(before, data.shape, after, strict=True):
                if (low, high) != (0, 0) and not demand_some(size):
                    raise InferenceError(f"mode {self.mode!r} cannot continue an axis of {data.type} without elements")
        shape = tuple(
            non_negative(low + size + high) for low, size, high in zip(before, data.shape, after, strict=True)
        )
        return TensorType(data.dtype, shape)

    def infer_open(
        self, data: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None
    ) -> TensorType:
        return open_like(data, None if axes is None or axes.constant is None else integers_of(axes, "axes"))

    def evaluate(
        self,
        data: np.ndarray,
        pads: np.ndarray,
        constant_value: np.ndarray | None = None,
        axes: np.ndarray | None = None,
    ) -> np.ndarray:
        low, high = self._pads(data.ndim, pads.ravel().tolist(), None if axes is None else axes.tolist())
        extents: list[tuple[int, int, int]] = list(zip(low, data.shape, high, strict=True))  # type: ignore[arg-type]
        cut = tuple(slice(max(0, -a), max(size + min(b, 0), 0)) for a, size, b in extents)
        if self.mode != "constant":
            widths = [(max(a, 0), max(b, 0)) for a, _, b in extents]
            return np.pad(data[cut], widths, mode=self.mode)  # type: ignore[call-overload]
        empty: Any = "" if data.dtype == object else 0
        result = np.empty([max(a + size + b, 0) for a, size, b in extents], data.dtype)
        result.fill(empty if constant_value is None else constant_value.reshape(()).item())  # as it is, a string too
        part = data[cut]
        places = (slice(max(a, 0), max(a, 0) + length) for (a, _, _), length in zip(extents, part.shape, strict=True))
        if part.size:
            result[tuple(places)] = part
        return result

    def lower(
        self, to: Lowering, data: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None
    ) -> Value:
        before, after = self._of(data, pads, axes)
        operands = [data]
        if self.mode == "constant" and constant_value is not None:
            operands.append(to.reshape(constant_value, ()))
        type = self.infer(data, pads, constant_value, axes)
        return to.emit(c.Pad(tuple(before), tuple(after), self.mode), operands, type)


OPERATORS = (Concat, Pad, Slice, Split, Tile)
