"""Gathering: elements at places that indices name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, minimum
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import integers, normalize_axis


def check_within(context: InferenceContext, indices: Value, data: Value, axis: int) -> None:
    """InferenceError if the indices are larger than the data along another axis than `axis`."""
    for position, (size, limit) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if position == axis:
            continue
        if not context.demand_equal(minimum(size, limit), size):
            raise InferenceError(f"axis {position} of indices {indices.type} is larger than that of data {data.type}")


def gather_elements(data: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
    """data with the coordinate on `axis` replaced by indices."""
    places: list[Any] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    return data[tuple(places)]


def gather_nd(data: np.ndarray, indices: np.ndarray, *, batch_dims: int) -> np.ndarray:
    """Parts of data, addressed by the last axis of indices behind leading axes that both share."""
    depth = indices.shape[-1]
    rows = indices.reshape(*indices.shape[:batch_dims], math.prod(indices.shape[batch_dims:-1]), depth)
    shared = np.indices(rows.shape[:-1], sparse=True)[:batch_dims]
    found = data[(*shared, *np.moveaxis(rows, -1, 0))]
    return found.reshape((*indices.shape[:-1], *data.shape[batch_dims + depth :]))


class Gather(Operator):
    """data[..., indices, ...] along `axis`; negative indices count from the end."""

    symbolic = True

    axis: int = 0

    def infer(self, context: InferenceContext, data: Value, indices: Value) -> TensorType:
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
        return to.emit(c.Gather(axis), (data, indices), to.type)

    @staticmethod
    def _inside(index: int, size: DimLike) -> bool:
        """Whether an index is valid for every size of the axis that can be fed."""
        return isinstance(size, int) and -size <= index < size


class GatherElements(Operator):
    """out[i, j, ...] = data with the coordinate on `axis` replaced by indices[i, j, ...]."""

    axis: int = 0

    def infer(self, context: InferenceContext, data: Value, indices: Value) -> TensorType:
        axis = normalize_axis(self.axis, len(data.shape))
        if len(indices.shape) != len(data.shape):
            raise InferenceError(f"data {data.type} and indices {indices.type} have different ranks")
        check_within(context, indices, data, axis)
        return TensorType(data.dtype, indices.shape)

    def evaluate(self, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return gather_elements(data, indices, axis=normalize_axis(self.axis, data.ndim))

    def lower(self, to: Lowering, data: Value, indices: Value) -> Value:
        axis = normalize_axis(self.axis, len(data.shape))
        return to.emit(c.GatherElements(axis), (data, indices), to.type)


class GatherND(Operator):
    """Slices of data, addressed by the last axis of indices, behind `batch_dims` leading axes that both share."""

    batch_dims: int = 0

    def infer(self, context: InferenceContext, data: Value, indices: Value) -> TensorType:
        if not indices.shape:
            raise InferenceError(f"indices {indices.type} do not address {data.type}: they are a scalar")
        batch, length = self.batch_dims, indices.shape[-1]
        # An open length is taken for that of tuples that address single elements until a run shows another one.
        depth = context.assume_size(length, len(data.shape) - batch)
        if not (0 <= batch < len(indices.shape) and batch + depth <= len(data.shape)):
            raise InferenceError(f"indices {indices.type} do not address {data.type} with batch_dims {batch}")
        if not all(context.demand_equal(a, b) for a, b in zip(data.shape[:batch], indices.shape[:batch], strict=True)):
            raise InferenceError(f"data {data.type} and indices {indices.type} differ in their {batch} batch axes")
        return TensorType(data.dtype, (*indices.shape[:-1], *data.shape[batch + depth :]))

    def evaluate(self, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return gather_nd(data, indices, batch_dims=self.batch_dims)

    def lower(self, to: Lowering, data: Value, indices: Value) -> Value:
        return to.emit(c.GatherND(self.batch_dims), (data, indices), to.type)
