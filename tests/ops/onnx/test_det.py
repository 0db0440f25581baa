"""Det: sizes, batches, singular matrices, types."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(12)


def matrices(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


SINGULAR = np.array([[1, 2, 3], [2, 4, 6], [1, 0, 1]], np.float32)
TURNED = np.eye(5, dtype=np.float32)[[3, 0, 4, 1, 2]]
SHAPES = ((1, 1), (4, 2, 2), (2, 3, 5, 5), (17, 17), (2, 40, 40))
CASES: list[Case] = [
    *each_version("Det", matrices(3, 3)),
    *(case("Det", 22, matrices(*shape), rtol=1e-4) for shape in SHAPES),
    case("Det", 22, SINGULAR, atol=1e-5),
    case("Det", 22, TURNED, expected=np.float32(-1)),
    case("Det", 22, np.zeros((3, 3), np.float32), expected=np.float32(0)),
    case("Det", 22, np.full((2, 2, 2), 1e-40, np.float32), expected=np.zeros(2, np.float32)),  # denormal pivots
    case("Det", 22, matrices(2, 3, 3)[:0], expected=np.zeros(0, np.float32)),
    case("Det", 22, matrices(2, 0, 0), expected=np.ones(2, np.float32)),
    *retyped(case("Det", 22, np.rint(matrices(2, 4, 4) * 4)), np.float64, np.float16, ml_dtypes.bfloat16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_det(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("x", [matrices(3, 2), matrices(3)], ids=["oblong", "vector"])
def test_refused(x: np.ndarray) -> None:
    check_refused(case("Det", 22, x), "square matrices")
