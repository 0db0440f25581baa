"""Mixtures of experts of com.microsoft, against onnxruntime."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from jitonnx import InferenceSession
from tests.ops.harness import Case, build, check, check_refused, needs_onnxruntime, retyped, run_onnxruntime
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


def quantized(bits: int = 4, block: int = 0, *, zeros: bool = False, bias: bool = False, **attributes: Any) -> Case:
    """A QMoE of 4 experts, of 4 tokens of 32 elements."""
    gated = attributes.get("activation_type") == "swiglu"
    given: list[Any] = [normal(4, 32), normal(4, 4)]
    packed: list[Any] = []
    for columns, size in ((64 if gated else 32, 32), (32, 32)):
        blocks = size // block if block else None
        scales = np.abs(normal(4, columns, *([blocks] if blocks else []))) * np.float32(0.8 / (1 << bits))
        given += [RANDOM.integers(0, 256, (4, columns, size * bits // 8)).astype(np.uint8), scales]
        given.append(normal(4, columns) if bias else None)
        width = (columns, -(-blocks * bits // 8)) if blocks else (columns * bits // 8,)
        packed.append(RANDOM.integers(0, 256, (4, *width)).astype(np.uint8) if zeros else None)
    given += [None, None, None, *packed]
    constants = tuple(at for at, x in enumerate(given) if x is not None and at > 1)
    attributes = {"k": 2, "expert_weight_bits": bits, **({"block_size": block} if block else {}), **attributes}
    while given[-1] is None:
        given.pop()
    return case("QMoE", 1, *given, constants=constants, **attributes)


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
    quantized(),
    quantized(block=16, activation_type="silu"),
    quantized(bits=8, bias=True, activation_type="gelu", normalize_routing_weights=1),
    quantized(zeros=True),
    quantized(block=16, zeros=True, bias=True, activation_type="silu"),
    quantized(block=32, bias=True, **LIKE_GPT_OSS),
    *retyped(case("MoE", 1, X, ROUTER, *PLAIN, k=2), np.float16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_experts(case: Case) -> None:
    check(case)


REFUSED = [
    (case("MoE", 1, X, ROUTER, *PLAIN, k=7), "k is 7"),
    (case("MoE", 1, X, ROUTER, *PLAIN, PLAIN[0]), "fc3_experts_weights"),
    (case("MoE", 1, X, ROUTER, *PLAIN, activation_type="tanh"), "activation_type is 'tanh'"),
    (quantized(bits=2), "2 bits"),
    (quantized(quant_type="fp8"), "quant_type is 'fp8'"),
    (case("MoE", 1, X, ROUTER, *GATED, activation_type="swiglu"), "swiglu_fusion is 0"),
    (case("MoE", 1, X, ROUTER, *GATED, swiglu_limit_after_activation=1), "swiglu_limit_after_activation"),
    (case("MoEGroupRouter", 1, X, normal(16), top_k=9, n_group=4, topk_group=2), "top_k 9 of 2 groups of 4"),
    (case("MoEGroupRouter", 1, X, normal(16), top_k=2, n_group=3), "n_group 3"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)


LOGITS, EXPERT_BIAS = normal(2, 3, 12), normal(12) * 0.3
GROUPED = {"top_k": 4, "n_group": 4, "topk_group": 2}
ROUTERS: list[Case] = [
    case("MoEGroupRouter", 1, LOGITS, EXPERT_BIAS, **GROUPED),
    case("MoEGroupRouter", 1, LOGITS[0], EXPERT_BIAS, **{**GROUPED, "group_topk": 9}, router_sentinel=-5.0),
    case("MoEGroupRouter", 1, LOGITS, EXPERT_BIAS, top_k=3),
    case("MoEGroupRouter", 1, np.zeros((1, 12), np.float32), np.zeros(12, np.float32), **GROUPED),
    *retyped(case("MoEGroupRouter", 1, LOGITS, EXPERT_BIAS, **GROUPED, constants=(1,), widen=False), np.float16),
]


@needs_onnxruntime("1.32")
@pytest.mark.parametrize("case", ROUTERS, ids=str)
def test_routers(case: Case) -> None:
    check(case)


@needs_onnxruntime("1.32")
@pytest.mark.parametrize("projected", [False, True])
def test_full_scores(projected: bool) -> None:
    """selection_scores and router_weights, without router_probs."""
    x = normal(3, 256 if projected else 12)
    given = [x, EXPERT_BIAS, *([normal(12, 256) * np.float32(0.05)] if projected else [])]
    model = build(case("MoEGroupRouter", 1, *given, top_k=3, outputs=3))
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    feeds = {f"x{i}": one for i, one in enumerate(given)}
    expected = run_onnxruntime(model, feeds)
    assert expected is not None
    for result, right in zip(InferenceSession(model.SerializeToString()).run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5)
