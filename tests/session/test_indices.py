"""Indices and sizes that only the data shows to be wrong: errors that name the node, and right runs after them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import jitonnx
from jitonnx.errors import InvalidArgument

X = np.arange(24, dtype=np.float32).reshape(4, 6)
OPERATORS: dict[str, tuple[dict[str, Any], list[np.ndarray], int]] = {
    "Gather": ({"axis": 0}, [np.array([3, -4, 1])], 1),
    "Gather of elements": ({"axis": 1}, [np.tile(np.array([5, -6, 1]), 5)], 1),
    "GatherElements": ({"axis": 0}, [np.tile(np.array([[0, -4, 3, 2, 1, -1]]), (9, 1))], 1),
    "GatherND": ({}, [np.array([[0, 0], [3, -6], [-1, 5]])], 1),
    "ScatterElements": ({"axis": 1}, [np.array([[0, -6], [5, 1]]), np.ones((2, 2), np.float32)], 1),
    "ScatterND": ({}, [np.array([[0], [-4], [3]]), np.ones((3, 6), np.float32)], 1),
    "ReverseSequence": ({"batch_axis": 0, "time_axis": 1}, [np.array([0, 6, 3, 1])], 1),
}
"""Attributes, and the inputs behind x; how many outputs. All indices are at the limits of what is right."""


def session_of(name: str) -> tuple[jitonnx.InferenceSession, dict[str, np.ndarray]]:
    """A model of one node, and right feeds."""
    operator = name.split()[0]
    attributes, others, outputs = OPERATORS[name]
    feeds = {f"input{i}": array for i, array in enumerate([X, *others])}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(operator, list(feeds), names, name="the_node", **attributes)
    results = [helper.make_tensor_value_info(name, 1, None) for name in names]
    graph = helper.make_graph([node], "graph", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return jitonnx.InferenceSession(model.SerializeToString()), feeds


@pytest.mark.parametrize("name", OPERATORS)
def test_index_out_of_range(name: str) -> None:
    session, feeds = session_of(name)
    first = session.run(None, feeds)[0]
    right = feeds["input1"]
    for place in (0, right.size - 1):
        for wrong in (99, -99, 2**62):
            feeds["input1"] = right.copy()
            feeds["input1"].flat[place] = wrong
            with pytest.raises(InvalidArgument, match=rf"{name.split()[0]} node 'the_node': .*'input1'.*'input0'"):
                session.run(None, feeds)
    feeds["input1"] = right
    np.testing.assert_array_equal(session.run(None, feeds)[0], first)


def top_k(k: int, size: Any) -> jitonnx.InferenceSession:
    x = helper.make_tensor_value_info("x", 1, [2, size])
    node = helper.make_node("TopK", ["x", "k"], ["values", "indices"], name="the_node")
    outputs = [helper.make_tensor_value_info("values", 1, None), helper.make_tensor_value_info("indices", 7, None)]
    graph = helper.make_graph([node], "graph", [x], outputs, [helper.make_tensor("k", 7, [1], [k])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return jitonnx.InferenceSession(model.SerializeToString())


def test_more_elements_than_there_are() -> None:
    session = top_k(5, "n")
    for size in (9, 5):
        values, indices = session.run(None, {"x": np.tile(np.arange(size, dtype=np.float32), (2, 1))})
        np.testing.assert_array_equal(values, indices)
        assert values.shape == (2, 5)
    with pytest.raises(jitonnx.Error, match=r"TopK.*the_node.*K is 5, but axis 1 .*has 4 elements"):
        session.run(None, {"x": np.zeros((2, 4), np.float32)})


@pytest.mark.parametrize("operator", ["GatherElements", "ScatterElements"])
def test_indices_that_run_out_of_the_data(operator: str) -> None:
    inputs = [("data", 1, ["a", 3]), ("indices", 7, ["b", "c"])]
    inputs += [("updates", 1, ["b", "c"])] if operator == "ScatterElements" else []
    node = helper.make_node(operator, [name for name, _, _ in inputs], ["y"], name="the_node", axis=0)
    values = [helper.make_tensor_value_info(*given) for given in inputs]
    graph = helper.make_graph([node], "graph", values, [helper.make_tensor_value_info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = jitonnx.InferenceSession(model.SerializeToString())
    for columns in (3, 2, 4):
        feeds: dict[str, np.ndarray] = {
            "data": np.ones((5, 3), np.float32),
            "indices": np.zeros((7, columns), np.int64),
        }
        if operator == "ScatterElements":
            feeds["updates"] = np.ones((7, columns), np.float32)
        if columns <= 3:
            assert (session.run(None, feeds)[0] == 1).all()
        else:
            with pytest.raises(jitonnx.Error, match=rf"{operator}.*the_node.*axis 1"):
                session.run(None, feeds)
