"""Recurrent kernels against ONNX's equations in NumPy (float64) and against onnxruntime."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from jitonnx.kernels.parts.bfloat16 import rounded
from jitonnx.kernels.recurrent.kernel import build
from jitonnx.kernels.recurrent.spec import GATES, Activation, RecurrentSpec, choose, joins
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named

SIGMOID, TANH, RELU = ("Sigmoid", 0.0, 0.0), ("Tanh", 0.0, 0.0), ("Relu", 0.0, 0.0)
DEFAULTS = {"LSTM": (SIGMOID, TANH, TANH), "GRU": (SIGMOID, TANH), "RNN": (TANH,)}
WIDTHS = sorted({8, host().lanes(4)})
_COMPILED: dict[tuple[RecurrentSpec, int], Compiled] = {}


class Result(NamedTuple):
    y: np.ndarray
    h: np.ndarray
    c: np.ndarray


class Layer:
    """Operands of a node in layout 0, random, and what the kernel makes of them."""

    def __init__(
        self, kind: str, hidden: int, steps: int, batch: int, directions: int = 1, reverse: int = 0, inputs: int = 3
    ) -> None:
        self.kind, self.hidden, self.steps, self.batch = kind, hidden, steps, batch
        self.directions, self.reverse = directions, reverse
        random, gates = np.random.default_rng(hidden), GATES[kind]
        scale = 1 / math.sqrt(hidden)
        self.x = random.normal(size=(steps, batch, inputs))
        self.w = random.normal(size=(directions, gates * hidden, inputs))
        self.r = random.normal(size=(directions, gates * hidden, hidden)) * scale
        self.b = random.normal(size=(directions, 2 * gates * hidden)) * 0.3
        self.p = random.normal(size=(directions, 3 * hidden)) * 0.3
        self.h = random.normal(size=(directions, batch, hidden)) * 0.5
        self.c = random.normal(size=(directions, batch, hidden)) * 0.5
        self.lengths = np.array([max(1, steps - 2 * row) for row in range(batch)], np.int32)

    def run(self, spec: RecurrentSpec, lanes: int, pieces: int = 2, together: bool = False) -> Result:
        """The kernel on tensors with gaps: y and states are views of wider buffers. `together`: pieces at once."""
        hidden, dtype = self.hidden, spec.element
        recurrent_bias = np.zeros((self.directions, hidden), dtype)
        bias = self.b[:, : len(self.w[0])] + self.b[:, len(self.w[0]) :]
        if spec.kind == "GRU" and spec.linear_before_reset:
            recurrent_bias[...] = self.b[:, -hidden:]
            bias[:, -hidden:] -= self.b[:, -hidden:]
        gates = np.einsum("tbi,dgi->tbdg", self.x, self.w) + bias
        gates = np.ascontiguousarray(gates, dtype)
        y = np.full((self.steps, self.directions, self.batch, hidden + 3), 77, dtype)
        states = [np.full((self.directions, self.batch, hidden + 2), 55, dtype) for _ in range(4)]
        states[0][..., :hidden], states[1][..., :hidden] = self.h, self.c
        sizes = spec.arguments(
            steps=self.steps,
            batch=self.batch,
            directions=self.directions,
            hidden=hidden,
            reverse=self.reverse,
            y_step=self.directions * self.batch * (hidden + 3),
            y_direction=self.batch * (hidden + 3),
            y_row=hidden + 3,
            state_direction=self.batch * (hidden + 2),
            state_row=hidden + 2,
        )
        buffers = [gates, spec.pack(self.r.astype(dtype)), recurrent_bias, self.p.astype(dtype), self.lengths]
        buffers += [states[0], states[1], y, states[2], states[3]]
        buffers += [np.zeros((self.directions, spec.shared_elements(hidden)), dtype)]
        call = _compiled(spec, lanes).together if together else _compiled(spec, lanes)
        call(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
        assert (y[..., hidden:] == 77).all() and all((state[..., hidden:] == 55).all() for state in states)
        return Result(y[..., :hidden], states[2][..., :hidden], states[3][..., :hidden])

    def reference(self, spec: RecurrentSpec) -> Result:
        """ONNX's equations in float64."""
        y = np.zeros((self.steps, self.directions, self.batch, self.hidden))
        h, c = (self.h.copy(), self.c.copy()) if spec.initial else (np.zeros_like(self.h), np.zeros_like(self.c))
        for d in range(self.directions):
            for row in range(self.batch):
                length = int(self.lengths[row]) if spec.lengths else self.steps
                times = range(length)
                for t in reversed(times) if self.reverse >> d & 1 else times:
                    h[d, row], c[d, row] = self._step(spec, d, self.x[t, row], h[d, row], c[d, row])
                    y[t, d, row] = h[d, row]
        return Result(y, h, c)

    def _step(
        self, spec: RecurrentSpec, d: int, x: np.ndarray, h: np.ndarray, c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        gates, hidden = GATES[self.kind], self.hidden
        a, r = self.w[d] @ x + self.b[d, : gates * hidden], self.r[d]
        rb = self.b[d, gates * hidden :]

        def f(which: int, value: np.ndarray) -> np.ndarray:
            bounded = np.clip(value, -spec.clip, spec.clip) if spec.clip else value
            return _activate(spec.activations[which], bounded)

        if self.kind == "RNN":
            return f(0, a + r @ h + rb), c
        if self.kind == "GRU":
            z, rr, hh = np.split(a, 3)
            rz, r_r, rh = np.split(r, 3)
            bz, br, bh = np.split(rb, 3)
            z, rr = f(0, z + rz @ h + bz), f(0, rr + r_r @ h + br)
            inner = rr * (rh @ h + bh) if spec.linear_before_reset else rh @ (rr * h) + bh
            return (1 - z) * f(1, hh + inner) + z * h, c
        i, o, ff, cc = np.split(a + r @ h + rb, 4)
        pi, po, pf = np.split(self.p[d], 3) if spec.peepholes else (0.0, 0.0, 0.0)
        i = f(0, i + pi * c)
        ff = 1 - i if spec.input_forget else f(0, ff + pf * c)
        c = ff * c + i * f(1, cc)
        return f(0, o + po * c) * _activate(spec.activations[2], c), c


def _activate(activation: Activation, x: np.ndarray) -> np.ndarray:
    name, alpha, beta = activation
    return {
        "Sigmoid": lambda: 1 / (1 + np.exp(-x)),
        "Tanh": lambda: np.tanh(x),
        "Relu": lambda: np.maximum(x, 0),
        "Affine": lambda: alpha * x + beta,
        "LeakyRelu": lambda: np.where(x < 0, alpha * x, x),
        "ThresholdedRelu": lambda: np.where(x > alpha, x, 0),
        "ScaledTanh": lambda: alpha * np.tanh(beta * x),
        "HardSigmoid": lambda: np.clip(alpha * x + beta, 0, 1),
        "Elu": lambda: np.where(x > 0, x, alpha * np.expm1(x)),
        "Softsign": lambda: x / (1 + np.abs(x)),
        "Softplus": lambda: np.log1p(np.exp(x)),
    }[name]()


def _compiled(spec: RecurrentSpec, lanes: int) -> Compiled:
    if (spec, lanes) not in _COMPILED:
        target = host() if lanes == host().lanes(4) else named("haswell")
        _COMPILED[spec, lanes] = Compiled(build(spec, spec.units), target)
    return _COMPILED[spec, lanes]


def _spec(kind: str, lanes: int, batch: int | None = None, **options: Any) -> RecurrentSpec:
    activations = options.pop("activations", DEFAULTS[kind])
    element = options.get("element", "float32")
    return choose(
        kind,
        activations,
        lanes=lanes * 4 // np.dtype(element).itemsize,
        registers=32 if lanes == 16 else 16,
        batch=batch,
        **options,
    )


def _check(layer: Layer, spec: RecurrentSpec, lanes: int, tolerance: float = 3e-6) -> None:
    got, expected = layer.run(spec, lanes), layer.reference(spec)
    for name in ("y", "h", "c") if spec.kind == "LSTM" else ("y", "h"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), tolerance, tolerance)


