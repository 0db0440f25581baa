"""Products whose operands lie so that their leading axes are no rows: what is copied, and what is not."""

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

WINDOWS = [1, 2, 3, 5, 4, 8]
"""[image, window rows, rows, window columns, columns, channels] of an image of 6x20."""


def windows(weights: np.ndarray | None) -> bytes:
    """An image cut into windows, and these multiplied by weights: constant, or the second input w."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[0, 1, 3, 2, 4, 5]),
        helper.make_node("MatMul", ["c", "w"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, [1, 6, 20, 8])]
    constants = [numpy_helper.from_array(np.array(WINDOWS), "shape")]
    if weights is None:
        inputs.append(helper.make_tensor_value_info("w", 1, [1, 2, 5, 3, 8, 7]))
    else:
        constants.append(numpy_helper.from_array(weights, "w"))
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", 1, None)], constants)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.mark.parametrize("constant", [True, False])
def test_windows_of_an_image(constant: bool) -> None:
    random = np.random.default_rng(3)
    weights = random.normal(size=(8, 7)).astype(np.float32)
    data = windows(weights if constant else None)
    feeds = {"x": random.normal(size=(1, 6, 20, 8)).astype(np.float32)}
    if not constant:
        feeds["w"] = random.normal(size=(1, 2, 5, 3, 8, 7)).astype(np.float32)
    (result,) = jitonnx.InferenceSession(data).run(None, feeds)
    (expected,) = evaluate(load(data).graph, feeds)
    np.testing.assert_allclose(result, expected, 1e-5, 1e-6)
    graph = load(data).graph
    optimize(graph, 99)
    labels = [call.label for call in make_plan(lower(graph), host()).calls]
    assert sum(label.startswith("copy") for label in labels) == 1
    assert ("gemm 120x7x8" in labels) == constant


@pytest.mark.parametrize("batch", [1, 3])
def test_rows_in_another_order_are_one_product(batch: int) -> None:
    """The result lies as its operand does, so that the weights are read once and not for each of five matrices."""
    random = np.random.default_rng(4)
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Add", ["c", "s"], ["d"]),
        helper.make_node("Gather", ["d", "third"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 5, 6]), helper.make_tensor_value_info("s", 1, [5, "n", 7])]
    constants = [numpy_helper.from_array(random.normal(size=(6, 7)).astype(np.float32), "w")]
    constants.append(numpy_helper.from_array(np.array(2), "third"))
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", 1, None)], constants)
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    shapes = {"x": (batch, 5, 6), "s": (5, batch, 7)}
    feeds = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    session = jitonnx.InferenceSession(data)
    (result,) = session.run(None, feeds)
    (expected,) = evaluate(load(data).graph, feeds)
    np.testing.assert_allclose(result, expected, 1e-5, 1e-6)
    labels = [call.label for call in session.engine.compiled.plan.calls]
    assert sum(label.startswith("gemm") for label in labels) == 1
    assert not any(" x " in label for label in labels if label.startswith("gemm"))


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_steps_of_sequences_that_lie_one_after_the_other_are_multiplied_at_once(operator: str) -> None:
    """As exporters write layers whose input has the batch in front."""
    random = np.random.default_rng(5)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0, 2]),
        helper.make_node(operator, ["b", "w", "r"], ["y"], hidden_size=4),
    ]
    shapes = {"w": (1, gates * 4, 6), "r": (1, gates * 4, 4)}
    constants = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["n", "t", 6])]
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", 1, None)], constants)
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    session = jitonnx.InferenceSession(data)
    for batch in (1, 3):
        feeds = {"x": random.normal(size=(batch, 5, 6)).astype(np.float32)}
        (result,) = session.run(None, feeds)
        (expected,) = evaluate(load(data).graph, feeds)
        np.testing.assert_allclose(result, expected, 1e-4, 1e-5)
    labels = [call.label for call in session.engine.compiled.plan.calls]
    assert [label for label in labels if label.startswith("gemm")]
    assert not any(" x " in label for label in labels if label.startswith("gemm"))
