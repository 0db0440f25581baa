"""The activations that ONNX's recurrent operators can name."""

from __future__ import annotations

from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.mathematics import vecmath
from jitonnx.emit.ssa import SSAValue, at_least, at_most, fma, select
from jitonnx.kernels.recurrent.spec import Activation


def activate(code: KernelBuilder, activation: Activation, x: SSAValue, clip: float) -> SSAValue:
    """The activation of x, which is bounded to [-clip, clip] before if clip > 0."""
    name, alpha, beta = activation
    if clip > 0:
        x = at_most(at_least(x, -clip), clip)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](x)
    if name == "Relu":
        return at_least(x, 0.0)
    if name == "Affine":
        return fma(x, alpha, x.constant(beta))
    if name == "LeakyRelu":
        return select(x < 0.0, x * alpha, x)
    if name == "ThresholdedRelu":
        return select(x > alpha, x, 0.0)
    if name == "ScaledTanh":
        return vecmath.tanh(x * beta) * alpha
    if name == "HardSigmoid":
        return vecmath.hard_sigmoid(x, x.constant(alpha), x.constant(beta))
    if name == "Elu":
        return vecmath.elu(x, x.constant(alpha))
    raise ValueError(f"Bug: no code for activation {name!r}")


_FUNCTIONS = {
    "Sigmoid": vecmath.sigmoid,
    "Tanh": vecmath.tanh,
    "Softsign": vecmath.softsign,
    "Softplus": vecmath.softplus,
}
