"""The pattern matcher: arithmetic in any order, the same value for the same name."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from jitonnx.ops.onnx.arithmetic import Add, Div, Erf, Exp, Mul, Neg, Pow, Reciprocal, Sqrt, Sub
from jitonnx.passes.pattern import Number, Pattern, any_, call, flatten_product, flatten_sum, match
from tests.passes.graphs import Build, Value, normal

x, y = any_("x"), any_("y")
exp = call(Exp)
GELU = 0.5 * x * (1 + call(Erf)(x / math.sqrt(2)))
Author = Callable[[Build, Value, Value], Value]

half, one, root = np.float32(0.5), np.float32(1), np.float32(math.sqrt(0.5))


@pytest.mark.parametrize(
    ("pattern", "author", "matches"),
    [
        (x + y, lambda b, p, q: b.op(Add(), q, p), True),
        (x - y, lambda b, p, q: b.op(Sub(), p, q), True),
        (x - y, lambda b, p, q: b.op(Add(), p, b.op(Neg(), q)), True),
        (x + y, lambda b, p, q: b.op(Sub(), p, q), False),
        (2 * x, lambda b, p, q: b.op(Div(), p, half), True),
        (2 * x, lambda b, p, q: b.op(Mul(), p, half), False),
        (x / y, lambda b, p, q: b.op(Mul(), b.op(Reciprocal(), q), p), True),
        (x**-0.5, lambda b, p, q: b.op(Reciprocal(), b.op(Sqrt(), p)), True),
        (x**-0.5, lambda b, p, q: b.op(Div(), one, b.op(Sqrt(), p)), True),
        (x**-0.5, lambda b, p, q: b.op(Pow(), p, np.float32(-0.5)), True),
        (x**3, lambda b, p, q: b.op(Mul(), p, b.op(Mul(), p, p)), True),
        (x**3, lambda b, p, q: b.op(Mul(), p, b.op(Mul(), p, q)), False),
        (x, lambda b, p, q: b.op(Sqrt(), b.op(Pow(), p, np.float32(2))), True),  # as anything, but not as p itself
        (-1 * x, lambda b, p, q: b.op(Neg(), p), True),
        (exp(x) * exp(x), lambda b, p, q: b.op(Mul(), b.op(Exp(), p), b.op(Exp(), q)), False),
        (x * y + 3, lambda b, p, q: b.op(Add(), np.float32(3), b.op(Mul(), q, p)), True),
        (x * y + 3, lambda b, p, q: b.op(Add(), np.float32(4), b.op(Mul(), q, p)), False),
    ],
)
def test_match(pattern: Pattern, author: Author, matches: bool) -> None:
    b = Build()
    p, q = b.input(normal(3)), b.input(normal(3, seed=1))
    assert (match(pattern, author(b, p, q)) is not None) is matches


def test_the_root_of_a_square_is_not_taken_apart() -> None:
    b = Build()
    p = b.input(normal(3))
    square = b.op(Pow(), p, np.float32(2))
    assert flatten_product(b.op(Sqrt(), square)).factors == {square: 0.5}
    assert flatten_product(b.op(Sqrt(), b.op(Neg(), p))).factors.values() != {p: 0.5}


def test_named_numbers() -> None:
    b = Build()
    p = b.input(normal(3))
    found = match((x + Number("epsilon")) ** -0.5, b.op(Reciprocal(), b.op(Sqrt(), b.op(Add(), p, np.float32(1e-5)))))
    assert found is not None
    assert found.numbers["epsilon"] == pytest.approx(1e-5)
    assert found["x"] is p
    assert len(found.nodes) == 3


def test_values_read_by_others_are_not_taken_apart() -> None:
    b = Build()
    p, q = b.input(normal(3)), b.input(normal(3))
    product, total = b.op(Mul(), p, q), b.op(Add(), p, q)
    b.op(Exp(), product)
    b.op(Exp(), total)
    assert flatten_product(b.op(Mul(), product, p)).factors == {product: 1, p: 1}
    assert [value for value, _ in flatten_sum(b.op(Sub(), p, total)).summands] == [p, total]


def all_gelus() -> list[Author]:
    """Gelu in every order of its factors."""

    def author(order: int, erf_first: bool, by_division: bool) -> Author:
        def build(b: Build, p: Value, _: Value) -> Value:
            inner = b.op(Div(), p, np.float32(math.sqrt(2))) if by_division else b.op(Mul(), root, p)
            erf = b.op(Erf(), inner)
            factor = b.op(Add(), erf, one) if erf_first else b.op(Add(), one, erf)
            if order == 0:
                return b.op(Mul(), b.op(Mul(), half, p), factor)
            if order == 1:
                return b.op(Mul(), b.op(Mul(), p, factor), half)
            if order == 2:
                return b.op(Mul(), p, b.op(Mul(), factor, half))
            return b.op(Div(), b.op(Mul(), p, factor), np.float32(2))

        return build

    return [author(order, first, division) for order in range(4) for first in (0, 1) for division in (0, 1)]


@pytest.mark.parametrize("author", all_gelus())
def test_every_spelling_of_gelu(author: Author) -> None:
    b = Build()
    p = b.input(normal(3))
    found = match(GELU, author(b, p, p))
    assert found is not None
    assert found["x"] is p
