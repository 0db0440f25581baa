"""Gelus, alone and behind a bias."""

from __future__ import annotations

from jitonnx.ir.graph import Value
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.activation import Gelu as _Gelu
from jitonnx.ops.onnx.activation import Swish
from jitonnx.ops.onnx.arithmetic import Add


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


OPERATORS = (BiasGelu, FastGelu, Gelu, QuickGelu)
