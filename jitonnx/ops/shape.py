"""Shapes: asking for them, and giving tensors others."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.graph import Value
from jitonnx.ir.lowering import Lowering
from jitonnx.ir.operator import Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape as Dims
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import constant_of, normalize_axis


class Unsqueeze(Operator):
    """New axes of size 1 at the positions `axes` of the result."""

    versions = (1, 11, 13, 21, 23, 24, 25)
    inputs = ("data", "axes")
    outputs = ("expanded",)
    symbolic = True

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 13:
            node.attribute_to_input("axes", 1)

    def _shape(self, shape: Dims, axes: list[int]) -> Dims:
        rank = len(shape) + len(axes)
        new = {normalize_axis(axis, rank, "axes") for axis in axes}
        old = iter(shape)
        return tuple(1 if axis in new else next(old) for axis in range(rank))

    def infer(self, data: Value, axes: Value) -> TensorType:
        return TensorType(data.dtype, self._shape(data.shape, constant_of(axes, "axes")))

    def evaluate(self, data: np.ndarray, axes: np.ndarray) -> np.ndarray:
        return data.reshape(self._shape(data.shape, axes.tolist()))

    def lower(self, to: Lowering, data: Value, axes: Value) -> Value:
        return to.reshape(data, self._shape(data.shape, constant_of(axes, "axes")))


OPERATORS = (Unsqueeze,)
