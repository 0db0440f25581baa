"""Loading: the sources, what a Model says, and the error for everything that can be wrong with a file."""

import io
import os
import pathlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import jitonnx
from jitonnx import errors
from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.dims import Dim, variable
from jitonnx.ir.dtypes import DType
from jitonnx.ir.types import TensorType
from jitonnx.model import load
from jitonnx.proto import ModelProto
from jitonnx.support.metadata import ModelMetadata
from tests.model.models import X, add_model, model_of, tensor_input

DATA = add_model().SerializeToString()
RESULT = X + np.arange(6, dtype=np.float32).reshape(2, 3)


# ---------------------------------------------------------------------------------------------- sources


@pytest.mark.parametrize(
    "source",
    [
        DATA,
        bytearray(DATA),
        memoryview(DATA),
        memoryview(bytearray(DATA)),
        io.BytesIO(DATA),
        add_model(),
        ModelProto.FromString(DATA),
    ],
    ids=lambda source: type(source).__module__ + "." + type(source).__name__,
)
def test_sources(source: Any) -> None:
    (y,) = evaluate(load(source).graph, {"x": X})
    np.testing.assert_array_equal(y, RESULT)


@pytest.mark.parametrize("convert", [str, Path, os.fsencode, lambda path: open(path, "rb")])  # noqa: SIM115
def test_paths(tmp_path: Path, convert: Any) -> None:
    path = tmp_path / "a model.onnx"
    path.write_bytes(DATA)
    source = convert(str(path))
    if isinstance(source, bytes):
        source = pathlib.PurePosixPath(os.fsdecode(source))
    np.testing.assert_array_equal(evaluate(load(source).graph, {"x": X})[0], RESULT)


def test_a_buffer_that_may_change_is_copied() -> None:
    data = bytearray(add_model(np.ones((2, 3), np.float32) * 7).SerializeToString())
    model = load(data)
    data[:] = b"\0" * len(data)
    np.testing.assert_array_equal(evaluate(model.graph, {"x": X})[0], X + 7)


@pytest.mark.parametrize("source", [None, 5, ["CPUExecutionProvider"], io.StringIO("text")])
def test_other_sources_are_refused(source: Any) -> None:
    with pytest.raises(TypeError, match=r"Unable to load from type|binary mode"):
        load(source)


# ---------------------------------------------------------------------------------------------- bytes that are no model


def test_missing_file() -> None:
    with pytest.raises(errors.NoSuchFile, match=r"Load model from nope.onnx failed:.*File doesn't exist") as caught:
        load("nope.onnx")
    assert isinstance(caught.value, FileNotFoundError) and str(Path.cwd()) in str(caught.value)


def test_empty_path() -> None:
    with pytest.raises(errors.NoSuchFile):
        load("")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidProtobuf, match="folder"):
        load(tmp_path)


