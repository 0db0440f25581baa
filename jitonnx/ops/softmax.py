"""Softmax and its logarithm."""

from __future__ import annotations

import numpy as np

from jitonnx.ir import computation as c
from jitonnx.ir.dims import product
from jitonnx.ir.graph import Value
from jitonnx.ir.lowering import Lowering
from jitonnx.ir.operator import Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import normalize_axis


class _Softmax(Operator):
    """Over one axis; before version 13 over all axes from `axis` on, flattened."""

    versions = (1, 11, 13)
    inputs = ("input",)
    outputs = ("output",)

    axis: int = -1
    flatten: bool = internal(False)

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.attributes.setdefault("axis", 1)
        node.attributes["flatten"] = True

    def infer(self, x: Value) -> TensorType:
        normalize_axis(self.axis, len(x.shape))
        return x.type

    def _evaluate(self, x: np.ndarray, log: bool) -> np.ndarray:
        axis = normalize_axis(self.axis, x.ndim)
        rows = x.reshape(*x.shape[:axis], -1) if self.flatten else x
        shifted = rows - rows.max(axis=axis, keepdims=True, initial=-np.inf)
        total = np.exp(shifted).sum(axis=axis, keepdims=True)
        return (shifted - np.log(total) if log else np.exp(shifted) / total).reshape(x.shape)

    def _lower(self, to: Lowering, x: Value, log: bool) -> Value:
        axis = normalize_axis(self.axis, len(x.shape))
        rows = to.reshape(x, (*x.shape[:axis], product(x.shape[axis:]))) if self.flatten else x
        return to.reshape(to.emit(c.Softmax(axis, log), [rows], rows.type), x.shape)


class Softmax(_Softmax):
    """exp(x - max) / sum of it, along `axis`."""

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return self._evaluate(x, log=False)

    def lower(self, to: Lowering, x: Value) -> Value:
        return self._lower(to, x, log=False)


class LogSoftmax(_Softmax):
    """The logarithm of Softmax, computed without forming it."""

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return self._evaluate(x, log=True)

    def lower(self, to: Lowering, x: Value) -> Value:
        return self._lower(to, x, log=True)


OPERATORS = (LogSoftmax, Softmax)
