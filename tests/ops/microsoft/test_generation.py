"""What com.microsoft has for the generation of text, against onnxruntime."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft")
RANDOM = np.random.default_rng(13)

IDS = np.array([[1, 2, 1, 2, 3, 1, 2], [0, 1, 2, 3, 3, 3, 3]])
SCORES = RANDOM.normal(size=(2, 5)).astype(np.float32)
SOURCE = np.array([1, 2, 1, 4, 1, 2])

CASES: list[Case] = [
    *(case("NGramRepeatBlock", 1, IDS, SCORES, ngram_size=n) for n in (1, 2, 3, 7, 8, 9)),
    *(case("NGramRepeatBlock", 1, IDS[:, :n], SCORES, ngram_size=2) for n in (1, 2, 3)),
    *(
        case("DynamicTimeWarping", 1, RANDOM.uniform(size=shape).astype(np.float32))
        for shape in ((5, 9), (1, 7, 3), (1, 1))
    ),
    case("DynamicTimeWarping", 1, RANDOM.integers(0, 2, (6, 7)).astype(np.float32)),
    case("DynamicTimeWarping", 1, np.zeros((0, 3), np.float32)),
    *(
        case("BifurcationDetector", 1, SOURCE, np.array(current), np.array([place]), predicted, outputs=2, **sizes)
        for sizes in ({"min_ngram_size": 1, "max_ngram_size": 3}, {"min_ngram_size": 2, "max_ngram_size": 2})
        for current, place, predicted in (
            ([1, 2], 0, None),
            ([9], 0, None),
            ([1], 2, np.array([1, 4, 1, 9, 3])),
            ([1], 2, np.array([1, 4, 1, 2, 3])),
            ([7, 4], 6, np.array([3])),
        )
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_generation(case: Case) -> None:
    check(case)


REFUSED = [
    (case("NGramRepeatBlock", 1, IDS, SCORES, ngram_size=0), "ngram_size is 0"),
    (case("NGramRepeatBlock", 1, IDS[:1], SCORES, ngram_size=2), "scores"),
    (case("DynamicTimeWarping", 1, np.zeros((2, 3, 4), np.float32)), "M, N"),
    (case("BifurcationDetector", 1, SOURCE, SOURCE, np.array([0]), min_ngram_size=4, outputs=2), "max_ngram_size 3"),
    (case("BifurcationDetector", 1, SOURCE, SOURCE[None], np.array([0]), outputs=2), "cur_tokens"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
