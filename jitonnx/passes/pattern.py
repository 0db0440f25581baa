"""Patterns that read as arithmetic, and finding them in a graph however an exporter spelled them.

    x = any_("x")
    GELU = 0.5 * x * (1 + erf(x / 2**0.5))
    found = match(GELU, value)          # found["x"] is the value that x stands for

Products and sums are compared as such, not as trees: factors and summands come in any order and grouping, numbers may
stand anywhere among them, and a quotient, a square root, a reciprocal or a power is a factor with another exponent. So
`x * (erf(x / 1.414) + 1) * 0.5` and `(x / 2) * (1 + erf(0.7071 * x))` match the pattern above.

A pattern that occurs twice (the same object) stands for the same value both times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TypeAlias, Union

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.operator import Operator
from jitonnx.ops.onnx.arithmetic import Add, Div, Mul, Neg, Pow, Reciprocal, Sqrt, Sub
from jitonnx.passes.rewriting import Edit, Level, Result, Rule, scalar
from jitonnx.support.records import dataclass

PatternLike: TypeAlias = Union["Pattern", float, int]

TOLERANCE = 1e-4
"""Relative difference up to which a constant counts as the pattern's: exporters write 1.4142 for the root of 2."""


class Pattern:
    """Base of all patterns; arithmetic on patterns gives patterns."""

    def __add__(self, other: PatternLike) -> Pattern:
        return _sum(self, other)

    def __radd__(self, other: PatternLike) -> Pattern:
        return _sum(other, self)

    def __sub__(self, other: PatternLike) -> Pattern:
        return _sum(self, -1 * other)

    def __rsub__(self, other: PatternLike) -> Pattern:
        return _sum(other, -1 * self)

    def __mul__(self, other: PatternLike) -> Pattern:
        return _product(self, other)

    def __rmul__(self, other: PatternLike) -> Pattern:
        return _product(other, self)

    def __truediv__(self, other: PatternLike) -> Pattern:
        return _product(self, 1 / other if not isinstance(other, Pattern) else other**-1)

    def __pow__(self, exponent: float) -> Pattern:
        return Product(1.0, ((self, float(exponent)),))


@dataclass(eq=False)
class Any(Pattern):
    """Any value (of those that `accepts` takes), bound to a name."""

    name: str
    accepts: Callable[[Value], bool] | None = None


@dataclass(eq=False)
class Number(Pattern):
    """Any constant of one element, bound to a name; a summand or factor of its own."""

    name: str


@dataclass(eq=False)
class CallPattern(Pattern):
    """An operator of one of `operators` (whose attributes `accepts` takes) on arguments; further inputs are free."""

    operators: tuple[type[Operator], ...]
    arguments: tuple[Pattern, ...]
    accepts: Callable[[Node], bool] | None = None


@dataclass(eq=False)
class Product(Pattern):
    """coefficient (a number or a named one) * the product of pattern ** exponent."""

    coefficient: float | Number
    factors: tuple[tuple[Pattern, float], ...]


@dataclass(eq=False)
class SumPattern(Pattern):
    """constant (a number or a named one) + summands."""

    constant: float | Number
    summands: tuple[Pattern, ...]


def any_(name: str, accepts: Callable[[Value], bool] | None = None) -> Pattern:
    """A pattern for any value."""
    return Any(name, accepts)


def call(*operators: type[Operator], accepts: Callable[[Node], bool] | None = None) -> Callable[..., Pattern]:
    """A function that makes patterns of calls of one of `operators`."""
    return lambda *arguments: CallPattern(operators, arguments, accepts)


def _product(a: PatternLike, b: PatternLike) -> Product:
    coefficient: float | Number = 1.0
    factors: list[tuple[Pattern, float]] = []
    for part in (a, b):
        number: float | Number = 1.0
        if isinstance(part, Product):
            number = part.coefficient
            factors.extend(part.factors)
        elif isinstance(part, Number) or not isinstance(part, Pattern):
            number = part
        else:
            factors.append((part, 1.0))
        if isinstance(number, Number):
            coefficient = number
        elif not isinstance(coefficient, Number):
            coefficient *= number
    return Product(coefficient, tuple(factors))


def _sum(a: PatternLike, b: PatternLike) -> SumPattern:
    constant: float | Number = 0.0
    summands: list[Pattern] = []
    for part in (a, b):
        if isinstance(part, SumPattern):
            constant = part.constant if isinstance(part.constant, Number) or part.constant else constant
            summands.extend(part.summands)
        elif isinstance(part, Number):
            constant = part
        elif isinstance(part, Pattern):
            summands.append(part)
        else:
            constant = constant + part if not isinstance(constant, Number) else constant
    return SumPattern(constant, tuple(summands))


