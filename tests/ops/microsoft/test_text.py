"""Tokenizer of com.microsoft, against onnxruntime."""

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused
from tests.ops.harness import case as any_case

TEXTS = np.array(["ab cd,e", "", "xé z", " a  b"], object)


def case(x: np.ndarray, **attributes: Any) -> Case:
    return any_case(
        "Tokenizer", 1, x, domain="com.microsoft", **{"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes}
    )


CASES = [
    *(
        case(x, mark=mark, mincharnum=least, **how)
        for x in (TEXTS, TEXTS.reshape(2, 2))
        for mark in (0, 1)
        for least in (1, 2)
        for how in (
            {"tokenexp": "[a-zA-Z]+"},
            {"separators": [" ", ","]},
            {"separators": ["[ ,]"]},
        )
    ),
    case(TEXTS, separators=[""]),
    case(TEXTS, separators=[""], mark=1),
    case(TEXTS, tokenexp="no"),
    case(TEXTS, tokenexp="no", mark=1),
    case(TEXTS, tokenexp="[a-z]*"),
]

REFUSED = [
    (case(TEXTS), "one of separators and tokenexp"),
    (case(TEXTS, tokenexp="("), "Tokenizer"),
    (case(TEXTS, tokenexp="a", mincharnum=0), "at least 1"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tokenizer(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_tokenizer_refused(case: Case, text: str) -> None:
    check_refused(case, text)
