"""Sequences turned round: along either axis, of every length."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, ints

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
LONG = RANDOM.normal(size=(3, 70, 19)).astype(np.float32)
WORDS = np.array([["a", "b"], ["c", "d"]], object)


CASES: list[Case] = [
    *each_version("ReverseSequence", X, ints(1, 2, 3, 0)),
    case("ReverseSequence", 10, X, ints(4, 1, 2), batch_axis=0, time_axis=1),
    case("ReverseSequence", 10, LONG[..., 0], ints(*range(0, 70)) % 4, batch_axis=1, time_axis=0),
    case(
        "ReverseSequence",
        10,
        WORDS,
        ints(2, 1),
        batch_axis=0,
        time_axis=1,
        expected=np.array([["b", "a"], ["c", "d"]], object),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reverse_sequence(case: Case) -> None:
    check(case)


REFUSED = [
    (case("ReverseSequence", 10, X, ints(1, 2, 3)), "does not give a length for each sequence"),
    (case("ReverseSequence", 10, X, np.array([1, 2, 3, 0], np.int32)), "'x1' is of type int32"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
