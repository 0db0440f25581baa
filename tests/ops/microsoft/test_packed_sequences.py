"""Layers with a state over packed requests, against onnxruntime since 1.32."""

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest

from jitonnx import InferenceSession
from tests.ops.harness import Case, build, check, check_refused, needs_onnxruntime
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-5)
RANDOM = np.random.default_rng(12)
F16 = np.float16


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


SUMS = int32(0, 3, 4, 9)
X, WEIGHT, BIAS, STATE = normal(9, 4), normal(4, 1, 3), normal(4), normal(3, 4, 2)
CONVOLUTIONS: list[Case] = [
    case("VarlenCausalConvWithState", 1, X, WEIGHT, SUMS, None, STATE, outputs=2),
    case("VarlenCausalConvWithState", 1, X, WEIGHT, SUMS, BIAS, STATE, outputs=2, activation="silu", constants=(1, 3)),
    case("VarlenCausalConvWithState", 1, X, WEIGHT, SUMS, BIAS, normal(3, 4, 4), outputs=2, dilation=2),
    case("VarlenCausalConvWithState", 1, X, normal(4, 1, 1), SUMS, BIAS, normal(3, 4, 0), outputs=2),
    case(
        *("VarlenCausalConvWithState", 1, X, WEIGHT, SUMS, BIAS, STATE, int32(2, 9, -1)),
        outputs=3,
        state_update_capacity=4,
    ),
    case(
        *("VarlenCausalConvWithState", 1, X.astype(F16), WEIGHT.astype(F16), SUMS, BIAS.astype(F16), STATE.astype(F16)),
        outputs=2,
    ),
]

QUERY, KEY, VALUE = normal(9, 2, 4), normal(9, 2, 4) * 0.5, normal(9, 4, 3)
DECAY, BETA, MEMORY = -np.abs(normal(9, 4)), np.abs(normal(9, 4)) * 0.5, normal(3, 4, 3, 4)
WIDE_DECAY = -np.abs(normal(9, 4, 4))
GATES = (normal(4) * 0.3, normal(4))
WIDE_GATES = (normal(4) * 0.3, normal(16))
COUNTS = int32(1, 9, -1)
RULES = {"linear": (None, None), "gated": (DECAY, None), "delta": (None, BETA), "gated_delta": (DECAY, BETA)}
BATCH = (normal(2, 3, 2, 4), normal(2, 3, 2, 4), normal(2, 3, 4, 3))
RATES = (-np.abs(normal(2, 3, 4)), np.abs(normal(2, 3, 4)))
NORMED: dict[str, Any] = {"qk_l2_norm": 1}
RAGGED = (QUERY, KEY, VALUE, SUMS)
ATTENTIONS: list[Case] = [
    *(
        case("GatedDeltaNet", 1, *RAGGED, *gates, MEMORY, outputs=2, update_rule=rule, **NORMED)
        for rule, gates in RULES.items()
    ),
    case("GatedDeltaNet", 1, *RAGGED, DECAY, BETA, outputs=2, scale=0.3, **NORMED),
    case("GatedDeltaNet", 1, *RAGGED, WIDE_DECAY, BETA, MEMORY, outputs=2, **NORMED),
    case("GatedDeltaNet", 1, *BATCH, None, *RATES, normal(2, 4, 3, 4), outputs=2, **NORMED),
    case("GatedDeltaNet", 1, *BATCH, None, *RATES, outputs=2, **NORMED),
    case("GatedDeltaNet", 1, QUERY, KEY, VALUE, None, DECAY, BETA, MEMORY, outputs=2, **NORMED),
    case("GatedDeltaNet", 1, normal(9, 28), None, None, SUMS, DECAY, BETA, MEMORY, outputs=2, **NORMED),
    *(
        case(
            *("GatedDeltaNet", 1, *RAGGED, decay, BETA, MEMORY, *gates),
            **{"outputs": 2, "gate_activation": name, "beta_activation": "sigmoid", "gate_lower_bound": -2.0},
            **NORMED,
        )
        for name, decay, gates in (
            ("softplus", normal(9, 4), GATES),
            ("kda", normal(9, 4, 4), WIDE_GATES),
        )
    ),
    *(
        case(
            *("GatedDeltaNet", 1, *RAGGED, *gates, MEMORY, None, None, COUNTS),
            **{"outputs": 3, "state_update_capacity": 4, "update_rule": rule},
            **NORMED,
        )
        for rule, gates in (*RULES.items(), ("gated_delta", (WIDE_DECAY, BETA)))
    ),
    case(
        *("GatedDeltaNet", 1, *RAGGED, DECAY, BETA, MEMORY, None, None, COUNTS, int32(0)),
        **{"outputs": 3, "state_update_capacity": 4},
        **NORMED,
    ),
    case(
        *("GatedDeltaNet", 1, *BATCH, None, *RATES, normal(2, 4, 3, 4), None, None, int32(3, 1)),
        **{"outputs": 3, "state_update_capacity": 4},
        **NORMED,
    ),
    case(
        *("GatedDeltaNet", 1, *(x.astype(F16) for x in RAGGED[:3]), SUMS, DECAY, BETA, MEMORY),
        **{"outputs": 2, "widen": False},
        **NORMED,
    ),
]