@pytest.mark.parametrize("empty", [b"", ModelProto(), onnx.ModelProto()])
def test_nothing(empty: Any) -> None:
    with pytest.raises(
        errors.InvalidArgument, match=r"^\[ONNXRuntimeError\] : 2 : INVALID_ARGUMENT : No graph was found"
    ):
        load(empty)


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(errors.InvalidArgument, match="No graph was found"):
        load(tmp_path / "empty.onnx")


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (b"PK\x03\x04" + b"\xff" * 50, "torch.onnx.export"),
        (DATA[:-3], "truncated"),
        (b"\xff" * 40, "parsing failed"),
    ],
)
def test_other_bytes(tmp_path: Path, data: bytes, hint: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(errors.InvalidProtobuf, match=hint) as caught:
        load(path)
    assert str(path) in str(caught.value)
    with pytest.raises(errors.InvalidProtobuf, match=hint):
        load(data)


# ---------------------------------------------------------------------------------------------- models that are wrong


def relu(source: str, target: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [target], name=f"{source}_to_{target}", **attributes)


WRONG = [
    (model_of([relu("x", "y")], ["x"], ["y"], ir_version=99), errors.Fail, "Unsupported model IR version: 99"),
    (model_of([relu("x", "y")], ["x"], ["y"], opset=99), errors.Fail, "operator set 99"),
    (model_of([relu("x", "y")], ["x"], ["y"], opset=0), errors.Fail, "operator set 0"),
    (
        model_of([helper.make_node("Foo", ["x"], ["y"], domain="my.dom")], ["x"], ["y"]),
        errors.InvalidGraph,
        "No opset import for domain 'my.dom'",
    ),
    (
        model_of([helper.make_node("Foo", ["x"], ["y"], domain="my.dom")], ["x"], ["y"], domains=[("my.dom", 1)]),
        errors.Fail,
        r"my.dom:Foo\(-1\) is not a registered function/op",
    ),
    (
        model_of([relu("x", "y", slope=2.0)], ["x"], ["y"]),
        errors.InvalidGraph,
        "Unrecognized attribute: slope for operator Relu",
    ),
    (
        model_of([helper.make_node("Relu", ["x", "x"], ["y"])], ["x"], ["y"]),
        errors.InvalidGraph,
        r"Relu:14\) has input size 2 not in range \[min=1, max=1\]",
    ),
    (
        model_of([helper.make_node("Concat", ["x"], ["y"])], ["x"], ["y"]),
        errors.InvalidGraph,
        "Required attribute 'axis' is missing",
    ),
    (
        model_of([helper.make_node("Concat", ["x"], ["y"], axis=1.5)], ["x"], ["y"]),
        errors.InvalidGraph,
        "Expected: 'INT', actual: 'FLOAT'",
    ),
    (
        model_of([helper.make_node("Gelu", ["x"], ["y"])], ["x"], ["y"], opset=19),
        errors.InvalidGraph,
        "No Op registered for Gelu with domain_version of 19; it exists since 20",
    ),
    (model_of([], [tensor_input("x"), tensor_input("x")], ["x"]), errors.Fail, r"Duplicate definition-site for \(x\)"),
    (
        model_of([relu("x", "y"), relu("x", "y")], ["x"], ["y"]),
        errors.Fail,
        r"Duplicate definition of name \(y\).*x_to_y",
    ),
    (model_of([relu("x", "x")], ["x"], ["x"]), errors.Fail, r"Duplicate definition of name \(x\)"),
    (
        model_of([], [], ["w"], [numpy_helper.from_array(X, "w"), numpy_helper.from_array(X, "w")]),
        errors.Fail,
        r"Duplicate definition of name \(w\)",
    ),
    (
        model_of([relu("hiden", "y")], ["hidden"], ["y"]),
        errors.InvalidArgument,
        "Node input 'hiden' is not a graph input.*did the exporter mean 'hidden'",
    ),
    (
        model_of([helper.make_node("Relu", [a], [b], name="same") for a, b in (("x", "h"), ("h", "y"))], ["x"], ["y"]),
        errors.InvalidGraph,
        r"two nodes with same node name \(same\).*node 1, Relu 'same'",
    ),
    (model_of([relu("x", "y")], ["x"], ["zz"]), errors.Fail, r"Graph output \(zz\) does not exist"),
    (
        model_of([relu("b", "a"), relu("c", "b"), relu("a", "c")], [], ["a"]),
        errors.Fail,
        "the graph is not acyclic. The cycle: .*a_to_c.*c_to_b.*b_to_a.*a_to_c",
    ),
    (
        model_of([helper.make_node("Add", ["x", "i"], ["y"], name="n1")],
                 ["x", tensor_input("i", dtype=TensorProto.INT64)], ["y"]),
        errors.Fail,
        "Add node 'n1'.*float.*int64.*different element types",
    ),
    (
        model_of([helper.make_node("Add", ["x", "z"], ["y"], name="n1")], ["x", tensor_input("z", (4, 3))], ["y"]),
        errors.Fail,
        "do not broadcast",
    ),
    (
        model_of([relu("x", "y")], ["x"], [tensor_input("y", dtype=TensorProto.INT32)]),
        errors.Fail,
        r"Type \(tensor\(float\)\) of output arg \(y\) does not match expected type \(tensor\(int32\)\)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("model", "kind", "text"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_wrong_models(model: onnx.ModelProto, kind: type[errors.Error], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        load(model)
    assert isinstance(caught.value, errors.Error)
    assert str(caught.value).startswith(f"[ONNXRuntimeError] : {kind.code} : {kind.label} : ")


def test_type_that_value_info_gives_an_initializer_does_not_count() -> None:
    """As converters to float16 write models; of what a node gives it does."""
    model = model_of([helper.make_node("Add", ["x", "b"], ["y"], name="n1")], ["x"], ["y"])
    model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "b"))
    model.graph.value_info.append(helper.make_tensor_value_info("b", TensorProto.FLOAT16, [2, 3]))
    assert load(model) is not None
    model.graph.node[0].output[0] = "t"
    model.graph.node.append(relu("t", "y"))
    model.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT16, [2, 3]))
    with pytest.raises(errors.Fail, match=r"output arg \(t\) does not match expected type \(tensor\(float16\)\)"):
        load(model)


def test_inputs_of_a_kind_that_is_not_supported() -> None:
    model = add_model()
    model.graph.input[0].type.Clear()
    model.graph.input[0].type.opaque_type.name = "secret"
    with pytest.raises(errors.NotImplemented, match="graph input 'x' is a opaque"):
        load(model.SerializeToString())


