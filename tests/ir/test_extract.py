"""Graphs made of others: some of the nodes, or all of them for other input types."""

import numpy as np

from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.dims import variable
from jitonnx.ir.dtypes import DType
from jitonnx.ir.extract import specialise
from jitonnx.ir.graph import Graph
from jitonnx.ir.operator import Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.control_flow import If
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.shape import Reshape


def test_dimensions_among_the_constants_take_the_new_sizes() -> None:
    """A rewrite leaves such where a graph had shape arithmetic: they are over the variables of the inputs' types."""
    batch, height = variable("batch"), variable("height")
    graph = Graph()
    x = graph.add_input("x", TensorType(DType.FLOAT, (batch, 3, height)))
    graph.outputs = list(graph.add(Reshape(), [x, graph.add_dims([batch * 3, height])]))
    fixed = specialise(graph, [TensorType(DType.FLOAT, (2, 3, 5))])
    assert fixed.outputs[0].shape == (6, 5) and not fixed.assumptions
    renamed = specialise(graph, [TensorType(DType.FLOAT, (batch, 3, batch))])
    assert renamed.outputs[0].shape == (3 * batch, batch) and not renamed.assumptions
    array = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    np.testing.assert_array_equal(evaluate(fixed, {"x": array})[0], array.reshape(6, 5))


def branch(operator: Operator) -> Graph:
    graph = Graph()
    graph.outputs = list(graph.add(operator, [graph.add_input("given", TensorType(DType.FLOAT, (3,)))]))
    return graph


def test_a_branch_that_is_not_taken_is_copied_as_well() -> None:
    """Rewrites change bodies in place, and no graph may see those of a copy."""
    graph = Graph()
    x = graph.add_input("x", TensorType(DType.FLOAT, (3,)))
    picked = graph.add_constant(np.array(True))
    graph.outputs = list(graph.add(If(), [picked, x], bodies=[branch(Relu()), branch(Identity())], captures=1))
    copies = [graph, *(specialise(graph, [x.type]) for _ in range(2))]
    bodies = [body for copy in copies for node in copy for body in node.bodies]
    values = {value for body in bodies for value in (*body.inputs, *body.outputs)}
    assert len(set(bodies)) == 6 and len(values) == 12 and len({node for body in bodies for node in body}) == 6
    assert all(node.output.producer is node for body in bodies for node in body)
    for copy in copies:
        copy.remove_dead()
        assert evaluate(copy, {"x": np.array([-1, 0, 2], np.float32)})[0].tolist() == [0, 0, 2]
