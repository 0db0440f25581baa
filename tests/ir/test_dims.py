"""Symbolic dimensions: an expression means what its integers would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitonnx.ir import dims
from jitonnx.ir.dims import Dim, DimLike, evaluate, variable

BATCH, SEQ = variable("batch"), variable("seq")
OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: dims.floor_divide(a, b),
    "%": lambda a, b: dims.modulo(a, b),
    "max": dims.maximum,
    "min": dims.minimum,
}


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[DimLike, str]:
    """An expression over batch and seq, and the same as Python text."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([(BATCH, "batch"), (SEQ, "seq"), *((n, str(n)) for n in (1, 2, 3, 7, 64))]))
    name = draw(st.sampled_from(sorted(OPERATIONS)))
    (a, text_a), (b, text_b) = draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1))
    if b == 0 or (name in ("//", "%") and not isinstance(b, int)):
        b, text_b = 3, "3"
    text = f"{name}({text_a}, {text_b})" if name in ("max", "min") else f"(({text_a}) {name} ({text_b}))"
    return OPERATIONS[name](a, b), text


@given(expressions(), st.integers(1, 50), st.integers(1, 50))
def test_value_is_that_of_the_integers(expression: tuple[DimLike, str], batch: int, seq: int) -> None:
    dim, text = expression
    expected = eval(text, {"batch": batch, "seq": seq, "max": max, "min": min})
    assert evaluate(dim, {"batch": batch, "seq": seq}) == expected
    assert dims.substitute(dim, {"batch": batch, "seq": seq}) == expected
    assert eval(dims.python_source(dim), {"batch": batch, "seq": seq, "max": max, "min": min}) == expected


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (BATCH * SEQ * 384 // 384, SEQ * BATCH),
        (BATCH * SEQ * 12 * 32 // (BATCH * SEQ), 384),
        ((BATCH + 1) * 2 - 2, BATCH * 2),
        (dims.maximum(SEQ + 1, SEQ), SEQ + 1),
        (dims.minimum(SEQ, SEQ), SEQ),
        (BATCH * 6 % 3, 0),
        (BATCH - BATCH, 0),
        (dims.maximum(BATCH, SEQ), dims.maximum(SEQ, BATCH)),
    ],
)
def test_equal_expressions_are_equal(a: DimLike, b: DimLike) -> None:
    assert a == b
    assert hash(a) == hash(b)


def test_what_is_known_is_an_int() -> None:
    assert isinstance(BATCH * 0 + 3, int)
    assert isinstance(BATCH + 1, Dim)
    assert dims.variables(BATCH * SEQ // 2 + 1) == {"batch", "seq"}


def test_missing_variable_is_named() -> None:
    with pytest.raises(KeyError, match="seq"):
        evaluate(BATCH * SEQ, {"batch": 1})


def test_exact_divide() -> None:
    assert dims.exact_divide(BATCH * SEQ * 6, SEQ * 2) == BATCH * 3
    assert dims.exact_divide(7, 2) is None
    assert dims.exact_divide(BATCH, SEQ) is None
    assert dims.exact_divide(3, 0) is None


@pytest.mark.parametrize(
    ("before", "behind", "groups"),
    [
        ((2, 3, 4), (6, 4), [([0, 1], [0]), ([2], [1])]),
        ((4, 6), (3, 8), [([0, 1], [0, 1])]),
        ((1, 5), (5, 1), [([0], []), ([1], [0]), ([], [1])]),
        ((BATCH, SEQ, 12), (BATCH * SEQ, 3, 4), [([0, 1], [0]), ([2], [1, 2])]),
        ((BATCH * 6, 5), (BATCH, 2, 3, 5), [([0], [0, 1, 2]), ([1], [3])]),
        ((0, 3), (0, 3), None),
        ((), (), []),
        ((BATCH, SEQ), (SEQ, BATCH), None),
        ((0, 3), (3, 0), None),
        ((2, 3), (7,), None),
    ],
)
def test_matched_axes(
    before: tuple[DimLike, ...],
    behind: tuple[DimLike, ...],
    groups: list[tuple[list[int], list[int]]] | None,
) -> None:
    assert dims.matched_axes(before, behind) == groups