# ---------------------------------------------------------------- matching


@dataclass(frozen=True)
class Match:
    """What a pattern's names stand for, and the nodes that spell it, its last one first."""

    values: dict[Pattern, Value] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def __getitem__(self, name: str) -> Value:
        """The value bound to `name`."""
        return next(
            value for pattern, value in self.values.items() if isinstance(pattern, Any) and pattern.name == name
        )

    def node(self, pattern: Pattern) -> Node:
        """The node that a Call stands for."""
        producer = self.values[pattern].producer
        assert producer is not None
        return producer

    def bind(self, pattern: Pattern, value: Value) -> Match:
        return Match({**self.values, pattern: value}, self.numbers, self.nodes)

    def number(self, name: str, number: float) -> Match:
        return Match(self.values, {**self.numbers, name: number}, self.nodes)

    def through(self, nodes: Sequence[Node]) -> Match:
        return Match(self.values, self.numbers, tuple(dict.fromkeys((*self.nodes, *nodes))))


def match(pattern: Pattern, value: Value) -> Match | None:
    """The first way in which `value` is spelled as `pattern`, or None."""
    return next(_match(pattern, value, Match()), None)


def _match(pattern: Pattern, value: Value, found: Match) -> Iterator[Match]:
    if pattern in found.values:
        if found.values[pattern] is value:
            yield found
        return
    if isinstance(pattern, Any):
        if pattern.accepts is None or pattern.accepts(value):
            yield found.bind(pattern, value)
    elif isinstance(pattern, CallPattern):
        yield from _match_call(pattern, value, found)
    elif isinstance(pattern, Product):
        yield from _match_product(pattern, value, 1.0, found)
    elif isinstance(pattern, SumPattern):
        yield from _match_sum(pattern, value, found)


def _match_call(pattern: CallPattern, value: Value, found: Match) -> Iterator[Match]:
    node = value.producer
    if node is None or not isinstance(node.operator, pattern.operators) or len(node.inputs) < len(pattern.arguments):
        return
    if pattern.accepts is not None and not pattern.accepts(node):
        return
    found = found.bind(pattern, value).through([node])
    orders = [node.inputs, node.inputs[::-1]] if node.operator.commutative and len(node.inputs) == 2 else [node.inputs]
    for inputs in orders:
        yield from _match_all(pattern.arguments, inputs[: len(pattern.arguments)], found)


def _match_all(patterns: Sequence[Pattern], values: Sequence[Value | None], found: Match) -> Iterator[Match]:
    if not patterns:
        yield found
    elif values[0] is not None:
        for one in _match(patterns[0], values[0], found):
            yield from _match_all(patterns[1:], values[1:], one)


def _match_product(pattern: Product, value: Value, sign: float, found: Match) -> Iterator[Match]:
    flat = flatten_product(value)
    if len(flat.factors) != len(pattern.factors):
        return
    if isinstance(pattern.coefficient, Number):
        found = found.number(pattern.coefficient.name, flat.coefficient * sign)
    elif not _close(flat.coefficient * sign, pattern.coefficient, value):
        return
    yield from (
        one.bind(pattern, value)
        for one in _assign(pattern.factors, list(flat.factors.items()), found.through(flat.nodes))
    )


def _assign(wanted: Sequence[tuple[Pattern, float]], given: list[tuple[Value, float]], found: Match) -> Iterator[Match]:
    """Every way to give each wanted factor one of those given, with the same exponent."""
    if not wanted:
        yield found
        return
    pattern, exponent = wanted[0]
    for i, (value, power) in enumerate(given):
        if power == exponent:
            for one in _match(pattern, value, found):
                yield from _assign(wanted[1:], given[:i] + given[i + 1 :], one)


def _match_sum(pattern: SumPattern, value: Value, found: Match) -> Iterator[Match]:
    flat = flatten_sum(value)
    if len(flat.summands) != len(pattern.summands):
        return
    if isinstance(pattern.constant, Number):
        found = found.number(pattern.constant.name, flat.constant)
    elif not _close(flat.constant, pattern.constant, value):
        return
    for one in _assign_summands(pattern.summands, flat.summands, found.through(flat.nodes)):
        yield one.bind(pattern, value)


def _assign_summands(wanted: Sequence[Pattern], given: list[tuple[Value, float]], found: Match) -> Iterator[Match]:
    if not wanted:
        yield found
        return
    pattern = wanted[0]
    for i, (value, sign) in enumerate(given):
        if isinstance(pattern, Product):
            ways = _match_product(pattern, value, sign, found)
        else:
            ways = _match(pattern, value, found) if sign == 1 else iter(())
        for one in ways:
            yield from _assign_summands(wanted[1:], given[:i] + given[i + 1 :], one)


