"""The operator that does nothing."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import Operator
from jitonnx.ir.types import Type


class Identity(Operator):
    """The input."""

    symbolic = True

    def infer(self, context: InferenceContext, x: Value) -> Type:
        return x.type

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x

    def lower(self, to: Lowering, x: Value) -> Value:
        return x