@needs_onnxruntime("1.32")
@pytest.mark.parametrize("case", [*CONVOLUTIONS, *ATTENTIONS], ids=str)
def test_packed(case: Case) -> None:
    check(case)


def test_requests_of_other_lengths_between_runs() -> None:
    """Each request gives what it gives alone, whatever lies beside it."""
    model = case("GatedDeltaNet", 1, *RAGGED, DECAY, BETA, MEMORY, outputs=2, **NORMED)
    proto = build(model)
    for value in proto.graph.input:
        name = "requests" if value.name == "x6" else "sums" if value.name == "x3" else "tokens"
        value.type.tensor_type.shape.dim[0].dim_param = name
    session = InferenceSession(proto.SerializeToString())
    for sums in ((0, 9), (0, 1, 2, 9), (0, 4, 4, 9), (0, 8, 9)):
        feeds = {"x0": QUERY, "x1": KEY, "x2": VALUE, "x3": int32(*sums), "x4": DECAY, "x5": BETA}
        y, final = session.run(None, {**feeds, "x6": MEMORY[: len(sums) - 1]})
        for row, (first, end) in enumerate(itertools.pairwise(sums)):
            alone = {name: x[first:end] for name, x in feeds.items() if name != "x3"}
            alone |= {"x3": int32(0, end - first), "x6": MEMORY[row : row + 1]}
            expected, state = session.run(None, alone)
            np.testing.assert_allclose(y[first:end], expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(final[row : row + 1], state, rtol=1e-5, atol=1e-6)


REFUSED = [
    (case("VarlenCausalConvWithState", 1, X, WEIGHT, SUMS, BIAS, STATE, outputs=2, dilation=0), "dilation is 0"),
    (case("VarlenCausalConvWithState", 1, X, WEIGHT, SUMS, BIAS, STATE, outputs=2, activation="relu"), "activation"),
    (case("VarlenCausalConvWithState", 1, X, WEIGHT, SUMS, BIAS, MEMORY[:, 0], outputs=2), "initial_state is"),
    (case("VarlenCausalConvWithState", 1, X, WEIGHT, SUMS, BIAS, STATE, COUNTS, outputs=2), "capture_count"),
    (
        case(
            *("VarlenCausalConvWithState", 1, X, WEIGHT[:, :, :2], SUMS, None, STATE[:, :, :1], None, normal(9, 2, 4)),
            normal(9, 1),
            outputs=2,
        ),
        "kernel_delta",
    ),
    (case("GatedDeltaNet", 1, *RAGGED, DECAY, outputs=2), "needs the input beta"),
    (case("GatedDeltaNet", 1, *RAGGED, DECAY, BETA, outputs=2, update_rule="linear"), "does not take the input decay"),
    (case("GatedDeltaNet", 1, *RAGGED, DECAY, BETA, outputs=2, gate_activation="softplus"), "a_log and dt_bias"),
    (case("GatedDeltaNet", 1, QUERY, KEY, VALUE, None, DECAY, BETA, outputs=2), "initial_state is needed"),
    (case("GatedDeltaNet", 1, normal(9, 27), None, None, SUMS, DECAY, BETA, MEMORY, outputs=2), "columns are needed"),
    (case("GatedDeltaNet", 1, QUERY, KEY, VALUE[:, :3], SUMS, DECAY, BETA, outputs=2), "2 heads of keys and 3"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
