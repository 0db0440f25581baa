"""Distances and inverses of com.microsoft, against onnxruntime."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused, retyped
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-4)
RANDOM = np.random.default_rng(11)

A, B = (RANDOM.normal(size=(n, 5)).astype(np.float32) for n in (7, 3))
SQUARES = (RANDOM.normal(size=(2, 3, 4, 4)) + 3 * np.eye(4)).astype(np.float32)

CASES: list[Case] = [
    *(case("CDist", 1, A, B, metric=metric) for metric in ("euclidean", "sqeuclidean")),
    *retyped(case("CDist", 1, A, B, metric="euclidean"), np.float64),
    case("CDist", 1, A, B[:0]),
    case("CDist", 1, A[:1], A[:1], expected=np.zeros((1, 1), np.float32)),
    case("Inverse", 1, SQUARES),
    case("Inverse", 1, SQUARES[0, 0, :1, :1]),
    case("Inverse", 1, SQUARES[:, :0]),
    *retyped(case("Inverse", 1, SQUARES), np.float64, np.float16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_linear_algebra(case: Case) -> None:
    check(case)


REFUSED = [
    (case("CDist", 1, A, B, metric="cosine"), "metric is 'cosine'"),
    (case("CDist", 1, A, B[:, :3]), r"\[M, N\] and \[K, N\]"),
    (case("Inverse", 1, A), "square matrices"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
