"""LSTM, GRU and RNN: directions, lengths, states, layouts, activations, every attribute."""

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, oracle

RANDOM = np.random.default_rng(0)
STEPS, BATCH, SIZE, HIDDEN = 5, 3, 4, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
VERSIONS = {"LSTM": (7, 14, 22), "GRU": (7, 14, 22), "RNN": (7, 14, 22)}
LENGTHS = np.array([5, 0, 3], np.int32)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def operands(kind: str, directions: int = 1) -> list[np.ndarray]:
    """X, W, R, B, sequence_lens, initial_h and, for LSTM, initial_c and P."""
    gates = GATES[kind] * HIDDEN
    given = [normal(STEPS, BATCH, SIZE), normal(directions, gates, SIZE), normal(directions, gates, HIDDEN)]
    given += [normal(directions, 2 * gates), LENGTHS, normal(directions, BATCH, HIDDEN)]
    return given + [normal(directions, BATCH, HIDDEN), normal(directions, 3 * HIDDEN)] * (kind == "LSTM")


def layer(kind: str, version: int, given: list[np.ndarray | None], **options: Any) -> Case:
    return case(kind, version, *given, hidden_size=HIDDEN, outputs=3 if kind == "LSTM" else 2, **options)


def by_batch(given: list[np.ndarray]) -> list[np.ndarray | None]:
    """The operands with the batch in front, for layout 1."""
    return [np.ascontiguousarray(x.swapaxes(0, 1)) if i in (0, 5, 6) else x for i, x in enumerate(given)]


def shortened(given: list[np.ndarray]) -> list[np.ndarray]:
    """All sequences end before the last step, where X holds what nothing may come of."""
    x, *others = given
    x[4:] = np.nan
    return [x, *(np.array([4, 0, 2], np.int32) if value is LENGTHS else value for value in others)]


def in_layout(kind: str, direction: str, short: bool = False) -> Case:
    """A case of layout 1, expected to be that of layout 0 transposed (onnxruntime has layout 0 only)."""
    given = operands(kind, 2 if direction == "bidirectional" else 1)
    given = shortened(given) if short else given
    plain = layer(kind, 14, list(given), direction=direction)
    y, *states = oracle(plain, {f"x{i}": x for i, x in enumerate(given)})
    expected = (y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in states))
    return layer(kind, 22, by_batch(given), direction=direction, layout=1, expected=expected)


CASES: list[Case] = []
for kind, versions in VERSIONS.items():
    for version in versions:
        for direction in ("forward", "reverse", "bidirectional"):
            full = operands(kind, directions := 2 if direction == "bidirectional" else 1)
            functions = {"LSTM": ["HardSigmoid", "Softsign", "LeakyRelu"], "GRU": ["HardSigmoid", "LeakyRelu"]}
            named = functions.get(kind, ["Elu"]) * directions
            CASES += [
                layer(kind, version, full[:3], direction=direction),
                layer(kind, version, full[:4], direction=direction),
                layer(kind, version, full, direction=direction),
                layer(kind, version, shortened(operands(kind, directions)), direction=direction),
                layer(kind, version, full, direction=direction, clip=0.3),
                layer(kind, version, full, direction=direction, activations=named),
                layer(
                    *(kind, version, full),
                    direction=direction,
                    activations=named,
                    activation_alpha=[0.3, 0.4, 0.5, 0.6][: len(named)],
                    activation_beta=[0.1, 0.2],
                ),
            ]
            if kind == "LSTM":
                CASES.append(layer(kind, version, full, direction=direction, input_forget=1))
            if kind == "GRU":
                CASES.append(layer(kind, version, full, direction=direction, linear_before_reset=1))
    CASES += [in_layout(kind, way, short) for way in ("forward", "bidirectional") for short in (False, True)]
    CASES.append(layer(kind, 22, [x.astype(np.float64) for x in operands(kind)[:4]]))
    CASES.append(layer(kind, 22, [x.astype(np.float16) for x in operands(kind)[:3]], rtol=2e-2))
for name in (
    "Affine",
    "Elu",
    "HardSigmoid",
    "LeakyRelu",
    "Relu",
    "ScaledTanh",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Tanh",
):
    given = operands("RNN")
    CASES.append(layer("RNN", 22, given, activations=[name], activation_alpha=[0.6], activation_beta=[0.3]))

# log(1 + exp(x)) is x where exp(x) is beyond float32; onnxruntime has inf there.
CASES.append(
    case("RNN", 22, np.array([[[100, 1000, -1000]]], np.float32), np.array([np.eye(3)], np.float32),
         np.zeros((1, 3, 3), np.float32), hidden_size=3, activations=["Softplus"],
         expected=np.array([[[[100, 1000, 0]]]], np.float32))
)  # fmt: skip


def first_version(kind: str, version: int, **options: Any) -> Case:
    """An old version means what version 7 does, and has an attribute for whether Y is wanted."""
    given = operands(kind)
    expected = oracle(layer(kind, 7, list(given), **options), {f"x{i}": x for i, x in enumerate(given)})
    return layer(kind, version, list(given), **options, output_sequence=1, expected=tuple(expected))


CASES += [first_version(kind, 1) for kind in VERSIONS]
CASES.append(case("GRU", 3, *operands("GRU")[:3], hidden_size=HIDDEN, linear_before_reset=1, outputs=2))
CASES.append(first_version("GRU", 3, linear_before_reset=1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_recurrent(case: Case) -> None:
    check(case)


X, W, R = operands("LSTM")[:3]


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (layer("LSTM", 22, [X, W[:, :7], R]), "W has the type .* expected the shape"),
        (layer("LSTM", 22, [X, W, R], direction="backward"), "direction 'backward'"),
        (layer("LSTM", 22, [X, W, R], activations=["Tanh"]), "1 activations given, 3 a direction expected"),
        (layer("LSTM", 22, [X, W, R], activations=["Tanh", "Tanh", "Tan"]), "activation 'Tan'"),
        (layer("LSTM", 22, [X[0], W, R]), "three axes each"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)
