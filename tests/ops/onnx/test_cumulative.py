"""Sums and products along an axis: both directions, with and without the element itself."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, ints, retyped

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
LONG = RANDOM.normal(size=(3, 70, 19)).astype(np.float32)


CASES: list[Case] = [
    *each_version("CumSum", X, ints(1)[0], constants=(1,)),
    *(
        case("CumSum", 14, X, np.array(axis), exclusive=exclusive, reverse=reverse)
        for axis in (0, -1)
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ),
    *retyped(case("CumSum", 14, X * 9, np.int32(1), constants=(1,)), np.float64, np.int32, np.int64),
    *(
        case("CumSum", 14, LONG, np.array(axis), exclusive=exclusive, reverse=reverse, constants=(1,), rtol=1e-4)
        for axis in (0, 1, 2)
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ),
    *retyped(case("CumSum", 14, X * 9, np.array(-1), constants=(1,)), np.uint32, np.uint64, np.float16),
    case("CumSum", 14, X[:, :0], ints(1)[0], constants=(1,)),
    *(
        case(
            "CumProd", 26, np.array([1, 2, 3], np.int32), ints(0)[0], exclusive=e, reverse=r, expected=np.int32(values)
        )
        for e, r, values in ((0, 0, [1, 2, 6]), (1, 0, [1, 1, 2]), (0, 1, [6, 6, 3]), (1, 1, [6, 3, 1]))
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cumulative(case: Case) -> None:
    check(case)


REFUSED = [
    (case("CumSum", 14, X[0, 0, 0], ints(0)[0]), "a scalar has no axis"),
    (case("CumSum", 14, X, ints(3)[0], constants=(1,)), "axis 3 is outside"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
