"""Linear attention of com.microsoft, against onnxruntime."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-5)
RANDOM = np.random.default_rng(8)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


X, WEIGHT, BIAS = normal(2, 4, 7), normal(4, 1, 3), normal(4)
ROWS = X.transpose(0, 2, 1).copy()
QUERY, KEY, VALUE = normal(2, 5, 8), normal(2, 5, 8) * 0.5, normal(2, 5, 6)
DECAY, BETA, STATE = -np.abs(normal(2, 5, 2)), np.abs(normal(2, 5, 2)), normal(2, 2, 4, 3)
HEADS = {"q_num_heads": 2, "kv_num_heads": 2}
LINEAR = {"update_rule": "linear"}
GATES = (normal(2, 5, 3) * 4, normal(3), -np.abs(normal(3)))

CASES: list[Case] = [
    case("CausalConvWithState", 1, X, WEIGHT, outputs=2),
    case("CausalConvWithState", 1, X, WEIGHT, BIAS, normal(2, 4, 2), outputs=2, activation="silu", constants=(1,)),
    case("CausalConvWithState", 1, X[:, :, :1], WEIGHT, None, normal(2, 4, 2), outputs=2),
    case("CausalConvWithState", 1, X, WEIGHT, BIAS, normal(2, 4, 6), outputs=2, dilation=3, constants=(1, 2)),
    case("CausalConvWithState", 1, X, WEIGHT, BIAS, outputs=2, dilation=2, activation="swish"),
    case("CausalConvWithState", 1, ROWS, WEIGHT, BIAS, normal(2, 2, 4), outputs=2, channels_last=1, constants=(1,)),
    case("CausalConvWithState", 1, ROWS, WEIGHT, BIAS, outputs=2, channels_last=1, dilation=2, constants=(1,)),
    case("CausalConvWithState", 1, normal(2, 6, 2, 2), WEIGHT, outputs=2, channels_last=1, constants=(1,)),
    case("LinearAttention", 1, QUERY, KEY, VALUE, None, DECAY, BETA, outputs=2, **HEADS),
    case("LinearAttention", 1, QUERY, KEY, VALUE, STATE, DECAY, BETA, outputs=2, scale=0.3, **HEADS),
    *(
        case("LinearAttention", 1, QUERY, KEY, VALUE, STATE, DECAY, BETA, outputs=2, update_rule=rule, **HEADS)
        for rule in ("linear", "gated", "delta")
    ),
    case(
        *("LinearAttention", 1, QUERY[:, :, :4], KEY, VALUE, STATE, DECAY, BETA),
        outputs=2,
        **{**HEADS, "q_num_heads": 1},
    ),
    case("LinearAttention", 1, QUERY, KEY[:, :, :4], VALUE, outputs=2, **{**HEADS, "kv_num_heads": 1}, **LINEAR),
    # Fewer heads of queries and keys than of values, as Qwen3.5 has them.
    *(
        case(
            *("LinearAttention", 1, QUERY[:, :, :queries], KEY[:, :, :keys], normal(2, 5, 12), normal(2, 4, 4, 3)),
            *(-np.abs(normal(2, 5, 4)), np.abs(normal(2, 5, 4))),
            outputs=2,
            **{"q_num_heads": queries // 4, "kv_num_heads": 4},
        )
        for queries, keys in ((8, 8), (4, 8), (4, 4), (8, 4))
    ),
    case("LinearAttentionGate", 1, *GATES, outputs=1),
    case("LinearAttentionGate", 1, *GATES, normal(2, 5, 3), outputs=2),
    case(
        "LinearAttentionGate", 1, GATES[0].astype(np.float16), *GATES[1:], normal(2, 5, 3).astype(np.float16), outputs=2
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_linear_attention(case: Case) -> None:
    check(case)


REFUSED = [
    (case("CausalConvWithState", 1, normal(2, 4, 5, 5), normal(4, 1, 2, 2), outputs=2, ndim=2), "ndim is 2"),
    (case("CausalConvWithState", 1, X, WEIGHT, outputs=2, state_window=2), "state_window 2"),
    (case("CausalConvWithState", 1, ROWS, WEIGHT, outputs=2, channels_last=1, state_length=4), "state_length"),
    (case("CausalConvWithState", 1, X, WEIGHT, outputs=2, dilation=0), "dilation is 0"),
    (case("CausalConvWithState", 1, X, WEIGHT, outputs=2, activation="relu"), "activation 'relu'"),
    (case("CausalConvWithState", 1, X, WEIGHT, None, X, outputs=2, dilation=2), "past_state is"),
    (
        case("LinearAttention", 1, QUERY, KEY, VALUE, None, DECAY, BETA, outputs=2, state_window=1, **HEADS),
        "state_window",
    ),
    (
        case(
            *("LinearAttention", 1, normal(2, 5, 8), normal(2, 5, 12), normal(2, 5, 9)),
            outputs=2,
            **{"q_num_heads": 2, "kv_num_heads": 3},
            **LINEAR,
        ),
        "query is float.* of 2 heads, kv_num_heads 3",
    ),
    (
        case(
            *("LinearAttention", 1, normal(2, 5, 8), normal(2, 5, 12), normal(2, 5, 8)),
            outputs=2,
            **{"q_num_heads": 2, "kv_num_heads": 4},
            **LINEAR,
        ),
        "key is float.* of 3 heads, kv_num_heads 4",
    ),
    (case("LinearAttentionGate", 1, *GATES, outputs=2), "needs the input b"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
