"""Derivatives of scalar expressions by their operands.

Where a function has a kink, the derivative is that of one side: 0 for abs, floor and the like; of a maximum or minimum,
an operand that is not the only extreme one has no part in it if the others are constants, else an equal part.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.expressions import Expr

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
_ROOT_TWO_PI = math.sqrt(2 * math.pi)


def _gelu(x: Expr, y: Expr) -> Expr:
    return (e.erf(x * math.sqrt(0.5)) + 1) * 0.5 + x * e.exp(x * x * -0.5) / _ROOT_TWO_PI


def _gelu_tanh(x: Expr, y: Expr) -> Expr:
    factor = math.sqrt(8 / math.pi)
    gate = e.sigmoid(x * factor * (x * x * 0.044715 + 1))
    return gate + x * gate * (1 - gate) * factor * (x * x * (3 * 0.044715) + 1)


def _silu(x: Expr, y: Expr) -> Expr:
    gate = e.sigmoid(x)
    return gate + y * (1 - gate)


def _mish(x: Expr, y: Expr) -> Expr:
    inner = e.tanh(e.softplus(x))
    return inner + x * (1 - inner * inner) * e.sigmoid(x)


UNARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "neg": lambda x, y: x * 0 - 1,
    "abs": lambda x, y: e.sign(x),
    "sqrt": lambda x, y: 0.5 / y,
    "reciprocal": lambda x, y: -(y * y),
    "exp": lambda x, y: y,
    "log": lambda x, y: 1.0 / x,
    "log1p": lambda x, y: 1.0 / (x + 1),
    "expm1": lambda x, y: y + 1,
    "erf": lambda x, y: e.exp(-(x * x)) * _TWO_OVER_ROOT_PI,
    "tanh": lambda x, y: 1 - y * y,
    "sigmoid": lambda x, y: y * (1 - y),
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "softplus": lambda x, y: e.sigmoid(x),
    "mish": _mish,
    "sin": lambda x, y: e.cos(x),
    "cos": lambda x, y: -e.sin(x),
    "tan": lambda x, y: y * y + 1,
    "asin": lambda x, y: 1.0 / e.sqrt(1 - x * x),
    "acos": lambda x, y: -1.0 / e.sqrt(1 - x * x),
    "atan": lambda x, y: 1.0 / (x * x + 1),
    "sinh": lambda x, y: e.cosh(x),
    "cosh": lambda x, y: e.sinh(x),
    "asinh": lambda x, y: 1.0 / e.sqrt(x * x + 1),
    "acosh": lambda x, y: 1.0 / e.sqrt(x * x - 1),
    "atanh": lambda x, y: 1.0 / (1 - x * x),
}
"""The derivative of a function, by x and y = f(x)."""

FLAT = frozenset(
    {
        *("sign", "floor", "ceil", "trunc", "round", "isnan", "isinf", "eq", "ne", "lt", "le", "gt", "ge"),
        *("logical_not", "logical_and", "logical_or", "logical_xor", "bitwise_not", "bitwise_and", "bitwise_or"),
        *("bitwise_xor", "shift_left", "shift_right"),
    }
)
"""Functions that are constant wherever they have a derivative."""


def _extreme(wins: Expr, equal: Expr, other: Expr) -> Expr:
    """The part of an operand in a maximum or minimum."""
    tie = 0.0 if other.op == "constant" else 0.5
    one = e.constant(1.0, other.dtype)
    return e.where(wins, one, e.where(equal, one * tie, one * 0))


def _power(a: Expr, b: Expr, y: Expr) -> list[Expr]:
    zero = e.constant(0.0, a.dtype)
    by_base = e.where(e.equal(b, 0), zero, b * e.power(a, b - 1))
    return [by_base, e.where(a > 0, y * e.log(e.where(a > 0, a, 1.0)), zero)]


BINARY: dict[str, Callable[..., list[Expr]]] = {
    "add": lambda a, b, y: [e.constant(1.0, a.dtype)] * 2,
    "sub": lambda a, b, y: [e.constant(1.0, a.dtype), e.constant(-1.0, a.dtype)],
    "mul": lambda a, b, y: [b, a],
    "div": lambda a, b, y: [1.0 / b, -y / b],
    "fmod": lambda a, b, y: [e.constant(1.0, a.dtype), -e.trunc(a / b)],
    "mod": lambda a, b, y: [e.constant(1.0, a.dtype), -e.floor(a / b)],
    "pow": _power,
    "elu": lambda a, b, y: [e.where(a < 0, y + b, 1.0), e.where(a < 0, e.expm1(e.minimum(a, 0.0)), 0.0)],
    "maximum": lambda a, b, y: [_extreme(a > b, e.equal(a, b), b), _extreme(b > a, e.equal(a, b), a)],
    "minimum": lambda a, b, y: [_extreme(a < b, e.equal(a, b), b), _extreme(b < a, e.equal(a, b), a)],
}
"""The derivatives of y = f(a, b) by a and b."""


def derivatives(root: Expr, seed: Expr) -> dict[int, Expr]:
    """`seed` times the derivative of `root` by each operand of a floating-point type on which it depends.

    KeyError for a function that has no derivative here.
    """
    order = e.children_first(root)
    parts: dict[Expr, Expr] = {root: seed}
    found: dict[int, Expr] = {}
    for node in reversed(order):
        part = parts.pop(node, None)
        if part is None or not node.dtype.is_float:
            continue
        if node.op == "operand":
            found[node.value] = part
        for argument, factor in zip(node.arguments, _parts(node, part), strict=True):
            if factor is not None and argument.dtype.is_float:
                parts[argument] = parts[argument] + factor if argument in parts else factor
    return found


def _parts(node: Expr, part: Expr) -> list[Expr | None]:
    """What each argument of a node gets of the node's part."""
    arguments = node.arguments
    if not arguments or node.op in FLAT:
        return [None] * len(arguments)
    if node.op == "cast":
        return [e.cast(part, arguments[0].dtype) if arguments[0].dtype.is_float else None]
    if node.op == "where":
        zero = e.constant(0.0, node.dtype)
        return [None, e.where(arguments[0], part, zero), e.where(arguments[0], zero, part)]
    if len(arguments) == 1:
        return [part * UNARY[node.op](arguments[0], node)]
    return [part * factor for factor in BINARY[node.op](*arguments, node)]
