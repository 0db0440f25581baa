"""Model-local functions: their calls become the nodes of their bodies."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from jitonnx import errors
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load
from tests.model.models import X, model_of, tensor_input

DOMAIN = "local"


def function(
    name: str, inputs: list[str], outputs: list[str], nodes: list[onnx.NodeProto], opset: int = 20, **options: Any
) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, name, inputs, outputs, nodes, opsets, **options)


def call(function: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(function, inputs, outputs, domain=DOMAIN, **attributes)


def run(nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto], **options: Any) -> list[np.ndarray]:
    outputs = [onnx.ValueInfoProto(name=name) for name in options.pop("outputs", ["y"])]
    model = model_of(nodes, ["x"], outputs, functions=functions, domains=[(DOMAIN, 1)], **options)
    return evaluate(load(model).graph, {"x": X})


def referring(node: onnx.NodeProto, attribute: str, name: str, kind: int) -> onnx.NodeProto:
    """`node` with an attribute that refers to one of its function."""
    node.attribute.append(onnx.AttributeProto(name=attribute, ref_attr_name=name, type=kind))
    return node


DOUBLE = function("Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])])


@pytest.mark.conformance("function-calls")
def test_calls_are_independent() -> None:
    (y,) = run([call("Double", ["x"], ["h"]), call("Double", ["h"], ["y"])], [DOUBLE])
    np.testing.assert_array_equal(y, 4 * X)


def test_functions_call_functions_and_names_do_not_clash() -> None:
    quadruple = function("Quadruple", ["a"], ["b"], [call("Double", ["a"], ["x"]), call("Double", ["x"], ["b"])])
    (y,) = run([call("Quadruple", ["x"], ["a"]), helper.make_node("Sub", ["a", "x"], ["y"])], [DOUBLE, quadruple])
    np.testing.assert_array_equal(y, 3 * X)


def test_a_domain_imported_twice_binds_to_the_highest_version() -> None:
    """Since 13 the axes of ReduceSum are an input."""
    body = [
        helper.make_node("Constant", [], ["one"], value_ints=[1]),
        helper.make_node("ReduceSum", ["a", "one"], ["b"]),
    ]
    rows = function("Rows", ["a"], ["b"], body, opset=13)
    for version in (11, 12):
        rows.opset_import.append(helper.make_opsetid("ai.onnx", version))
    (y,) = run([call("Rows", ["x"], ["y"])], [rows])
    np.testing.assert_array_equal(y, X.sum(axis=1, keepdims=True))


def test_names_in_the_graph_tell_the_call() -> None:
    body = [helper.make_node("Relu", ["a"], ["h"], name="r"), helper.make_node("Add", ["h", "h"], ["b"])]
    model = model_of([call("F", ["x"], ["y"], name="f1")], ["x"], ["y"], functions=[function("F", ["a"], ["b"], body)],
                     domains=[(DOMAIN, 1)])  # fmt: skip
    relu, add = load(model).graph
    assert (relu.name, relu.origin, relu.output.name, add.output.name) == ("f1/r", ("f1/r",), "f1/h", "y")


@pytest.mark.conformance("function-defaults")
def test_attributes_and_their_defaults() -> None:
    node = referring(helper.make_node("LeakyRelu", ["a"], ["b"]), "alpha", "slope", onnx.AttributeProto.FLOAT)
    default = helper.make_attribute("slope", 0.5)
    leaky = function("Leaky", ["a"], ["b"], [node], attribute_protos=[default])
    for given, slope in (({}, 0.5), ({"slope": 0.25}, 0.25)):
        (y,) = run([call("Leaky", ["x"], ["y"], **given)], [leaky])
        np.testing.assert_array_equal(y, np.where(X < 0, X * np.float32(slope), X))


def test_attribute_that_a_call_leaves_out() -> None:
    node = referring(helper.make_node("LeakyRelu", ["a"], ["b"]), "alpha", "slope", onnx.AttributeProto.FLOAT)
    leaky = function("Leaky", ["a"], ["b"], [node], attributes=["slope"])
    (y,) = run([call("Leaky", ["x"], ["y"])], [leaky])
    np.testing.assert_array_equal(y, np.where(X < 0, X * np.float32(0.01), X))


@pytest.mark.conformance("function-optional")
def test_optional_inputs_and_unwanted_outputs() -> None:
    body = [helper.make_node("Clip", ["a", "low", "high"], ["b"]), helper.make_node("Neg", ["b"], ["c"])]
    clip = function("Held", ["a", "low", "high"], ["b", "c"], body)
    zero = helper.make_node("Constant", [], ["zero"], value_float=0.0)
    (y,) = run([zero, call("Held", ["x", "", "zero"], ["y"])], [clip])
    np.testing.assert_array_equal(y, np.minimum(X, 0))
    (y,) = run([zero, call("Held", ["x"], ["", "y"])], [clip])
    np.testing.assert_array_equal(y, -X)


def test_input_that_is_an_output() -> None:
    both = function("Both", ["a"], ["a", "b"], [helper.make_node("Neg", ["a"], ["b"])])
    first, second = run([call("Both", ["x"], ["p", "q"])], [both], outputs=["p", "q"])
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, -X)


def test_body_has_operator_sets_of_its_own() -> None:
    old = function("Old", ["a"], ["b"], [helper.make_node("Squeeze", ["a"], ["b"], axes=[0])], opset=11)
    new = [
        helper.make_node("Constant", [], ["axes"], value_ints=[0]),
        helper.make_node("Unsqueeze", ["x", "axes"], ["h"]),
    ]
    (y,) = run([*new, call("Old", ["h"], ["y"])], [old])
    np.testing.assert_array_equal(y, X)


@pytest.mark.conformance("function-overloads")
def test_overloads() -> None:
    one = function("F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], overload="one")
    two = function("F", ["a"], ["b"], [helper.make_node("Abs", ["a"], ["b"])], overload="two")
    (y,) = run([call("F", ["x"], ["y"], overload="two")], [one, two])
    np.testing.assert_array_equal(y, np.abs(X))


CYCLE = function("F", ["a"], ["b"], [call("F", ["a"], ["b"])])
NO_OUTPUT = function("F", ["a"], ["c"], [helper.make_node("Neg", ["a"], ["b"])])
UNKNOWN = function("F", ["a"], ["b"], [helper.make_node("Foo", ["a"], ["b"])])
FAULTS = [
    ([CYCLE], call("F", ["x"], ["y"]), "calls itself: F -> F"),
    ([DOUBLE], call("Double", ["x", "x"], ["y"]), "has 2 inputs, but the function Double has 1"),
    ([DOUBLE], call("Double", ["x"], ["y"], times=3), "attribute 'times', but the function Double knows none"),
    ([NO_OUTPUT], call("F", ["x"], ["y"]), "no value for its output 'c'"),
    ([UNKNOWN], call("F", ["x"], ["y"]), "No Op registered for Foo"),
]


@pytest.mark.parametrize(("functions", "node", "text"), FAULTS, ids=[text for _, _, text in FAULTS])
def test_faults(functions: list[onnx.FunctionProto], node: onnx.NodeProto, text: str) -> None:
    with pytest.raises(errors.InvalidGraph, match=text):
        run([node], functions)


def test_function_defined_twice() -> None:
    with pytest.raises(errors.Fail, match="same domain, name and overload"):
        run([call("Double", ["x"], ["y"])], [DOUBLE, DOUBLE])


def test_types_flow_through_calls() -> None:
    body = [helper.make_node("Shape", ["a"], ["s"]), helper.make_node("ReduceProd", ["s"], ["b"], keepdims=0)]
    shape = function("Rows", ["a"], ["b"], body)
    model = model_of(
        [call("Rows", ["x"], ["n"])],
        [tensor_input("x", ["rows", 4])],
        [tensor_input("n", (), TensorProto.INT64)],
        functions=[shape],
        domains=[(DOMAIN, 1)],
    )
    (n,) = load(model).graph.outputs
    assert str(n.contents.item()) == "4*rows"


def graph_of(nodes: list[onnx.NodeProto], output: str, inputs: tuple[str, ...] = ()) -> onnx.GraphProto:
    """A graph for an attribute, which says no types."""
    return helper.make_graph(
        nodes, f"of_{output}", [onnx.ValueInfoProto(name=n) for n in inputs], [onnx.ValueInfoProto(name=output)]
    )


def choosing(**graphs: str) -> onnx.NodeProto:
    """An If whose branches refer to attributes of the function."""
    node = helper.make_node("If", ["cond"], ["r"])
    for branch, name in graphs.items():
        referring(node, branch, name, onnx.AttributeProto.GRAPH)
    return node


FLAG = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])


def compared(
    nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto], expected: Any, domains: Any = ((DOMAIN, 1),)
) -> None:
    """Compiled, and node by node, both with the flag and without."""
    from jitonnx import InferenceSession

    w = onnx.numpy_helper.from_array(np.float32(10), "w")
    model = model_of(nodes, ["x", FLAG], [onnx.ValueInfoProto(name="y")], [w], functions=functions, domains=domains)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    for flag in (True, False):
        feed = {"x": X, "flag": np.array(flag)}
        np.testing.assert_allclose(evaluate(load(model).graph, feed)[0], expected(flag), rtol=1e-6)
        np.testing.assert_allclose(InferenceSession(model.SerializeToString()).run(None, feed)[0], expected(flag), 1e-6)


@pytest.mark.conformance("graph-references")
def test_graphs_by_reference_capture_what_they_see_where_they_are_written() -> None:
    """Values of the caller, constants, what is computed there; names of the function are others."""
    body = [helper.make_node("Neg", ["a"], ["h"]), choosing(then_branch="yes", else_branch="no"),
            helper.make_node("Add", ["r", "h"], ["b"])]  # fmt: skip
    either = function("Either", ["a", "cond"], ["b"], body, attributes=["yes", "no"])
    yes = graph_of([helper.make_node("Mul", ["h", "w"], ["t"])], "t")
    no = graph_of([helper.make_node("Abs", ["x"], ["t"])], "t")
    nodes = [helper.make_node("Exp", ["x"], ["h"]), call("Either", ["x", "flag"], ["y"], yes=yes, no=no)]
    compared(nodes, [either], lambda flag: (np.exp(X) * 10 if flag else np.abs(X)) - X)


@pytest.mark.conformance("graph-references")
def test_graphs_are_handed_on_and_have_defaults() -> None:
    inner = function(
        "Inner",
        ["a", "cond"],
        ["r"],
        [choosing(then_branch="g", else_branch="other")],
        attributes=["g"],
        attribute_protos=[helper.make_attribute("other", graph_of([helper.make_node("Neg", ["a"], ["n"])], "n"))],
    )
    forwarding = referring(call("Inner", ["a2", "cond"], ["b"]), "g", "f", onnx.AttributeProto.GRAPH)
    outer = function(
        "Outer", ["a", "cond"], ["b"], [helper.make_node("Add", ["a", "a"], ["a2"]), forwarding], attributes=["f"]
    )
    graph = graph_of([helper.make_node("Sub", ["x", "w"], ["t"])], "t")
    compared([call("Outer", ["x", "flag"], ["y"], f=graph)], [inner, outer], lambda flag: X - 10 if flag else -2 * X)


@pytest.mark.conformance("graph-references")
def test_a_graph_by_reference_in_a_body() -> None:
    """A function whose loop chooses what the caller gave: what that captures goes through the loop's body, too."""
    inside = [helper.make_node("Identity", ["go"], ["on"]), choosing(then_branch="yes", else_branch="no"),
              helper.make_node("Add", ["s", "r"], ["s2"])]  # fmt: skip
    body = helper.make_graph(
        inside,
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            onnx.ValueInfoProto(name="s"),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), onnx.ValueInfoProto(name="s2")],
    )
    nodes = [
        helper.make_node("Constant", [], ["three"], value_int=3),
        helper.make_node("Loop", ["three", "", "a"], ["b"], body=body),
    ]
    summed = function("Summed", ["a", "cond"], ["b"], nodes, attributes=["yes", "no"])
    yes = graph_of([helper.make_node("Mul", ["h", "w"], ["t"])], "t")
    no = graph_of([call("Double", ["h"], ["t"])], "t")
    calls = [helper.make_node("Exp", ["x"], ["h"]), call("Summed", ["x", "flag"], ["y"], yes=yes, no=no)]
    compared(calls, [summed, DOUBLE], lambda flag: X + 3 * np.exp(X) * (10 if flag else 2))


