"""Writing into a copy: every version, every reduction, negative and repeated indices."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
UPDATES = RANDOM.normal(size=(2, 4, 5)).astype(np.float32)
PLACES = np.argsort(RANDOM.random((3, 4, 5)), axis=0)[:2] - 1
REPEATED = RANDOM.integers(-3, 3, (2, 4, 5))
ROWS = np.array([[0, 1], [2, -1]])
REDUCTIONS = ("add", "mul", "max", "min")
CACHE = RANDOM.normal(size=(2, 3, 6, 4)).astype(np.float32)
NEW = RANDOM.normal(size=(2, 3, 2, 4)).astype(np.float32)


def written(start: tuple[int, int]) -> np.ndarray:
    """CACHE with NEW at these positions of its third axis, which wraps round."""
    result = CACHE.copy()
    for batch, first in enumerate(start):
        for step in range(2):
            result[batch, :, (first + step) % 6] = NEW[batch, :, step]
    return result


CASES: list[Case] = [
    *each_version("Scatter", X, PLACES, UPDATES),
    *each_version("ScatterElements", X, PLACES, UPDATES),
    case("ScatterElements", 18, X, PLACES.transpose(1, 0, 2)[:3] * 0 + [[[0]], [[1]], [[-1]]], X[:, :2], axis=1,
         expected=np.where(np.arange(4)[None, :, None] == np.array([0, 1, 3])[:, None, None], X[:, 1:2], X)),
    *(case("ScatterElements", 18, X, REPEATED, UPDATES, reduction=reduction) for reduction in REDUCTIONS),
    *(
        c
        for reduction in REDUCTIONS
        for c in retyped(
            case("ScatterElements", 18, X * 5, REPEATED, UPDATES * 5, reduction=reduction, constants=(1,)),
            np.float64, np.int32, np.float16, ml_dtypes.bfloat16,
        )
    ),
    *each_version("ScatterND", X, ROWS, RANDOM.normal(size=(2, 5)).astype(np.float32)),
    case("ScatterND", 13, X, np.array([[1]]), X[:1] * 2),
    *(
        case("ScatterND", 18, X, np.array([[0, 1], [0, 1], [2, 0]]), X[0, :3] * 3, reduction=reduction)
        for reduction in REDUCTIONS
    ),
    *retyped(case("ScatterND", 18, X, ROWS, X[0, :2], constants=(1,)), np.float64, np.int8, bool, np.float16),
    *retyped(
        case("ScatterND", 18, X * 5, np.array([[0], [0], [-1]]), X * 5, reduction="max", constants=(1,)),
        np.float64, np.int32, np.int64, np.uint8, np.float16,
    ),
    case("ScatterND", 18, X, np.zeros((0, 1), np.int64), X[:0]),
    case("ScatterElements", 18, X, PLACES.astype(np.int32), UPDATES),
    case("ScatterElements", 18, X, np.zeros((0, 4, 5), np.int64), X[:0]),
    case("TensorScatter", 24, CACHE, NEW, expected=written((0, 0))),
    case("TensorScatter", 24, CACHE, NEW, np.array([1, 4]), expected=written((1, 4))),
    case("TensorScatter", 24, CACHE, NEW, np.array([5, 4]), mode="circular", expected=written((5, 4))),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_scatter(case: Case) -> None:
    check(case)


REFUSED = [
    (case("ScatterElements", 18, X, PLACES, UPDATES, reduction="mean"), "reduction is 'mean'"),
    (case("ScatterElements", 18, X[:, :3], PLACES, UPDATES), "axis 1 of indices .* is larger"),
    (case("ScatterElements", 18, X, PLACES, UPDATES[:, 1:]), "do not fit"),
    (case("ScatterND", 18, X, ROWS, X[0, :3]), "should have the shape"),
    (case("ScatterND", 18, X, ROWS.astype(np.int32), X[0, :2]), "is of type int32; allowed are int64"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
