"""Choosing and ordering elements: every version, ties, and outputs whose size depends on data."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, ints, retyped

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
TIES = np.array([[3, 1, 3, 2], [0, 0, 0, 0], [1, 2, 2, 1]], np.float32)
LONG = RANDOM.normal(size=(3, 70, 19)).astype(np.float32)
CROP = RANDOM.normal(size=(5, 6, 3)).astype(np.float32)
WORDS = np.array([["a", "b"], ["c", "d"]], object)


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
        case("CumProd", 26, np.int32([1, 2, 3]), ints(0)[0], exclusive=e, reverse=r, expected=np.int32(values))
        for e, r, values in ((0, 0, [1, 2, 6]), (1, 0, [1, 1, 2]), (0, 1, [6, 6, 3]), (1, 1, [6, 3, 1]))
    ),
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
    *(case("Unique", 11, np.int64([2, 1, 1, 3, 4, 3]), sorted=order, outputs=4) for order in (0, 1)),
    case("Unique", 11, TIES, sorted=0, axis=1, outputs=4),
    *each_version("NonZero", TIES),
    *retyped(case("NonZero", 13, TIES), np.int64, bool),
    *(case("NonZero", 13, np.zeros(shape, np.float32)) for shape in ((2, 0), (0, 3), (0,), (2, 3), (3, 0, 2))),
    *(case("NonZero", 13, np.arange(np.prod(shape)).reshape(shape) % 3) for shape in ((5, 7, 3), (2, 1, 3, 4), (9,))),
    case("NonZero", 13, np.float32([[np.nan, -0.0, 1e-45], [np.inf, 0.0, -1.0]])),
    *each_version("Compress", X, np.array([True, False, True]), axis=0),
    case("Compress", 11, X, np.array([True, False, True, True]), axis=-2, constants=(1,)),
    case("Compress", 11, TIES, np.array([True, False, True, True, False])),
    *each_version("ReverseSequence", X, ints(1, 2, 3, 0)),
    case("ReverseSequence", 10, X, ints(4, 1, 2), batch_axis=0, time_axis=1),
    case("CenterCropPad", 18, CROP, ints(3, 9, 3), constants=(1,)),
    case("CenterCropPad", 18, CROP, ints(8, 4), axes=[1, 0], constants=(1,)),
    case("CenterCropPad", 18, CROP, ints(2), axes=[-1]),
    case("CenterCropPad", 18, CROP, ints(5, 5), axes=[1, 2], constants=(1,)),
    case("Compress", 11, TIES, np.array([True, False, True, True, False]), constants=(1,)),
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
def test_selection(case: Case) -> None:
    check(case)


REFUSED = [
    (case("CumSum", 14, X[0, 0, 0], ints(0)[0]), "a scalar has no axis"),
    (case("CumSum", 14, X, ints(3)[0], constants=(1,)), "axis 3 is outside"),
    (case("TopK", 11, X, ints(6), constants=(1,), outputs=2), "K is 6, but axis 2 .* has 5 elements"),
    (case("ReverseSequence", 10, X, ints(1, 2, 3)), "does not give a length for each sequence"),
    (case("ReverseSequence", 10, X, np.int32([1, 2, 3, 0])), "'x1' is of type int32"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
