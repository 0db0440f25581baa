"""Taking parts of tensors and putting tensors together: gathering, slicing, splitting, joining, padding, filling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitonnx.ir import computation as c
from jitonnx.ir import expr as e
from jitonnx.ir.dims import Dim, DimLike, ceil_divide, maximum, minimum
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.lowering import Lowering
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator, Tensor, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape as Dims
from jitonnx.ir.types import TensorType, assume_equal, contents_array
from jitonnx.ops.base import BOOLS, NUMBERS, constant_of, integers, non_negative, normalize_axis, same_dtype

INDICES = frozenset((DType.INT32, DType.INT64))


def check_indices(indices: Value) -> None:
    """InferenceError unless the indices are int32 or int64."""
    if indices.dtype not in INDICES:
        raise InferenceError(f"indices {indices.name!r} are {indices.dtype.text}; int32 or int64 is needed")


def check_within(indices: Value, data: Value, axis: int) -> None:
    """InferenceError if the indices are larger than the data along another axis than `axis`."""
    for position, (size, limit) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if position == axis:
            continue
        if isinstance(size, int) and isinstance(limit, int) and size > limit:
            raise InferenceError(f"axis {position} of indices {indices.type} is larger than that of data {data.type}")
        assume_equal(minimum(size, limit), size)  # sizes that break it get a graph of their own, and the error above


# ---------------------------------------------------------------------------------------------- gathering


class Gather(Operator):
    """data[..., indices, ...] along `axis`; negative indices count from the end."""

    versions = (1, 11, 13)
    inputs = ("data", "indices")
    outputs = ("output",)
    symbolic = True

    axis: int = 0

    def infer(self, data: Value, indices: Value) -> TensorType:
        check_indices(indices)
        axis = self._axis(len(data.shape))
        return TensorType(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))

    def _axis(self, rank: int) -> int:
        if rank == 0:
            raise InferenceError("a scalar has no axis to gather along")
        return normalize_axis(self.axis, rank)

    def evaluate(self, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return np.take(data, integers(indices, "indices"), axis=self._axis(data.ndim))

    def lower(self, to: Lowering, data: Value, indices: Value) -> Value:
        """A single known index is a slice."""
        axis = self._axis(len(data.shape))
        at = indices.constant
        if at is not None and at.size == 1 and self._inside(int(at.item()), data.shape[axis]):
            size = data.shape[axis]
            start = int(at.item()) if at.item() >= 0 else size + int(at.item())
            starts = tuple(start if position == axis else 0 for position in range(len(data.shape)))
            part = (*data.shape[:axis], 1, *data.shape[axis + 1 :])
            shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
            return to.reshape(to.slice(data, starts, (1,) * len(data.shape), part), shape)
        return to.emit(c.Gather(axis), (data, indices), self.infer(data, indices))

    @staticmethod
    def _inside(index: int, size: DimLike) -> bool:
        """Whether an index is valid for every size of the axis that can be fed."""
        return isinstance(size, int) and -size <= index < size


class GatherElements(Operator):
    """out[i, j, ...] = data with the coordinate on `axis` replaced by indices[i, j, ...]."""

    versions = (11, 13)
    inputs = ("data", "indices")
    outputs = ("output",)

    axis: int = 0

    def infer(self, data: Value, indices: Value) -> TensorType:
        check_indices(indices)
        axis = normalize_axis(self.axis, len(data.shape))
        if len(indices.shape) != len(data.shape):
            raise InferenceError(f"data {data.type} and indices {indices.type} have different ranks")
        check_within(indices, data, axis)
        return TensorType(data.dtype, indices.shape)

    def evaluate(self, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
        axis = normalize_axis(self.axis, data.ndim)
        grid: list[Any] = list(np.indices(indices.shape, sparse=True))
        grid[axis] = indices
        return data[tuple(grid)]

    def lower(self, to: Lowering, data: Value, indices: Value) -> Value:
        axis = normalize_axis(self.axis, len(data.shape))
        return to.emit(c.GatherElements(axis), (data, indices), self.infer(data, indices))


class GatherND(Operator):
    """Slices of data, addressed by the last axis of indices, behind `batch_dims` leading axes that both share."""

    versions = (11, 12, 13)
    inputs = ("data", "indices")
    outputs = ("output",)

    batch_dims: int = 0

    def infer(self, data: Value, indices: Value) -> TensorType:
        batch, depth = self.batch_dims, indices.shape[-1] if indices.shape else None
        if not isinstance(depth, int):
            raise DataDependentError(f"the output's rank depends on the last size of {indices.name!r}")
        if indices.dtype is not DType.INT64:
            raise InferenceError(f"indices {indices.name!r} are {indices.dtype.text}; int64 is needed")
        if not (0 <= batch < len(indices.shape) and batch + depth <= len(data.shape)):
            raise InferenceError(f"indices {indices.type} do not address {data.type} with batch_dims {batch}")
        if not all(assume_equal(a, b) for a, b in zip(data.shape[:batch], indices.shape[:batch], strict=True)):
            raise InferenceError(f"data {data.type} and indices {indices.type} differ in their {batch} batch axes")
        return TensorType(data.dtype, (*indices.shape[:-1], *data.shape[batch + depth :]))

    def evaluate(self, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
        batch, depth = self.batch_dims, indices.shape[-1]
        shape = (*indices.shape[:-1], *data.shape[batch + depth :])
        rows = indices.reshape(*indices.shape[:batch], -1, depth)
        grid = np.indices(rows.shape[:-1], sparse=True)[:batch]
        return data[(*grid, *np.moveaxis(rows, -1, 0))].reshape(shape)

    def lower(self, to: Lowering, data: Value, indices: Value) -> Value:
        return to.emit(c.GatherND(self.batch_dims), (data, indices), self.infer(data, indices))


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
    named = (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps))
    return [None if value is None else constant_of(value, name) for name, value in named]


def _extent(start: DimLike, end: DimLike, step: int, size: DimLike) -> tuple[DimLike, DimLike]:
    """First position, and number of elements, of start:end:step on an axis of `size`.

    Where there are no elements the first position may lie outside.
    """
    if step > 0:
        first, last = _at_least(_from_front(start, size), 0), _at_least(_at_most(_from_front(end, size), size), 0)
        return first, non_negative(ceil_divide(last - first, step))
    first, last = _at_most(_from_front(start, size), size - 1), _at_least(_from_front(end, size), -1)
    return first, non_negative(ceil_divide(first - last, -step))


def _from_front(position: DimLike, size: DimLike) -> DimLike:
    """A position that may count from the end."""
    return size + position if _negative(position) else position


def _negative(dim: DimLike) -> bool:
    return all(coefficient < 0 for _, coefficient in dim.terms) if isinstance(dim, Dim) else dim < 0


def _at_least(position: DimLike, lowest: int) -> DimLike:
    """max(position, lowest). Exporters' "from the very start" is known to be below; other unknown ones are assumed not
    to be, as max would stay in every shape that follows."""
    if isinstance(position, int):
        return max(position, lowest)
    above = position - lowest
    if isinstance(above, Dim) and any(coefficient < 0 for _, coefficient in above.terms):
        if any(not monomial and coefficient < -(2**30) for monomial, coefficient in above.terms):
            return lowest
        assume_equal(maximum(position, lowest), position)
    return position


def _at_most(position: DimLike, highest: DimLike) -> DimLike:
    """min(position, highest). A position computed from sizes is assumed not to overshoot; one in the model may."""
    if isinstance(position, int) and isinstance(highest, int):
        return min(position, highest)
    if isinstance(position, int):
        return highest if position >= 2**31 - 1 else position if position <= 0 else minimum(position, highest)
    over = position - highest
    if isinstance(over, int):
        return highest if over > 0 else position
    assume_equal(minimum(position, highest), position)
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
            if not assume_equal(size, sum(split)):
                raise InferenceError(f"split {split} does not add up to {size}, the size of axis {self.axis}")
            return split
        if self.num_outputs is None or self.num_outputs < 1:
            raise InferenceError("either the input split or num_outputs >= 1 is needed")
        count = self.num_outputs
        if not isinstance(size, int):
            part = size // count
            assume_equal(part * count, size)  # the usual case; another size gets a graph made for it
            return [part] * count
        if self.equal and size % count:
            raise InferenceError(f"axis {self.axis} of size {size} does not divide into {count} equal parts")
        part = -(-size // count)
        sizes = [min(part, max(size - position * part, 0)) for position in range(count)]
        return list(sizes)

    def infer(self, x: Value, split: Value | None = None) -> tuple[TensorType, ...]:
        axis = normalize_axis(self.axis, len(x.shape))
        sizes = self._sizes(x.shape[axis], None if split is None else constant_of(split, "split"))
        return tuple(TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes)

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
                assume_equal(a, b)
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
        chosen = None if axes is None else constant_of(axes, "axes")
        return self._pads(len(data.shape), constant_of(pads, "pads"), chosen)

    def infer(
        self, data: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None
    ) -> TensorType:
        if constant_value is not None:
            same_dtype(data, constant_value)
        before, after = self._of(data, pads, axes)
        shape = tuple(
            non_negative(low + size + high) for low, size, high in zip(before, data.shape, after, strict=True)
        )
        return TensorType(data.dtype, shape)

    def evaluate(
        self,
        data: np.ndarray,
        pads: np.ndarray,
        constant_value: np.ndarray | None = None,
        axes: np.ndarray | None = None,
    ) -> np.ndarray:
        low, high = self._pads(data.ndim, pads.ravel().tolist(), None if axes is None else axes.tolist())
        before, after = np.array(low, np.int64), np.array(high, np.int64)
        cut = tuple(
            slice(max(0, -a), max(size - max(0, -b), 0)) for a, b, size in zip(before, after, data.shape, strict=True)
        )
        widths = [(max(a, 0), max(b, 0)) for a, b in zip(before.tolist(), after.tolist(), strict=True)]
        part = data[cut]
        if self.mode == "constant":
            empty: Any = "" if data.dtype == object else 0
            value = empty if constant_value is None else constant_value.reshape(()).item()
            return np.pad(part, widths, mode="constant", constant_values=np.array(value, data.dtype))
        return np.pad(part, widths, mode=self.mode)  # type: ignore[call-overload]

    def lower(
        self, to: Lowering, data: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None
    ) -> Value:
        before, after = self._of(data, pads, axes)
        operands = [data]
        if self.mode == "constant" and constant_value is not None:
            operands.append(to.reshape(constant_value, ()))
        type = self.infer(data, pads, constant_value, axes)
        return to.emit(c.Pad(tuple(before), tuple(after), self.mode), operands, type)


# ---------------------------------------------------------------------------------------------- filling


class Range(Operator):
    """start, start + delta, ... up to before limit."""

    versions = (11, 27)
    inputs = ("start", "limit", "delta")
    outputs = ("output",)
    types = NUMBERS
    symbolic = True

    stash_type: int = 1

    def infer(self, start: Value, limit: Value, delta: Value) -> TensorType:
        same_dtype(start, limit, delta)
        (first,), (last,), (step,) = (
            constant_of(value, name) for value, name in ((start, "start"), (limit, "limit"), (delta, "delta"))
        )
        return TensorType(start.dtype, (_range_size(first, last, step),))

    def evaluate(self, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
        first, last, step = start.item(), limit.item(), delta.item()
        size = _range_size(first, last, step)
        if not isinstance(size, int):
            raise DataDependentError("a range of symbolic length")
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

    def lower(self, to: Lowering, start: Value, limit: Value, delta: Value) -> Value:
        type = self.infer(start, limit, delta)
        dtype = start.dtype
        wide = DType.FLOAT if dtype in (DType.FLOAT16, DType.BFLOAT16) else dtype
        if start.constant is not None and delta.constant is not None:
            first, step = (e.constant(known.item(), wide) for known in (start.constant, delta.constant))
            return to.fill(e.cast(e.cast(e.index(0), wide) * step + first, dtype), type.shape)  # type: ignore[arg-type]
        counted = to.fill(e.cast(e.index(0), wide), type.shape)  # type: ignore[arg-type]
        position, first, step = (e.operand(i, kind) for i, kind in enumerate((wide, dtype, dtype)))
        expression = e.cast(position * e.cast(step, wide) + e.cast(first, wide), dtype)
        return to.map(expression, counted, to.reshape(start, ()), to.reshape(delta, ()))


def _range_size(start: Any, limit: Any, delta: Any) -> DimLike:
    if isinstance(delta, Dim) or delta == 0:
        raise InferenceError(f"delta is {delta}")
    if isinstance(start, Dim) or isinstance(limit, Dim):
        return non_negative(ceil_divide(limit - start, delta) if delta > 0 else ceil_divide(start - limit, -delta))
    return max(math.ceil((limit - start) / delta), 0) if math.isfinite(limit - start) else 0


class ConstantOfShape(Operator):
    """A tensor of the shape given, all elements equal to `value` (a tensor of one element; float 0 by default)."""

    versions = (9, 20, 21, 23, 24, 25)
    inputs = ("input",)
    outputs = ("output",)
    types = frozenset({DType.INT64})
    symbolic = True

    value: Tensor = Tensor(np.zeros(1, np.float32))

    def infer(self, shape: Value) -> TensorType:
        if self.value.array.size != 1:
            raise InferenceError(f"value has {self.value.array.size} elements; one is needed")
        sizes = constant_of(shape, "input")
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise InferenceError(f"shape {sizes} has a negative size")
        return TensorType(of_numpy(self.value.array.dtype), tuple(sizes))

    def evaluate(self, shape: np.ndarray) -> np.ndarray:
        return np.full(tuple(integers(shape, "input").tolist()), self.value.array.reshape(()))

    def lower(self, to: Lowering, shape: Value) -> Value:
        type = self.infer(shape)
        return to.fill(e.constant(self.value.array.item(), type.dtype), type.shape)  # type: ignore[arg-type]


class OneHot(Operator):
    """values[1] where the coordinate on the new axis `axis` equals the index, else values[0].

    Indices in [-depth, depth) count from the end if negative; others give values[0] everywhere.
    """

    versions = (9, 11, 28)
    inputs = ("indices", "depth", "values")
    outputs = ("output",)
    types = NUMBERS

    axis: int = -1
    negative_from_end: bool = internal(default=True)

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.attributes["negative_from_end"] = node.version >= 11

    def infer(self, indices: Value, depth: Value, values: Value) -> TensorType:
        (size,) = constant_of(depth, "depth")
        axis = normalize_axis(self.axis, len(indices.shape) + 1)
        size = size if isinstance(size, Dim) else int(size)
        return TensorType(values.dtype, (*indices.shape[:axis], size, *indices.shape[axis:]))

    def evaluate(self, indices: np.ndarray, depth: np.ndarray, values: np.ndarray) -> np.ndarray:
        size = int(depth.reshape(()))
        axis = normalize_axis(self.axis, indices.ndim + 1)
        at = indices.astype(np.int64) if indices.dtype.kind != "f" else np.trunc(indices)
        if self.negative_from_end:
            at = np.where((at < 0) & (at >= -size), at + size, at)
        coordinates = np.arange(size).reshape([-1 if a == axis else 1 for a in range(indices.ndim + 1)])
        return np.where(np.expand_dims(at, axis) == coordinates, values[1], values[0]).astype(values.dtype)

    def lower(self, to: Lowering, indices: Value, depth: Value, values: Value) -> Value:
        type = self.infer(indices, depth, values)
        shape: Any = type.shape
        axis = normalize_axis(self.axis, len(shape))
        spread = to.broadcast(to.reshape(indices, (*shape[:axis], 1, *shape[axis + 1 :])), shape)
        off, on = (to.reshape(to.slice(values, (i,), (1,), (1,)), ()) for i in (0, 1))
        at, low, high = e.cast(e.operand(0, indices.dtype), DType.INT64), *(e.operand(i, values.dtype) for i in (1, 2))
        hit = e.equal(at, e.index(axis))
        if self.negative_from_end:
            size = to.dimensions(contents_array((shape[axis],), ()))
            hit = e.logical_or(hit, e.equal(at + e.operand(3, DType.INT64), e.index(axis)))
            return to.map(e.where(hit, high, low), spread, off, on, size)
        return to.map(e.where(hit, high, low), spread, off, on)


class EyeLike(Operator):
    """Ones on diagonal `k` of a matrix of the input's shape, zeros elsewhere; of type `dtype`, or the input's."""

    versions = (9, 22)
    inputs = ("input",)
    outputs = ("output",)
    types = NUMBERS | BOOLS

    dtype: int | None = None
    k: int = 0

    def _dtype(self, given: DType) -> DType:
        return given if self.dtype is None else DType(self.dtype)

    def infer(self, x: Value) -> TensorType:
        if len(x.shape) != 2:
            raise InferenceError(f"{x.type} is no matrix")
        return TensorType(self._dtype(x.dtype), x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.eye(x.shape[0], x.shape[1], self.k).astype(self._dtype(of_numpy(x.dtype)).numpy)

    def lower(self, to: Lowering, x: Value) -> Value:
        diagonal = e.equal(e.index(1), e.index(0) + self.k)
        return to.fill(e.cast(diagonal, self._dtype(x.dtype)), x.shape)


class Trilu(Operator):
    """The upper (or lower) triangle of the last two axes, from diagonal `k` on; zeros elsewhere."""

    versions = (14,)
    inputs = ("input", "k?")
    outputs = ("output",)

    upper: int = 1

    def infer(self, x: Value, k: Value | None = None) -> TensorType:
        if len(x.shape) < 2:
            raise InferenceError(f"{x.type} has no last two axes")
        return x.type

    def evaluate(self, x: np.ndarray, k: np.ndarray | None = None) -> np.ndarray:
        offset = 0 if k is None else int(k.reshape(()))
        keep = np.tri(x.shape[-2], x.shape[-1], offset - 1 if self.upper else offset, dtype=bool)
        empty: Any = "" if x.dtype == object else x.dtype.type(0)
        return np.where(~keep if self.upper else keep, x, empty).astype(x.dtype)

    def lower(self, to: Lowering, x: Value, k: Value | None = None) -> Value:
        rank, operands = len(x.shape), [x]
        offset: e.Expr = e.constant(0, DType.INT64)
        if k is not None and k.constant is not None:
            offset = e.constant(k.constant.item(), DType.INT64)
        elif k is not None:
            operands.append(to.reshape(k, ()))
            offset = e.operand(1, DType.INT64)
        difference = e.index(rank - 1) - e.index(rank - 2)
        keep = difference >= offset if self.upper else difference <= offset
        return to.map(e.where(keep, e.operand(0, x.dtype), 0), *operands)


OPERATORS = (
    Concat,
    ConstantOfShape,
    EyeLike,
    Gather,
    GatherElements,
    GatherND,
    OneHot,
    Pad,
    Range,
    Slice,
    Split,
    Tile,
    Trilu,
)
