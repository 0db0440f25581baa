"""Joining and splitting: every version and element type, empty parts."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, ints, retyped

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
WORDS = np.array(["a", "b", "c"], object)
TYPES = (np.float64, np.float16, np.int8, np.int32, np.uint8, np.int64, bool)


CASES: list[Case] = [
    case("Split", 1, X, axis=1, split=[1, 3], outputs=2, expected=(X[:, :1], X[:, 1:])),
    *each_version("Split", X[:, :3], outputs=3, until=13, since=2, axis=1),
    *(case("Split", version, X, split=[1, 3], axis=1, outputs=2) for version in (2, 11)),
    *each_version("Split", X, ints(1, 0, 3), since=13, axis=-2, outputs=3, constants=(1,)),
    *(case("Split", 18, X, axis=2, num_outputs=count, outputs=count) for count in (2, 3, 5)),
    case("Split", 18, X, axis=1, num_outputs=2, outputs=2),
    case("Concat", 1, X, X[:, :1], expected=np.concatenate([X, X[:, :1]], 1)),
    *each_version("Concat", X, X[:, :2], X[:, :0], axis=1),
    *retyped(case("Concat", 13, X, X[..., :2], axis=-1), *TYPES),
    case("Concat", 13, X, axis=0),
    case("Concat", 13, WORDS, WORDS, axis=0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_concat_split(case: Case) -> None:
    check(case)


REFUSED = [
    (case("Concat", 13, X, X[:, :2], axis=0), "differ outside axis 0"),
    (case("Split", 13, X, ints(1, 1), axis=1, outputs=2, constants=(1,)), "does not add up"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