def test_missing_operator_set() -> None:
    model = add_model()
    del model.opset_import[:]
    with pytest.raises(errors.Fail, match="Missing opset in the model"):
        load(model)


def test_all_unsupported_operators_are_listed() -> None:
    names = ("Foo", "Bar", "Foo", "Sigmod")
    model = model_of([helper.make_node(name, ["x"], [f"y{i}"]) for i, name in enumerate(names)], ["x"], ["y0"])
    with pytest.raises(errors.InvalidGraph, match="Operators that jitonnx cannot run") as caught:
        load(model)
    text = str(caught.value)
    assert "Foo with domain_version of 20 (2 nodes)" in text and "Bar" in text
    assert "Sigmod with domain_version of 20; did you mean 'Sigmoid'?" in text


def test_domains_that_onnxruntime_takes_for_imported() -> None:
    model = model_of([helper.make_node("Foo", ["x"], ["y"], domain="com.microsoft")], ["x"], ["y"])
    with pytest.raises(errors.Fail, match=r"com.microsoft:Foo\(-1\) is not a registered function/op"):
        load(model)


# ---------------------------------------------------------------------------------------------- models that are right


def test_nodes_are_sorted() -> None:
    model = model_of([relu("b", "y"), relu("a", "b"), relu("x", "a")], ["x"], ["y"])
    graph = load(model).graph
    assert [node.name for node in graph] == ["x_to_a", "a_to_b", "b_to_y"]
    np.testing.assert_array_equal(evaluate(graph, {"x": X})[0], np.maximum(X, 0))


def test_declared_shape_that_is_wrong_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"output 'y' is declared with the shape \[7\], but is float\[2,3\]"):
        load(model_of([relu("x", "y")], ["x"], [tensor_input("y", (7,))]))


def test_declared_shape_that_holds_for_some_sizes_is_none_to_warn_of(recwarn: pytest.WarningsRecorder) -> None:
    """The batch of such a model is always 1: the file knows it, and no operator tells."""
    nodes = [helper.make_node("Squeeze", ["x"], ["y"]), helper.make_node("Add", ["x", "bias"], ["z"])]
    outputs = [tensor_input("y", (2,)), tensor_input("z", (1, 4, 2))]
    bias = numpy_helper.from_array(np.zeros((3, 4, 2), np.float32), "bias")
    load(model_of(nodes, [tensor_input("x", ("b", 1, 2))], outputs, [bias]))
    assert not recwarn.list


def test_what_a_model_says() -> None:
    proto = add_model()
    proto.producer_name, proto.domain, proto.model_version = "maker", "org", 7
    proto.doc_string, proto.graph.doc_string = "about", "about the graph"
    helper.set_model_props(proto, {"key": "value"})
    model = load(proto)
    assert model.metadata == ModelMetadata("maker", "g", "org", "about", "about the graph", 7, {"key": "value"})
    assert (model.ir_version, model.opset_imports) == (10, {"": 20})
    assert [(d.name, d.type, d.shape) for d in model.inputs] == [("x", "tensor(float)", (2, 3))]
    assert [(d.name, d.type, d.dtype, d.shape) for d in model.outputs] == [("y", "tensor(float)", DType.FLOAT, (2, 3))]


@pytest.mark.parametrize(("ir_version", "names"), [(3, []), (4, ["w"]), (10, ["w"])])
def test_initializers_that_are_inputs(ir_version: int, names: list[str]) -> None:
    proto = add_model()
    proto.ir_version = ir_version
    proto.graph.input.append(tensor_input("w"))
    model = load(proto)
    assert [d.name for d in model.inputs] == ["x"] and [v.name for v in model.graph.inputs] == ["x"]
    assert [d.name for d in model.overridable] == names
    np.testing.assert_array_equal(evaluate(model.graph, {"x": X})[0], RESULT)


@pytest.mark.conformance("ir-before-opsets")
def test_the_oldest_models_have_no_operator_sets() -> None:
    proto = model_of([helper.make_node("Relu", ["x"], ["y"], consumed_inputs=[0])], ["x"], ["y"], ir_version=1)
    del proto.opset_import[:]
    for attribute in proto.graph.node[0].attribute:
        attribute.ClearField("type")
    np.testing.assert_array_equal(evaluate(load(proto).graph, {"x": X})[0], np.maximum(X, 0))


SOFTMAX = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
"""Before 13 a Softmax without an axis is one over all axes but the first, since 13 over the last."""


