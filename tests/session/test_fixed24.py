"""Recurrent layers of one row, whose weights lie in 24 bits, are as exact as with float32, ours and onnxruntime's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.engine import pipeline
from jitonnx.kernels.parts.fixed24 import fit_24_bits
from jitonnx.target.machine import Target, host

ort = pytest.importorskip("onnxruntime")

INPUTS, STEPS = 40, 100
GATES = {"LSTM": 4, "GRU": 3}


def model(kind: str, w: np.ndarray, r: np.ndarray, b: np.ndarray) -> bytes:
    node = helper.make_node(kind, ["x", "W", "R", "B"], ["y"], hidden_size=r.shape[2])
    weights = [numpy_helper.from_array(array, name) for name, array in (("W", w), ("R", r), ("B", b))]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["steps", 1, INPUTS])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "layer", [x], [y], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def exact(kind: str, x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray) -> np.ndarray:
    """y [steps, 1, 1, hidden] in float64."""
    hidden, gates = r.shape[2], r.shape[1]
    inputs = x[:, 0].astype(np.float64) @ w[0].astype(np.float64).T + b[0, :gates]
    recurrence, bias = r[0].astype(np.float64), b[0, gates:].astype(np.float64)
    h, cell, results = np.zeros(hidden), np.zeros(hidden), []
    for given in inputs:
        if kind == "LSTM":
            i, o, f, g = np.split(given + recurrence @ h + bias, 4)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(cell)
        else:
            z, reset = (sigmoid(part) for part in np.split((given + recurrence @ h + bias)[: 2 * hidden], 2))
            own = given[2 * hidden :] + recurrence[2 * hidden :] @ (reset * h) + bias[2 * hidden :]
            h = (1 - z) * np.tanh(own) + z * h
        results.append(h)
    return np.array(results)[:, None, None]


def spread(rng: np.random.Generator, how: str, *shape: int) -> np.ndarray:
    if how == "normal":
        values = rng.standard_normal(shape)
    elif how == "uniform":
        values = rng.uniform(-1.7, 1.7, shape)
    else:
        values = rng.laplace(size=shape)
    return np.asarray(values / np.sqrt(shape[-1]), np.float32)


def largest_that_no_sum_needs(rng: np.random.Generator, gates: int, hidden: int) -> np.ndarray:
    """Weights of one magnitude, and one of nearly 7 times the mean for a unit that says nothing: rounding weights to a
    unit in the place of the largest is then the worst that it may be."""
    r = rng.choice([-1.0, 1.0], (1, gates * hidden, hidden)) * rng.uniform(0.9, 1.1, (1, gates * hidden, hidden))
    r[..., 0] = 0
    r[..., 0] = 6.9 * np.abs(r).mean(-1) * hidden / (hidden - 6.9)
    return np.asarray(r / np.sqrt(hidden), np.float32)


@pytest.mark.parametrize("hidden", [64, 128, 256])
@pytest.mark.parametrize("how", ["normal", "uniform", "laplace", "adversarial"])
@pytest.mark.parametrize("kind", GATES)
def test_as_exact_as_float32(kind: str, how: str, hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "waits_for_l3", False)  # such cores read float32 where it stays near
    small = replace(host(), l1_bytes=32 << 10)  # beyond which weights are read in 24 bits
    monkeypatch.setattr(pipeline, "host", lambda: small)
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("jitonnx.keep_model", "0")
    without = jitonnx.SessionOptions()
    without.add_session_config_entry("jitonnx.keep_model", "0")
    without.add_session_config_entry("jitonnx.fixed24", "0")
    gates, errors = GATES[kind], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        w = spread(rng, "normal" if how == "adversarial" else how, 1, gates * hidden, INPUTS)
        b = np.zeros((1, 2 * gates * hidden), np.float32)
        if how == "adversarial":
            r = largest_that_no_sum_needs(rng, gates, hidden)
            assert fit_24_bits(r)
            if kind == "LSTM":
                b[0, hidden] = -60  # the output gate of the first unit
            else:
                w[0, 2 * hidden] = r[0, 2 * hidden] = 0
        else:
            r = spread(rng, how, 1, gates * hidden, hidden)
        x = rng.standard_normal((STEPS, 1, INPUTS)).astype(np.float32)
        data, true = model(kind, w, r, b), exact(kind, x, w, r, b)
        theirs = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        ours = jitonnx.InferenceSession(data, options).run(None, {"x": x})[0]
        whole = jitonnx.InferenceSession(data, without).run(None, {"x": x})[0]
        errors.append([np.sqrt(np.square(y - true).mean()) for y in (ours, whole, theirs)])
    ours, whole, theirs = np.mean(errors, 0)
    assert ours <= 1.25 * whole
    assert ours <= 1.25 * theirs