KINDS = [("LSTM", False), ("GRU", False), ("GRU", True), ("RNN", False)]


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("kind", "linear"), KINDS)
@pytest.mark.parametrize("batch", [1, 2, 5, 8, 13])
def test_hidden_sizes_and_batches(kind: str, linear: bool, batch: int, lanes: int) -> None:
    spec = _spec(kind, lanes, batch, linear_before_reset=linear, initial=True)
    for hidden in (1, 15, 16, 17, 40):
        _check(Layer(kind, hidden, 4, batch), spec, lanes)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("kind", "linear"), KINDS)
@pytest.mark.parametrize("batch", [1, 7, 16, 33])
def test_blocks_of_several_tiles(kind: str, linear: bool, batch: int, lanes: int) -> None:
    """It is done as for large weights, at a size that a test can afford."""
    spec = _spec(kind, lanes, batch, hidden=1024, linear_before_reset=linear, initial=True, lengths=True)
    assert spec.rows >= min(batch, 16) and spec.rows % spec.tiles[0] == 0
    for parts in (1, 2):
        _check(Layer(kind, 37, 5, batch, directions=2, reverse=2), replace(spec, parts=parts), lanes)


def test_tiles() -> None:
    """Equal ones, one for what remains, and where weights are large all rows in one block."""
    found = [(spec.rows, spec.tiles) for batch in (1, 5, 13, 16) for spec in [_spec("LSTM", 16, batch)]]
    assert found == [(1, (1,)), (5, (5,)), (5, (5, 3)), (6, (6, 4))]
    found = [(spec.rows, spec.tiles) for batch in (1, 16, 40) for spec in [_spec("LSTM", 16, batch, hidden=512)]]
    assert found == [(1, (1,)), (18, (6, 4)), (24, (6, 4))]
    assert _spec("LSTM", 16, hidden=512).tiles == (4, 1)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("kind", "linear"), KINDS)
