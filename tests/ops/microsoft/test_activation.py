"""Gelus of com.microsoft, against onnxruntime."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check, retyped
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft")
X = np.random.default_rng(1).normal(size=(3, 5, 7)).astype(np.float32) * 3
ROW = X[0, 0]

CASES: list[Case] = [
    case("Gelu", 1, X),
    *retyped(case("Gelu", 1, X), np.float16),
    case("Gelu", 1, X[:0]),
    case("BiasGelu", 1, X, ROW),
    case("FastGelu", 1, X),
    case("FastGelu", 1, X, ROW),
    *retyped(case("FastGelu", 1, X, ROW), np.float16),
    case("QuickGelu", 1, X),
    case("QuickGelu", 1, X, alpha=-0.5),
    case("GatedAdd", 1, X, X[::-1], X[:, :, :1]),
    *retyped(case("GatedAdd", 1, X, X[::-1], X[:, :, :1]), np.float16),
    case("ScaledSiLU", 1, X),
    case("ScaledSiLU", 1, X, alpha=-0.5),
    case("ScaledSiLU", 1, X, np.float32(0.3)),
    *retyped(case("ScaledSiLU", 1, X, np.float32(0.3), constants=(1,), widen=False), np.float16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_activation(case: Case) -> None:
    check(case)
