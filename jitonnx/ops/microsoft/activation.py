"""Gelus, alone and behind a bias, and sums and activations with a factor."""

from __future__ import annotations

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.activation import Gelu as _Gelu
from jitonnx.ops.onnx.activation import Sigmoid, Swish
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.shape import Reshape
from jitonnx.ops.parts import as_type, numbers, widened


class Gelu(Contributed):
    """ONNX's Gelu, by the error function."""

    def compose(self, parts: Parts, x: Value) -> Value:
        return parts.add(_Gelu(), x)


class BiasGelu(Contributed):
    """Gelu, by the error function, of A + B."""

    def compose(self, parts: Parts, a: Value, b: Value) -> Value:
        return parts.add(_Gelu(), parts.add(Add(), a, b))


class FastGelu(Contributed):
    """Gelu, by the hyperbolic tangent, of X + bias."""

    def compose(self, parts: Parts, x: Value, bias: Value | None = None) -> Value:
        return parts.add(_Gelu(approximate="tanh"), x if bias is None else parts.add(Add(), x, bias))


class QuickGelu(Contributed):
    """X * sigmoid(alpha * X)."""

    alpha: float = 1.702

    def compose(self, parts: Parts, x: Value) -> Value:
        return parts.add(Swish(alpha=self.alpha), x)


class GatedAdd(Contributed):
    """X + Y * gate [..., 1], rounded once."""

    def compose(self, parts: Parts, x: Value, y: Value, gate: Value, weight: Value | None = None) -> Value:
        if weight is not None:
            raise InferenceError("gate_weight is not supported, as by onnxruntime on CPUs")
        product = parts.add(Mul(), widened(parts, y), widened(parts, gate))
        return as_type(parts, parts.add(Add(), widened(parts, x), product), x.dtype)


class ScaledSiLU(Contributed):
    """silu(scale * X), alpha in the place of a scale that is not given; each step is rounded to the type."""

    alpha: float = 1.0

    def compose(self, parts: Parts, x: Value, scale: Value | None = None) -> Value:
        factor = (
            parts.constant(DType.FLOAT.numpy.type(self.alpha)) if scale is None else as_type(parts, scale, DType.FLOAT)
        )
        if factor.shape:
            factor = parts.add(Reshape(), factor, numbers(parts))
        scaled = as_type(parts, parts.add(Mul(), as_type(parts, x, DType.FLOAT), factor), x.dtype)
        return parts.add(Mul(), scaled, parts.add(Sigmoid(), scaled))
