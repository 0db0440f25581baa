"""Softmax, LogSoftmax and Hardmax: one axis, or before version 13 all from one on."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(0)
X = np.round(RANDOM.normal(size=(2, 3, 4)) * 3).astype(np.float32)  # with equal elements, for Hardmax
EXTREMES = np.array([[1e30, 1, -1e30], [100, 0, -100], [np.nan, 1, 2]], np.float32)
NAMES = ("Softmax", "LogSoftmax", "Hardmax")

CASES: list[Case] = [
    *(c for name in NAMES for axis in (0, 1, 2) for c in each_version(name, X, axis=axis)),
    *(c for name in NAMES for axis in (-1, -2, -3) for c in each_version(name, X, axis=axis, since=11)),
    *(c for name in NAMES for c in each_version(name, X)),
    *(c for name in NAMES for c in retyped(case(name, 13, X), np.float64, np.float16, ml_dtypes.bfloat16)),
    *(
        case(name, 13, np.zeros((2, 0), np.float32), expected=np.zeros((2, 0), np.float32), lowered=name != "Hardmax")
        for name in NAMES  # Hardmax is lowered to an ArgMax, which nothing has none of
    ),
    *(case(name, 11, np.zeros((0, 3), np.float32), expected=np.zeros((0, 3), np.float32)) for name in NAMES),
    *(
        case(name, version, np.float32(3), axis=axis, expected=np.float32(value))  # as ONNX's reference has it
        for name, value in (("Softmax", 1), ("LogSoftmax", 0), ("Hardmax", 1))
        for version, axis in ((13, -1), (13, 0), (11, 0))
    ),
    case("Softmax", 13, EXTREMES[:2]),
    case("Softmax", 13, np.array([[-np.inf, 0]], np.float32)),
    case("LogSoftmax", 13, EXTREMES[:2]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_softmax(case: Case) -> None:
    check(case)


def test_nan_spreads_over_its_row_only() -> None:
    expected = np.array([[1, 0, 0], [1, 0, 0], [np.nan] * 3], np.float32)
    check(case("Softmax", 13, EXTREMES, expected=expected))


def test_refused() -> None:
    check_refused(case("Softmax", 13, X, axis=3), "axis 3 is outside")
