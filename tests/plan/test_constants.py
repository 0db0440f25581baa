"""This tests where a program's constants lie."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from jitonnx.ir.computation.lowering import lower
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.make import make_plan
from jitonnx.plan.parametric_program import ConstantNumbers
from jitonnx.plan.plan import Plan
from jitonnx.target.machine import host


def planned(nodes: list[object], inputs: dict[str, tuple[int, list[int]]], arrays: dict[str, np.ndarray]) -> Plan:
    """The plan of a graph with the result y."""
    given = [helper.make_tensor_value_info(name, *type_and_shape) for name, type_and_shape in inputs.items()]
    result = helper.make_tensor_value_info("y", 1, None)
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = helper.make_graph(nodes, "graph", given, [result], constants)
    data = helper.make_model(model, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    graph = load(data).graph
    optimize(graph, 99)
    return make_plan(lower(graph), host())


@pytest.mark.parametrize("groups", [1, 24])
def test_weights_and_biases_begin_with_a_cache_line(groups: int) -> None:
    arrays = {
        "w": np.ones((24, 24 // groups, 3, 3), np.float32),
        "b": np.ones(24, np.float32),
        "m": np.ones((24, 1, 1), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], group=groups, pads=[1, 1, 1, 1]),
        helper.make_node("Softplus", ["a"], ["s"]),
        helper.make_node("Mul", ["s", "m"], ["y"]),
    ]
    plan = planned(nodes, {"x": (1, [1, 24, 9, 9])}, arrays)
    found = [constant for constant in plan.outline.constants if not isinstance(constant, ConstantNumbers)]
    assert found and all(constant.ctypes.data % 64 == 0 for constant in found)


def test_words_for_errors_in_the_data_stay_what_they_are() -> None:
    """A run tells them by their address."""
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    for _ in range(8):  # of memory that NumPy aligns to 16 bytes
        plan = planned(nodes, {"x": (1, [5, 3]), "i": (7, [2])}, {})
        places = {
            constant.ctypes.data for constant in plan.outline.constants if not isinstance(constant, ConstantNumbers)
        }
        assert len(plan.flags) == 1 and plan.flags[0].word.ctypes.data in places


def test_a_constant_in_another_order_is_copied_with_the_plan() -> None:
    """Convolutions write channels last, and what is added to a whole image lies as planes in the file."""
    arrays = {
        "w": np.ones((24, 24, 3, 3), np.float32),
        "m": np.arange(24 * 9 * 9, dtype=np.float32).reshape(1, 24, 9, 9),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["a", "m"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["y"]),
    ]
    plan = planned(nodes, {"x": (1, [1, 24, 9, 9])}, arrays)
    of_constants = [call for call in plan.calls if call.label.startswith("copy constant")]
    assert not of_constants
    wanted = arrays["m"][0].reshape(24, 81).T.ravel()
    assert any(np.array_equal(np.ravel(constant), wanted) for constant in plan.outline.constants)  # type: ignore[arg-type]
