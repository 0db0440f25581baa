"""Images seen through views between convolutions: regrouped channels, slices, tokens. What is copied, and how often."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.computation.lowering import lower
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.make import make_plan
from jitonnx.target.machine import host

CONSTANTS = {
    "w": np.random.default_rng(1).normal(size=(12, 12, 1, 1)).astype(np.float32),
    "wide": np.random.default_rng(2).normal(size=(12, 12, 3, 3)).astype(np.float32),
    "half": np.random.default_rng(3).normal(size=(6, 6, 3, 3)).astype(np.float32),
    "grouped": np.array([0, 2, 6, 6, 8]),
    "image": np.array([0, 12, 6, 8]),
    "small": np.array([0, 3, 12, 16]),
    "pixels": np.array([0, 3, 2, 2, 6, 8]),
    "tokens": np.array([0, 12, 48]),
    "halves": np.array([6, 6]),
    "zero": np.array([0.5], np.float32),
}
FIRST = helper.make_node("Conv", ["x", "wide"], ["a"], pads=[1, 1, 1, 1])


def node(operator: str, inputs: str, outputs: str, **attributes: object) -> object:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


CASES = {
    "channel shuffle": (
        [
            FIRST,
            node("Reshape", "a grouped", "b"),
            node("Transpose", "b", "c", perm=[0, 2, 1, 3, 4]),
            node("Reshape", "c image", "d"),
            node("Conv", "d wide", "e", pads=[1, 1, 1, 1]),
            node("Relu", "e", "y"),
        ],
        1,
    ),
    "arithmetic on halves": (
        [
            FIRST,
            node("Split", "a halves", "b c", axis=1),
            node("Sigmoid", "b", "d"),
            node("Mul", "c zero", "e"),
            node("Mul", "d e", "f"),
            node("Conv", "f half", "g", pads=[1, 1, 1, 1]),
            node("Relu", "g", "y"),
        ],
        0,
    ),
    "tokens": (
        [
            FIRST,
            node("Reshape", "a tokens", "b"),
            node("Sin", "b", "c"),
            node("Tanh", "b", "d"),
            node("Mul", "c d", "e"),
            node("Reshape", "e image", "f"),
            node("Conv", "f wide", "g", pads=[1, 1, 1, 1]),
            node("Relu", "g", "y"),
        ],
        0,
    ),
    "pixel shuffle": (
        [
            FIRST,
            node("Reshape", "a pixels", "b"),
            node("Transpose", "b", "c", perm=[0, 1, 4, 2, 5, 3]),
            node("Reshape", "c small", "d"),
            node("Relu", "d", "y"),
        ],
        None,
    ),
}
"""Nodes, and how many copies are made besides those of input and output; None: not said."""


def model(nodes: Sequence[object], batch: int | str) -> bytes:
    inputs = [helper.make_tensor_value_info("x", 1, [batch, 12, 6, 8])]
    results = [helper.make_tensor_value_info("y", 1, None)]
    used = [numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()]
    graph = helper.make_graph(nodes, "graph", inputs, results, used)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.mark.parametrize("batch", [1, 3, "batch"])
@pytest.mark.parametrize("case", CASES)
def test_views_of_images(case: str, batch: int | str) -> None:
    nodes, copies = CASES[case]
    data = model(nodes, batch)
    size = batch if isinstance(batch, int) else 2
    feeds = {"x": np.random.default_rng(4).normal(size=(size, 12, 6, 8)).astype(np.float32)}
    (result,) = jitonnx.InferenceSession(data).run(None, feeds)
    (expected,) = evaluate(load(data).graph, feeds)
    np.testing.assert_allclose(result, expected, 1e-4, 1e-4)
    graph = load(data).graph
    optimize(graph, 99)
    calls = make_plan(lower(graph), host()).calls
    made = [
        call
        for call in calls
        if call.label.startswith("copy") and {"arena"} == {tensor.buffer.space for tensor in call.tensors}
    ]
    assert copies is None or len(made) == copies
