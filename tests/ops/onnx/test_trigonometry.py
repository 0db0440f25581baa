"""Trigonometric functions: every version and type, inside and outside their domains."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, each_version, retyped

X = np.random.default_rng(2).uniform(-0.99, 0.99, (3, 4)).astype(np.float32)
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, np.inf, -np.inf, np.nan, 1e-20], np.float32)
FUNCTIONS = ["Acos", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan"]

CASES: list[Case] = [
    *(c for name in FUNCTIONS for c in each_version(name, X)),
    *(c for name in FUNCTIONS for c in retyped(case(name, 22, X), np.float64, np.float16, ml_dtypes.bfloat16)),
    *(case(name, 22, EDGES) for name in FUNCTIONS),
    *each_version("Acosh", 1 + np.abs(X)),
    *retyped(case("Acosh", 22, 1 + np.abs(X)), np.float64, np.float16),
    case("Acosh", 22, EDGES),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_trigonometry(case: Case) -> None:
    check(case)
