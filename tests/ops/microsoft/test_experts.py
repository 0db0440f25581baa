"""Mixtures of experts of com.microsoft, against onnxruntime."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused, retyped
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-4)
RANDOM = np.random.default_rng(9)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


EXPERTS, HIDDEN, WIDTH = 6, 16, 8
X, ROUTER = normal(5, HIDDEN), normal(5, EXPERTS)
PLAIN = (
    normal(EXPERTS, WIDTH, HIDDEN),
    normal(EXPERTS, WIDTH),
    normal(EXPERTS, HIDDEN, WIDTH),
    normal(EXPERTS, HIDDEN),
)
GATED = (normal(EXPERTS, 2 * WIDTH, HIDDEN), normal(EXPERTS, 2 * WIDTH), *PLAIN[2:])
LIKE_GPT_OSS: dict[str, Any] = {
    **{"k": 4, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1},
    **{"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7},
}
OVERFLOWING = np.concatenate([PLAIN[0][:1] * np.float32(np.inf), PLAIN[0][1:]])
AWAY_FROM_IT = np.concatenate([np.full((5, 1), -9, np.float32), ROUTER[:, 1:]], 1)

CASES: list[Case] = [
    *(case("MoE", 1, X, ROUTER, *PLAIN, k=2, activation_type=name) for name in ("relu", "gelu", "silu", "identity")),
    case("MoE", 1, X, ROUTER, *PLAIN, k=3, normalize_routing_weights=1, constants=(2, 3, 4, 5)),
    case("MoE", 1, X[None], ROUTER, PLAIN[0], None, PLAIN[2], constants=(2, 4)),
    case("MoE", 1, X, ROUTER, *GATED, **LIKE_GPT_OSS),
    case("MoE", 1, X[:1], ROUTER[:1], *GATED, k=2, activation_type="swiglu", swiglu_fusion=1),
    case("MoE", 1, X, ROUTER * 0, *PLAIN, k=2, note="equal factors"),
    case("MoE", 1, X, ROUTER, *PLAIN, k=EXPERTS),
    case("MoE", 1, X, ROUTER, *PLAIN, k=2, use_sparse_mixer=1),
    case("MoE", 1, X, AWAY_FROM_IT, OVERFLOWING, *PLAIN[1:], k=2, note="an expert that overflows is not chosen"),
    *retyped(case("MoE", 1, X, ROUTER, *PLAIN, k=2), np.float16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_experts(case: Case) -> None:
    check(case)


REFUSED = [
    (case("MoE", 1, X, ROUTER, *PLAIN, k=7), "k is 7"),
    (case("MoE", 1, X, ROUTER, *PLAIN, PLAIN[0]), "fc3_experts_weights"),
    (case("MoE", 1, X, ROUTER, *PLAIN, activation_type="tanh"), "activation_type is 'tanh'"),
    (case("MoE", 1, X, ROUTER, *GATED, activation_type="swiglu"), "swiglu_fusion is 0"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
