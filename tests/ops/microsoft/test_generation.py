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

CASES: list[Case] = [
    *(case("NGramRepeatBlock", 1, IDS, SCORES, ngram_size=n) for n in (1, 2, 3, 7, 8, 9)),
    *(case("NGramRepeatBlock", 1, IDS[:, :n], SCORES, ngram_size=2) for n in (1, 2, 3)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_generation(case: Case) -> None:
    check(case)


REFUSED = [
    (case("NGramRepeatBlock", 1, IDS, SCORES, ngram_size=0), "ngram_size is 0"),
    (case("NGramRepeatBlock", 1, IDS[:1], SCORES, ngram_size=2), "scores"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
