"""What users write operators with.

    from jitonnx import custom
    from jitonnx.custom import e

    @jitonnx.register
    class Swoosh(custom.Elementwise):
        domain = "my.domain"
        inputs, outputs = ("X: T",), ("Y: T",)
        types = {"T": custom.FLOATS}

        alpha: float = 1.0

        def evaluate(self, x):
            return x * np.tanh(self.alpha * x)

        def scalar(self, x):
            return x * e.tanh(x * self.alpha)

docs/operators.md says what each part means.
"""

from __future__ import annotations

from typing import TypeVar

from jitonnx.compiled import CompiledFunction, compiled
from jitonnx.computation import expr as e
from jitonnx.computation.lowering import Lowering
from jitonnx.ir.bodies import Bodies
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, SparseTensor, Tensor, internal
from jitonnx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from jitonnx.ops.base import BOOLS, FLOATS, INTEGERS, NUMBERS, Elementwise
from jitonnx.ops.composite import Composite, Parts
from jitonnx.ops.registry import registry

__all__ = [
    "BOOLS",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "Bodies",
    "CompiledFunction",
    "Composite",
    "DType",
    "Elementwise",
    "InferenceContext",
    "InferenceError",
    "Lowering",
    "MapType",
    "Operator",
    "OptionalType",
    "Parts",
    "SequenceType",
    "SparseTensor",
    "SparseTensorType",
    "Tensor",
    "TensorType",
    "Type",
    "Value",
    "compiled",
    "e",
    "internal",
    "register",
]

_D = TypeVar("_D", bound=type[Operator])


def register(declaration: _D) -> _D:
    """Let models of all sessions made from now on use an operator; the declaration itself, so that it is a decorator.

    `SessionOptions.register_custom_ops` does so for some sessions only. ValueError for a domain and name that are taken
    already, TypeError for a declaration that lacks a part.
    """
    registry.add(declaration)
    return declaration