@pytest.mark.conformance("graph-references")
def test_types_and_sparse_tensors_by_reference() -> None:
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [5, 7])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [2], [0, 4]), [6])
    constant = referring(
        helper.make_node("Constant", [], ["c"]), "sparse_value", "s", onnx.AttributeProto.SPARSE_TENSOR
    )
    shape = helper.make_node("Constant", [], ["shape"], value_ints=[2, 3])
    nodes = [
        constant,
        shape,
        helper.make_node("Reshape", ["c", "shape"], ["d"]),
        helper.make_node("Add", ["a", "d"], ["b"]),
    ]
    added = function("Added", ["a"], ["b"], nodes, attributes=["s"])
    (y,) = run([call("Added", ["x"], ["y"], s=sparse)], [added])
    np.testing.assert_array_equal(y, X + np.array([[5, 0, 0], [0, 7, 0]], np.float32))
    empty = referring(helper.make_node("Optional", [], ["o"]), "type", "t", onnx.AttributeProto.TYPE_PROTO)
    has = function(
        "Absent", ["a"], ["b"], [empty, helper.make_node("OptionalHasElement", ["o"], ["b"])], attributes=["t"]
    )
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    (y,) = run([call("Absent", ["x"], ["y"], t=kind)], [has])
    assert y.item() is False


