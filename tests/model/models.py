"""Small models for the tests of loading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def tensor_input(name: str, shape: Sequence[int | str | None] | None = (2, 3), dtype: int = TensorProto.FLOAT) -> Any:
    """A tensor input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = 20,
    ir_version: int = 10,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[tuple[str, int]] = (),
    sparse: Sequence[onnx.SparseTensorProto] = (),
) -> onnx.ModelProto:
    """A model of these parts; inputs and outputs may be given by name."""
    given, told = ([tensor_input(x) if isinstance(x, str) else x for x in group] for group in (inputs, outputs))
    graph = helper.make_graph(nodes, "g", given, told, initializers, sparse_initializer=sparse)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(*domain) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, functions=functions)


def add_model(bias: np.ndarray | None = None) -> onnx.ModelProto:
    """y = x + w, both [2, 3]."""
    w = np.arange(6, dtype=np.float32).reshape(2, 3) if bias is None else bias
    return model_of(
        [helper.make_node("Add", ["x", "w"], ["y"], name="add")], ["x"], ["y"], [numpy_helper.from_array(w, "w")]
    )


X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
