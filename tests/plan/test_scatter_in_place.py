"""This tests where the data of a scatter lies: made in place if nobody else reads it, copied otherwise."""

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
    "rows": np.array([[0], [-1]]),
    "places": np.array([[1, 2], [0, -1]]),
    "values": np.array([[1, 2], [3, 4]], np.float32),
    "shape": np.array([5, 6]),
}


def node(operator: str, inputs: str, output: str, **attributes: int | str) -> object:
    return helper.make_node(operator, inputs.split(), [output], name=f"make_{output}", **attributes)


def model(nodes: Sequence[object], outputs: str) -> bytes:
    """Inputs x and u; the values of CONSTANTS are there."""
    inputs = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [5, 6]), ("u", [2, 6]))]
    results = [helper.make_tensor_value_info(name, 1, None) for name in outputs.split()]
    constants = [numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()]
    graph = helper.make_graph(nodes, "graph", inputs, results, constants)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


SQUARE = node("Mul", "x x", "a")
CASES = [
    ("data of a region", [SQUARE, node("ScatterND", "a rows u", "y")], "y", 0),
    (
        "one behind the other",
        [
            SQUARE,
            node("ScatterND", "a rows u", "b", reduction="add"),
            node("ScatterElements", "b places values", "y", axis=1),
        ],
        "y",
        0,
    ),
    ("zeros", [node("ConstantOfShape", "shape", "z"), node("ScatterND", "z rows u", "y")], "y", 1),
    ("an input", [node("ScatterND", "x rows u", "y")], "y", 1),
    ("data that is an output", [SQUARE, node("ScatterND", "a rows u", "y")], "a y", 1),
    ("data read again", [SQUARE, node("ScatterND", "a rows u", "b"), node("Sub", "b a", "y")], "y", 1),
    ("data twice", [SQUARE, node("ScatterND", "a rows u", "b"),
                    node("ScatterND", "a rows u", "c", reduction="add"), node("Sub", "b c", "y")], "y", 2),
    ("a concatenation, a part of which is read later", [SQUARE, node("Concat", "a x", "b", axis=0),
        node("ScatterND", "b rows u", "y"), node("Relu", "a", "z")], "y z", 2),
    ("into a concatenation", [SQUARE, node("ScatterND", "a rows u", "b"), node("Concat", "x b", "y", axis=0)], "y", 1),
    ("into columns", [SQUARE, node("ScatterND", "a rows u", "b"), node("Concat", "x b", "y", axis=1)], "y", 3),
]  # fmt: skip
"""What is tested, nodes, outputs, and how many copies are made."""


@pytest.mark.parametrize(("nodes", "outputs", "copies"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_scatter_in_place(nodes: Sequence[object], outputs: str, copies: int) -> None:
    data = model(nodes, outputs)
    random = np.random.default_rng(4)
    feeds = {name: random.normal(size=shape).astype(np.float32) for name, shape in (("x", (5, 6)), ("u", (2, 6)))}
    results = jitonnx.InferenceSession(data).run(None, feeds)
    for result, expected in zip(results, evaluate(load(data).graph, feeds), strict=True):
        np.testing.assert_allclose(result, expected, 1e-6)
    graph = load(data).graph
    optimize(graph, 99)
    plan = make_plan(lower(graph), host())
    assert sum(call.label.startswith("copy") for call in plan.calls) == copies
