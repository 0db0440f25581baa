"""Operators on shapes: every version, negative axes, sizes 0 and 1, and symbolic sizes."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, ints, retyped

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
ONES = RANDOM.normal(size=(1, 3, 1, 4)).astype(np.float32)
WORDS = np.array([["a", "b"], ["c", "d"]], object)


CASES: list[Case] = [
    *each_version("Shape", X),
    *(case("Shape", 15, X, start=start) for start in (1, -2, 5, -9)),
    *(case("Shape", 25, X, start=start, end=end) for start, end in ((1, 2), (-2, -1), (0, 9), (2, 1))),
    case("Shape", 25, np.float32(1)),
    case("Shape", 25, WORDS, expected=ints(2, 2)),
    *each_version("Size", X),
    case("Size", 25, np.zeros((0, 3), np.float32)),
    case("Reshape", 1, X, shape=[4, 6], expected=X.reshape(4, 6)),
    case("Reshape", 1, X, shape=[0, -1], consumed_inputs=[0, 0], expected=X.reshape(2, 12)),
    *each_version("Reshape", X, ints(4, -1), since=5, constants=(1,)),
    *(
        case("Reshape", 14, X, ints(*shape), constants=(1,))
        for shape in ((24,), (0, 12), (0, 0, -1), (-1, 0, 2), (2, 1, 3, 1, 4))
    ),
    case("Reshape", 14, X, ints(4, 6)),
    case("Reshape", 14, np.zeros((0, 3), np.float32), ints(0, 5), constants=(1,), allowzero=1),
    case("Reshape", 14, np.zeros((0, 3), np.float32), ints(3, 0), constants=(1,), allowzero=1),
    case("Reshape", 14, np.array([5], np.float32), np.zeros(0, np.int64), constants=(1,)),
    case("Reshape", 14, WORDS, ints(-1), constants=(1,)),
    *each_version("Flatten", X),
    *(case("Flatten", 25, X, axis=axis) for axis in (0, 2, 3, -1, -2)),
    case("Flatten", 25, np.float32(3), axis=0),
    case("Squeeze", 1, ONES, axes=[0, 2], expected=ONES.reshape(3, 4)),
    *each_version("Squeeze", ONES),
    case("Squeeze", 11, ONES, axes=[-2]),
    *each_version("Squeeze", ONES, ints(0, -2), since=13, constants=(1,)),
    *each_version("Unsqueeze", X, axes=[0, 2], until=11),
    case("Unsqueeze", 11, X, axes=[-1]),
    *each_version("Unsqueeze", X, ints(-1, 0), since=13, constants=(1,)),
    case("Unsqueeze", 13, np.float32(2), ints(0), constants=(1,)),
    *each_version("Transpose", X),
    *each_version("Transpose", X, perm=[1, 2, 0]),
    case("Transpose", 13, np.float32(2)),
    *retyped(case("Transpose", 13, X), np.int8, np.float64, np.float16, bool),
    *each_version("Expand", X[:, :1], ints(3, 1), constants=(1,)),
    case("Expand", 13, X[:, :1], ints(5, 1, 3, 1), constants=(1,)),
    case("Expand", 13, X, ints(1), constants=(1,)),
    case("Expand", 13, np.float32(3), ints(2, 0), constants=(1,)),
    case("Expand", 13, X[:, :1], ints(2, 3, 4)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_shape(case: Case) -> None:
    check(case)


REFUSED = [
    (case("Reshape", 14, X, ints(5, -1), constants=(1,)), "24 elements"),
    (case("Reshape", 14, X, ints(-1, -1), constants=(1,)), "more than one -1"),
    (case("Reshape", 14, X, ints(2, 3, 4, 0), constants=(1,)), "rank 3"),
    (case("Reshape", 14, X, ints(0, -1), constants=(1,), allowzero=1), "undetermined"),
    (case("Squeeze", 13, X, ints(1), constants=(1,)), "not 1"),
    (case("Unsqueeze", 13, X, ints(0, 0), constants=(1,)), "twice"),
    (case("Unsqueeze", 13, X, ints(4), constants=(1,)), "outside"),
    (case("Transpose", 13, X, perm=[0, 0, 1]), "no permutation"),
    (case("Expand", 13, X, ints(5), constants=(1,)), "does not broadcast"),
    (case("Flatten", 13, X, axis=4), "outside"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
