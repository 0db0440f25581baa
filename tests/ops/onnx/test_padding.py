"""Padding and cropping: every mode, negative pads, element type."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, ints, retyped

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
WORDS = np.array(["a", "b", "c"], object)
TYPES = (np.float64, np.float16, np.int8, np.int32, np.uint8, np.int64, bool)
CROP = RANDOM.normal(size=(5, 6, 3)).astype(np.float32)


CASES: list[Case] = [
    case("CenterCropPad", 18, CROP, ints(3, 9, 3), constants=(1,)),
    case("CenterCropPad", 18, CROP, ints(8, 4), axes=[1, 0], constants=(1,)),
    case("CenterCropPad", 18, CROP, ints(2), axes=[-1]),
    case("CenterCropPad", 18, CROP, ints(5, 5), axes=[1, 2], constants=(1,)),
    case(
        "Pad",
        1,
        X,
        paddings=[0, 1, 0, 0, 2, 3],
        value=1.5,
        expected=np.pad(X, ((0, 0), (1, 2), (0, 3)), constant_values=1.5),
    ),
    case("Pad", 2, X, pads=[0, 1, 0, 0, 2, 3], value=1.5),
    *(case("Pad", 2, X, pads=[0, 1, 2, 0, 2, 1], mode=mode) for mode in ("reflect", "edge")),
    *each_version("Pad", X, ints(0, 1, -1, 0, 2, 3), np.float32(2.5), since=11, constants=(1, 2)),
    *each_version("Pad", X, ints(0, 1, 2, 0, 2, 1), since=11, constants=(1,)),
    *(case("Pad", 19, X, ints(0, 1, 2, 0, 2, 1), constants=(1,), mode=mode) for mode in ("reflect", "edge", "wrap")),
    *each_version("Pad", X, ints(1, 2), None, ints(-1), since=18, constants=(1, 3)),
    case("Pad", 18, X, ints(1, 2), np.float32(3), np.array([1], np.int32)),
    *retyped(case("Pad", 18, X, ints(1, 2, 0, 0, 0, 1), constants=(1,)), *TYPES),
    case("Pad", 13, WORDS, ints(1, 0), np.array("z", object), expected=np.array(["z", "a", "b", "c"], object)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_padding(case: Case) -> None:
    check(case)


REFUSED = [
    (case("Pad", 13, X, ints(1, 1), constants=(1,)), "two an axis"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
