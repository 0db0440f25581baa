"""Optionals: a value, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import UNKNOWN, OptionalType, TensorType, Type


class Optional(Operator):
    """The input as an optional; without one, an optional of `type` without a value."""

    type: Type | None = None

    def infer(self, context: InferenceContext, value: Value | None = None) -> OptionalType:
        if value is None and self.type is None:
            raise InferenceError("either an input or the attribute type is needed")
        return OptionalType(value.type if value is not None else self.type or UNKNOWN)

    def evaluate(self, value: Any = None) -> tuple[Any]:
        return (value,)


class OptionalGetElement(Operator):
    """The value of an optional; what is none is its own value."""

    def infer(self, context: InferenceContext, value: Value) -> Type:
        return value.type.element if isinstance(value.type, OptionalType) else value.type

    def evaluate(self, value: Any) -> tuple[Any]:
        if value is None:
            raise ValueError("the optional has no value")
        return (value,)

    def lower(self, to: Lowering, value: Value) -> Value:
        return value


class OptionalHasElement(Operator):
    """Whether an optional has a value."""

    def infer(self, context: InferenceContext, value: Value | None = None) -> TensorType:
        return TensorType(DType.BOOL, ())

    def evaluate(self, value: Any = None) -> np.ndarray:
        return np.array(value is not None)

    def lower(self, to: Lowering, value: Value | None = None) -> Value:
        return to.fill(e.constant(value is not None, DType.BOOL), ())
