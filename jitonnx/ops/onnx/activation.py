"""Activation functions: one input, one output of the same shape."""

from __future__ import annotations

import math

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import Elementwise, Unary, via_float32
from jitonnx.ops.elementary import erf
from jitonnx.ops.onnx.shape import Unsqueeze


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


class Celu(Elementwise):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    alpha: float = 1.0

    @via_float32
    def evaluate(self, x: np.ndarray) -> np.ndarray:
        alpha = x.dtype.type(self.alpha)
        return np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.where(x < 0, e.expm1(x / self.alpha) * self.alpha, x)


class Elu(Elementwise):
    """x where x >= 0, else alpha * (exp(x) - 1)."""

    alpha: float = 1.0

    @via_float32
    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, x.dtype.type(self.alpha) * np.expm1(x), x)

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.elu(x, self.alpha)


class Gelu(Elementwise):
    """x / 2 * (1 + erf(x / sqrt(2))); approximate="tanh": x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))."""

    approximate: str = "none"

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if self.approximate not in ("none", "tanh"):
            raise InferenceError(f"approximate is {self.approximate!r}; 'none' and 'tanh' are known")
        return x.type

    @via_float32
    def evaluate(self, x: np.ndarray) -> np.ndarray:
        if self.approximate == "tanh":
            factor = 1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
        else:
            factor = 1 + erf(x * math.sqrt(0.5))
        return x * 0.5 * factor

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.gelu_tanh(x) if self.approximate == "tanh" else e.gelu(x)


class HardSigmoid(Elementwise):
    """alpha * x + beta, held to [0, 1]."""

    alpha: float = 0.2
    beta: float = 0.5

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.minimum(e.maximum(x * self.alpha + self.beta, 0), 1)


class HardSwish(Elementwise):
    """x * max(0, min(1, x / 6 + 0.5))."""

    def scalar(self, x: e.Expr) -> e.Expr:
        return x * e.minimum(e.maximum(x * (1 / 6) + 0.5, 0), 1)


class LeakyRelu(Elementwise):
    """x where x >= 0, else alpha * x."""

    alpha: float = 0.01

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.where(x < 0, x * self.alpha, x)


class Mish(Unary):
    """x * tanh(softplus(x))."""

    function = staticmethod(lambda x: x * np.tanh(_softplus(x)))
    expression = staticmethod(e.mish)


class PRelu(Elementwise):
    """x where x >= 0, else slope * x; slope is broadcast to x (and x to slope, as onnxruntime has it)."""

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        """Before version 7 a slope of rank 1 belonged to the channels (axis 1), not to the last axis."""
        x, slope = node.inputs
        if node.version < 7 and x is not None and slope is not None and len(slope.shape) == 1:
            trailing = len(x.shape) - 2
            if trailing > 0:
                axes = np.arange(1, 1 + trailing)
                node.inputs[1] = node.add(Unsqueeze(), [slope, node.add_constant(axes)])

    def scalar(self, x: e.Expr, slope: e.Expr) -> e.Expr:
        return e.where(x < 0, x * slope, x)


class Relu(Elementwise):
    """max(x, 0); NaN stays NaN."""

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, x.dtype.type(0))

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.maximum(x, 0)


class Selu(Elementwise):
    """gamma * x where x > 0, else gamma * alpha * (exp(x) - 1)."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version == 1:  # had the constants with fewer digits
            node.attributes.setdefault("alpha", 1.6732)
            node.attributes.setdefault("gamma", 1.0507)

    @via_float32
    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x, self.alpha * np.expm1(x)) * self.gamma

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.elu(x, self.alpha) * self.gamma


class Shrink(Elementwise):
    """x + bias where x < -lambd, x - bias where x > lambd, else 0. Integers are computed with as floats."""

    bias: float = 0.0
    lambd: float = 0.5

    @via_float32
    def evaluate(self, x: np.ndarray) -> np.ndarray:
        wide = x if x.dtype.kind == "f" else x.astype(np.float64)
        zero = wide.dtype.type(0)
        shrunk = np.where(wide < -self.lambd, wide + self.bias, np.where(wide > self.lambd, wide - self.bias, zero))
        return shrunk.astype(x.dtype)

    def scalar(self, x: e.Expr) -> e.Expr:
        wide = x if x.dtype.is_float else e.cast(x, DType.DOUBLE)
        inner = e.where(wide > self.lambd, wide - self.bias, e.constant(0.0, wide.dtype))  # 0 of NaN, too
        return e.cast(e.where(wide < -self.lambd, wide + self.bias, inner), x.dtype)


class Sigmoid(Unary):
    """1 / (1 + exp(-x))."""

    function = staticmethod(_sigmoid)
    expression = staticmethod(e.sigmoid)


class Softplus(Unary):
    """log(exp(x) + 1), without forming exp of large numbers."""

    function = staticmethod(_softplus)
    expression = staticmethod(e.softplus)


class Softsign(Elementwise):
    """x / (1 + |x|)."""

    def scalar(self, x: e.Expr) -> e.Expr:
        return x / (e.absolute(x) + 1)


class SwiGLU(Elementwise):
    """A * sigmoid(alpha * A) * B; A and B have one shape."""

    alpha: float = 1.0

    def infer(self, context: InferenceContext, *inputs: Value) -> TensorType:
        a, b = inputs
        if len(a.shape) != len(b.shape) or not all(map(context.demand_equal, a.shape, b.shape)):
            raise InferenceError(f"A is {a.type} and B {b.type}: both need one shape")
        return a.type

    @via_float32
    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a * _sigmoid(a * self.alpha) * b

    def scalar(self, a: e.Expr, b: e.Expr) -> e.Expr:
        return (e.silu(a) if self.alpha == 1 else a * e.sigmoid(a * self.alpha)) * b


class Swish(Elementwise):
    """x * sigmoid(alpha * x)."""

    alpha: float = 1.0

    @via_float32
    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x * _sigmoid(x * self.alpha)

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.silu(x) if self.alpha == 1 else x * e.sigmoid(x * self.alpha)


class Tanh(Unary):
    """The hyperbolic tangent."""

    function = staticmethod(np.tanh)
    expression = staticmethod(e.tanh)


class ThresholdedRelu(Elementwise):
    """x where x > alpha, else 0."""

    alpha: float = 1.0

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.where(x > self.alpha, x, 0)
