"""Triangles of matrices: every diagonal and element type."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, each_version, retyped

X = np.random.default_rng(5).normal(size=(3, 4, 5)).astype(np.float32)
TYPES = (np.float64, np.float16, np.int8, np.int32, np.uint8, np.int64, bool)


CASES: list[Case] = [
    *each_version("Trilu", X),
    *(
        case("Trilu", 14, X, np.int64(k), upper=up, constants=c)
        for k in (0, 1, -2, 9)
        for up in (0, 1)
        for c in ((), (1,))
    ),
    *retyped(case("Trilu", 14, X), *TYPES),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_trilu(case: Case) -> None:
    check(case)
