"""LinearAttention and CausalConvWithState against onnx's reference: all rules, groups of heads, states, odd sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, retyped

RANDOM = np.random.default_rng(0)
NARROW = (np.float16,)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def attention(
    rule: str,
    heads: tuple[int, int] = (4, 2),
    sizes: tuple[int, int] = (5, 7),
    steps: int = 3,
    past: bool = True,
    by_key: bool = True,
    **options: Any,
) -> Case:
    """Heads of query and of key, sizes of key and of value."""
    (hq, hk), (dk, dv), batch = heads, sizes, 2
    key = normal(batch, steps, hk, dk)
    key /= np.linalg.norm(key, axis=3, keepdims=True)
    decay = -np.abs(normal(batch, steps, hk * dk if by_key else hk)) if rule.startswith("gated") else None
    beta = np.abs(normal(batch, steps, hk)) if rule.endswith("delta") else None
    inputs = [
        normal(batch, steps, hq * dk),
        key.reshape(batch, steps, hk * dk),
        normal(batch, steps, hk * dv),
        normal(batch, hk, dk, dv) if past else None,
        decay,
        beta,
    ]
    while inputs[-1] is None:
        inputs.pop()
    options = {"update_rule": rule, "q_num_heads": hq, "kv_num_heads": hk, **options}
    return case("LinearAttention", 27, *inputs, outputs=2, rtol=1e-4, atol=1e-5, **options)


RULES = ("linear", "gated", "delta", "gated_delta")
GATED = attention("gated_delta")

CASES: list[Case] = [
    *(attention(rule, past=past) for rule in RULES for past in (True, False)),
    *(attention("gated_delta", heads, sizes) for heads in ((1, 1), (6, 1)) for sizes in ((1, 1), (8, 33), (3, 70))),
    attention("gated", by_key=False),
    attention("gated_delta", by_key=False, scale=0.3, chunk_size=2),
    attention("gated_delta", steps=1),
    attention("linear", steps=0),
    case(
        *("LinearAttention", 27, *GATED.inputs[:5], np.abs(normal(2, 3, 1))),
        outputs=2,
        rtol=1e-4,
        note="one rate",
        attributes=GATED.attributes,
    ),
    *retyped(GATED, *NARROW),
]

X, WEIGHT, BIAS, PAST = normal(2, 3, 6), normal(3, 1, 4), normal(3), normal(2, 3, 3)


def convolution(*inputs: Any, **options: Any) -> Case:
    return case("CausalConvWithState", 27, *inputs, outputs=2, rtol=1e-4, atol=1e-5, **options)


CASES += [
    *(
        convolution(X, WEIGHT, *rest, activation=kind)
        for rest in ((), (BIAS,), (BIAS, PAST))
        for kind in ("none", "silu")
    ),
    *(convolution(X, WEIGHT, None, PAST, constants=given, activation="swish") for given in ((), (1,))),
    convolution(X, WEIGHT, BIAS, PAST, constants=(1, 2)),
    convolution(X[:, :, :1], WEIGHT, BIAS, PAST),
    convolution(X[:, :, :1], WEIGHT),
    convolution(X, WEIGHT[:, :, :1], BIAS, PAST[:, :, :0]),
    *retyped(convolution(X, WEIGHT, BIAS, PAST, activation="silu"), *NARROW),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_linear_attention(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (attention("square"), "update_rule 'square'"),
        (
            case("LinearAttention", 27, *GATED.inputs[:3], attributes=GATED.attributes, outputs=2),
            "needs the input decay",
        ),
        (
            case(
                "LinearAttention", 27, *GATED.inputs, attributes={**GATED.attributes, "update_rule": "delta"}, outputs=2
            ),
            "not take",
        ),
        (attention("linear", heads=(3, 2)), "a multiple"),
        (
            case(
                "LinearAttention",
                27,
                *GATED.inputs[:3],
                GATED.inputs[3][:1],
                *GATED.inputs[4:],
                attributes=GATED.attributes,
                outputs=2,
            ),
            "past",
        ),
        (convolution(X, WEIGHT[:2]), r"\[3, 1, k\] expected"),
        (convolution(X, WEIGHT, BIAS, PAST[:, :, :2]), "past_state has the type"),
        (convolution(X, WEIGHT, activation="relu"), "none, silu or swish"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)
