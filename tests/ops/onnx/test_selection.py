"""Choosing and ordering elements: every version, ties, and outputs whose size depends on data."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, ints, retyped

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
TIES = np.array([[3, 1, 3, 2], [0, 0, 0, 0], [1, 2, 2, 1]], np.float32)
ODD = np.array([2, -0.0, np.nan, -np.nan, 0.0, 2, -np.inf], np.float32)
LONG = RANDOM.normal(size=(3, 70, 19)).astype(np.float32)


CASES: list[Case] = [
    case("TopK", 1, X, k=2, outputs=2),
    *each_version("TopK", X, ints(2), since=10, constants=(1,), outputs=2),
    *(case("TopK", 11, TIES, ints(3), largest=largest, constants=(1,), outputs=2) for largest in (0, 1)),
    case("TopK", 11, X, ints(3), axis=1, outputs=2),
    case("TopK", 11, X, ints(0), constants=(1,), outputs=2),
    *retyped(case("TopK", 24, TIES, ints(2), constants=(1,), outputs=2), np.float64, np.int32, np.int64),
    *(
        case("TopK", 11, LONG, ints(k), axis=axis, largest=largest, constants=(1,), outputs=2)
        for axis, k in ((0, 2), (1, 40), (2, 1), (-1, 19))
        for largest in (0, 1)
    ),
    *retyped(case("TopK", 24, TIES, ints(3), largest=0, constants=(1,), outputs=2), np.uint8, np.int16, np.uint64),
    case("TopK", 11, TIES.astype(np.float16), ints(3), constants=(1,), outputs=2),
    *each_version("Unique", TIES, outputs=4),
    *(case("Unique", 11, TIES, axis=axis, outputs=4) for axis in (0, 1, -1)),
    *(case("Unique", 11, np.array([2, 1, 1, 3, 4, 3], np.int64), sorted=order, outputs=4) for order in (0, 1)),
    case("Unique", 11, TIES, sorted=0, axis=1, outputs=4),
    *retyped(case("Unique", 11, TIES, axis=1, outputs=4, by_reference=True), np.float64, np.uint8, np.int16, np.uint64),
    *(
        case("Unique", 11, ODD, sorted=order, outputs=4, expected=found)
        for order, found in (
            (
                1,
                (
                    np.array([-np.inf, -0.0, 2, np.nan], np.float32),
                    ints(6, 1, 0, 2),
                    ints(2, 1, 3, 3, 1, 2, 0),
                    ints(1, 2, 2, 2),
                ),
            ),
            (
                0,
                (
                    np.array([2, -0.0, np.nan, -np.inf], np.float32),
                    ints(0, 1, 2, 6),
                    ints(0, 1, 2, 2, 1, 0, 3),
                    ints(2, 2, 2, 1),
                ),
            ),
        )
    ),
    case("Unique", 11, ODD[:6].reshape(3, 2), axis=0, outputs=4, by_reference=True),
    *(case("Unique", 11, np.zeros(shape, np.int32), outputs=4, by_reference=True) for shape in ((), (0,), (2, 0, 3))),
    *(case("Unique", 11, np.zeros((2, 0, 3), np.int32), axis=axis, outputs=4, by_reference=True) for axis in (0, 1, 2)),
    *each_version("NonZero", TIES),
    *retyped(case("NonZero", 13, TIES), np.int64, bool),
    *(case("NonZero", 13, np.zeros(shape, np.float32)) for shape in ((2, 0), (0, 3), (0,), (2, 3), (3, 0, 2))),
    *(case("NonZero", 13, np.arange(np.prod(shape)).reshape(shape) % 3) for shape in ((5, 7, 3), (2, 1, 3, 4), (9,))),
    case("NonZero", 13, np.array([[np.nan, -0.0, 1e-45], [np.inf, 0.0, -1.0]], np.float32)),
    *each_version("Compress", X, np.array([True, False, True]), axis=0),
    case("Compress", 11, X, np.array([True, False, True, True]), axis=-2, constants=(1,)),
    case("Compress", 11, np.zeros((0, 2, 3), np.float32), np.array([True, False, True]), axis=2),
    case("Compress", 11, TIES, np.array([True, False, True, True, False])),
    case("Compress", 11, TIES, np.array([True, False, True, True, False]), constants=(1,)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_selection(case: Case) -> None:
    check(case)


REFUSED = [
    (case("TopK", 11, X, ints(6), constants=(1,), outputs=2), "K is 6, but axis 2 .* has 5 elements"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
