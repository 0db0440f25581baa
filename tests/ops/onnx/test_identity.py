"""The operator that does nothing."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, each_version

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
WORDS = np.array([["a", "b"], ["c", "d"]], object)


CASES: list[Case] = [
    *each_version("Identity", X),
    case("Identity", 25, WORDS, expected=WORDS),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_identity(case: Case) -> None:
    check(case)
