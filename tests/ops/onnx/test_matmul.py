"""MatMul and Gemm: ranks, broadcasting, types, what Gemm adds around the product."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


RANKS = (
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((3, 0), (0, 5)),
    ((0, 4), (4, 5)),
    ((1, 1), (1, 1)),
)
A, B = normal(3, 4), normal(4, 5)
SCALED = {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1}

CASES: list[Case] = [
    *(c for a, b in RANKS for c in each_version("MatMul", normal(*a), normal(*b))),
    *retyped(case("MatMul", 13, A * 4, B * 4), np.float64, np.int32, np.int64, np.float16, ml_dtypes.bfloat16),
    *retyped(case("MatMul", 13, abs(A) * 4, abs(B) * 4), np.uint32, np.uint64),
    *(
        c
        for shape in ((3, 5), (5,), (1, 5), (3, 1), (1,), ())
        for c in each_version("Gemm", A, B, normal(*shape), since=7)
    ),
    *each_version("Gemm", normal(4, 3), normal(5, 4), normal(5), since=7, **SCALED),
    *each_version("Gemm", A, B, np.full(5, np.nan, np.float32), since=7, beta=0.0),
    *each_version("Gemm", A, B, since=11, alpha=0.5),
    *each_version("Gemm", A, B, since=11),
    # Before version 7 C was broadcast only where `broadcast` asked for it.
    *each_version("Gemm", A, B, normal(3, 5) * 0, until=6, expected=A @ B),
    *each_version("Gemm", A, B, B[0], until=6, broadcast=1, expected=A @ B + B[0]),
    *retyped(case("Gemm", 13, A, B, normal(5), alpha=0.5), np.float64, np.float16, ml_dtypes.bfloat16),
    *retyped(case("Gemm", 13, A * 4, B * 4, normal(5) * 4), np.int32, np.int64),
    *retyped(case("Gemm", 13, abs(A) * 4, abs(B) * 4, abs(normal(5)) * 4), np.uint32, np.uint64),
    *retyped(case("Gemm", 13, abs(A) * 4, abs(B) * 4, alpha=0.5), np.int32, np.uint32),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matmul(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (case("MatMul", 13, normal(3, 4), normal(5, 4)), r"last axis of A \(4\)"),
        (case("MatMul", 13, normal(2, 3, 4), normal(3, 4, 5)), "do not broadcast"),
        (case("MatMul", 13, np.float32(1), normal(3)), "scalar"),
        (case("MatMul", 13, normal(3, 4), normal(4, 5).astype(np.float64)), "different element types"),
        (case("Gemm", 13, normal(3, 4), normal(3, 4)), "inner axes"),
        (case("Gemm", 13, normal(1, 3, 4), normal(4, 3)), "must be matrices"),
        (case("Gemm", 13, normal(3, 4), normal(4, 5), normal(4)), "does not broadcast to"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)
