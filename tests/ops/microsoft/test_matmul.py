"""Matrix products of com.microsoft, against onnxruntime: transposes, batches inside, factors, activations."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused, retyped
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-5)
RANDOM = np.random.default_rng(2)
A = RANDOM.normal(size=(2, 3, 4, 5)).astype(np.float32)
B = RANDOM.normal(size=(2, 3, 5, 6)).astype(np.float32)
BIAS = RANDOM.normal(size=6).astype(np.float32)


def turned(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.swapaxes(-1, -2))


def batch_inside(x: np.ndarray) -> np.ndarray:
    """The row's axis in front of the batch."""
    return np.ascontiguousarray(np.moveaxis(x, -2, 0))


CASES: list[Case] = [
    case(
        "MatMulInteger16",
        1,
        np.array([[1, -2], [30000, 4]], np.int16),
        np.array([[1, 2, -9], [-30000, 4, 0]], np.int16),
    ),
    case("FusedMatMul", 1, A, B),
    case("FusedMatMul", 1, A, B, alpha=0.125),
    case("FusedMatMul", 1, turned(A), B, transA=1),
    case("FusedMatMul", 1, A, turned(B), transB=1, constants=(1,)),
    case("FusedMatMul", 1, turned(A), turned(B), transA=1, transB=1, alpha=-2.0),
    case("FusedMatMul", 1, batch_inside(A), B, transBatchA=1),
    case("FusedMatMul", 1, A, batch_inside(B), transBatchB=1),
    case(
        "FusedMatMul",
        1,
        batch_inside(turned(A)),
        batch_inside(turned(B)),
        transBatchA=1,
        transBatchB=1,
        transA=1,
        transB=1,
    ),
    case("FusedMatMul", 1, A[0, 0, 0], B[0, 0], transA=1),
    *retyped(case("FusedMatMul", 1, A, B, alpha=0.5), np.float64, np.float16),
    case("TransposeMatMul", 1, turned(A), B, transA=1, alpha=3.0),
    case("FusedGemm", 1, A[0, 0], B[0, 0], BIAS, activation="Relu"),
    case("FusedGemm", 1, A[0, 0], turned(B[0, 0]), transB=1, alpha=0.5, activation="LeakyRelu", activation_alpha=0.3),
    case("FusedGemm", 1, A[0, 0], B[0, 0], BIAS, beta=2.0, activation="Tanh"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matmul(case: Case) -> None:
    check(case)


REFUSED = [
    (case("FusedMatMul", 1, A, A), r"last axis of A \(5\)"),
    (case("FusedGemm", 1, A[0, 0], B[0, 0], activation="Swoosh"), "activation 'Swoosh': one of Relu"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
