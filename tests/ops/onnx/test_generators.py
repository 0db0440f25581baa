"""Tensors made of no other: every version and element type, edges of ranges and diagonals."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, each_version, ints

X = np.random.default_rng(5).normal(size=(3, 4, 5)).astype(np.float32)


CASES: list[Case] = [
    *each_version("Range", np.int64(2), np.int64(11), np.int64(3), constants=(0, 1, 2)),
    *(
        case("Range", 11, *(np.array(v, dtype) for v in values), constants=(0, 1, 2))
        for dtype in (np.float32, np.float64, np.int16, np.int32)
        for values in ((1, 10, 2), (10, 1, -3), (3, 3, 1), (5, 1, 1))
    ),
    case("Range", 11, np.float32(0.1), np.float32(2), np.float32(0.3)),
    case(
        "Range",
        27,
        np.float16(1),
        np.float16(3),
        np.float16(0.25),
        constants=(0, 1, 2),
        expected=np.arange(1, 3, 0.25, np.float16),
    ),
    *each_version("ConstantOfShape", ints(2, 3), constants=(0,)),
    *each_version("ConstantOfShape", ints(2, 0), value=np.array([7], np.int64), constants=(0,)),
    case("ConstantOfShape", 9, np.zeros(0, np.int64), value=np.array([True]), constants=(0,)),
    case("ConstantOfShape", 9, ints(2, 2), value=np.array([1.5], np.float16)),
    *each_version("EyeLike", X[0]),
    *(case("EyeLike", 9, X[0], k=k, dtype=dtype) for k in (1, -2, 9) for dtype in (1, 6, 11)),
    case("EyeLike", 22, X[0], dtype=9, expected=np.eye(4, 5, dtype=bool)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_generators(case: Case) -> None:
    check(case)
