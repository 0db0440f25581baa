"""Softmax, its logarithm, and Hardmax."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import lower_halves, normalize_axis_of_any, widen


class _Softmax(Operator):
    """Goes over one axis; before version 13 over all axes from `axis` on, flattened.

    A scalar is a row of one element.
    """

    axis: int = -1
    flatten: bool = internal(default=False)

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.attributes.setdefault("axis", 1)
        node.attributes["flatten"] = True

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        normalize_axis_of_any(self.axis, len(x.shape))
        return x.type

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        axis = normalize_axis_of_any(self.axis, x.ndim)
        wide = widen(x)
        rows = wide.reshape(*x.shape[:axis], -1 if x.size else 0) if self.flatten or not x.ndim else wide
        return self._rows(rows, axis).reshape(x.shape).astype(x.dtype, copy=False)

    def _rows(self, rows: np.ndarray, axis: int) -> np.ndarray:
        """The function along `axis`."""
        raise NotImplementedError

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> Value:
        axis = normalize_axis_of_any(self.axis, len(x.shape))
        rows = to.reshape(x, (*x.shape[:axis], product(x.shape[axis:]))) if self.flatten or not x.shape else x
        return to.reshape(self._lower_rows(to, rows, axis), x.shape)

    def _lower_rows(self, to: Lowering, rows: Value, axis: int) -> Value:
        """The function along `axis` as computations."""
        raise NotImplementedError


def softmax(x: np.ndarray, *, axis: int, log: bool) -> np.ndarray:
    """exp(x - max) / sum, or its logarithm."""
    x = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    exponents = np.exp(x)
    total = exponents.sum(axis=axis, keepdims=True)
    return x - np.log(total) if log else exponents / total


class Softmax(_Softmax):
    """exp(x - max) / sum of it, along `axis`."""

    def _rows(self, rows: np.ndarray, axis: int) -> np.ndarray:
        return softmax(rows, axis=axis, log=False)

    def _lower_rows(self, to: Lowering, rows: Value, axis: int) -> Value:
        return to.emit(c.Softmax(axis, log=False), [rows], rows.type)


class LogSoftmax(_Softmax):
    """The logarithm of Softmax, computed without forming it."""

    def _rows(self, rows: np.ndarray, axis: int) -> np.ndarray:
        return softmax(rows, axis=axis, log=True)

    def _lower_rows(self, to: Lowering, rows: Value, axis: int) -> Value:
        return to.emit(c.Softmax(axis, log=True), [rows], rows.type)


class Hardmax(_Softmax):
    """1 at the first of the largest elements along `axis`, 0 elsewhere."""

    def _rows(self, rows: np.ndarray, axis: int) -> np.ndarray:
        result = np.zeros_like(rows)
        if rows.size:
            np.put_along_axis(result, np.expand_dims(rows.argmax(axis=axis), axis), 1, axis=axis)
        return result

    def _lower_rows(self, to: Lowering, rows: Value, axis: int) -> Value:
        one = TensorType(DType.INT64, (*rows.shape[:axis], 1, *rows.shape[axis + 1 :]))
        place = to.emit(c.ArgReduce("max", axis, keepdims=True, last=False), [rows], one)
        hot = e.equal(e.index(axis), e.operand(0, DType.INT64))
        return to.map(e.cast(hot, rows.dtype), to.broadcast(place, rows.shape))
