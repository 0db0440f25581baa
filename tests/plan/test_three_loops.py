"""Reductions and their like over an axis that lies outside of others, in a part of a wider tensor."""

from __future__ import annotations

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

OPERATORS = {
    "ReduceMax": {"keepdims": 0},
    "ReduceMean": {"keepdims": 1},
    "Softmax": {"axis": 0},
    "CumSum": {},
    "ArgMin": {"axis": 0},
}


def columns(operator: str, width: int, rows: int, order: tuple[int, int, int]) -> bytes:
    """x[:, :, :width] of [4, rows, width + 3], its axes in `order`, and the operator along the one that was first."""
    axis = np.array([order.index(0)])
    attributes = {**OPERATORS[operator], **({"axis": int(axis[0])} if "axis" in OPERATORS[operator] else {})}
    inputs = ["t", "axes"] if "axis" not in attributes else ["t"]
    nodes = [
        helper.make_node("Sin", ["x"], ["s"]),
        helper.make_node("Split", ["s", "parts"], ["a", "b"], axis=2),
        helper.make_node("Transpose", ["a"], ["t"], perm=order),
        helper.make_node(operator, inputs, ["y"], **attributes),
        helper.make_node("Exp", ["b"], ["z"]),
    ]
    constants = {"parts": np.array([width, 3]), "axes": axis if operator != "CumSum" else axis[0]}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", 1, [4, rows, width + 3])],
        [helper.make_tensor_value_info(name, 7 if name == "y" and operator == "ArgMin" else 1, None) for name in "yz"],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
@pytest.mark.parametrize("width", [7, 16, 41, 150])
@pytest.mark.parametrize("operator", OPERATORS)
def test_along_the_first_axis_of_a_part(operator: str, width: int, order: tuple[int, int, int]) -> None:
    data = columns(operator, width, 5, order)
    feeds = {"x": np.random.default_rng(width).standard_normal((4, 5, width + 3)).astype(np.float32)}
    expected = evaluate(load(data).graph, feeds)
    for found, wanted in zip(jitonnx.InferenceSession(data).run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


@pytest.mark.parametrize(("width", "copied"), [(7, True), (41, False)])
def test_what_fills_vectors_is_not_copied(width: int, copied: bool) -> None:
    graph = load(columns("ReduceMax", width, 5, (0, 1, 2))).graph
    optimize(graph, 99)
    labels = [call.label for call in make_plan(lower(graph), host()).calls]
    assert "reduce max" in labels
    assert any(label.startswith("copy") for label in labels) == copied
