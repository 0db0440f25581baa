"""Convolutions of com.microsoft, against onnxruntime: every activation, with and without a sum."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-5)
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(2, 4, 7, 6)).astype(np.float32)
W = RANDOM.normal(size=(6, 4, 3, 3)).astype(np.float32)
NARROW = RANDOM.normal(size=(4, 3, 3, 3)).astype(np.float32)
BIAS = RANDOM.normal(size=6).astype(np.float32)
Z = RANDOM.normal(size=(2, 6, 7, 6)).astype(np.float32)

CASES: list[Case] = [
    case("FusedConv", 1, X, W, BIAS, activation="Relu", pads=[1, 1, 1, 1]),
    case("FusedConv", 1, X, W, BIAS, Z, activation="Relu", pads=[1, 1, 1, 1], constants=(1, 2)),
    case("FusedConv", 1, X, W, None, Z, activation="Tanh", auto_pad="SAME_UPPER"),
    case("FusedConv", 1, X, W, activation="Sigmoid", strides=[2, 1]),
    case("FusedConv", 1, X, W, activation="LeakyRelu", activation_params=[0.2], dilations=[2, 2]),
    case("FusedConv", 1, X, W, activation="Clip", activation_params=[-0.5, 1.5]),
    case("ConvTransposeWithDynamicPads", 1, X, NARROW, np.array([1, 0, 0, 2]), strides=[2, 1]),
    case("ConvTransposeWithDynamicPads", 1, X, NARROW, np.array([1, 1, 1, 1]), BIAS[:3], constants=(1, 2, 3)),
    case(
        "ConvTransposeWithDynamicPads",
        1,
        X[:, :, 0],
        NARROW[:, :, 0],
        np.array([1, 1]),
        output_padding=[1],
        strides=[2],
    ),
    case("FusedConv", 1, X, W[:, :2], activation="HardSigmoid", activation_params=[0.3, 0.4], group=2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution(case: Case) -> None:
    check(case)
