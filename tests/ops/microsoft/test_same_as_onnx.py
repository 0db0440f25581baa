"""Operators of com.microsoft that ONNX has too, against onnxruntime."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused, ints, retyped
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft")
RANDOM = np.random.default_rng(6)
X = RANDOM.normal(size=(2, 3, 4, 5)).astype(np.float32)
GRID = (RANDOM.normal(size=(2, 3, 2, 2)) * 0.9).astype(np.float32)
WORDS = np.array([["a", "b"], ["c", ""]], object)
SAMPLED = [
    case("GridSample", 1, X, GRID, mode=mode, padding_mode=padding, align_corners=corners, rtol=1e-4, atol=1e-5)
    for mode in ("bilinear", "nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
    for corners in (0, 1)
]

CASES: list[Case] = [
    case("Trilu", 1, X, upper=0),
    case("Trilu", 1, X, np.int64(1), constants=(1,)),
    case("Trilu", 1, X, np.int64(-2)),
    *retyped(case("Trilu", 1, X, upper=0), np.int64, np.float64, np.float16),
    case("GatherND", 1, X, ints(0, 1, -1, 2).reshape(2, 2)),
    case("GatherND", 1, X, np.array([[[-1]], [[0]]], np.int32)),
    case("GatherND", 1, WORDS, ints(1, 0, 0, 1).reshape(2, 2)),
    *retyped(case("GatherND", 1, X, ints(0, 1).reshape(1, 2), constants=(1,)), np.float16, np.int8, bool),
    *SAMPLED,
    case("Range", 1, np.float32(1), np.float32(3), np.float32(0.5), constants=(0, 1, 2)),
    case("Range", 1, np.float32(1), np.float32(3)),
    case("Range", 1, np.array([1], np.float32), np.array([-3.5], np.float32), np.array([-0.75], np.float32)),
    case("Range", 1, np.int16(1), np.int16(4)),
    case("Range", 1, np.int64(7), np.int64(4), constants=(0, 1)),
    case("Range", 1, np.array([7], np.int32), np.int32(-4), np.array([-3], np.int32), constants=(0, 1, 2)),
    case("Pad", 1, X, ints(1, 0, 0, 1, 0, 2, 0, 0), constants=(1,)),
    case("Pad", 1, X[0, 0], ints(1, 0, -1, 1).reshape(1, 4), np.array([2], np.float32), constants=(1,)),
    case("Pad", 1, X[0, 0], ints(1, 0, 0, 1), np.float32(2), constants=(1, 2)),
    case("Pad", 1, X[0, 0], ints(1, 0, 0, 1)),
    *(case("Pad", 1, X[0, 0], ints(1, 0, 0, 2), mode=mode, constants=(1,)) for mode in ("edge", "reflect", "wrap")),
    *(case("ExpandDims", 1, X, np.int32(axis), constants=(1,)) for axis in (0, 2, 4, -1, -2)),
    case("ExpandDims", 1, X, np.array([1], np.int32), constants=(1,)),
    case("ExpandDims", 1, WORDS, np.int32(1), constants=(1,)),
    case("Unique", 1, np.array([2, 1, 1, 3, 4, 3, 0, -0.0], np.float32), outputs=3),
    case("Unique", 1, np.array([], np.float32), outputs=3),
    case("Unique", 1, np.array([5], np.float32), outputs=3),
    case("SampleOp", 1, X),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_as_onnx(case: Case) -> None:
    check(case)


REFUSED = [
    (case("Unique", 1, X, outputs=3), "a vector is needed"),
    (case("GridSample", 1, X, GRID, mode="linear"), "mode is 'linear'"),
    (case("ExpandDims", 1, X, np.int32(5), constants=(1,)), "5"),
    (case("Range", 1, np.float32(1), np.float32(3), np.float32(0), constants=(0, 1, 2)), "0"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
