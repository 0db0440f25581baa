"""Col2Im: strides, dilations, pads, one to three axes, every kind of number."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, ints, retyped

RANDOM = np.random.default_rng(2)


def folded(image: tuple[int, ...], block: tuple[int, ...], channels: int = 3, **options: Any) -> Case:
    """A case of two images, with as many blocks as fit."""
    rank = len(image)
    strides, dilations = options.get("strides", [1] * rank), options.get("dilations", [1] * rank)
    pads = options.get("pads", [0] * rank * 2)
    counts = [
        (image[a] + pads[a] + pads[a + rank] - (block[a] - 1) * dilations[a] - 1) // strides[a] + 1 for a in range(rank)
    ]
    x = RANDOM.integers(-9, 9, (2, channels * int(np.prod(block)), int(np.prod(counts)))).astype(np.float32)
    return case("Col2Im", 18, x, ints(*image), ints(*block), constants=(1, 2), **options)


PLAIN = folded((5, 6), (2, 3))
CASES: list[Case] = [
    PLAIN,
    folded((5, 40), (3, 3), pads=[1, 1, 1, 1]),
    folded((9, 37), (3, 3), strides=[2, 2], pads=[1, 0, 0, 1]),
    folded((8, 50), (2, 3), strides=[2, 3], dilations=[3, 2], pads=[2, 1, 0, 3]),
    folded((6, 6), (2, 2), strides=[2, 2], channels=1),
    folded((4, 4), (1, 1), strides=[3, 3]),  # with gaps
    folded((20,), (3,), strides=[2], by_reference=True),
    folded((4, 5, 6), (2, 2, 3), strides=[1, 2, 1], by_reference=True),
    *retyped(PLAIN, np.float64, np.float16, ml_dtypes.bfloat16),
    *(
        c
        for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
        for c in retyped(folded((7, 9), (3, 2), strides=[1, 2], by_reference=True), dtype)
    ),
    case("Col2Im", 18, np.array([[[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]]], bool), ints(2, 4), ints(2, 2),
         constants=(1, 2), expected=np.array([[[[1, 0, 1, 0], [0, 1, 0, 0]]]], bool)),
    case("Col2Im", 18, np.array([[["a", "b"], ["c", "d"]]], object), ints(3), ints(2), constants=(1, 2),
         expected=np.array([[["a", "bc", "d"]]], object)),
    *retyped(replace(PLAIN, by_reference=True), np.complex64, np.complex128),
    case("Col2Im", 18, PLAIN.inputs[0][:0], ints(5, 6), ints(2, 3), constants=(1, 2),
         expected=np.zeros((0, 3, 5, 6), np.float32)),
    case("Col2Im", 18, *PLAIN.inputs),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_col2im(case: Case) -> None:
    check(case)


X = PLAIN.inputs[0]
REFUSED = [
    (case("Col2Im", 18, X, ints(5, 6), ints(2, 2), constants=(1, 2)), "a block has 4 elements"),
    (case("Col2Im", 18, X, ints(5, 7), ints(2, 3), constants=(1, 2)), r"there are \[4, 5\] blocks"),
    (case("Col2Im", 18, X, ints(5, 6), ints(2,), constants=(1, 2)), "different lengths"),
    (case("Col2Im", 18, X, ints(5, 6), ints(0, 3), constants=(1, 2)), "a size below 1"),
    (case("Col2Im", 18, X[0], ints(5, 6), ints(2, 3), constants=(1, 2)), "blocks] expected"),
    (case("Col2Im", 18, X, ints(5, 6), ints(2, 3), constants=(1, 2), strides=[1]), r"strides \[1\]"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