def test_faults_of_graphs_by_reference() -> None:
    either = function(
        "Either", ["a", "cond"], ["r"], [choosing(then_branch="yes", else_branch="yes")], attributes=["yes"]
    )
    model = model_of(
        [call("Either", ["x", "flag"], ["y"])], ["x", FLAG], ["y"], functions=[either], domains=[(DOMAIN, 1)]
    )
    with pytest.raises(errors.InvalidGraph, match="it lacks the attribute 'then_branch'"):
        load(model)
    unknown = graph_of([helper.make_node("Neg", ["a"], ["t"])], "t")
    given = call("Either", ["x", "flag"], ["y"], yes=unknown)
    with pytest.raises(errors.InvalidArgument, match="'a' is not a graph input"):  # of the function, not of the caller
        load(model_of([given], ["x", FLAG], ["y"], functions=[either], domains=[(DOMAIN, 1)]))
    default = helper.make_attribute("yes", graph_of([helper.make_node("Neg", ["gone"], ["t"])], "t"))
    broken = function(
        "Either", ["a", "cond"], ["r"], [choosing(then_branch="yes", else_branch="yes")], attribute_protos=[default]
    )
    with pytest.raises(errors.InvalidArgument, match=r"'gone' is not a graph input.*default of 'yes'"):
        load(
            model_of(
                [call("Either", ["x", "flag"], ["y"])], ["x", FLAG], ["y"], functions=[broken], domains=[(DOMAIN, 1)]
            )
        )
