"""One-hot vectors."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import Dim
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType, contents_array
from jitonnx.ops.base import normalize_axis


class OneHot(Operator):
    """values[1] where the coordinate on the new axis `axis` equals the index, else values[0].

    Indices in [-depth, depth) count from the end if negative; others give values[0] everywhere.
    """

    axis: int = -1
    negative_from_end: bool = internal(default=True)

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.attributes["negative_from_end"] = node.version >= 11

    def infer(self, context: InferenceContext, indices: Value, depth: Value, values: Value) -> TensorType:
        (size,) = context.constant_of(depth, "depth")
        if len(values.shape) != 1 or not context.demand_equal(values.shape[0], 2):
            raise InferenceError(f"values is {values.type}; a vector of 2 elements is needed")
        axis = normalize_axis(self.axis, len(indices.shape) + 1)
        size = size if isinstance(size, Dim) else int(size)
        if isinstance(size, int) and size < 0:
            raise InferenceError(f"depth is {size}")
        return TensorType(values.dtype, (*indices.shape[:axis], size, *indices.shape[axis:]))

    def infer_open(self, indices: Value, depth: Value, values: Value) -> TensorType:
        axis = normalize_axis(self.axis, len(indices.shape) + 1)
        return TensorType(values.dtype, (*indices.shape[:axis], None, *indices.shape[axis:]))  # type: ignore[arg-type]

    def evaluate(self, indices: np.ndarray, depth: np.ndarray, values: np.ndarray) -> np.ndarray:
        size = int(depth.reshape(()))
        if size < 0:
            raise ValueError(f"depth is {size}")
        axis = normalize_axis(self.axis, indices.ndim + 1)
        at = indices.astype(np.int64) if indices.dtype.kind != "f" else np.trunc(indices)
        if self.negative_from_end:
            at = np.where((at < 0) & (at >= -size), at + size, at)
        coordinates = np.arange(size).reshape([-1 if a == axis else 1 for a in range(indices.ndim + 1)])
        return np.where(np.expand_dims(at, axis) == coordinates, values[1], values[0]).astype(values.dtype)

    def lower(self, to: Lowering, indices: Value, depth: Value, values: Value) -> Value:
        shape = to.shape
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