def test_unknown_batch_directions_and_lengths(kind: str, linear: bool, lanes: int) -> None:
    for lengths, initial in ((False, False), (True, True)):
        spec = _spec(kind, lanes, linear_before_reset=linear, initial=initial, lengths=lengths)
        for batch in (1, 4, 6):
            _check(Layer(kind, 20, 7, batch, directions=2, reverse=2), spec, lanes)
        _check(Layer(kind, 20, 5, 3, directions=1, reverse=1), spec, lanes)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("kind", "linear"), KINDS)
@pytest.mark.parametrize("batch", [1, 2, None])
def test_weights_in_fixed_point(kind: str, linear: bool, batch: int | None, lanes: int) -> None:
    spec = _spec(kind, lanes, batch, fixed=True, linear_before_reset=linear, initial=True, lengths=True)
    for hidden in (1, 15, 17, 40):
        for rows in (batch,) if batch else (1, 4, 6):
            layer = Layer(kind, hidden, 6, rows, directions=2, reverse=2)
            _check(layer, spec, lanes)
            _check(layer, replace(spec, parts=2), lanes)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("kind", "linear"), KINDS)
@pytest.mark.parametrize("batch", [1, 2, None])
def test_weights_in_bfloat16(kind: str, linear: bool, batch: int | None, lanes: int) -> None:
    spec = _spec(kind, lanes, batch, halves=True, linear_before_reset=linear, initial=True, lengths=True)
    for hidden in (1, 15, 17, 40):
        layer = Layer(kind, hidden, 6, batch or 4, directions=2, reverse=2)
        layer.r = (rounded(layer.r.astype(np.float32)).astype(np.uint32) << 16).view(np.float32).astype(float)
        _check(layer, spec, lanes)
        _check(layer, replace(spec, parts=2), lanes)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("kind", "linear"), KINDS)
def test_joined_weights_in_bfloat16(kind: str, linear: bool, lanes: int) -> None:
    """What is packed is off by half a unit in the last place of bfloat16 at most, and results are those of it."""
    spec = _spec(kind, lanes, 1, halves=True, joined=True, linear_before_reset=linear, initial=True)
    plain = replace(spec, halves=False, joined=False)
    for hidden in (1, 15, 17, 40):
        layer = Layer(kind, hidden, 6, 1, directions=2, reverse=2)
        layer.r[:, ::7, ::3] = 0
        given = layer.r = layer.r.astype(np.float32)
        got = layer.run(replace(spec, parts=2) if hidden == 17 else spec, lanes)
        words = spec.pack(given).view(np.uint32).reshape(2, -1, lanes)
        assert ((words >> 23 & 0xFF > 0) | (words == 0)).all(), "no operand is below the least normal number"
        packed = np.stack([words << 16, words], 2).view(np.float32).ravel()
        places = plain.pack(np.arange(1, given.size + 1, dtype=np.float32).reshape(given.shape)).ravel().astype(int)
        layer.r = np.zeros_like(given)
        layer.r.flat[places[places > 0] - 1] = packed[places > 0]
        assert (packed[places == 0] < 2.0**-63).all(), "what rows of k behind the last have, whose state is zero"
        assert (np.abs(layer.r - given) <= np.maximum(np.abs(given) * 2.0**-8, 2.0**-63)).all()
        np.testing.assert_allclose(got.y, layer.reference(spec).y, 3e-6, 3e-6)


