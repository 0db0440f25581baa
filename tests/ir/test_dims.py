"""Symbolic dimensions: an expression means what its integers would, and equal sizes are equal expressions."""

from __future__ import annotations

from itertools import product as product_of

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitonnx.ir import dims
from jitonnx.ir.dims import Dim, DimLike, evaluate, variable

BATCH, SEQ, H, W = map(variable, ("batch", "seq", "h", "w"))
OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": dims.floor_divide,
    "%": dims.modulo,
    "max": dims.maximum,
    "min": dims.minimum,
}


def evaluated(dim: DimLike, sizes: dict[str, int]) -> int:
    """Evaluate it by the Python source of the expression, one line an atom."""
    found = dims.atoms([dim])
    names = {atom: f"a{number}" for number, atom in enumerate(found)}
    values: dict[str, object] = {"max": max}
    for atom, name in names.items():
        values[name] = sizes[atom.text] if atom.function == "variable" else eval(dims.atom_source(atom, names), values)
    return int(eval(dims.python_source(dim, names), values))


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[DimLike, str]:
    """An expression over batch and seq, and the same as Python text."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([(BATCH, "batch"), (SEQ, "seq"), *((n, str(n)) for n in (0, 1, 2, 3, 7, 64))]))
    name = draw(st.sampled_from(sorted(OPERATIONS)))
    (a, text_a), (b, text_b) = draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1))
    if b == 0 and name in ("//", "%"):
        b, text_b = 3, "3"
    text = f"{name}({text_a}, {text_b})" if name in ("max", "min") else f"(({text_a}) {name} ({text_b}))"
    return OPERATIONS[name](a, b), text


@given(expressions(), st.integers(0, 50), st.integers(0, 50))
def test_value_is_that_of_the_integers(expression: tuple[DimLike, str], batch: int, seq: int) -> None:
    dim, text = expression
    sizes = {"batch": batch, "seq": seq}
    try:
        expected = eval(text, {**sizes, "max": max, "min": min})
    except ZeroDivisionError:
        return
    assert evaluate(dim, sizes) == expected
    assert dims.substitute(dim, sizes) == expected
    assert evaluated(dim, sizes) == expected


@given(expressions(depth=2), expressions(depth=2), st.integers(0, 50), st.integers(0, 50))
def test_within_is_one_term_of_the_same_value(
    one: tuple[DimLike, str], other: tuple[DimLike, str], batch: int, seq: int
) -> None:
    sizes, dim = {"batch": batch, "seq": seq}, dims.within(one[0], other[0])
    assert isinstance(dim, int) or len(dim.terms) == 1
    try:
        expected = max(0, min(evaluate(one[0], sizes), evaluate(other[0], sizes)))
    except ZeroDivisionError:
        return
    assert evaluate(dim, sizes) == expected == evaluated(dim, sizes)
    assert dims.substitute(dim, sizes) == expected


@given(expressions(), st.integers(1, 40))
def test_a_product_divided_by_a_factor_is_the_other(expression: tuple[DimLike, str], n: int) -> None:
    x, _ = expression
    for factor in (n, SEQ, SEQ * BATCH, SEQ + 2, n * SEQ * (BATCH - 3), dims.maximum(SEQ - 3, 0) * BATCH):
        if factor != 0:
            assert dims.exact_divide(x * factor, factor) == x
            assert dims.modulo(x * factor, factor) == 0


SIZES = (SEQ, 2 * SEQ + 1, 4 * SEQ, (SEQ + 1) // 2, 3 * BATCH * SEQ, dims.maximum(SEQ - 3, 0), BATCH + SEQ)


@given(st.sampled_from(SIZES), st.integers(1, 9), st.integers(1, 9), st.integers(-9, 9), st.integers(-3, 3))
def test_quotients_of_quotients_are_one(x: DimLike, m: int, n: int, more: int, times: int) -> None:
    pairs = [
        (x // m // n, x // (m * n)),
        ((x // m + more) // n, (x + m * more) // (m * n)),
        (-(-x // n), (x + n - 1) // n),
        ((x + n * times * SEQ + more) // n, times * SEQ + (x + more) // n),
        ((x * m) // (n * m), x // n),
        (x % n, x - n * (x // n)),
        ((x * times + more) // n * n + (x * times + more) % n, x * times + more),
    ]
    for a, b in pairs:
        assert a - b == 0


@given(st.sampled_from(SIZES), st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_pieces_of_an_axis_add_up_to_it(size: DimLike, ends: list[int]) -> None:
    ends, total, before = sorted(ends), 0, 0
    for end in ends:
        last = dims.minimum(end, size)
        total, before = total + dims.maximum(last - dims.minimum(before, size), 0), end
    assert total + dims.maximum(size - dims.minimum(before, size), 0) == size


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
        # what is left of a reshape
        ((8 * W - 24) // (W - 3), 8),
        ((512 * BATCH * W - 3072 * BATCH) // (BATCH * W - 6 * BATCH), 512),
        (BATCH * 8 * dims.maximum(W - 3, 0) // dims.maximum(W - 3, 0), BATCH * 8),
        ((H + 1) // 2 * (W - 1) * 64 // (64 * (W - 1)), (H + 1) // 2),
        ((1024 + 1024 * ((W - 1) // 2 // 2 // 2)) // (1 + (((W - 1) // 2) // 2) // 2), 1024),
        (2 * BATCH * SEQ // (4 * SEQ), BATCH // 2),
        ((6 * H * W + 12 * H) // (9 * W + 18), 2 * H // 3),
        # convolutions, and what undoes them
        ((W - 1) // 2 + 1, (W + 1) // 2),
        ((((W - 1) // 2 + 1) - 1) // 2 + 1, (W + 3) // 4),
        (2 * W // 2, W),
        ((2 * ((W + 1) // 2) + 1) // 2, (W + 1) // 2),
        (W // 2 + (W + 1) // 2, W),
        (W + W % 2 - 2 * ((W + 1) // 2), 0),
        ((W + (-W % 32)) // 32 * 32, 32 * ((W + 31) // 32)),
        ((3 * W) // 4 + (W + 3) // 4, W),
        # slices, windows
        (dims.minimum(SEQ, 3) + dims.maximum(SEQ - 3, 0), SEQ),
        (dims.maximum(dims.maximum(SEQ - 3, 0) - 2, 0), dims.maximum(SEQ - 5, 0)),
        (dims.minimum(dims.minimum(SEQ, 9), 4), dims.minimum(SEQ, 4)),
        (dims.minimum(dims.minimum(10**9, SEQ), SEQ), dims.minimum(10**9, SEQ)),
        (dims.maximum(dims.minimum(4, SEQ) - 2, 0), dims.maximum(SEQ - 2, 0) - dims.maximum(SEQ - 4, 0)),
        (dims.maximum(BATCH * SEQ, 0), BATCH * SEQ),
        (dims.maximum(4 * SEQ - 8, 0), 4 * dims.maximum(SEQ - 2, 0)),
        (dims.maximum(2 * W - W // 2, W), 2 * W - W // 2),
        (SEQ // (SEQ + 1), 0),
        ((SEQ + 2) // (SEQ + 1), 1 + 1 // (SEQ + 1)),
        (dims.minimum((440 + 160 * W) // 441, 160 + 160 * (W // 441)), (440 + 160 * W) // 441),
    ],
)
def test_equal_expressions_are_equal(a: DimLike, b: DimLike) -> None:
    assert a == b
    assert hash(a) == hash(b)


def test_what_is_known_is_an_int() -> None:
    assert isinstance(BATCH * 0 + 3, int)
    assert isinstance(BATCH + 1, Dim)
    assert dims.variables(BATCH * SEQ // 2 + 1) == {"batch", "seq"}


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (1 + BATCH * SEQ * 3 - SEQ, "3*batch*seq - seq + 1"),
        ((W - 1) // 2, "(w + 1)//2 - 1"),
        (W // 2 // (SEQ + 1), "w//(2*seq + 2)"),
        (dims.minimum(W, 4), "min(w, 4)"),
        (dims.maximum(W, SEQ), "max(w, seq)"),
        (dims.maximum(W - 3, 0) * BATCH, "batch*max(w - 3, 0)"),
    ],
)
def test_text(dim: DimLike, text: str) -> None:
    assert str(dim) == text


def test_missing_variable_is_named() -> None:
    with pytest.raises(KeyError, match="seq"):
        evaluate(BATCH * SEQ, {"batch": 1})


def test_exact_divide() -> None:
    assert dims.exact_divide(BATCH * SEQ * 6, SEQ * 2) == BATCH * 3
    assert dims.exact_divide(7, 2) is None
    assert dims.exact_divide(BATCH, SEQ) is None
    assert dims.exact_divide(3, 0) is None


@given(expressions(), st.booleans())
def test_what_is_said_not_to_be_negative_never_is(expression: tuple[DimLike, str], some: bool) -> None:
    dim, _ = expression
    if dims.not_negative(dim, [SEQ] if some else []):
        for batch, seq in product_of((0, 1, 2, 3, 4, 7, 20, 63, 128), repeat=2):
            try:
                value = evaluate(dim, {"batch": batch, "seq": seq})
            except ZeroDivisionError:
                continue
            assert value >= 0 or (some and seq == 0), f"{dim} for {batch}, {seq}"


@pytest.mark.parametrize(
    "dim",
    [
        W - W // 2,
        W - dims.maximum(W - 4, 0),
        (W + 7) // 8 - (W + 15) // 16,
        2 * ((W + 15) // 16) - (W + 7) // 8,
        BATCH * W - BATCH * ((W + 1) // 2) + BATCH,
        4 - dims.minimum(W, 4),
        W + 2 - (W + 5) // 3,
        dims.minimum(W, SEQ) * H,
        dims.maximum(W, SEQ) - dims.minimum(W, SEQ),
        W * H // (SEQ + 1),
    ],
)
def test_signs_that_can_be_told(dim: DimLike) -> None:
    assert dims.not_negative(dim)
    assert not dims.not_negative(-1 - dim)


def test_signs_by_sizes_that_are_not_zero() -> None:
    assert not dims.not_negative(W - 1)
    assert dims.not_negative(W - 1, [W])
    assert dims.not_negative(W - 4, [dims.maximum(W - 3, 0)])
    assert dims.not_negative(BATCH * W - 1, [W, BATCH])


def test_sizes_of_deep_networks_stay_small() -> None:
    halved: DimLike = W
    for _ in range(12):
        halved = (halved - 1) // 2 + 1
    assert str(halved) == "(w + 4095)//4096"
    cropped: DimLike = W
    for _ in range(12):
        cropped = dims.minimum(2 * ((cropped + 1) // 2), cropped)
    assert cropped == W


def test_expressions_that_share_parts_are_not_written_out() -> None:
    size: DimLike = W
    for _ in range(40):
        size = dims.maximum(3 * (size // 2) - 5, size // 3 + 1)
    assert len(str(size)) < 2000
    assert dims.substitute(size, {"w": 1000}) == evaluate(size, {"w": 1000}) == evaluated(size, {"w": 1000})


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
