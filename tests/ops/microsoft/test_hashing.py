"""MurmurHash3 of com.microsoft, against onnxruntime."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft")

NUMBERS = np.array([[0, 1, 3], [7, 100, 2**31 - 1]])
TEXTS = np.array(["", "a", "ab", "abc", "abcd", "abcdefghi", "h\u00e9llo \u4e16"], object)

CASES: list[Case] = [
    *(
        case("MurmurHash3", 1, NUMBERS.astype(dtype), seed=3, positive=positive)
        for dtype in (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64)
        for positive in (0, 1)
    ),
    case("MurmurHash3", 1, -NUMBERS),
    case("MurmurHash3", 1, np.float32(-1.5), seed=-1),
    case("MurmurHash3", 1, TEXTS),
    case("MurmurHash3", 1, TEXTS, seed=5, positive=0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hashing(case: Case) -> None:
    check(case)
