"""One-hot vectors: indices from the end and outside, every axis."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, each_version, ints

CASES: list[Case] = [
    *each_version("OneHot", np.array([0, 2, 1]), np.int64(3), np.array([-1, 4], np.float32), constants=(1,)),
    case(
        "OneHot",
        9,
        np.array([0, -1, 1]),
        np.int64(3),
        np.array([2, 5], np.int32),
        constants=(1,),
        expected=np.array([[5, 2, 2], [2, 2, 2], [2, 5, 2]], np.int32),
    ),
    case("OneHot", 11, np.array([[0, -1], [5, -9]]), ints(3), np.array([2, 5], np.float32), axis=1, constants=(1,)),
    case(
        "OneHot", 11, np.array([1, 0], np.float32), np.float32(3), np.array([0, 1], np.float32), axis=0, constants=(1,)
    ),
    case("OneHot", 11, np.array(1), np.int64(2), np.array([0, 1], np.float32), constants=(1,)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_hot(case: Case) -> None:
    check(case)
