"""Graphs among a node's attributes: they become Graphs, if they need only constants of the graph around them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from jitonnx import errors
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.operator import Operator
from jitonnx.ir.types import TensorType
from jitonnx.model import evaluate, load
from jitonnx.ops.registry import registry
from tests.model.models import X, model_of, tensor_input


class Apply(Operator):
    """The outcome of a graph of one input: what If, Loop and Scan have in common."""

    versions = (1,)
    inputs = ("x",)
    outputs = ("y",)

    body: Graph

    def infer(self, x: Value) -> TensorType:
        return self.body.outputs[0].type

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return evaluate(self.body, {self.body.inputs[0].name: x})[0]


@pytest.fixture(autouse=True)
def _apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry(), ("", "Apply"), Apply)


def applied(nodes: list[onnx.NodeProto], *initializers: TensorProto) -> onnx.ModelProto:
    """y = the result "r" of a body with input "i"."""
    body = helper.make_graph(nodes, "body", [tensor_input("i")], [tensor_input("r")], initializers)
    constant = numpy_helper.from_array(np.float32([2]), "two")
    return model_of([helper.make_node("Apply", ["x"], ["y"], body=body)], ["x"], ["y"], [constant])


def test_body_becomes_a_graph() -> None:
    three = numpy_helper.from_array(np.float32([3]), "three")
    nodes = [helper.make_node("Mul", ["i", "three"], ["h"]), helper.make_node("Neg", ["h"], ["r"])]
    np.testing.assert_array_equal(evaluate(load(applied(nodes, three)).graph, {"x": X})[0], -3 * X)


def test_body_may_read_constants_outside() -> None:
    model = applied([helper.make_node("Mul", ["i", "two"], ["r"])])
    np.testing.assert_array_equal(evaluate(load(model).graph, {"x": X})[0], 2 * X)


def test_body_that_reads_computed_values_outside() -> None:
    with pytest.raises(errors.NotImplemented, match="its subgraph 'body' reads 'x' of the graph around it"):
        load(applied([helper.make_node("Mul", ["i", "x"], ["r"])]))


def test_body_that_reads_unknown_names() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"'nothing' is not a graph input.*Apply"):
        load(applied([helper.make_node("Mul", ["i", "nothing"], ["r"])]))


def test_body_may_not_define_names_anew() -> None:
    with pytest.raises(errors.Fail, match=r"Duplicate definition of name \(x\)"):
        load(applied([helper.make_node("Neg", ["i"], ["x"]), helper.make_node("Neg", ["x"], ["r"])]))


def test_unsupported_operators_in_bodies_are_listed() -> None:
    with pytest.raises(errors.NotImplemented, match="No Op registered for Foo"):
        load(applied([helper.make_node("Foo", ["i"], ["r"])]))
