"""Determinants."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import lower_halves, widen


class Det(Operator):
    """The determinants of square matrices, which the last two axes hold."""

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if len(x.shape) < 2 or not context.demand_equal(x.shape[-2], x.shape[-1]):
            raise InferenceError(f"{x.name!r} is {x.type}; square matrices are needed")
        return TensorType(x.dtype, x.shape[:-2])

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.linalg.det(widen(x))).astype(x.dtype)

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> Value:
        return to.emit(c.Determinant(), (x,), TensorType(x.dtype, x.shape[:-2]))
