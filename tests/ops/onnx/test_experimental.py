"""Operators that ONNX dropped with version 10, against onnxruntime, which has them still."""

import numpy as np
import pytest

from jitonnx import errors
from jitonnx.model import load
from tests.ops.harness import Case, build, case, check, check_refused, ints, retyped

X = np.random.default_rng(2).normal(size=(2, 3, 5, 7)).astype(np.float32)
ROW = np.array([-np.inf, -200, -1.5, -0.0, 0, 2, 200, np.inf, np.nan], np.float32)
WIDE = X.astype(np.float64)

CASES: list[Case] = [
    case("Affine", 1, X),
    case("Affine", 9, ROW, alpha=2.5, beta=-1.0),
    *retyped(case("Affine", 9, X, alpha=2.5, beta=-1.0), np.float16),
    case("Affine", 9, WIDE, alpha=2.5, beta=-1.0, expected=2.5 * WIDE - 1),
    case("Affine", 9, X[0, 0, 0, 0], alpha=3.0),
    case("Scale", 1, X, scale=0.3),
    case("Scale", 1, X[:0], scale=0.3),
    case("ScaledTanh", 1, X, alpha=2.0, beta=0.5),
    case("ScaledTanh", 1, ROW, alpha=-2.0, beta=0.5),
    case("ParametricSoftplus", 1, X, alpha=2.0, beta=0.5),
    case("ParametricSoftplus", 1, ROW[1:7], alpha=2.0, beta=-3.0),
    case("ImageScaler", 1, X, scale=2.0, bias=[1.0, 2.0, -3.0]),
    case("ImageScaler", 1, X[:, :1, :0], bias=[1.0]),
    case("Crop", 1, X, border=[1, 2, 1, 1]),
    case("Crop", 1, X, border=[3, 0, 0, 2]),
    case("Crop", 1, X, border=[3, 5, 4, 0]),
    case("Crop", 1, X, border=[1, 2, 9, 9], scale=[3, 2]),
    *retyped(case("Crop", 1, X, border=[1, 2, 1, 1]), np.float16),
    case("Crop", 1, WIDE, border=[1, 2, 1, 1], expected=WIDE[:, :, 2:-1, 1:-1]),
    case("DynamicSlice", 1, X, ints(1, -3), ints(9, -1), ints(0, 3), constants=(1, 2, 3)),
    case("DynamicSlice", 1, X, ints(1, 0), ints(9, 2), constants=(1, 2)),
    case(
        "DynamicSlice",
        1,
        X,
        np.array([-3], np.int32),
        np.array([6], np.int32),
        np.array([-1], np.int32),
        constants=(1, 2, 3),
    ),
    case("DynamicSlice", 9, X, ints(1), ints(3), ints(2)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_experimental(case: Case) -> None:
    check(case)


REFUSED = [
    (case("Crop", 1, X), "border is None"),
    (case("Crop", 1, X, border=[1, 4, 0, 2]), "do not fit"),
    (case("Crop", 1, X, border=[1, 4, 0, 0], scale=[2, 1]), "do not fit"),
    (case("Crop", 1, X[0], border=[0, 0, 0, 0]), "an image"),
    (case("ImageScaler", 1, X, bias=[1.0]), "each of the 3 channels"),
    (case("ScaledTanh", 1, X), "both are needed"),
    (case("ParametricSoftplus", 1, X, alpha=1.0), "both are needed"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)


def test_dropped_with_version_10() -> None:
    with pytest.raises(errors.Error, match="Affine"):
        load(build(case("Affine", 10, X)))
