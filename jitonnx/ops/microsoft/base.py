"""What the declarations of com.microsoft share."""

from __future__ import annotations

from collections.abc import Sequence

from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ops.composite import Composite, Parts
from jitonnx.ops.onnx.activation import (
    Elu,
    Gelu,
    HardSigmoid,
    LeakyRelu,
    Relu,
    Sigmoid,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu,
)
from jitonnx.ops.onnx.arithmetic import Add, Clip, Mul


class Contributed(Composite):
    """An operator of onnxruntime's own domain, whose operators all are of version 1."""

    domain = "com.microsoft"


def activated(parts: Parts, x: Value, name: str, parameters: Sequence[float] = ()) -> Value:
    """The activation that a fused operator names, with its parameters in onnxruntime's order."""
    plain: dict[str, type[Operator]] = {
        **{"Relu": Relu, "Sigmoid": Sigmoid, "Softplus": Softplus, "Softsign": Softsign, "Tanh": Tanh, "Gelu": Gelu}
    }
    if name in plain:
        return parts.add(plain[name](), x)
    alpha, beta = (*parameters, None, None)[:2]
    with_alpha: dict[str, type[Operator]] = {"Elu": Elu, "LeakyRelu": LeakyRelu, "ThresholdedRelu": ThresholdedRelu}
    if name in with_alpha:
        return parts.add(with_alpha[name]() if alpha is None else with_alpha[name](alpha=alpha), x)
    if name == "HardSigmoid":
        return parts.add(HardSigmoid(alpha=0.2 if alpha is None else alpha, beta=0.5 if beta is None else beta), x)
    if name == "Clip":
        bounds = [None if bound is None else of_type(parts, bound, x) for bound in (alpha, beta)]
        return parts.add(Clip(), x, *bounds)
    if name == "Affine":
        scaled = parts.add(Mul(), x, of_type(parts, 1.0 if alpha is None else alpha, x))
        return parts.add(Add(), scaled, of_type(parts, 0.0 if beta is None else beta, x))
    if name == "ScaledTanh":
        inner = parts.add(Mul(), x, of_type(parts, 1.0 if beta is None else beta, x))
        return parts.add(Mul(), parts.add(Tanh(), inner), of_type(parts, 1.0 if alpha is None else alpha, x))
    known = [*plain, *with_alpha, "HardSigmoid", "Clip", "Affine", "ScaledTanh"]
    raise InferenceError(f"activation {name!r}: one of {', '.join(known)} expected")


def of_type(parts: Parts, number: float, x: Value) -> Value:
    """A constant scalar of the element type of `x`."""
    return parts.constant(x.dtype.numpy.type(number))
