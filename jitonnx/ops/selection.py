"""Choosing and ordering elements: the largest, the non-zero, the distinct; sums along an axis; reversed sequences.

Operators whose output size depends on data are evaluated on NumPy, and so are rare ones.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np

from jitonnx.ir import computation as c
from jitonnx.ir.assumptions import demand_equal
from jitonnx.ir.dims import DimLike, floor_divide, maximum, minimum, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.lowering import Lowering
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape as Dims
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import (
    NUMBERS,
    SUMMABLE,
    check_dtype,
    constant_of,
    is_narrow,
    lower_halves,
    normalize_axis,
    open_like,
)


class _OnHost(Operator):
    """An operator that is evaluated on NumPy, between native programs."""

    def lower(self, to: Lowering, *inputs: Value | None) -> Value | tuple[Value, ...]:
        types: Any = self.infer(*inputs)
        if isinstance(types, TensorType):
            return to.host(self, inputs, (types,))[0]
        return to.host(self, inputs, types)


# ---------------------------------------------------------------------------------------------- cumulative


class _Cumulative(Operator):
    """Along the axis that input 1 names; `exclusive` leaves each element itself out, `reverse` begins at the end."""

    inputs = ("x", "axis")
    outputs = ("y",)
    types = SUMMABLE
    function: ClassVar[Callable[..., np.ndarray]]
    neutral: ClassVar[int]
    kind: ClassVar[str]

    exclusive: int = 0
    reverse: int = 0

    def infer(self, x: Value, axis: Value) -> TensorType:
        if not x.shape:
            raise InferenceError("a scalar has no axis to go along")
        if axis.constant is not None:
            normalize_axis(int(axis.constant.reshape(())), len(x.shape))
        return x.type

    def evaluate(self, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
        along = normalize_axis(int(axis.reshape(())), x.ndim)
        data = np.flip(x, along) if self.reverse else x
        wide = data.astype(np.float32) if is_narrow(x.dtype) else data
        total = type(self).function(wide, axis=along, dtype=wide.dtype)
        if self.exclusive:
            first = [slice(0, 1) if position == along else slice(None) for position in range(x.ndim)]
            rest = [slice(0, -1) if position == along else slice(None) for position in range(x.ndim)]
            start = np.full_like(total[tuple(first)], self.neutral)
            total = np.concatenate([start, total[tuple(rest)]], along)
        return (np.flip(total, along) if self.reverse else total).astype(x.dtype)

    @lower_halves
    def lower(self, to: Lowering, x: Value, axis: Value) -> Value:
        if axis.constant is None:
            return to.host(self, (x, axis), (x.type,))[0]
        along = normalize_axis(int(axis.constant.reshape(())), len(x.shape))
        return to.emit(c.Cumulate(self.kind, along, bool(self.exclusive), bool(self.reverse)), (x,), x.type)


class CumSum(_Cumulative):
    """Sums of all elements up to each one along an axis."""

    versions = (11, 14)
    function = staticmethod(np.cumsum)
    neutral = 0
    kind = "sum"


class CumProd(_Cumulative):
    """Products of all elements up to each one along an axis."""

    versions = (26,)
    function = staticmethod(np.cumprod)
    neutral = 1
    kind = "prod"


# ---------------------------------------------------------------------------------------------- largest, distinct, true


class TopK(Operator):
    """The K largest (or smallest) elements along `axis` and their positions; of equal ones the first.

    NaN is larger than all numbers, as in NumPy. What onnxruntime does with NaN depends on where it stands.
    """

    versions = (1, 10, 11, 24)
    inputs = ("X", "K")
    outputs = ("Values", "Indices")
    types = NUMBERS

    axis: int = -1
    largest: int = 1
    sorted: int = 1

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 10 and "k" in node.attributes:
            node.attributes["k"] = (node.attributes["k"],)
            node.attribute_to_input("k", 1)

    def infer(self, x: Value, k: Value) -> tuple[TensorType, TensorType]:
        axis = normalize_axis(self.axis, len(x.shape))
        (count,) = constant_of(k, "K")
        size = x.shape[axis]
        if (isinstance(count, int) and count < 0) or not demand_equal(minimum(count, size), count):
            raise InferenceError(f"K is {count}, but axis {axis} of {x.type} has {size} elements")
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        return TensorType(x.dtype, shape), TensorType(DType.INT64, shape)

    def infer_open(self, x: Value, k: Value) -> tuple[TensorType, TensorType]:
        values = open_like(x, (self.axis,))
        return values, TensorType(DType.INT64, values.shape)

    def evaluate(self, x: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        axis, count = normalize_axis(self.axis, x.ndim), int(k.reshape(()))
        if not 0 <= count <= x.shape[axis]:
            raise ValueError(f"K is {count}, but axis {axis} has {x.shape[axis]} elements")
        data = x.astype(np.float32) if is_narrow(x.dtype) else x
        if self.largest:  # the last of equal elements in a stable ascending order is the first in reverse
            order = np.flip(np.argsort(np.flip(data, axis), axis=axis, kind="stable"), axis)
            order = x.shape[axis] - 1 - order
        else:
            order = np.argsort(data, axis=axis, kind="stable")
        chosen = np.take(order, np.arange(count), axis=axis)
        return np.take_along_axis(x, chosen, axis), chosen.astype(np.int64)

    @lower_halves
    def lower(self, to: Lowering, x: Value, k: Value) -> tuple[Value, ...]:
        axis = normalize_axis(self.axis, len(x.shape))
        return to.emit_many(c.TopK(axis, bool(self.largest)), (x,), self.infer(x, k))


class Unique(_OnHost):
    """The distinct elements (or slices along `axis`), where each comes first, which one every element is, how often.

    In ascending order, or with sorted = 0 in the order in which they come first.
    """

    versions = (11, 28)
    inputs = ("X",)
    outputs = ("Y", "indices?", "inverse_indices?", "counts?")

    axis: int | None = None
    sorted: int = 1

    def infer(self, x: Value) -> tuple[TensorType, ...]:
        count = TensorType(DType.INT64, (None,))  # type: ignore[arg-type]
        if self.axis is None:
            return TensorType(x.dtype, (None,)), count, TensorType(DType.INT64, (product(x.shape),)), count  # type: ignore[arg-type]
        axis = normalize_axis(self.axis, len(x.shape))
        return open_like(x, (axis,)), count, TensorType(DType.INT64, (x.shape[axis],)), count

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        axis = None if self.axis is None else normalize_axis(self.axis, x.ndim)
        if axis is not None and x.dtype == object:  # which NumPy has no order for along an axis: compared by rank
            strings, ranks = np.unique(x, return_inverse=True)
            values, *places = self._unique(ranks.reshape(x.shape), axis)
            return strings[values], *places
        return self._unique(x, axis)

    def _unique(self, x: np.ndarray, axis: int | None) -> tuple[np.ndarray, ...]:
        values, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        inverse = inverse.reshape(-1)
        if not self.sorted:
            order = np.argsort(first, kind="stable")
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            values = np.take(values, order, 0 if axis is None else axis)
            first, inverse, counts = first[order], place[inverse], counts[order]
        return values, *(part.astype(np.int64) for part in (first, inverse, counts))


class NonZero(_OnHost):
    """Coordinates of the elements that are not zero, one column each, in row-major order."""

    versions = (9, 13)
    inputs = ("X",)
    outputs = ("Y",)

    def infer(self, x: Value) -> TensorType:
        return TensorType(DType.INT64, (len(x.shape), None))  # type: ignore[arg-type]

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        # NumPy's nonzero of several axes takes four times as long as of one, whose places are then told apart.
        rows = x.reshape(prod(x.shape[:-1]), x.shape[-1] if x.ndim else 1)
        counts = np.count_nonzero(rows, axis=1)
        found = np.empty((x.ndim, counts.sum()), np.int64)
        if not found.size:  # of a scalar, which has no coordinates, too
            return found
        np.subtract(np.flatnonzero(rows), (np.arange(len(rows)) * rows.shape[1]).repeat(counts), found[-1])
        if x.ndim > 1:
            for axis, places in enumerate(np.unravel_index(np.arange(len(rows)), x.shape[:-1])):
                found[axis] = places.repeat(counts)
        return found


class Compress(Operator):
    """The slices along `axis` (elements of the flattened input without one) for which the condition is true."""

    versions = (9, 11, 28)
    inputs = ("input", "condition")
    outputs = ("output",)

    axis: int | None = None

    def infer(self, x: Value, condition: Value) -> TensorType:
        if condition.constant is None:
            raise DataDependentError("how many elements are chosen depends on the condition")
        count = int(np.count_nonzero(condition.constant))
        if self.axis is None:
            return TensorType(x.dtype, (count,))
        axis = normalize_axis(self.axis, len(x.shape))
        return TensorType(x.dtype, (*x.shape[:axis], count, *x.shape[axis + 1 :]))

    def infer_open(self, x: Value, condition: Value) -> TensorType:
        return TensorType(x.dtype, (None,)) if self.axis is None else open_like(x, (self.axis,))  # type: ignore[arg-type]

    def evaluate(self, x: np.ndarray, condition: np.ndarray) -> np.ndarray:
        return np.compress(condition, x, self.axis)

    def lower(self, to: Lowering, x: Value, condition: Value) -> Value:
        """A known condition is known indices."""
        type = self.infer(x, condition)
        if self.axis is None:
            x = to.reshape(x, (product(x.shape),))
        axis = normalize_axis(self.axis or 0, len(x.shape))
        assert condition.constant is not None, "Bug: the size of the result was known"
        chosen = to.constant(np.flatnonzero(condition.constant).astype(np.int64))
        return to.emit(c.Gather(axis), (x, chosen), type)


class NonMaxSuppression(_OnHost):
    """Boxes chosen greedily by score, without those that overlap a chosen one: rows of (batch, class, box).

    In a batch and class the boxes of the largest scores come first, of equal ones the first; a box is left out if its
    intersection with a chosen one is above iou_threshold of their union, or its score is not above score_threshold.
    """

    versions = (10, 11)
    inputs = (
        "boxes",
        "scores",
        "max_output_boxes_per_class?",
        "iou_threshold?",
        "score_threshold?",
    )
    outputs = ("selected_indices",)
    types = frozenset({DType.FLOAT})

    center_point_box: int = 0

    def infer(
        self,
        boxes: Value,
        scores: Value,
        limit: Value | None = None,
        iou_threshold: Value | None = None,
        score_threshold: Value | None = None,
    ) -> TensorType:
        if len(boxes.shape) != 3 or len(scores.shape) != 3 or not demand_equal(boxes.shape[2], 4):
            raise InferenceError(f"boxes {boxes.type}, scores {scores.type}: [n,boxes,4] and [n,classes,boxes] needed")
        if not (demand_equal(boxes.shape[0], scores.shape[0]) and demand_equal(boxes.shape[1], scores.shape[2])):
            raise InferenceError(f"boxes {boxes.type} do not go with scores {scores.type}")
        return TensorType(DType.INT64, (None, 3))  # type: ignore[arg-type]

    def evaluate(
        self,
        boxes: np.ndarray,
        scores: np.ndarray,
        limit: np.ndarray | None = None,
        iou_threshold: np.ndarray | None = None,
        score_threshold: np.ndarray | None = None,
    ) -> np.ndarray:
        most = 0 if limit is None else int(limit.reshape(-1)[0])
        overlap = 0.0 if iou_threshold is None else float(iou_threshold.reshape(-1)[0])
        if not 0 <= overlap <= 1:
            raise ValueError(f"iou_threshold is {overlap}; it has to be in [0, 1]")
        least = None if score_threshold is None else np.float32(score_threshold.reshape(-1)[0])
        if most <= 0:
            return np.zeros((0, 3), np.int64)
        rows = []
        for batch, (some, by_class) in enumerate(zip(boxes, scores, strict=True)):
            corners = self._corners(some)
            for kind, row in enumerate(by_class):
                found = np.arange(len(row)) if least is None else np.flatnonzero(row > least)
                order = found[np.argsort(-row[found], kind="stable")]
                rows += [(batch, kind, box) for box in _not_overlapping(corners, order, most, overlap)]
        return np.array(rows, np.int64).reshape(-1, 3)

    def _corners(self, boxes: np.ndarray) -> np.ndarray:
        """The lowest and highest coordinates: [4, boxes] of (y1, x1, y2, x2), or with x and y exchanged."""
        a, b, c_, d = boxes.T
        if self.center_point_box:
            return np.stack([b - d / 2, a - c_ / 2, b + d / 2, a + c_ / 2])
        return np.stack([np.minimum(a, c_), np.minimum(b, d), np.maximum(a, c_), np.maximum(b, d)])


def _not_overlapping(corners: np.ndarray, order: np.ndarray, most: int, overlap: float) -> list[int]:
    """The first `most` of the boxes in this order that overlap none before them too much.

    Boxes are looked at in blocks: those that a chosen one of the blocks before leaves, each beside each.
    """
    chosen: list[int] = []
    for start in range(0, len(order), _NMS_BLOCK):
        block = order[start : start + _NMS_BLOCK]
        if chosen:
            block = block[~_overlaps(corners[:, chosen], corners[:, block], overlap).any(axis=0)]
        beside = _overlaps(corners[:, block], corners[:, block], overlap)
        gone = np.zeros(len(block), bool)
        for place, box in enumerate(block.tolist()):
            if gone[place]:
                continue
            chosen.append(box)
            if len(chosen) == most:
                return chosen
            gone |= beside[place]
    return chosen


_NMS_BLOCK = 128
"""Boxes that are compared each with each at once."""


def _overlaps(a: np.ndarray, b: np.ndarray, overlap: float) -> np.ndarray:
    """Whether the intersection of each of the boxes `a` with each of `b` is above `overlap` of their union."""
    top, left, bottom, right = a[:, :, None]
    height = np.minimum(bottom, b[2]) - np.maximum(top, b[0])
    width = np.minimum(right, b[3]) - np.maximum(left, b[1])
    shared = np.maximum(height, 0) * np.maximum(width, 0)
    areas, others = (bottom - top) * (right - left), (b[2] - b[0]) * (b[3] - b[1])
    union = areas + others - shared
    return (areas > 0) & (others > 0) & (union > 0) & (shared > np.float32(overlap) * union)


# ---------------------------------------------------------------------------------------------- sequences, crops


class ReverseSequence(Operator):
    """The first sequence_lens[i] elements along `time_axis` reversed, for each position i on `batch_axis`."""

    versions = (10, 28)
    inputs = ("input", "sequence_lens")
    outputs = ("Y",)

    batch_axis: int = 1
    time_axis: int = 0

    def infer(self, x: Value, lengths: Value) -> TensorType:
        if {self.batch_axis, self.time_axis} != {0, 1} or len(x.shape) < 2:
            raise InferenceError(f"batch_axis {self.batch_axis} and time_axis {self.time_axis} have to be 0 and 1")
        if not (len(lengths.shape) == 1 and demand_equal(lengths.shape[0], x.shape[self.batch_axis])):
            raise InferenceError(f"sequence_lens {lengths.type} does not give a length for each sequence of {x.type}")
        check_dtype(lengths, frozenset({DType.INT64}))
        return x.type

    def evaluate(self, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        data = np.moveaxis(x, (self.batch_axis, self.time_axis), (0, 1))
        if lengths.size and not (lengths.min() >= 0 and lengths.max() <= data.shape[1]):
            raise ValueError(f"lengths {lengths.tolist()} do not fit the {data.shape[1]} elements of the time axis")
        result = data.copy()
        for position, length in enumerate(lengths.tolist()):
            result[position, :length] = data[position, :length][::-1]
        return np.moveaxis(result, (0, 1), (self.batch_axis, self.time_axis))

    def lower(self, to: Lowering, x: Value, lengths: Value) -> Value:
        return to.emit(c.ReverseSequence(self.batch_axis, self.time_axis), (x, lengths), x.type)


class CenterCropPad(Operator):
    """Cropped to, or padded with zeros to, the sizes `shape` of `axes`, around the middle."""

    versions = (18,)
    inputs = ("input_data", "shape")
    outputs = ("output_data",)

    axes: tuple[int, ...] | None = None

    def _sizes(self, given: Dims, wanted: list[Any]) -> list[DimLike]:
        axes = range(len(given)) if self.axes is None else self.axes
        if len(wanted) != len(axes):
            raise InferenceError(f"shape has {len(wanted)} sizes for {len(axes)} axes")
        sizes = list(given)
        for axis, size in zip(axes, wanted, strict=True):
            sizes[normalize_axis(axis, len(given), "axes")] = size
        return sizes

    def infer(self, x: Value, shape: Value) -> TensorType:
        return TensorType(x.dtype, tuple(self._sizes(x.shape, constant_of(shape, "shape"))))

    def infer_open(self, x: Value, shape: Value) -> TensorType:
        return open_like(x, self.axes)

    def evaluate(self, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
        sizes = self._sizes(x.shape, shape.tolist())
        empty: Any = "" if x.dtype == object else 0
        result: np.ndarray = np.full(sizes, empty, x.dtype)  # type: ignore[arg-type]
        source, target = [], []
        for have, want in zip(x.shape, result.shape, strict=True):
            size, cut, gap = min(have, want), max(have - want, 0) // 2, max(want - have, 0) // 2
            source.append(slice(cut, cut + size))
            target.append(slice(gap, gap + size))
        result[tuple(target)] = x[tuple(source)]
        return result

    def lower(self, to: Lowering, x: Value, shape: Value) -> Value:
        type = self.infer(x, shape)
        before, after = [], []
        for have, want in zip(x.shape, type.shape or (), strict=True):
            gap, cut = (floor_divide(maximum(more, 0), 2) for more in (want - have, have - want))
            before.append(gap - cut)
            after.append(want - have - before[-1])
        return to.emit(c.Pad(tuple(before), tuple(after), "constant"), (x,), type)


OPERATORS = (CenterCropPad, Compress, CumProd, CumSum, NonMaxSuppression, NonZero, ReverseSequence, TopK, Unique)
