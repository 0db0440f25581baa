"""Shapes: asking for them, and giving tensors others."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import Dim, DimLike, floor_divide, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape as Dims
from jitonnx.ir.types import TensorType, contents_array
from jitonnx.ops.base import count_of, integers, integers_of, normalize_axis, open_rank


class Shape(Operator):
    """The input's shape, or the part of it from axis `start` to before axis `end`."""

    start: int = 0
    end: int | None = None

    def _part(self, shape: Dims) -> Dims:
        return tuple(shape)[slice(self.start, self.end)]

    def infer(self, context: InferenceContext, data: Value) -> TensorType:
        return TensorType(DType.INT64, (len(self._part(data.shape)),))

    def contents(self, data: Value) -> np.ndarray:
        part = self._part(data.shape)
        return contents_array(part, (len(part),))

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        return np.array(self._part(data.shape), np.int64)

    def lower(self, to: Lowering, data: Value) -> Value:
        return to.dimensions(self.contents(data))


class Size(Operator):
    """How many elements the input has."""

    def infer(self, context: InferenceContext, data: Value) -> TensorType:
        return TensorType(DType.INT64, ())

    def contents(self, data: Value) -> np.ndarray:
        return contents_array((product(data.shape),), ())

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        return np.array(data.size, np.int64)

    def lower(self, to: Lowering, data: Value) -> Value:
        return to.dimensions(self.contents(data))


class Reshape(Operator):
    """The elements under another shape, where -1 is what is left over and 0 the input's own size (not if allowzero)."""

    symbolic = True

    allowzero: int = 0

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 5:
            node.attribute_to_input("shape", 1, default=())

    def _shape(self, context: InferenceContext, given: Dims, wanted: list[DimLike]) -> Dims:
        if wanted.count(-1) > 1:
            raise InferenceError(f"shape {wanted} has more than one -1")
        if any(isinstance(size, int) and size < -1 for size in wanted):
            raise InferenceError(f"shape {wanted} has a size below -1")
        sizes = [self._copied(given, axis) if self._copies(context, size) else size for axis, size in enumerate(wanted)]
        if -1 not in wanted:
            return tuple(sizes)
        rest = product(size for size in sizes if size != -1)
        if rest == 0:
            raise InferenceError(f"shape {wanted} leaves the size -1 undetermined beside a size of 0")
        return tuple(floor_divide(product(given), rest) if size == -1 else size for size in sizes)

    def _copies(self, context: InferenceContext, size: DimLike) -> bool:
        return not self.allowzero and (size == 0 or (isinstance(size, Dim) and context.shown_equal(size, 0)))

    def _copied(self, given: Dims, axis: int) -> DimLike:
        if axis >= len(given):
            raise InferenceError(
                f"0 at axis {axis} of the shape copies a size that an input of rank {len(given)} lacks"
            )
        return given[axis]

    def infer(self, context: InferenceContext, data: Value, shape: Value) -> TensorType:
        sizes = context.constant_of(shape, "shape", signed=True)
        wanted = self._shape(context, data.shape, sizes)
        may_copy = not self.allowzero and any(isinstance(size, Dim) for size in sizes)  # where the size is 0
        if not (context.assume_equal if may_copy else context.demand_equal)(product(data.shape), product(wanted)):
            raise InferenceError(
                f"{data.type} has {product(data.shape)} elements and cannot take the shape {list(wanted)}"
            )
        return TensorType(data.dtype, wanted)

    def infer_open(self, data: Value, shape: Value) -> TensorType:
        return open_rank(data.dtype, shape)

    def evaluate(self, data: np.ndarray, shape: np.ndarray) -> np.ndarray:
        return data.reshape(self._shape(EXACT, data.shape, integers(shape, "shape").tolist()))  # type: ignore[arg-type]

    def lower(self, to: Lowering, data: Value, shape: Value) -> Value:
        return to.reshape(data, self._shape(to.context, data.shape, to.context.constant_of(shape, "shape")))


class Flatten(Operator):
    """A matrix: the axes before `axis` are its rows, the others its columns."""

    axis: int = 1

    def _shape(self, shape: Dims) -> Dims:
        rank = len(shape)
        if not -rank <= self.axis <= rank:
            raise InferenceError(f"axis {self.axis} is outside [{-rank}, {rank}] for a tensor of rank {rank}")
        axis = self.axis if self.axis >= 0 else self.axis + rank
        return product(shape[:axis]), product(shape[axis:])

    def infer(self, context: InferenceContext, data: Value) -> TensorType:
        return TensorType(data.dtype, self._shape(data.shape))

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        return data.reshape(self._shape(data.shape))  # type: ignore[arg-type]

    def lower(self, to: Lowering, data: Value) -> Value:
        return to.reshape(data, self._shape(data.shape))


