"""Writing elements into a copy of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import Dim, DimLike, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType, contents_array
from jitonnx.ops.base import is_narrow, lower_halves, normalize_axis
from jitonnx.ops.onnx.gather import check_within

_REDUCTIONS: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _written(data: np.ndarray, places: tuple[Any, ...], updates: np.ndarray, reduction: str) -> np.ndarray:
    y = data.copy()
    if reduction == "none":
        y[places] = updates
    else:
        _REDUCTIONS[reduction](y, places, updates)
    return y


def scatter_elements(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int, reduction: str
) -> np.ndarray:
    """data with updates written, or combined, where `gather_elements` would read."""
    places: list[Any] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    return _written(data, tuple(places), updates, reduction)


def scatter_nd(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str) -> np.ndarray:
    """data with updates written, or combined, where the last axis of indices says."""
    return _written(data, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


class _Scatter(Operator):
    """A copy of the data with `updates` written, or by `reduction` combined, at the places that `indices` name."""

    reduction: str = "none"

    def _check(self, data: Value, indices: Value, updates: Value) -> TensorType:
        if self.reduction not in ("none", *_REDUCTIONS):
            raise InferenceError(f"reduction is {self.reduction!r}; none, add, mul, max and min are known")
        return data.type

    def _wide(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        """Arrays of one type as they are combined: narrow floats as float32."""
        widens = self.reduction != "none" and is_narrow(arrays[0].dtype)
        return [array.astype(np.float32) for array in arrays] if widens else arrays

    def _computation(self, rank: int) -> c.Computation:
        """What is done with data of this rank."""
        raise NotImplementedError

    def lower(self, to: Lowering, data: Value, indices: Value, updates: Value) -> Value:
        if self.reduction != "none":
            return self._combined(to, data, indices, updates)
        return to.emit(self._computation(len(data.shape)), (data, indices, updates), data.type)

    @lower_halves
    def _combined(self, to: Lowering, data: Value, indices: Value, updates: Value) -> Value:
        if data.dtype is DType.BOOL:
            return to.host(self, (data, indices, updates))[0]
        return to.emit(self._computation(len(data.shape)), (data, indices, updates), data.type)


class ScatterElements(_Scatter):
    """output[indices[i, j, ...], j, ...] = updates[i, j, ...], the index standing on `axis`."""

    axis: int = 0

    def infer(self, context: InferenceContext, data: Value, indices: Value, updates: Value) -> TensorType:
        axis = normalize_axis(self.axis, len(data.shape))
        ranks = {len(value.shape) for value in (data, indices, updates)}
        if len(ranks) > 1 or not all(map(context.demand_equal, indices.shape, updates.shape)):
            raise InferenceError(f"indices {indices.type} and updates {updates.type} do not fit data {data.type}")
        check_within(context, indices, data, axis)
        return self._check(data, indices, updates)

    def evaluate(self, data: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        wide, axis = self._wide(data, updates), normalize_axis(self.axis, data.ndim)
        y = scatter_elements(wide[0], indices, wide[1], axis=axis, reduction=self.reduction)
        return y.astype(data.dtype, copy=False)

    def _computation(self, rank: int) -> c.Computation:
        return c.ScatterElements(normalize_axis(self.axis, rank), self.reduction)


class Scatter(Operator):
    """ScatterElements under its first name; ONNX dropped it in version 11."""

    axis: int = 0

    def infer(self, context: InferenceContext, data: Value, indices: Value, updates: Value) -> TensorType:
        return ScatterElements(axis=self.axis).infer(context, data, indices, updates)

    def evaluate(self, data: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        return ScatterElements(axis=self.axis).evaluate(data, indices, updates)

    def lower(self, to: Lowering, data: Value, indices: Value, updates: Value) -> Value:
        return ScatterElements(axis=self.axis).lower(to, data, indices, updates)


class ScatterND(_Scatter):
    """output[indices[i, ...]] = updates[i, ...]: the last axis of indices addresses elements or slices of data."""

    def infer(self, context: InferenceContext, data: Value, indices: Value, updates: Value) -> TensorType:
        length = indices.shape[-1] if indices.shape else 0
        # An open length follows from how many axes the updates have.
        depth = len(indices.shape) - 1 + len(data.shape) - len(updates.shape) if isinstance(length, Dim) else length
        if not 1 <= depth <= len(data.shape) or not context.demand_equal(length, depth):
            raise InferenceError(f"indices {indices.type} do not address data {data.type}")
        expected: tuple[DimLike, ...] = (*indices.shape[:-1], *data.shape[depth:])
        if len(expected) != len(updates.shape) or not all(map(context.demand_equal, expected, updates.shape)):
            raise InferenceError(f"updates {updates.type} should have the shape {list(expected)}")
        return self._check(data, indices, updates)

    def evaluate(self, data: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        wide = self._wide(data, updates)
        return scatter_nd(wide[0], indices, wide[1], reduction=self.reduction).astype(data.dtype, copy=False)

    def _computation(self, rank: int) -> c.Computation:
        return c.ScatterND(self.reduction)


class TensorScatter(Operator):
    """A cache with `update` written along `axis` from write_indices[batch] on (wrapping round if mode is circular)."""

    mode: str = "linear"
    axis: int = -2

    def infer(self, context: InferenceContext, cache: Value, update: Value, start: Value | None = None) -> TensorType:
        axis = normalize_axis(self.axis, len(cache.shape))
        if self.mode not in ("linear", "circular"):
            raise InferenceError(f"mode is {self.mode!r}; linear and circular are known")
        if axis == 0:
            raise InferenceError("axis is 0, which is the batch")
        pairs = zip(cache.shape, update.shape, strict=True) if len(cache.shape) == len(update.shape) else [(0, 1)]
        if not all(context.demand_equal(a, b) for position, (a, b) in enumerate(pairs) if position != axis):
            raise InferenceError(f"update {update.type} does not fit cache {cache.type}")
        return cache.type

    def evaluate(self, cache: np.ndarray, update: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        axis = normalize_axis(self.axis, cache.ndim)
        result = cache.copy()
        size, length = cache.shape[axis], update.shape[axis]
        first = np.zeros(cache.shape[0], np.int64) if start is None else start
        for batch in range(cache.shape[0]):
            at = int(first[batch]) + np.arange(length)
            if self.mode == "circular":
                at %= size
            elif length and at[-1] >= size:
                raise ValueError(f"{length} elements at {at[0]} do not fit into a cache of {size}")
            np.moveaxis(result[batch], axis - 1, 0)[at] = np.moveaxis(update[batch], axis - 1, 0)
        return result

    def lower(self, to: Lowering, cache: Value, update: Value, start: Value | None = None) -> Value:
        """Rows of what lies inside of `axis`, written by (batch, what lies between batch and axis, position)."""
        axis = normalize_axis(self.axis, len(cache.shape))
        batch, between, run = cache.shape[0], product(cache.shape[1:axis]), product(cache.shape[axis + 1 :])
        size, length = cache.shape[axis], update.shape[axis]
        if self.mode == "linear" and cache.dtype.itemsize <= 8:  # which may be done where the cache lies
            first = to.fill(e.constant(0, DType.INT64), (batch,)) if start is None else to.cast(start, DType.INT64)
            past, new = (to.reshape(x, (batch, between, rows, run)) for x, rows in ((cache, size), (update, length)))
            added = to.emit(c.CacheUpdate(), (past, new, first), TensorType(cache.dtype, past.shape))
            return to.reshape(added, cache.shape)
        shape = (batch, between, length, 3)
        position, operands = e.index(2), [to.broadcast(to.dimensions(contents_array((size,), ())), shape)]
        if start is not None:
            position = position + e.cast(e.operand(1, start.dtype), DType.INT64)
            operands.append(to.reshape(start, (batch, 1, 1, 1)))
        if self.mode == "circular":
            position = e.mod(position, e.operand(0, DType.INT64))
        which = e.where(e.equal(e.index(3), 0), e.index(0), e.where(e.equal(e.index(3), 1), e.index(1), position))
        places = to.map(which, *operands)
        rows = to.reshape(cache, (batch, between, size, run)), places, to.reshape(update, (batch, between, length, run))
        written = to.emit(c.ScatterND("none"), rows, TensorType(cache.dtype, (batch, between, size, run)))
        return to.reshape(written, cache.shape)
