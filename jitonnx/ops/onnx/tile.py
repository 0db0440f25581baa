"""Tensors repeated along their axes."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape as Dims
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import integers, normalize_axis, open_like


class Tile(Operator):
    """The input repeated repeats[i] times along each axis i."""

    symbolic = True

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        """Version 1 took the number of repeats and the axis as two scalars (of the input's type in some files)."""
        if node.version > 1 or node.inputs[0] is None:
            return
        rank = len(node.inputs[0].shape)
        (tiles,), (axis,) = EXACT.constant_of(node.inputs[1], "tiles"), EXACT.constant_of(node.inputs[2], "axis")
        repeats = [1] * rank
        repeats[normalize_axis(int(axis), rank)] = int(tiles)
        node.inputs[1:] = [node.add_constant(np.array(repeats, np.int64))]

    def _repeats(self, shape: Dims, repeats: list[DimLike]) -> list[DimLike]:
        if len(repeats) != len(shape):
            raise InferenceError(f"{len(repeats)} repeats given for {len(shape)} axes")
        return repeats

    def infer(self, context: InferenceContext, x: Value, repeats: Value) -> TensorType:
        times = self._repeats(x.shape, context.constant_of(repeats, "repeats"))
        if any(isinstance(count, int) and count < 0 for count in times):
            raise InferenceError(f"repeats has a negative element: {times}")
        return TensorType(x.dtype, tuple(size * count for size, count in zip(x.shape, times, strict=True)))

    def infer_open(self, x: Value, repeats: Value) -> TensorType:
        return open_like(x)

    def evaluate(self, x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
        return np.tile(x, self._repeats(x.shape, integers(repeats, "repeats").tolist()))  # type: ignore[arg-type]

    def lower(self, to: Lowering, x: Value, repeats: Value) -> Value:
        if not x.shape:  # there is nothing to say about repeats, of whatever length they are declared
            return x
        times = to.context.constant_of(repeats, "repeats")
        split = [part for size in x.shape for part in (1, size)]
        spread = [part for size, count in zip(x.shape, times, strict=True) for part in (count, size)]
        return to.reshape(to.broadcast(to.reshape(x, split), spread), to.shape)
