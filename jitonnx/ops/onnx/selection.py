"""Choosing elements: the largest, the non-zero, the distinct.

What NonZero, Compress and Unique give, whose size depends on data, is counted by their kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import minimum, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import is_narrow, lower_halves, normalize_axis, open_like


def top_k(x: np.ndarray, *, k: int, axis: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The k largest or smallest elements in order, of equal ones the first, and their indices."""
    if largest:  # the last of equal ones in ascending order is the first in reverse
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    chosen = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, chosen, axis), chosen


class TopK(Operator):
    """The K largest (or smallest) elements along `axis` and their positions; of equal ones the first.

    NaN is larger than all numbers, as in NumPy. What onnxruntime does with NaN depends on where it stands.
    """

    axis: int = -1
    largest: int = 1
    sorted: int = 1

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 10 and "k" in node.attributes:
            node.attributes["k"] = (node.attributes["k"],)
            node.attribute_to_input("k", 1)

    def infer(self, context: InferenceContext, x: Value, k: Value) -> tuple[TensorType, TensorType]:
        axis = normalize_axis(self.axis, len(x.shape))
        (count,) = context.constant_of(k, "K")
        size = x.shape[axis]
        if (isinstance(count, int) and count < 0) or not context.demand_equal(minimum(count, size), count):
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
        _, chosen = top_k(data, k=count, axis=axis, largest=bool(self.largest))
        return np.take_along_axis(x, chosen, axis), chosen.astype(np.int64)

    @lower_halves
    def lower(self, to: Lowering, x: Value, k: Value) -> tuple[Value, ...]:
        axis = normalize_axis(self.axis, len(x.shape))
        return to.emit_many(c.TopK(axis, bool(self.largest)), (x,), (to.type, TensorType(DType.INT64, to.shape)))


class Unique(Operator):
    """The distinct elements (or slices along `axis`), where each comes first, which one every element is, how often.

    In ascending order, or with sorted = 0 in the order in which they come first. NaN is larger than all numbers. As in
    NumPy, it equals NaN where elements are compared, and slices of tensors of several axes that hold it are distinct.
    """

    counted = True

    axis: int | None = None
    sorted: int = 1

    def infer(self, context: InferenceContext, x: Value) -> tuple[TensorType, ...]:
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
        data = x.astype(np.float32) if is_narrow(x.dtype) else x  # NumPy has no order of bfloat16
        _, first, inverse, counts = np.unique(
            data, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        inverse = inverse.reshape(-1)
        if not self.sorted:
            order = np.argsort(first, kind="stable")
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            first, inverse, counts = first[order], place[inverse], counts[order]
        values = np.take(x, first, axis)
        return values, *(part.astype(np.int64) for part in (first, inverse, counts))

    def lower(self, to: Lowering, x: Value) -> tuple[Value, ...]:
        if self.axis is None:
            x = to.reshape(x, (product(x.shape),))
        axis = normalize_axis(self.axis or 0, len(x.shape))
        numbers = TensorType(DType.INT64, (x.shape[axis],))
        types = (TensorType(x.dtype, (product(x.shape),)), True), (numbers, True), (numbers, False), (numbers, True)
        return to.counted_together(c.Unique(axis, bool(self.sorted)), (x,), types)


class NonZero(Operator):
    """Coordinates of the elements that are not zero, one column each, in row-major order."""

    counted = True

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
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

    def lower(self, to: Lowering, x: Value) -> Value | Sequence[Value]:
        if not x.shape:  # of which there are no coordinates, only their number
            return super().lower(to, x)
        return to.counted(c.NonZero(), (x,), DType.INT64, len(x.shape) * product(x.shape))


class Compress(Operator):
    """The slices along `axis` (elements of the flattened input without one) for which the condition is true."""

    counted = True

    axis: int | None = None

    def infer(self, context: InferenceContext, x: Value, condition: Value) -> TensorType:
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
        if self.axis is None:
            x = to.reshape(x, (product(x.shape),))
        axis = normalize_axis(self.axis or 0, len(x.shape))
        if condition.constant is None:
            return to.counted(c.Compress(axis), (x, condition), x.dtype, product(x.shape))
        type = TensorType(x.dtype, (*x.shape[:axis], int(np.count_nonzero(condition.constant)), *x.shape[axis + 1 :]))
        chosen = to.constant(np.flatnonzero(condition.constant).astype(np.int64))
        return to.emit(c.Gather(axis), (x, chosen), type)