def test_what_may_be_joined() -> None:
    r = np.random.default_rng(0).normal(size=(1, 8, 8)).astype(np.float32)
    assert joins(r) and not joins(r * 0) and not joins(r * np.float32(2.0**-60))
    assert not joins((rounded(r).astype(np.uint32) << 16).view(np.float32)), "they are exact as they are"
    for value in (np.inf, np.nan, 2.0**121):
        r[0, 3, 4] = value
        assert not joins(r)


@pytest.mark.parametrize("lanes", WIDTHS)
def test_lstm_options(lanes: int) -> None:
    for options in (
        {"peepholes": True},
        {"input_forget": True},
        {"peepholes": True, "input_forget": True, "clip": 0.7},
    ):
        spec = _spec("LSTM", lanes, 3, initial=True, **options)
        _check(Layer("LSTM", 19, 5, 3, directions=2, reverse=2), spec, lanes)


@pytest.mark.parametrize(
    "activation",
    [
        *(SIGMOID, TANH, RELU, ("Affine", 0.7, 0.1), ("LeakyRelu", 0.1, 0.0), ("ThresholdedRelu", 0.3, 0.0)),
        *(("ScaledTanh", 0.8, 1.3), ("HardSigmoid", 0.3, 0.4), ("Elu", 0.6, 0.0), ("Softsign", 0.0, 0.0)),
        ("Softplus", 0.0, 0.0),
    ],
)
def test_activations(activation: Activation) -> None:
    lanes = host().lanes(4)
    for kind, options in (("RNN", {}), ("RNN", {"clip": 0.5}), ("GRU", {})):
        spec = _spec(kind, lanes, 2, activations=(activation,) * len(DEFAULTS[kind]), **options)
        _check(Layer(kind, 18, 3, 2), spec, lanes, 1e-5)


@pytest.mark.parametrize(("kind", "linear"), KINDS)
def test_double(kind: str, linear: bool) -> None:
    spec = _spec(kind, host().lanes(4), 3, linear_before_reset=linear, element="float64", initial=True)
    _check(Layer(kind, 21, 5, 3), spec, host().lanes(4), 1e-13)


def test_results_do_not_depend_on_the_split() -> None:
    spec, lanes = _spec("LSTM", host().lanes(4), 13, initial=True), host().lanes(4)
    layer = Layer("LSTM", 33, 6, 13, directions=2, reverse=2)
    whole = layer.run(spec, lanes, pieces=1)
    for pieces in (2, 5):
        for one, other in zip(whole, layer.run(spec, lanes, pieces), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("kind", "linear"), KINDS)
@pytest.mark.parametrize(("batch", "known"), [(1, True), (1, False), (3, False), (2, True), (6, False)])
def test_threads_that_share_a_direction(kind: str, linear: bool, batch: int, known: bool, lanes: int) -> None:
    """Parts without a panel, threads with parts of both directions, blocks that are not split; pieces at the same time
    and one after the other, where the first has to do the work of all."""
    for initial, lengths in ((False, False), (True, True)):
        whole = _spec(
            kind, lanes, batch if known else None, linear_before_reset=linear, initial=initial, lengths=lengths
        )
        for parts, hidden in ((2, 70), (4, 37)):
            layer = Layer(kind, hidden, 9, batch, directions=2, reverse=2)
            spec, expected = replace(whole, parts=parts), layer.run(whole, lanes)
            _check(layer, spec, lanes)
            for pieces in (1, 2, 3, 5, 8):
                for together in (True, False):
                    for one, other in zip(expected, layer.run(spec, lanes, pieces, together), strict=True):
                        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("kind", "linear"), KINDS)
def test_many_meetings(kind: str, linear: bool) -> None:
    """More threads than this machine may have CPUs, in steps far shorter than a direction is split for."""
    lanes = host().lanes(4)
    spec = replace(_spec(kind, lanes, 1, linear_before_reset=linear), parts=4)
    layer = Layer(kind, 64, 300, 1)
    expected = layer.run(spec, lanes, pieces=1)
    for repetition in range(20):
        for one, other in zip(expected, layer.run(spec, lanes, 2 + repetition % 3, together=True), strict=True):
            np.testing.assert_array_equal(one, other)