def _close(given: float, wanted: float, value: Value) -> bool:
    tolerance = {DType.FLOAT16: 2e-3, DType.BFLOAT16: 1e-2}.get(value.dtype, TOLERANCE)
    return math.isclose(given, wanted, rel_tol=tolerance, abs_tol=1e-12)


def pattern_rule(
    name: str, *patterns: Pattern, anchors: tuple[type[Operator], ...], equation: str, level: Level = Level.EXTENDED
) -> Callable[[Callable[[Match, Edit], Result]], Rule]:
    """A rule for the first of `patterns` that a floating-point result matches.

    anchors: the operators that may come last. What the pattern spells must not be read elsewhere.
    """

    def decorate(function: Callable[[Match, Edit], Result]) -> Rule:
        def apply(node: Node, edit: Edit) -> Result:
            value = node.outputs[0]
            if value.dtype is None or not value.dtype.is_float or value.type.shape is None:
                return None
            for pattern in patterns:
                if (found := match(pattern, value)) is not None:
                    edit.consume(found.nodes)
                    return function(found, edit)
            return None

        return Rule(name, equation, level, anchors, apply)

    return decorate


# ---------------------------------------------------------------- products and sums of a graph


@dataclass
class FlatProduct:
    """coefficient * the product of value ** exponent, and the nodes that form it."""

    coefficient: float = 1.0
    factors: dict[Value, float] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)


@dataclass
class FlatSum:
    """constant + the sum of sign * value, and the nodes that form it."""

    constant: float = 0.0
    summands: list[tuple[Value, float]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


def flatten_product(value: Value) -> FlatProduct:
    """`value` as a product. Only intermediate results without other users are taken apart."""
    flat = FlatProduct()
    _multiply(flat, value, 1.0, open_=True)
    return flat


def _multiply(flat: FlatProduct, value: Value, exponent: float, *, open_: bool) -> None:
    if (number := scalar(value)) is not None and (number > 0 or (number != 0 and exponent == int(exponent))):
        flat.coefficient *= number**exponent
        return
    node = value.producer if open_ or _single_use(value) else None
    parts = _factors(node) if node is not None else None
    if node is None or parts is None or not _distributes(node, parts, exponent):
        flat.factors[value] = flat.factors.get(value, 0.0) + exponent
        return
    flat.nodes.append(node)
    if isinstance(node.operator, Neg):
        flat.coefficient *= (-1.0) ** exponent
    for part, inner in parts:
        _multiply(flat, part, inner * exponent, open_=False)


def _factors(node: Node) -> list[tuple[Value, float]] | None:
    """The factors of a node's result with their exponents, if it is a product in the wide sense."""
    first = node.inputs[0] if node.inputs else None
    if first is None:
        return None
    operator = node.operator
    if isinstance(operator, Neg):
        return [(first, 1.0)]
    if isinstance(operator, Sqrt):
        return [(first, 0.5)]
    if isinstance(operator, Reciprocal):
        return [(first, -1.0)]
    second = node.inputs[1] if len(node.inputs) > 1 else None
    if second is None:
        return None
    if isinstance(operator, Mul):
        return [(first, 1.0), (second, 1.0)]
    if isinstance(operator, Div):
        return [(first, 1.0), (second, -1.0)]
    if isinstance(operator, Pow) and (exponent := scalar(second)) is not None:
        return [(first, exponent)]
    return None


def _distributes(node: Node, parts: list[tuple[Value, float]], outer: float) -> bool:
    """Whether a power of the product is the product of powers wherever both are defined: not so for sqrt(v * v)."""
    return outer == int(outer) or (len(parts) == 1 and parts[0][1] == 1.0 and not isinstance(node.operator, Neg))


def flatten_sum(value: Value) -> FlatSum:
    """`value` as a sum. Only intermediate results without other users are taken apart."""
    flat = FlatSum()
    _accumulate(flat, value, 1.0, open_=True)
    return flat


def _accumulate(flat: FlatSum, value: Value, sign: float, *, open_: bool) -> None:
    if (number := scalar(value)) is not None:
        flat.constant += sign * number
        return
    node = value.producer
    if node is None or not isinstance(node.operator, Add | Sub) or not (open_ or _single_use(value)):
        flat.summands.append((value, sign))
        return
    flat.nodes.append(node)
    first, second = node.inputs
    assert first is not None and second is not None
    _accumulate(flat, first, sign, open_=False)
    _accumulate(flat, second, sign if isinstance(node.operator, Add) else -sign, open_=False)


def _single_use(value: Value) -> bool:
    return sum(value._users.values()) == 1
