"""Streams of features and their gates, against onnxruntime."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-5)
RANDOM = np.random.default_rng(29)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def engram(dtype: Any = np.float32, *, outputs: int = 2) -> Case:
    shapes = [(2, 3, 4, 8), (2, 3, 4, 8), (2, 3, 8), (4, 8), (4, 8), *([(4, 8)] if outputs == 2 else [])]
    return case("EngramGate", 1, *(normal(*shape).astype(dtype) for shape in shapes), outputs=outputs)


X = normal(2, 3, 4, 5)
CASES: list[Case] = [
    engram(),
    engram(outputs=1),
    engram(np.float16),
    case("HyperConnectionPreMix", 1, X, normal(2, 3, 4), reduction_scale=0.5),
    case("HyperConnectionPreMix", 1, X, normal(2, 3, 4, 1)),
    case("HyperConnectionPreMix", 1, X, normal(2, 3, 4, 5)),
    case("HyperConnectionPreMix", 1, X.reshape(2, 3, 20), normal(2, 3, 4), num_branches=4),
    case("HyperConnectionPreMix", 1, X.reshape(2, 3, 20), normal(2, 3, 20), num_branches=4),
    case("HyperConnectionPreMix", 1, X.astype(np.float16), normal(2, 3, 4).astype(np.float16)),
    case("HyperConnectionPostMix", 1, X, normal(2, 3, 5), normal(2, 3, 4)),
    case("HyperConnectionPostMix", 1, X, normal(2, 3, 5), normal(2, 3, 4, 5), normal(2, 3, 4, 4)),
    case("HyperConnectionPostMix", 1, X.reshape(2, 3, 20), normal(2, 3, 5), normal(2, 3, 4, 1), num_branches=4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hyper_connections(case: Case) -> None:
    check(case)


REFUSED = [
    (case("HyperConnectionPreMix", 1, normal(5), normal(5)), "num_branches 0"),
    (case("HyperConnectionPreMix", 1, X, normal(3)), "pre_mix"),
    (case("HyperConnectionPostMix", 1, X, normal(5), normal(2, 3, 4)), "block_output"),
    (case("EngramGate", 1, X, X, X, normal(4, 5), normal(4, 5)), "value"),
    (case("EngramGate", 1, X, X, X[:, :, 0], normal(4, 5), normal(4, 5), outputs=2), "conv_norm_scale"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