def test_small_directions_are_not_split() -> None:
    parts = [_spec("GRU", 16, 1, hidden=hidden).parts for hidden in (0, 64, 160, 256, 512)]
    assert parts == [1, 1, 1, 2, 8]
    for hidden in (64, 256, 300, 1024):
        spec = _spec("LSTM", 16, hidden=hidden)
        sizes = spec.arguments(steps=5, batch=3, directions=2, hidden=hidden, reverse=2)
        assert spec.tasks(sizes) == 2 * spec.parts
        # Weights that do not stay near are read once for many rows; else a block of rows is a tile.
        sizes = spec.arguments(steps=5, batch=9, directions=2, hidden=hidden, reverse=2)
        assert spec.tasks(sizes) == 2 * (3 if hidden == 64 else spec.parts)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("kind", "linear"), KINDS)
@pytest.mark.parametrize("lengths", [[4, 2, 0], [0, 0, 0], [1, 1, 1]], ids=str)
def test_steps_behind_the_longest_row(kind: str, linear: bool, lengths: list[int], lanes: int) -> None:
    """They are zeros in y, whatever the gates hold there; in one block and several, and by threads that meet."""
    for batch, initial in ((3, False), (None, True)):
        whole = _spec(kind, lanes, batch, linear_before_reset=linear, initial=initial, lengths=True)
        layer = Layer(kind, 37, 9, 3, directions=2, reverse=2)
        layer.lengths[:] = lengths
        layer.x[max(lengths) :] = np.nan
        layer.h[:, layer.lengths == 0] = layer.c[:, layer.lengths == 0] = 0  # of rows without steps it is not handed on
        for spec in (whole, replace(whole, rows=whole.tiles[0]), replace(whole, parts=2)):
            _check(layer, spec, lanes)
        together = layer.run(replace(whole, parts=4), lanes, 3, together=True)
        for one, other in zip(layer.run(whole, lanes), together, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("kind", "linear"), KINDS)
def test_lengths_beyond_the_last_step_write_nothing_outside(kind: str, linear: bool) -> None:
    """What checks lengths tells of them behind the run; until then they count as all steps, backwards, too."""
    lanes = host().lanes(4)
    spec = _spec(kind, lanes, 3, linear_before_reset=linear, initial=True, lengths=True)
    layer = Layer(kind, 5, 4, 3, directions=2, reverse=2)
    layer.lengths[:] = 4, 5, 1 << 30
    got = layer.run(spec, lanes)
    layer.lengths[:] = 4
    for one, other in zip(got, layer.run(spec, lanes), strict=True):
        np.testing.assert_array_equal(one, other)


def test_nothing_to_do() -> None:
    lanes = host().lanes(4)
    spec = _spec("LSTM", lanes, initial=True)
    for steps, batch in ((0, 2), (2, 0)):
        layer = Layer("LSTM", 5, steps, batch)
        for parts in (1, 2):
            np.testing.assert_array_equal(layer.run(replace(spec, parts=parts), lanes).h, layer.h.astype(np.float32))


@pytest.mark.parametrize(("kind", "linear"), KINDS)
def test_as_onnxruntime(kind: str, linear: bool) -> None:
    """Bidirectional, with lengths, initial state and biases; LSTM with peepholes."""
    onnxruntime = pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    lstm, lanes = kind == "LSTM", host().lanes(4)
    layer = Layer(kind, 24, 6, 3, directions=2, reverse=2)
    layer.lengths[1] = 0
    spec = _spec(kind, lanes, 3, linear_before_reset=linear, initial=True, lengths=True, peepholes=lstm)
    constants = {"W": layer.w, "R": layer.r, "B": layer.b, "h": layer.h, "c": layer.c, "P": layer.p}
    inputs = ["X", "W", "R", "B", "lengths", "h"] + ["c", "P"] * lstm
    outputs = ["Y", "Y_h"] + ["Y_c"] * lstm
    options = {"linear_before_reset": int(linear)} if kind == "GRU" else {}
    node = helper.make_node(kind, inputs, outputs, hidden_size=24, direction="bidirectional", **options)
    initializers = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in constants.items() if n in inputs]
    graph = helper.make_graph(
        [node],
        "layer",
        [
            helper.make_tensor_value_info("X", TensorProto.FLOAT, layer.x.shape),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, [3]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(outputs, {"X": layer.x.astype(np.float32), "lengths": layer.lengths})
    for one, other in zip(layer.run(spec, lanes), expected, strict=False):
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


def test_wrong_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown activation 'Gelu'"):
        _spec("RNN", 16, activations=(("Gelu", 0.0, 0.0),))
    with pytest.raises(ValueError, match="number of activations"):
        _spec("LSTM", 16, activations=(TANH,))
    with pytest.raises(ValueError, match="panels of a vector's length"):
        build(_spec("LSTM", 8), 16)
