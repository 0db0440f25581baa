"""The operator that does nothing."""

from __future__ import annotations

import numpy as np

from jitonnx.computation.lowering import Lowering
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import Operator
from jitonnx.ir.types import Type


class Identity(Operator):
    """The input."""

    versions = (1, 13, 14, 16, 19, 21, 23, 24, 25)
    inputs = ("input",)
    outputs = ("output",)
    symbolic = True
    containers = True

    def infer(self, x: Value) -> Type:
        return x.type

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x

    def lower(self, to: Lowering, x: Value) -> Value:
        return x


OPERATORS = (Identity,)
