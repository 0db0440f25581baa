"""Recurrent layers of 8-bit weights, against onnxruntime: directions, lengths, states, peepholes, zero points."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from jitonnx import InferenceSession
from tests.ops.harness import Case, assert_same, build, check, check_refused, oracle
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-3, atol=1e-4)
RANDOM = np.random.default_rng(6)
STEPS, BATCH, INPUT, HIDDEN = 6, 3, 5, 8


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def layer(
    directions: int = 1,
    dtype: Any = np.int8,
    zero: int = 0,
    by_column: bool = False,
    lengths: list[int] | None = None,
    bias: bool = True,
    states: bool = False,
    peepholes: bool = False,
    constants: tuple[int, ...] = (1, 2, 3, 8, 9, 10, 11),
    **attributes: Any,
) -> Case:
    info = np.iinfo(dtype)
    w, r = (
        RANDOM.integers(info.min, info.max + 1, (directions, depth, 4 * HIDDEN)).astype(dtype)
        for depth in (INPUT, HIDDEN)
    )
    places = (directions, 4 * HIDDEN) if by_column else (directions,)
    scales = [np.full(places, scale, np.float32) for scale in (0.004, 0.006)]
    zeros = np.full(places, zero, dtype)
    state = (directions, BATCH, HIDDEN)
    given = [
        *(normal(STEPS, BATCH, INPUT), w, r),
        normal(directions, 8 * HIDDEN) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
        *(normal(*state) if states else None for _ in range(2)),
        normal(directions, 3 * HIDDEN) if peepholes else None,
        *(scales[0], zeros, scales[1], zeros),
    ]
    attributes = {"hidden_size": HIDDEN, "input_forget": 0, **attributes}
    return case("DynamicQuantizeLSTM", 1, *given, outputs=3, constants=constants, lowered=False, **attributes)


CASES: list[Case] = [
    layer(),
    layer(bias=False, constants=()),
    layer(2, direction="bidirectional", states=True),
    layer(direction="reverse", dtype=np.uint8, zero=128),
    layer(2, direction="bidirectional", by_column=True, peepholes=True),
    layer(activations=["HardSigmoid", "Relu", "Softsign"], clip=0.7),
    layer(input_forget=1, states=True),
    layer(lengths=[4, 4, 4]),
    layer(2, direction="bidirectional", lengths=[3, 3, 3], states=True),
    layer(direction="reverse", lengths=[1, 1, 1], constants=(1, 2, 3, 4, 8, 9, 10, 11)),
    layer(2, direction="bidirectional", lengths=[6, 6, 6], peepholes=True),
]


def test_lengths_of_their_own() -> None:
    """Rows that end early keep their state, where onnxruntime quantises what it goes on with: near, but not equal. All
    may be empty, or end before the last step."""
    for lengths in ([5, 2, 4], [1, 0, 3], [0, 0, 0]):
        case = layer(2, direction="bidirectional", lengths=lengths, states=True)
        feeds = {f"x{i}": x for i, x in enumerate(case.inputs) if x is not None and i not in case.constants}
        expected = oracle(case, feeds)
        for sizes in ("", "open"):
            session = InferenceSession(build(case, sizes))
            for _ in range(3):  # the first runs are Python's
                y, *states = session.run(None, feeds)
                assert y.shape == (STEPS, 2, BATCH, HIDDEN)
                for row, length in enumerate(lengths):
                    assert not y[length:, :, row].any()
                    if length == 0:
                        assert not any(state[:, row].any() for state in states)
                for result, wanted in zip((y, *states), expected, strict=True):
                    np.testing.assert_allclose(result, wanted, atol=0.02)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_recurrent(case: Case) -> None:
    check(case)
    feeds = {f"x{i}": x for i, x in enumerate(case.inputs) if x is not None and i not in case.constants}
    for sizes in ("", "open"):
        model = build(case, sizes)
        for result, expected in zip(InferenceSession(model).run(None, feeds), oracle(case, feeds), strict=True):
            assert_same(result, expected, case, f"output of a session, sizes {sizes or 'fixed'}")


REFUSED = [
    (layer(hidden_size=7), "W has the type"),
    (layer(activations=["Sine", "Relu", "Tanh"]), "activation 'Sine'"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