@pytest.mark.parametrize("imports", [(("", 12), ("", 13)), (("", 13), ("", 12)), (("ai.onnx", 13), ("", 12))])
def test_a_domain_imported_twice_binds_to_the_highest_version(imports: tuple[tuple[str, int], ...]) -> None:
    proto = model_of([helper.make_node("Softmax", ["x"], ["y"])], [tensor_input("x", (2, 3, 4))],
                     [tensor_input("y", (2, 3, 4))])  # fmt: skip
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(*entry) for entry in imports)
    model = load(proto)
    assert model.opset_imports == {"": 13}
    (y,) = evaluate(model.graph, {"x": SOFTMAX})
    np.testing.assert_allclose(y.sum(axis=-1), np.ones((2, 3)), rtol=1e-6)


def test_outputs_may_be_inputs_and_constants() -> None:
    proto = model_of([], ["x"], ["x", "w"], [numpy_helper.from_array(X, "w")])
    first, second = evaluate(load(proto).graph, {"x": X + 1})
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(second, X)


# ---------------------------------------------------------------------------------------------- dimensions


def test_dimension_variables() -> None:
    shape = ["batch", "batch size", "class", "max", "2*n", None, -1, 0, 3, "batch", ""]
    proto = model_of([relu("x", "y")], [tensor_input("x", shape)], [tensor_input("y", None)])
    model = load(proto)
    (x,) = model.graph.inputs
    names = [str(dim) if isinstance(dim, Dim) else dim for dim in x.shape]
    assert names == ["batch", "batch_size", "dim_class", "dim_max", "dim_2_n", "x_5", "x_6", 0, 3, "batch", "x_10"]
    assert model.dimensions["batch_size"] == "batch size" and model.dimensions["dim_max"] == "max"
    assert model.inputs[0].shape == ("batch", "batch size", "class", "max", "2*n", None, None, 0, 3, "batch", None)
    assert model.graph.outputs[0].shape == x.shape


def test_dimensions_that_look_alike_stay_apart() -> None:
    proto = model_of([], [tensor_input("x", ["a b", "a_b", "a-b"])], [tensor_input("x", None)])
    assert load(proto).graph.inputs[0].shape == (variable("a_b"), variable("a_b_2"), variable("a_b_3"))


def test_unknown_rank() -> None:
    model = load(model_of([relu("x", "y")], [tensor_input("x", None)], [tensor_input("y", None)]))
    assert model.graph.inputs[0].type == TensorType(DType.FLOAT, None)
    np.testing.assert_array_equal(evaluate(model.graph, {"x": X})[0], np.maximum(X, 0))


# ---------------------------------------------------------------------------------------------- memory

MEASURE = """
import resource, sys
from jitonnx.model import load
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
model = load(sys.argv[1])
print(peak() - before)
"""


def test_the_size_of_a_tensor_of_unknown_rank() -> None:
    """It is asked of a reshaped tensor whose rank only a run tells."""
    shape = tensor_input("s", ("n",), TensorProto.INT64)
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["h"]),
        helper.make_node("Add", ["h", "h"], ["k"]),
        helper.make_node("Size", ["k"], ["y"]),
    ]
    model = model_of(nodes, ["x", shape], [tensor_input("y", (), TensorProto.INT64)])
    (y,) = jitonnx.InferenceSession(model.SerializeToString()).run(None, {"x": X, "s": np.array([3, 1, 2])})
    assert y == 6


def test_a_large_file_is_not_copied(tmp_path: Path) -> None:
    """The weights of a mapped file are read when they are used, not when it is loaded."""
    path = tmp_path / "large.onnx"
    weights = np.zeros((64 << 20) // 4, np.float32)
    weights[-1] = 5
    path.write_bytes(
        model_of(
            [helper.make_node("Add", ["x", "w"], ["y"])],
            [tensor_input("x", (1,))],
            [tensor_input("y", None)],
            [numpy_helper.from_array(weights, "w")],
        ).SerializeToString()
    )
    run = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 0.3 * path.stat().st_size
    assert evaluate(load(path).graph, {"x": np.array([1], np.float32)})[0][-1] == 6


def test_attributes_that_onnxruntime_passes_over() -> None:
    """Operators of ONNX's domain that it declares itself take any, as `epsion`, which exporters of BERT wrote."""
    inputs = {"x": (2, 4), "scale": (4,)}
    node = helper.make_node("LayerNormalization", list(inputs), ["y"], axis=-1, epsion=1e-5)
    graph = helper.make_graph(
        [node], "g", [tensor_input(name, shape) for name, shape in inputs.items()], [onnx.ValueInfoProto(name="y")]
    )
    for version in (13, 17):
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
        assert [one.operator.name for one in load(model).graph] == ["LayerNormalization"]


def test_models_that_import_other_domains_alone() -> None:
    """onnxruntime takes its newest operator set of ONNX's own domain for imported."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [tensor_input("x")], [onnx.ValueInfoProto(name="y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("com.microsoft", 1)], ir_version=8)
    assert len(list(load(model).graph)) == 1
