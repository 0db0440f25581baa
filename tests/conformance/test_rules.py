"""What ONNX asks of models, rule by rule: a model that breaks one is refused or warned of, what may be is accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

import jitonnx
from jitonnx.errors import Error
from jitonnx.model.checker import Finding, check_model
from tests.model.checker.broken import SOUND, called, looped, nested, node, plain, sparse, typed
from tests.model.models import model_of, tensor_input

X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


def found(model: Any, rule: str) -> Finding:
    """The first finding of a rule."""
    return next(each for each in check_model(model) if each.rule == rule)


def refused(model: ModelProto, rule: str) -> str:
    """What a session says of a model that breaks a rule, which `check` finds as an error with a place."""
    finding = found(model, rule)
    assert finding.severity == "error" and finding.refused and finding.text
    with pytest.raises(Error) as caught:
        jitonnx.InferenceSession(model.SerializeToString())
    return str(caught.value)


def accepted(model: ModelProto, rule: str, severity: str) -> None:
    """A finding for which no session refuses a model."""
    finding = found(model, rule)
    assert finding.severity == severity and not finding.refused
    jitonnx.InferenceSession(model.SerializeToString())


def changed(make: Callable[[], ModelProto], change: Callable[[ModelProto], object]) -> ModelProto:
    """A sound model, changed."""
    model = make()
    change(model)
    return model


def run(model: ModelProto, **feeds: Any) -> list[Any]:
    assert not check_model(model).errors
    return jitonnx.InferenceSession(model.SerializeToString()).run(None, feeds)


def relu(**options: Any) -> ModelProto:
    return model_of([node("Relu", ["x"], ["y"])], ["x"], ["y"], **options)


# ---------------------------------------------------------------------------------------------- versions and models


@pytest.mark.conformance("ir-versions")
@pytest.mark.parametrize("version", [3, 8, 14])
def test_known_ir_versions(version: int) -> None:
    run(relu(ir_version=version), x=X)
    assert "IR version: 15, max supported" in refused(relu(ir_version=15), "model.ir-version")


@pytest.mark.conformance("ir-version-present")
@pytest.mark.parametrize("version", [None, 0, -1])
def test_a_model_without_ir_version(version: int | None) -> None:
    model = relu()
    model.ClearField("ir_version")
    if version is not None:
        model.ir_version = version
    refused(model, "model.ir-version")


@pytest.mark.conformance("fields-by-version")
def test_a_field_that_is_newer_than_the_ir_version() -> None:
    model = changed(called, lambda model: setattr(model, "ir_version", 7))
    accepted(model, "model.newer-field", "warning")
    assert "ModelProto.functions" in found(model, "model.newer-field").text


@pytest.mark.conformance("types-by-version")
def test_an_element_type_that_is_newer_than_the_ir_version() -> None:
    w = helper.make_tensor("w", TensorProto.INT4, (2,), [1, 2])
    out = tensor_input("y", (2,), TensorProto.INT4)
    model = model_of([node("Identity", ["w"], ["y"])], [], [out], [w], ir_version=9, opset=21)
    assert "INT4" in found(model, "model.newer-field").text


@pytest.mark.conformance("metadata-keys")
def test_metadata_of_one_key() -> None:
    model = relu()
    for value in "ab":
        model.metadata_props.add(key="k", value=value)
    accepted(model, "model.metadata", "error")


@pytest.mark.conformance("metadata", "model-version", "doc-strings")
def test_what_a_model_says_of_itself() -> None:
    model = relu()
    model.producer_name, model.domain, model.doc_string, model.model_version = "p", "org.example", "**d**", 1 << 40
    model.graph.doc_string = "*g*"
    model.metadata_props.add(key="model_author", value="a, b")
    meta = jitonnx.InferenceSession(model.SerializeToString()).get_modelmeta()
    assert (meta.producer_name, meta.domain, meta.description, meta.version) == ("p", "org.example", "**d**", 1 << 40)
    assert meta.graph_description == "*g*" and meta.custom_metadata_map == {"model_author": "a, b"}


@pytest.mark.conformance("model-domain", "robust")
def test_a_model_without_domain() -> None:
    model = relu()
    model.ClearField("producer_name")
    accepted(model, "model.domain", "warning")


@pytest.mark.conformance("graph-present")
def test_a_model_without_graph() -> None:
    assert "No graph was found" in refused(changed(plain, lambda model: model.ClearField("graph")), "model.graph")


@pytest.mark.conformance("stateless")
def test_equal_inputs_give_equal_outputs() -> None:
    session = jitonnx.InferenceSession(plain().SerializeToString())
    first, second = (session.run(None, {"x": X})[0] for _ in range(2))
    assert first.tobytes() == second.tobytes()


# ---------------------------------------------------------------------------------------------- operator sets


@pytest.mark.conformance("opsets-named")
def test_no_operator_sets() -> None:
    assert "Missing opset" in refused(changed(plain, lambda model: model.ClearField("opset_import")), "model.opsets")


@pytest.mark.conformance("newest-opset", "opset-positive")
@pytest.mark.parametrize("version", [0, -1, 1000])
def test_operator_sets_that_there_are_not(version: int) -> None:
    assert f"operator set {version}" in refused(relu(opset=version), "model.opsets")


@pytest.mark.conformance("operators-declared")
def test_an_operator_whose_domain_is_not_imported() -> None:
    model = model_of([node("Foo", ["x"], ["y"])], ["x"], ["y"])
    model.graph.node[0].domain = "not.imported"
    assert "No opset import for domain 'not.imported'" in refused(model, "operators.domain")


@pytest.mark.conformance("opsets-supported")
def test_all_operators_that_are_lacking_are_listed() -> None:
    nodes = [node("Foo", ["x"], ["a"]), node("Bar", ["a"], ["b"]), node("Foo", ["b"], ["y"])]
    text = refused(model_of(nodes, ["x"], ["y"]), "operators.unknown")
    assert "Foo" in text and "Bar" in text and "(2 nodes)" in text


@pytest.mark.conformance("unknown-namespace")
def test_an_operator_of_a_domain_that_nobody_registered() -> None:
    model = model_of([node("Foo", ["x"], ["y"])], ["x"], ["y"], domains=[("org.example", 1)])
    model.graph.node[0].domain = "org.example"
    finding = found(model, "operators.foreign")
    assert finding.severity == "warning" and finding.refused
    with pytest.raises(jitonnx.errors.Fail, match=r"org.example:Foo\(-1\) is not a registered"):
        jitonnx.InferenceSession(model.SerializeToString())


@pytest.mark.conformance("default-domain")
def test_both_names_of_the_default_domain() -> None:
    model = relu()
    model.graph.node[0].domain = "ai.onnx"
    np.testing.assert_array_equal(run(model, x=X)[0], np.maximum(X, 0))


@pytest.mark.conformance("same-domain-twice")
def test_the_highest_version_of_a_domain_counts() -> None:
    model = relu(opset=13)
    model.opset_import.add(domain="ai.onnx", version=20)
    accepted(model, "model.opset-twice", "warning")
    model.graph.node[0].op_type = "Gelu"  # since 20
    jitonnx.InferenceSession(model.SerializeToString())


@pytest.mark.conformance("not-yet")
def test_an_operator_before_its_first_version() -> None:
    model = model_of([node("Gelu", ["x"], ["y"])], ["x"], ["y"], opset=19)
    assert "it exists since 20" in refused(model, "operators.version")


@pytest.mark.conformance("dropped")
def test_an_operator_that_was_dropped() -> None:
    model = model_of([node("Upsample", ["x", "s"], ["y"])], ["x", tensor_input("s", (2,))], ["y"], opset=10)
    assert "is deprecated" in refused(model, "operators.version")


@pytest.mark.conformance("meaning-by-version")
def test_an_operator_means_what_its_version_says() -> None:
    """Before version 13 Softmax takes all axes from `axis` on together."""
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    sums = []
    for opset in (12, 13):
        info = tensor_input("x", (2, 2, 3)), tensor_input("y", (2, 2, 3))
        model = model_of([node("Softmax", ["x"], ["y"], axis=1)], info[:1], info[1:], opset=opset)
        sums.append(run(model, x=x)[0].sum())
    np.testing.assert_allclose(sums, [2, 6], rtol=1e-5)


# ---------------------------------------------------------------------------------------------- graphs


@pytest.mark.conformance("acyclic")
def test_a_circle() -> None:
    nodes = [node("Neg", ["b"], ["a"]), node("Neg", ["a"], ["b"]), node("Neg", ["x"], ["y"])]
    text = refused(model_of(nodes, ["x"], ["y"]), "order.cycle")
    assert "make_a" in text and "make_b" in text


@pytest.mark.conformance("topological")
def test_nodes_in_another_order() -> None:
    nodes = [node("Neg", ["h"], ["y"]), node("Neg", ["x"], ["h"])]
    accepted(model_of(nodes, ["x"], ["y"]), "order.unsorted", "error")


@pytest.mark.conformance("graph-name")
def test_a_graph_without_name() -> None:
    accepted(changed(plain, lambda model: setattr(model.graph, "name", "")), "graphs.name", "error")


@pytest.mark.conformance("main-types")
def test_inputs_and_outputs_without_type() -> None:
    refused(changed(relu, lambda model: model.graph.input[0].ClearField("type")), "types.input")
    accepted(changed(relu, lambda model: model.graph.output[0].ClearField("type")), "types.missing", "error")


@pytest.mark.conformance("main-shapes", "any-shape")
def test_an_input_without_shape() -> None:
    model = changed(relu, lambda model: model.graph.input[0].type.tensor_type.ClearField("shape"))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    accepted(model, "types.missing", "error")
    session = jitonnx.InferenceSession(model.SerializeToString())
    assert [session.run(None, {"x": x})[0].shape for x in (X, X[0], X[0, 0])] == [(2, 3), (3,), ()]


@pytest.mark.conformance("nested-names")
def test_a_nested_output_without_name() -> None:
    model = changed(nested, lambda model: setattr(model.graph.node[1].attribute[0].g.output[0], "name", ""))
    refused(model, "names.empty")


@pytest.mark.conformance("nested-types", "nested-captures")
def test_nested_graphs_without_types() -> None:
    model = nested()
    for attribute in model.graph.node[1].attribute:
        attribute.g.output[0].ClearField("type")
    assert not check_model(model).errors
    h = np.maximum(X, 0)
    z = (X + 1) * h
    (y,) = run(model, x=X, c=np.array(True))
    np.testing.assert_allclose(y, np.where(z < 0, z / 2, z))


@pytest.mark.conformance("output-values")
def test_outputs_are_what_nodes_give() -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("Abs", ["a"], ["b"])]
    a, b = run(model_of(nodes, ["x"], ["a", "b"]), x=X)
    np.testing.assert_array_equal(a, -X)
    np.testing.assert_array_equal(b, np.abs(X))


@pytest.mark.conformance("outputs-exist")
def test_an_output_that_nobody_gives() -> None:
    assert "Graph output (zz) does not exist" in refused(model_of([], ["x"], ["zz"]), "names.output")


W = np.full((2, 3), 2, np.float32)


def sum_with_default(ir_version: int = 8) -> ModelProto:
    return model_of(
        [node("Add", ["x", "w"], ["y"])], ["x", "w"], ["y"], [numpy_helper.from_array(W, "w")], ir_version=ir_version
    )


@pytest.mark.conformance("initializer-default")
def test_a_default_may_be_fed() -> None:
    model = sum_with_default()
    np.testing.assert_array_equal(run(model, x=X)[0], X + 2)
    np.testing.assert_array_equal(run(model, x=X, w=X)[0], X + X)


@pytest.mark.conformance("initializer-constant")
def test_a_constant_cannot_be_fed() -> None:
    model = sum_with_default()
    del model.graph.input[1]
    np.testing.assert_array_equal(run(model, x=X)[0], X + 2)
    with pytest.raises(jitonnx.errors.InvalidArgument, match="Invalid input name: w"):
        run(model, x=X, w=X)


@pytest.mark.conformance("initializer-order")
def test_initializers_in_any_order() -> None:
    nodes = [node("Mul", ["x", "a"], ["h"]), node("Add", ["h", "b"], ["y"])]
    tensors = [numpy_helper.from_array(np.float32(value), name) for name, value in (("b", 5), ("a", 3))]
    for given in (tensors, tensors[::-1]):
        np.testing.assert_array_equal(run(model_of(nodes, ["x"], ["y"], given), x=X)[0], 3 * X + 5)


@pytest.mark.conformance("initializer-type")
@pytest.mark.parametrize("info", [tensor_input("w", (2, 4)), tensor_input("w", dtype=TensorProto.INT64)])
def test_a_default_of_another_type(info: Any) -> None:
    model = sum_with_default()
    model.graph.input[1].CopyFrom(info)
    refused(model, "initializers.declared")


@pytest.mark.conformance("initializer-inputs")
def test_an_initializer_that_is_no_input_in_an_old_model() -> None:
    model = sum_with_default(ir_version=3)
    assert not check_model(model).errors
    del model.graph.input[1]
    accepted(model, "initializers.input", "error")


@pytest.mark.conformance("initializer-nested")
def test_a_default_in_a_nested_graph() -> None:
    model = nested()
    graph = model.graph.node[1].attribute[0].g
    graph.input.append(tensor_input(graph.initializer[0].name))
    finding = found(model, "initializers.default")
    assert finding.severity == "error"


# ---------------------------------------------------------------------------------------------- names


@pytest.mark.conformance("c90")
def test_names_that_are_no_identifiers() -> None:
    model = model_of([node("Relu", ["x:0"], ["1 / ü"])], ["x:0"], ["1 / ü"])
    accepted(model, "names.identifier", "warning")


@pytest.mark.conformance("one-definition", "ssa")
def test_a_value_that_is_defined_twice() -> None:
    nodes = [node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"], name="again")]
    assert "'again'" in refused(model_of(nodes, ["x"], ["y"]), "names.twice")
    refused(model_of([node("Neg", ["x"], ["x"])], ["x"], ["x"]), "names.twice")


@pytest.mark.conformance("one-definition")
@pytest.mark.filterwarnings("ignore:Duplicate definition of name")
def test_constants_that_are_defined_twice() -> None:
    """As in onnxruntime, the last counts for all who read it; of a graph that a node runs none."""
    one, two = (node("Constant", [], ["k"], value=numpy_helper.from_array(np.full(3, n, np.float32))) for n in (1, 2))
    model = model_of([one, node("Add", ["x", "k"], ["h"]), two, node("Add", ["h", "k"], ["y"])], ["x"], ["y"])
    accepted(model, "names.constants-twice", "error")
    x = np.zeros((2, 3), np.float32)
    for package in (jitonnx, onnxruntime):
        (y,) = package.InferenceSession(model.SerializeToString()).run(None, {"x": x})
        np.testing.assert_array_equal(y, x + 4)
    refused(model_of([node("Neg", ["x"], ["k"]), one, node("Add", ["x", "k"], ["y"])], ["x"], ["y"]), "names.twice")


@pytest.mark.conformance("inputs-unique")
def test_two_inputs_of_one_name() -> None:
    refused(changed(relu, lambda model: model.graph.input.append(model.graph.input[0])), "names.twice")


@pytest.mark.conformance("initializers-unique")
def test_two_initializers_of_one_name() -> None:
    refused(changed(plain, lambda model: model.graph.initializer.append(model.graph.initializer[0])), "names.twice")


@pytest.mark.conformance("initializer-name")
def test_an_initializer_without_name() -> None:
    refused(model_of([], ["x"], ["x"], [numpy_helper.from_array(X)]), "initializers.name")


@pytest.mark.conformance("nodes-unique")
def test_two_nodes_of_one_name() -> None:
    nodes = [helper.make_node("Neg", [a], [b], name="same") for a, b in (("x", "h"), ("h", "y"))]
    assert "same node name" in refused(model_of(nodes, ["x"], ["y"]), "names.node-twice")


@pytest.mark.conformance("node-name-optional")
def test_a_node_without_name() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"])
    run(model, x=X)
    model.graph.node[0].op_type = "Rellu"
    assert "node 0, Rellu (outputs: 'y')" in refused(model, "operators.unknown")


@pytest.mark.conformance("ssa-nested")
def test_a_nested_output_of_a_visible_name() -> None:
    model = nested()
    model.graph.node[1].attribute[0].g.node[0].output[0] = "h"
    refused(model, "names.twice")


@pytest.mark.conformance("names-defined")
def test_a_name_that_nobody_defines() -> None:
    model = model_of([node("Relu", ["hiden"], ["y"])], ["hidden"], ["y"])
    assert "did the exporter mean 'hidden'?" in refused(model, "names.undefined")


# ---------------------------------------------------------------------------------------------- nodes


@pytest.mark.conformance("node-operator")
def test_a_node_without_operator() -> None:
    refused(changed(relu, lambda model: model.graph.node[0].ClearField("op_type")), "operators.name")


@pytest.mark.conformance("node-outputs", "signature-outputs")
def test_numbers_of_outputs() -> None:
    refused(changed(plain, lambda model: model.graph.node[5].ClearField("output")), "signature.counts")
    refused(changed(plain, lambda model: model.graph.node[0].output.append("more")), "signature.counts")


@pytest.mark.conformance("signature-inputs", "variadic")
def test_numbers_of_inputs() -> None:
    refused(changed(relu, lambda model: model.graph.node[0].input.append("x")), "signature.counts")
    refused(changed(plain, lambda model: model.graph.node[4].ClearField("input")), "signature.counts")


@pytest.mark.conformance("variadic-outputs")
def test_more_parts_than_outputs() -> None:
    parts = numpy_helper.from_array(np.array([1, 1, 1], np.int64), "parts")
    infos = [tensor_input("a", (2, 1)), tensor_input("b", (2, 1))]
    model = model_of([node("Split", ["x", "parts"], ["a", "b"], axis=1)], ["x"], infos, [parts])
    assert "3 outputs" in refused(model, "build")


@pytest.mark.conformance("signature-types")
def test_a_type_that_an_operator_does_not_take() -> None:
    info = tensor_input("x", dtype=TensorProto.STRING), tensor_input("y", dtype=TensorProto.STRING)
    assert "allowed are" in refused(model_of([node("Relu", ["x"], ["y"])], info[:1], info[1:]), "build")


@pytest.mark.conformance("signature-bound")
def test_types_that_contradict_one_another() -> None:
    model = model_of([node("Add", ["x", "i"], ["y"])], ["x", tensor_input("i", dtype=TensorProto.INT64)], ["y"])
    assert "bound to different types" in refused(model, "build")


@pytest.mark.conformance("signature-attributes", "signature-required", "signature-kinds")
@pytest.mark.parametrize("attributes", [{"axis": 0, "slope": 1.0}, {}, {"axis": 1.5}])
def test_attributes_that_are_not_the_operators(attributes: dict[str, Any]) -> None:
    model = model_of([node("Concat", ["x", "x"], ["y"], **attributes)], ["x"], [tensor_input("y", (4, 3))])
    refused(model, "signature.attributes")


@pytest.mark.conformance("optional-trailing", "optional-empty", "optional-outputs")
def test_optional_inputs_and_outputs() -> None:
    one = numpy_helper.from_array(np.float32(1), "one")
    for inputs, expected in ((["x"], X), (["x", "one"], np.maximum(X, 1)), (["x", "", "one"], np.minimum(X, 1))):
        model = model_of([node("Clip", inputs, ["y"])], ["x"], ["y"], [one])
        np.testing.assert_array_equal(run(model, x=X)[0], expected)
    scale = numpy_helper.from_array(np.ones(3, np.float32), "s")
    for outputs in (["y"], ["y", ""], ["y", "", "d"]):
        model = model_of([node("LayerNormalization", ["x", "s"], outputs)], ["x"], ["y"], [scale])
        assert run(model, x=X)[0].shape == (2, 3)


@pytest.mark.conformance("required-inputs")
def test_a_required_input_that_is_left_out() -> None:
    assert "not optional" in refused(
        changed(plain, lambda model: model.graph.node[0].input.__setitem__(0, "")), "signature.counts"
    )


# ---------------------------------------------------------------------------------------------- attributes


def with_alpha(**fields: Any) -> ModelProto:
    """A LeakyRelu with an attribute of these fields."""
    model = model_of([node("LeakyRelu", ["x"], ["y"])], ["x"], ["y"])
    model.graph.node[0].attribute.add(**fields)
    return model


@pytest.mark.conformance("attribute-name", "attribute-type", "attribute-field", "attribute-one-value")
@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"type": AttributeProto.FLOAT, "f": 1.0}, "attributes.name"),
        ({"name": "alpha", "f": 1.0}, "attributes.type"),
        ({"name": "alpha", "type": AttributeProto.FLOAT, "i": 1}, "attributes.value"),
        ({"name": "alpha", "type": AttributeProto.FLOAT, "f": 1.0, "i": 1}, "attributes.value"),
    ],
)
def test_attributes_that_are_not_whole(fields: dict[str, Any], rule: str) -> None:
    assert "LeakyRelu 'make_y'" in refused(with_alpha(**fields), rule)


@pytest.mark.conformance("attribute-unique")
def test_two_attributes_of_one_name() -> None:
    model = with_alpha(name="alpha", type=AttributeProto.FLOAT, f=1.0)
    model.graph.node[0].attribute.append(model.graph.node[0].attribute[0])
    assert "'alpha' is there twice" in refused(model, "attributes.twice")


@pytest.mark.conformance("attribute-references")
def test_a_reference_outside_of_functions() -> None:
    model = with_alpha(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="outer")
    assert "refers to the attribute 'outer'" in refused(model, "attributes.reference")


@pytest.mark.conformance("attribute-empty-list")
def test_an_empty_list() -> None:
    given = node("Constant", [], ["y"])
    given.attribute.add(name="value_ints", type=AttributeProto.INTS)
    assert run(model_of([given], [], [tensor_input("y", (0,), TensorProto.INT64)]))[0].shape == (0,)


@pytest.mark.conformance("attribute-kinds")
@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("value_float", 1.5),
        ("value_int", 3),
        ("value_string", "ü"),
        ("value_floats", [1.5, 2.5]),
        ("value_ints", [3, 4]),
        ("value_strings", ["a", "ü"]),
        ("value", numpy_helper.from_array(np.array([1, 2], np.float32))),
    ],
)
def test_kinds_of_attributes(attribute: str, value: Any) -> None:
    model = model_of([node("Constant", [], ["y"], **{attribute: value})], [], [onnx.ValueInfoProto(name="y")])
    (y,) = jitonnx.InferenceSession(model.SerializeToString()).run(None, {})
    assert np.asarray(y).tolist() == (np.array([1, 2], np.float32).tolist() if attribute == "value" else value)


# ---------------------------------------------------------------------------------------------- tensors


def with_tensor(**fields: Any) -> ModelProto:
    tensor = TensorProto(name="w", **fields)
    return model_of([node("Identity", ["w"], ["y"])], [], [tensor_input("y", (2,))], [tensor])


RAW = np.array([1, 2], np.float32).tobytes()


@pytest.mark.conformance("tensor-type", "tensor-one-field", "tensor-typed-field", "tensor-count", "tensor-sizes")
@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"dims": [2], "raw_data": RAW}, "tensors.type-missing"),
        ({"dims": [2], "data_type": 99, "raw_data": RAW}, "tensors.type"),
        ({"dims": [2], "data_type": 1, "raw_data": RAW, "float_data": [1, 2]}, "tensors.fields"),
        ({"dims": [2], "data_type": 1, "float_data": [1, 2], "int32_data": [1, 2]}, "tensors.fields"),
        ({"dims": [2], "data_type": 1, "int32_data": [1, 2]}, "tensors.fields"),
        ({"dims": [3], "data_type": 1, "raw_data": RAW}, "tensors.count"),
        ({"dims": [3], "data_type": 1, "float_data": [1, 2]}, "tensors.count"),
        ({"dims": [0], "data_type": 1, "float_data": [1]}, "tensors.count"),
        ({"dims": [-2], "data_type": 1, "raw_data": RAW}, "tensors.dims"),
    ],
)
def test_tensors_that_are_not_sound(fields: dict[str, Any], rule: str) -> None:
    assert "initializer 'w'" in refused(with_tensor(**fields), rule)


@pytest.mark.conformance("tensor-raw")
def test_raw_data() -> None:
    np.testing.assert_array_equal(run(with_tensor(dims=[2], data_type=1, raw_data=RAW))[0], [1, 2])
    refused(with_tensor(dims=[2], data_type=8, raw_data=b"ab"), "tensors.fields")


@pytest.mark.conformance("tensor-types")
def test_element_types_in_typed_fields() -> None:
    values = jitonnx.InferenceSession(typed().SerializeToString()).run(None, {})
    assert [np.asarray(value).tolist() for value in values[:-2]] == [[1, 2]] * 6 + [[True, False]]


@pytest.mark.conformance("tensor-bits")
def test_bits_of_small_elements() -> None:
    half = helper.make_tensor("h", TensorProto.FLOAT16, (2,), [1.5, -2])
    packed = helper.make_tensor("p", TensorProto.INT4, (3,), [1, -2, 7])
    nodes = [node("Cast", [name], [out], to=TensorProto.FLOAT) for name, out in (("h", "y"), ("p", "z"))]
    infos = [tensor_input("y", (2,)), tensor_input("z", (3,))]
    y, z = run(model_of(nodes, [], infos, [half, packed], opset=21))
    assert y.tolist() == [1.5, -2] and z.tolist() == [1, -2, 7]


@pytest.mark.conformance("utf-8")
def test_text_that_is_not_utf_8() -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"])
    refused(model_of([], ["x"], ["x"], [tensor]), "tensors.text")


@pytest.mark.conformance("empty-tensors")
def test_sizes_of_0() -> None:
    model = model_of([node("Relu", ["x"], ["y"])], [tensor_input("x", (0, 3))], [tensor_input("y", (0, 3))])
    assert run(model, x=np.zeros((0, 3), np.float32))[0].shape == (0, 3)


# ---------------------------------------------------------------------------------------------- external data


def external(folder: Path, content: bytes = RAW + RAW, **entries: Any) -> Path:
    """The path of a model with two tensors in one file."""
    (folder / "w.bin").write_bytes(content)
    tensors = []
    for name, offset in (("a", 0), ("b", 8)):
        tensor = TensorProto(name=name, data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
        for key, value in {"location": "w.bin", "offset": offset, "length": 8, **entries}.items():
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    path = folder / "model.onnx"
    model = model_of([node("Add", ["a", "b"], ["y"])], [], [tensor_input("y", (2,))], tensors)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.conformance("external-location", "external-range", "external-shared")
def test_tensors_in_another_file(tmp_path: Path) -> None:
    path = external(tmp_path)
    assert not check_model(path).errors
    assert jitonnx.InferenceSession(path).run(None, {})[0].tolist() == [2, 4]
    for entries in (
        {"location": "../w.bin"},
        {"location": "/etc/hostname"},
        {"offset": 12},
        {"length": 4},
        {"offset": "x"},
    ):
        external(tmp_path, **entries)
        assert check_model(path).errors
        with pytest.raises(Error):
            jitonnx.InferenceSession(path)


@pytest.mark.conformance("external-digest")
def test_the_digest_of_a_file(tmp_path: Path) -> None:
    import hashlib

    path = external(tmp_path, checksum=hashlib.sha1(RAW + RAW).hexdigest())
    assert not check_model(path).errors
    external(tmp_path, checksum="0" * 40)
    assert {each.rule for each in check_model(path) if each.severity == "error"} == {"external.checksum"}
    jitonnx.InferenceSession(path)  # which does not read all of it
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("jitonnx.verify", "1")
    with pytest.raises(jitonnx.errors.Fail, match=r"has the digest '0+' for .* which is [0-9a-f]{40} \(SHA-1\)"):
        jitonnx.InferenceSession(path, options)
    external(tmp_path, checksum=hashlib.sha1(RAW + RAW).hexdigest())
    jitonnx.InferenceSession(path, options)


@pytest.mark.conformance("external-alone")
def test_external_data_beside_values() -> None:
    model = with_tensor(dims=[2], data_type=1, raw_data=RAW)
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    refused(model, "tensors.fields")


# ---------------------------------------------------------------------------------------------- sparse tensors


def sparse_with(**fields: Any) -> ModelProto:
    model = sparse()
    (held,) = model.graph.sparse_initializer
    for name, value in fields.items():
        if name == "dims":
            held.dims[:] = value
        else:
            array = np.asarray(value)
            getattr(held, name).CopyFrom(numpy_helper.from_array(array, "w" if name == "values" else "i"))
    return model


@pytest.mark.conformance("sparse-values", "sparse-indices", "sparse-range", "sparse-sizes")
@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"values": np.array([[1, 2, 3]], np.float32)}, "sparse.values"),
        ({"values": np.array([1, 2], np.float32)}, "sparse.indices"),
        ({"indices": np.array([1, 3, 5], np.int32)}, "sparse.indices"),
        ({"indices": np.array([[[0, 1]], [[1, 0]], [[1, 2]]], np.int64)}, "sparse.indices"),
        ({"indices": np.array([1, 3, 6], np.int64)}, "sparse.indices"),
        ({"indices": np.array([-1, 3, 5], np.int64)}, "sparse.indices"),
        ({"dims": []}, "sparse.dims"),
        ({"dims": [2, -3]}, "sparse.dims"),
    ],
)
def test_sparse_tensors_that_are_not_sound(fields: dict[str, Any], rule: str) -> None:
    assert "'w'" in refused(sparse_with(**fields), rule)


@pytest.mark.conformance("sparse-ascending")
@pytest.mark.parametrize(
    ("indices", "w"),
    [([3, 1, 5], [[0, 2, 0], [1, 0, 3]]), ([[0, 1], [0, 1], [1, 2]], [[0, 2, 0], [0, 0, 3]])],
)
def test_sparse_indices_in_no_order(indices: Any, w: Any) -> None:
    """The last value of an index that is there twice counts, as with onnxruntime."""
    model = sparse_with(indices=np.int64(indices))
    accepted(model, "sparse.order", "error")
    (y,) = jitonnx.InferenceSession(model.SerializeToString()).run(None, {"x": np.zeros_like(X)})
    np.testing.assert_array_equal(y, w)


@pytest.mark.conformance("sparse-sizes")
def test_sparse_tensors_without_elements() -> None:
    model = sparse_with(dims=[0, 3], values=np.zeros(0, np.float32), indices=np.zeros(0, np.int64))
    finding = found(model, "sparse.empty")
    assert finding.severity == "error" and not finding.refused


def test_a_sparse_tensor_as_the_value_of_a_constant() -> None:
    """It is `sparse_value`; onnxruntime takes the other name, too, and its tests have such a model."""
    model = sparse()
    node = model.graph.node.add(op_type="Constant", output=["w"])
    node.attribute.append(helper.make_attribute("value", model.graph.sparse_initializer.pop()))
    model.graph.node.insert(0, model.graph.node.pop())
    finding = found(model, "sparse.constant")
    assert finding.severity == "error" and not finding.refused
    (y,) = jitonnx.InferenceSession(model.SerializeToString()).run(None, {"x": np.zeros_like(X)})
    np.testing.assert_array_equal(y, [[0, 1, 0], [2, 0, 3]])


@pytest.mark.conformance("sparse-rest")
def test_what_no_index_names_is_0() -> None:
    (y,) = jitonnx.InferenceSession(sparse().SerializeToString()).run(None, {"x": np.zeros_like(X)})
    np.testing.assert_array_equal(y, [[0, 1, 0], [2, 0, 3]])


# ---------------------------------------------------------------------------------------------- types and shapes


@pytest.mark.conformance("map-keys", "element-types")
def test_types_that_there_are_not() -> None:
    model = changed(relu, lambda model: model.graph.input[0].type.map_type.value_type.tensor_type.SetInParent())
    model.graph.input[0].type.map_type.key_type = TensorProto.FLOAT
    refused(model, "types.kind")
    refused(changed(relu, lambda model: model.graph.input[0].type.sequence_type.SetInParent()), "types.kind")
    refused(changed(relu, lambda model: model.graph.input[0].type.optional_type.SetInParent()), "types.kind")


@pytest.mark.conformance("declared-types")
def test_a_value_of_another_type_than_declared() -> None:
    model = model_of([node("Neg", ["x"], ["h"]), node("Neg", ["h"], ["y"])], ["x"], ["y"])
    model.graph.value_info.append(tensor_input("h", dtype=TensorProto.INT64))
    refused(model, "types.mismatch")
    sequence = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, (2, 3))
    refused(model_of([node("Neg", ["x"], ["y"])], ["x"], [sequence]), "types.mismatch")


@pytest.mark.conformance("declared-shapes")
def test_an_output_of_another_shape_than_declared() -> None:
    with pytest.warns(UserWarning, match=r"declared with the shape \[7\]"):
        accepted(model_of([node("Neg", ["x"], ["y"])], ["x"], [tensor_input("y", (7,))]), "shapes.mismatch", "warning")


@pytest.mark.conformance("scalars", "rank")
def test_a_scalar_is_no_tensor_of_unknown_rank() -> None:
    model = model_of([node("Neg", ["x"], ["y"])], [tensor_input("x", ())], [tensor_input("y", ())])
    assert run(model, x=np.float32(2))[0].shape == ()
    with pytest.raises(jitonnx.errors.InvalidArgument, match="rank"):
        run(model, x=X)


@pytest.mark.conformance("sizes", "variables")
def test_a_variable_has_one_value() -> None:
    infos = [tensor_input(name, ("n", 3)) for name in ("a", "b")]
    outputs = [tensor_input("y", ("n", 3))]
    model = model_of([node("Add", ["a", "b"], ["y"])], infos, outputs)
    assert run(model, a=X, b=X)[0].shape == (2, 3)
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("session.strict_shape_type_inference", "1")
    session = jitonnx.InferenceSession(model.SerializeToString(), options)
    with pytest.raises(Error, match="n"):
        session.run(None, {"a": X, "b": X[:1]})


@pytest.mark.conformance("open-sizes")
def test_unknown_sizes_are_unrelated() -> None:
    infos = [tensor_input(name, (None, 3)) for name in ("a", "b")]
    model = model_of([node("Add", ["a", "b"], ["y"])], infos, [tensor_input("y", (None, 3))])
    assert run(model, a=X, b=X[:1])[0].shape == (2, 3)


@pytest.mark.conformance("variable-names")
def test_names_of_dimensions() -> None:
    infos = [tensor_input(name, ("2 * n",)) for name in "xy"]
    accepted(model_of([node("Neg", ["x"], ["y"])], infos[:1], infos[1:]), "shapes.variable", "warning")


@pytest.mark.conformance("value-info")
def test_value_info_that_is_not_sound() -> None:
    model = relu()
    model.graph.value_info.extend([tensor_input("nothing"), tensor_input("nothing")])
    accepted(model, "values.unknown", "warning")
    accepted(model, "values.twice", "warning")


# ---------------------------------------------------------------------------------------------- functions


def function_of(change: Callable[[Any], object], place: int = 0) -> ModelProto:
    return changed(called, lambda model: change(model.functions[place]))


@pytest.mark.conformance("function-keys")
def test_two_functions_of_one_key() -> None:
    model = changed(called, lambda model: model.functions.append(model.functions[0]))
    assert "local:Inner" in refused(model, "functions.twice")


@pytest.mark.conformance("function-name")
def test_a_function_without_name() -> None:
    refused(function_of(lambda each: each.ClearField("name")), "functions.name")


@pytest.mark.conformance("function-opsets")
def test_a_function_without_operator_sets() -> None:
    refused(function_of(lambda each: each.ClearField("opset_import")), "functions.opsets")


@pytest.mark.conformance("function-versions")
def test_an_operator_of_two_versions() -> None:
    model = function_of(lambda each: setattr(each.opset_import[0], "version", 9))
    accepted(model, "functions.versions", "error")


@pytest.mark.conformance("function-domain")
def test_a_call_into_a_domain_that_is_not_imported() -> None:
    model = called()
    del model.opset_import[1]
    assert "No opset import for domain 'local'" in refused(model, "operators.domain")


@pytest.mark.conformance("function-recursion")
def test_functions_that_call_themselves() -> None:
    inner = helper.make_node("Outer", ["a", "a"], ["b2"], domain="local", name="back")
    model = function_of(lambda each: each.node.append(inner))
    assert "calls itself" in refused(model, "functions.recursion")
    model.graph.node[0].op_type, model.graph.node[0].domain = "Add", ""
    refused(model, "functions.recursion")


@pytest.mark.conformance("function-parameters")
@pytest.mark.parametrize("field", ["input", "attribute"])
def test_two_parameters_of_one_name(field: str) -> None:
    refused(function_of(lambda each: getattr(each, field).append(getattr(each, field)[0])), "functions.signature")


@pytest.mark.conformance("function-ssa")
def test_a_body_that_is_not_in_ssa_form() -> None:
    refused(function_of(lambda each: each.node.append(helper.make_node("Neg", ["a"], ["b"], name="n"))), "names.twice")


@pytest.mark.conformance("function-outputs")
def test_an_output_that_a_function_does_not_define() -> None:
    refused(function_of(lambda each: each.output.__setitem__(0, "nothing")), "functions.output")


@pytest.mark.conformance("function-attributes")
@pytest.mark.parametrize("given", [{"alpha": 1}, {"alpha": 0.5, "beta": 1.0}])
def test_attributes_of_a_call(given: dict[str, Any]) -> None:
    model = called()
    call = model.functions[1].node[0]
    del call.attribute[:]
    call.attribute.extend(helper.make_attribute(name, value) for name, value in given.items())
    refused(model, "functions.call")


# ---------------------------------------------------------------------------------------------- training


def trained() -> ModelProto:
    """A model whose weight a training step doubles."""
    model = model_of([node("Mul", ["x", "w"], ["y"])], ["x"], ["y"], [numpy_helper.from_array(W, "w")])
    info = model.training_info.add()
    algorithm = helper.make_graph([node("Add", ["w", "w"], ["w2"])], "step", [], [tensor_input("w2")])
    info.algorithm.CopyFrom(algorithm)
    info.update_binding.add(key="w", value="w2")
    return model


@pytest.mark.conformance("training-ignored")
def test_a_session_ignores_training() -> None:
    np.testing.assert_array_equal(run(trained(), x=X)[0], 2 * X)


@pytest.mark.conformance("training-keys", "training-values", "training-unique", "training-omitted")
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda info: setattr(info.update_binding[0], "key", "v"), "training.binding"),
        (lambda info: setattr(info.update_binding[0], "value", "v"), "training.binding"),
        (lambda info: info.update_binding.append(info.update_binding[0]), "training.twice"),
        (lambda info: info.initialization_binding.add(key="w", value="w2"), "training.binding"),
    ],
)
def test_bindings_that_are_not_sound(change: Callable[[Any], object], rule: str) -> None:
    model = trained()
    change(model.training_info[0])
    accepted(model, rule, "error")


def test_the_sound_models_are_sound() -> None:
    for make in SOUND.values():
        assert not check_model(make()).errors
    assert looped().graph.node
