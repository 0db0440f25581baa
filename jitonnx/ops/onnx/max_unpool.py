"""What MaxPool took, back in its places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, maximum, product
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import Shape, TensorType
from jitonnx.ops.windows import per_axis, split_pads


class MaxUnpool(Operator):
    """Zeros, with the elements of X at places I of the flattened tensor that MaxPool was given.

    That tensor has the size that follows from the windows; with output_shape, zeros are put behind it along each axis.
    """

    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, context: InferenceContext, x: Value, indices: Value, shape: Value | None = None) -> TensorType:
        if len(indices.shape) != len(x.shape) or not all(map(context.demand_equal, indices.shape, x.shape)):
            raise InferenceError(f"X {x.type} and I {indices.type} have different shapes")
        pooled = self._pooled(x.shape)
        if shape is None:
            return TensorType(x.dtype, pooled)
        given = tuple(context.constant_of(shape, "output_shape"))
        if len(given) != len(pooled) or not all(map(context.demand_equal, given[:2], pooled[:2])):
            raise InferenceError(f"output_shape is {list(given)} for X {x.type}")
        if not all(context.demand_equal(maximum(out, size), out) for out, size in zip(given, pooled, strict=True)):
            raise InferenceError(f"output_shape is {list(given)}, but what was pooled had the shape {list(pooled)}")
        return TensorType(x.dtype, given)

    def infer_open(self, x: Value, indices: Value, shape: Value | None = None) -> TensorType:
        return TensorType(x.dtype, (None,) * len(x.shape))  # type: ignore[arg-type]

    def _pooled(self, shape: Shape) -> tuple[DimLike, ...]:
        """The shape of what MaxPool was given."""
        rank = len(shape) - 2
        if rank < 1:
            raise InferenceError(f"{list(shape)} has no spatial axes: [N, C, spatial...] expected")
        kernel = per_axis(self.kernel_shape, rank, 1, "kernel_shape")
        strides, (before, after) = per_axis(self.strides, rank, 1, "strides"), split_pads(self.pads, rank)
        sizes = tuple(
            (size - 1) * stride + length - cut - off
            for size, length, stride, cut, off in zip(shape[2:], kernel, strides, before, after, strict=True)
        )
        return (*shape[:2], *sizes)

    def evaluate(self, x: np.ndarray, indices: np.ndarray, shape: np.ndarray | None = None) -> np.ndarray:
        pooled: Any = self._pooled(x.shape)
        y = np.zeros(pooled, x.dtype)
        y.reshape(-1)[indices.reshape(-1)] = x.reshape(-1)
        if shape is None:
            return y
        return np.pad(y, [(0, int(out) - size) for out, size in zip(shape, pooled, strict=True)])

    def lower(self, to: Lowering, x: Value, indices: Value, shape: Value | None = None) -> Value:
        pooled = self._pooled(x.shape)
        flat, count = (product(pooled),), (product(x.shape),)
        zeros = to.fill(e.constant(0, x.dtype), flat)
        operands = zeros, to.reshape(indices, count), to.reshape(x, count)
        y = to.reshape(to.emit(c.ScatterElements(0, "none"), operands, TensorType(x.dtype, flat)), pooled)
        return y if shape is None else _extended(to, y, to.shape)


def _extended(to: Lowering, x: Value, shape: Sequence[DimLike]) -> Value:
    """x with zeros behind it along each axis, up to `shape`."""
    after = tuple(out - size for out, size in zip(shape, x.shape, strict=True))
    if all(size == 0 for size in after):
        return x
    computation = c.Pad((0,) * len(after), after, "constant")
    return to.emit(computation, (x,), TensorType(x.dtype, tuple(shape)))
