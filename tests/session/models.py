"""Small models for the tests of sessions and of the command line."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING

Shape = Sequence[int | str | None] | None


def tensor(name: str, shape: Shape = ("N", 3), kind: int = FLOAT) -> Any:
    """A graph input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any) -> Any:
    """A node, named after its first output unless told otherwise."""
    return helper.make_node(operator, inputs, outputs, name=name or f"make_{outputs[0]}", **attributes)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: dict[str, Any] | None = None,
    **fields: Any,
) -> bytes:
    """A model's bytes; float32 and int64 constants by name. `fields` are ModelProto's."""
    return proto(nodes, inputs, outputs, constants, **fields).SerializeToString()


def proto(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: dict[str, Any] | None = None,
    **fields: Any,
) -> ModelProto:
    """Do what `model` does, as a message of the onnx package."""
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), initializers)
    fields = {"ir_version": 10, "opset_imports": [helper.make_opsetid("", 20)], **fields}
    return helper.make_model(graph, **fields)


OFFSET = np.array([1, 2, 3], np.float32)


def relu_add(shape: Shape = ("N", 3), **fields: Any) -> bytes:
    """y = max(x, 0) + [1, 2, 3]."""
    nodes = [node("Relu", ["x"], ["r"], "relu"), node("Add", ["r", "offset"], ["y"], "add")]
    return model(nodes, [tensor("x", shape)], [tensor("y", shape)], {"offset": OFFSET}, **fields)


def relu_add_result(x: np.ndarray) -> np.ndarray:
    """What `relu_add` gives."""
    return np.maximum(np.asarray(x, np.float32), 0) + OFFSET


def two_outputs() -> bytes:
    """sum = a + b, difference = a - b, for a and b [N, M]."""
    nodes = [node("Add", ["a", "b"], ["sum"]), node("Sub", ["a", "b"], ["difference"])]
    shape = ("N", "M")
    return model(nodes, [tensor("a", shape), tensor("b", shape)], [tensor("sum", shape), tensor("difference", shape)])