class Squeeze(Operator):
    """Leaves out the axes `axes`, which have size 1; without `axes`, all axes of size 1."""

    symbolic = True

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 13:
            node.attribute_to_input("axes", 1)

    def _shape(self, context: InferenceContext, shape: Dims, axes: list[int] | None) -> Dims:
        if axes is None:
            return tuple(size for size in shape if not context.is_one(size))
        gone = {normalize_axis(axis, len(shape), "axes") for axis in axes}
        for axis in gone:
            if not context.demand_equal(shape[axis], 1):
                raise InferenceError(f"axis {axis} of shape {list(shape)} has size {shape[axis]}, not 1")
        return tuple(size for axis, size in enumerate(shape) if axis not in gone)

    def infer(self, context: InferenceContext, data: Value, axes: Value | None = None) -> TensorType:
        chosen = None if axes is None else integers_of(axes, "axes")
        return TensorType(data.dtype, self._shape(context, data.shape, chosen))

    def infer_open(self, data: Value, axes: Value | None = None) -> TensorType:
        return TensorType(data.dtype, (None,) * (len(data.shape) - count_of(axes)))  # type: ignore[arg-type]

    def evaluate(self, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
        return data.reshape(self._shape(EXACT, data.shape, None if axes is None else axes.ravel().tolist()))  # type: ignore[arg-type]

    def lower(self, to: Lowering, data: Value, axes: Value | None = None) -> Value:
        return to.reshape(
            data, self._shape(to.context, data.shape, None if axes is None else integers_of(axes, "axes"))
        )


class Unsqueeze(Operator):
    """New axes of size 1 at the positions `axes` of the result."""

    symbolic = True

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 13:
            node.attribute_to_input("axes", 1)

    def _shape(self, shape: Dims, axes: list[int]) -> Dims:
        rank = len(shape) + len(axes)
        new = {normalize_axis(axis, rank, "axes") for axis in axes}
        if len(new) < len(axes):
            raise InferenceError(f"axes {axes} name an axis twice")
        old = iter(shape)
        return tuple(1 if axis in new else next(old) for axis in range(rank))

    def infer(self, context: InferenceContext, data: Value, axes: Value) -> TensorType:
        return TensorType(data.dtype, self._shape(data.shape, integers_of(axes, "axes")))

    def infer_open(self, data: Value, axes: Value) -> TensorType:
        return TensorType(data.dtype, (None,) * (len(data.shape) + count_of(axes)))  # type: ignore[arg-type]

    def evaluate(self, data: np.ndarray, axes: np.ndarray) -> np.ndarray:
        return data.reshape(self._shape(data.shape, axes.ravel().tolist()))  # type: ignore[arg-type]

    def lower(self, to: Lowering, data: Value, axes: Value) -> Value:
        return to.reshape(data, self._shape(data.shape, integers_of(axes, "axes")))


class Transpose(Operator):
    """Axes in another order: axis i of the result is axis perm[i]; without `perm` they are reversed."""

    symbolic = True

    perm: tuple[int, ...] | None = None

    def permutation(self, rank: int) -> tuple[int, ...]:
        """The permutation for an input of that rank."""
        if self.perm is None:
            return tuple(reversed(range(rank)))
        if sorted(self.perm) != list(range(rank)):
            raise InferenceError(f"perm {list(self.perm)} is no permutation of the axes of a tensor of rank {rank}")
        return self.perm

    def infer(self, context: InferenceContext, data: Value) -> TensorType:
        return TensorType(data.dtype, tuple(data.shape[axis] for axis in self.permutation(len(data.shape))))

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        return data.transpose(self.permutation(data.ndim))

    def lower(self, to: Lowering, data: Value) -> Value:
        return to.transpose(data, self.permutation(len(data.shape)))


class Expand(Operator):
    """Repeated along axes of size 1 and new leading axes: broadcast with a tensor of shape `shape`."""

    symbolic = True

    def _shape(self, context: InferenceContext, shape: Dims, wanted: list[DimLike]) -> Dims:
        result = context.broadcast_shapes(shape, wanted)
        if result is None:
            raise InferenceError(f"shape {list(shape)} does not broadcast with {wanted}")
        return result

    def infer(self, context: InferenceContext, data: Value, shape: Value) -> TensorType:
        return TensorType(data.dtype, self._shape(context, data.shape, context.constant_of(shape, "shape")))

    def infer_open(self, data: Value, shape: Value) -> TensorType:
        length = len(open_rank(data.dtype, shape).shape or ())
        return TensorType(data.dtype, (None,) * max(length, len(data.shape)))  # type: ignore[arg-type]

    def evaluate(self, data: np.ndarray, shape: np.ndarray) -> np.ndarray:
        return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(integers(shape, "shape").tolist())))

    def lower(self, to: Lowering, data: Value, shape: Value) -> Value:
        return to.broadcast(data, self._shape(to.context, data.shape, to.context.constant_of(shape, "shape")))
