"""Gathering: every version, negative and overshooting positions."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, ints, retyped

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
WORDS = np.array(["a", "b", "c"], object)
TYPES = (np.float64, np.float16, np.int8, np.int32, np.uint8, np.int64, bool)
INDICES = np.array([[0, -1], [2, 1]])


CASES: list[Case] = [
    *each_version("Gather", X, INDICES),
    *(
        case("Gather", 13, X, INDICES, axis=axis, constants=constants)
        for axis in (1, 2, -2)
        for constants in ((), (1,))
    ),
    *(case("Gather", 13, X, np.array(at), axis=1, constants=(1,)) for at in (0, 2, -1)),
    case("Gather", 13, X, ints(2), axis=0, constants=(1,)),
    case("Gather", 13, X, INDICES.astype(np.int32), axis=1),
    case("Gather", 13, X, np.zeros((0, 2), np.int64)),
    *retyped(case("Gather", 13, X, INDICES[:1, :1], constants=(1,)), *TYPES),
    case("Gather", 13, WORDS, ints(2, 0), expected=np.array(["c", "a"], object)),
    *each_version("GatherElements", X, RANDOM.integers(-3, 3, (2, 4, 5))),
    *(case("GatherElements", 13, X, RANDOM.integers(-3, 3, (3, 2, 4)), axis=axis) for axis in (1, 2, -1)),
    *each_version("GatherND", X, np.array([[0, 1], [2, -1]])),
    case("GatherND", 13, X, np.array([[[0, 1, 2]], [[1, 1, 1]]])),
    case("GatherND", 13, X, np.array([[1], [0], [3]]), batch_dims=1),
    case("GatherND", 12, X, RANDOM.integers(0, 4, (3, 2, 1)), batch_dims=1),
    case("GatherND", 13, X, RANDOM.integers(0, 5, (3, 4, 2, 1)), batch_dims=2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gather(case: Case) -> None:
    check(case)


REFUSED = [
    (case("Gather", 13, X, INDICES, axis=3), "outside"),
    (case("Gather", 13, X, np.array([1], np.float32)), "allowed are int32, int64"),
    (case("GatherElements", 13, X, ints(0)), "different ranks"),
    (case("GatherND", 13, X, ints(0, 0, 0, 0)), "do not address"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
