"""Activation functions that exporters spell out, recognised."""

from __future__ import annotations

import math
from collections.abc import Callable

from jitonnx.ir.graph import Node
from jitonnx.ops.onnx.activation import Gelu, HardSigmoid, HardSwish, Mish, Sigmoid, Softplus, Swish, Tanh
from jitonnx.ops.onnx.arithmetic import Clip, Div, Erf, Mul
from jitonnx.passes.pattern import Match, Number, any_, call, pattern_rule
from jitonnx.passes.rewriting import Edit, Result, scalar

x = any_("x")
erf, tanh, sigmoid, softplus = call(Erf), call(Tanh), call(Sigmoid), call(Softplus)


def _bounded(low: float, high: float) -> Callable[[Node], bool]:
    def accepts(node: Node) -> bool:
        limits = [scalar(value) for value in (*node.inputs[1:], None, None)[:2]]
        return limits == [low, high]

    return accepts


def _by_sixths(node: Node) -> bool:
    operator = node.operator
    assert isinstance(operator, HardSigmoid)
    return math.isclose(operator.alpha, 1 / 6, rel_tol=1e-5) and operator.beta == 0.5


relu6 = call(Clip, accepts=_bounded(0, 6))
hard_sigmoid_of = call(HardSigmoid, accepts=_by_sixths)


@pattern_rule(
    "gelu",
    0.5 * x * (1 + erf(x / math.sqrt(2))),
    anchors=(Mul, Div),
    equation="x / 2 * (1 + erf(x / sqrt 2)) = Gelu(x)",
)
def gelu(match: Match, edit: Edit) -> Result:
    """The exact form, factors in any order."""
    return edit.add(Gelu(), match["x"])


@pattern_rule(
    "gelu by tanh",
    0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x**2))),
    anchors=(Mul, Div),
    equation="x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) = Gelu(x, approximate=tanh)",
)
def gelu_tanh(match: Match, edit: Edit) -> Result:
    """The approximation of GPT-2, the cube as a power or as products."""
    return edit.add(Gelu(approximate="tanh"), match["x"])


@pattern_rule(
    "swish",
    x * sigmoid(x),
    x * sigmoid(Number("alpha") * x),
    anchors=(Mul,),
    equation="x * sigmoid(alpha x) = Swish(x, alpha); alpha = 1 is also called SiLU",
)
def swish(match: Match, edit: Edit) -> Result:
    """SiLU; with alpha 1.702 the quick approximation of Gelu."""
    return edit.add(Swish(alpha=match.numbers.get("alpha", 1.0)), match["x"])


@pattern_rule(
    "hard sigmoid", relu6(x + 3) / 6, anchors=(Mul, Div), equation="clip(x + 3, 0, 6) / 6 = HardSigmoid(x, 1/6, 1/2)"
)
def hard_sigmoid(match: Match, edit: Edit) -> Result:
    """Recognise it as exporters of MobileNetV3 write it."""
    return edit.add(HardSigmoid(alpha=1 / 6, beta=0.5), match["x"])


@pattern_rule(
    "hard swish",
    x * hard_sigmoid_of(x),
    x * relu6(x + 3) / 6,
    anchors=(Mul, Div),
    equation="x * HardSigmoid(x, 1/6, 1/2) = HardSwish(x)",
)
def hard_swish(match: Match, edit: Edit) -> Result:
    """Recognise it by its parts, or by a clipped sum."""
    return edit.add(HardSwish(), match["x"])


@pattern_rule("mish", x * tanh(softplus(x)), anchors=(Mul,), equation="x * tanh(softplus(x)) = Mish(x)")
def mish(match: Match, edit: Edit) -> Result:
    """Recognise it by its parts."""
    return edit.add(Mish(), match["x"])


RULES = (gelu, gelu_tanh, swish, hard_swish, hard_sigmoid, mish)
