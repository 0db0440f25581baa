"""Graphs made of others: some of the nodes, or all of them for other input types."""

import numpy as np

from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.dims import variable
from jitonnx.ir.dtypes import DType
from jitonnx.ir.extract import specialise
from jitonnx.ir.graph import Graph
from jitonnx.ir.types import TensorType
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
