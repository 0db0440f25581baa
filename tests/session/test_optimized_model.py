"""Models that sessions write (`SessionOptions.optimized_model_filepath`): sound, and the same as the original."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import jitonnx
from bench import zoo
from bench.models import difference
from jitonnx.engine.interpreter import evaluate
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.dims import Dim
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.schema import text_of
from jitonnx.model import Model, load
from jitonnx.model.optimized import optimize_file, write_optimized
from jitonnx.ops.registry import registry
from jitonnx.support.metadata import ModelMetadata
from tests.plan.random_graphs import Recipe, recipes
from tests.plan.random_steps import ELEMENTWISE, FLOATS, MIXED, MOVEMENT, ROWS, VISION
from tests.session.bodies import assert_same, bytes_of, constant, graph, numbers
from tests.session.models import BOOL, FLOAT, INT64, STRING, model, node, proto, relu_add, tensor

LEVELS = [0, 1, 99]
CPU = ["CPUExecutionProvider"]


def written(source: Any, folder: Path, level: int = 99, **entries: str) -> Path:
    """The file that a session writes of a model, which the checker of the onnx package finds sound."""
    options = jitonnx.SessionOptions()
    options.optimized_model_filepath = str(folder / "written.onnx")
    options.graph_optimization_level = jitonnx.GraphOptimizationLevel(level)
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    jitonnx.InferenceSession(source, options)
    onnx.checker.check_model(folder / "written.onnx", full_check=True)
    return folder / "written.onnx"


def check(source: Any, folder: Path, *feeds: dict[str, Any], levels: Sequence[int] = LEVELS) -> onnx.ModelProto:
    """What is written of a model at the last level, whose outputs are the model's in onnxruntime, and in jitonnx."""
    original = onnxruntime.InferenceSession(source, providers=CPU)
    expected = [original.run(None, feed) for feed in feeds]
    for level in levels:
        path = written(source, folder, level)
        theirs, ours = onnxruntime.InferenceSession(path, providers=CPU), jitonnx.InferenceSession(path)
        for side in ("get_inputs", "get_outputs", "get_overridable_initializers"):
            named = [(each.name, each.type) for each in getattr(original, side)()]
            assert [(each.name, each.type) for each in getattr(theirs, side)()] == named
        for feed, results in zip(feeds, expected, strict=True):
            for one, other, result in zip(theirs.run(None, feed), ours.run(None, feed), results, strict=True):
                assert_same(one, result)
                assert_same(other, result)
    return onnx.load(path)


def operators(made: onnx.ModelProto) -> list[str]:
    return [each.op_type for each in made.graph.node]


def opset(made: onnx.ModelProto) -> int:
    return next(each.version for each in made.opset_import if not each.domain)


# ---------------------------------------------------------------- whole models


SMALL = ("gru_ctc", "lstm_tagger", "mlp_tiny", "mobilenet_v2", "squeezenet1_1", "unet_gn")
NAMES = [pytest.param(name, marks=() if name in SMALL else pytest.mark.slow) for name in zoo.names()]


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_models(name: str, tmp_path: Path) -> None:
    (path,) = zoo.materialize(tmp_path, [name])
    made = tmp_path / "written.onnx"
    optimize_file(str(path), str(made), 99)
    onnx.checker.check_model(made, full_check=True)
    feeds = zoo.feeds(name)
    expected = onnxruntime.InferenceSession(path, providers=CPU).run(None, feeds)
    assert difference(onnxruntime.InferenceSession(made, providers=CPU).run(None, feeds), expected) <= 1e-5


KINDS = {
    "floats": recipes(FLOATS),
    "vision": recipes(VISION),
    "integers": recipes(MIXED, integers=True),
    "variable sizes": recipes(FLOATS, variable=True),
    "no elements": recipes((*ELEMENTWISE, *MOVEMENT, *ROWS), empty=True),
}


def as_model(graph: Graph) -> Model:
    """A model of a graph of the newest operator set."""

    def declared(value: Value) -> Declaration:
        shape = tuple(str(dim) if isinstance(dim, Dim) else dim for dim in value.shape)
        return Declaration(value.name, str(text_of(value.type)), value.dtype, shape)

    outputs = [Declaration(f"result_{n}", str(text_of(v.type)), v.dtype, None) for n, v in enumerate(graph.outputs)]
    metadata = ModelMetadata("", "random", "", "", "", 1, {})
    return Model(graph, {"": 23}, 11, metadata, list(map(declared, graph.inputs)), outputs)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
def test_random_graphs(kind: str, data: st.DataObject, tmp_path: Path) -> None:
    recipe: Recipe = data.draw(KINDS[kind])
    for level in (0, 99):
        build = recipe.build()
        write_optimized(as_model(build.graph), str(tmp_path / "random.onnx"), registry, level=level)
        onnx.checker.check_model(tmp_path / "random.onnx", full_check=True)
        for feeds in [recipe.feeds(size) for size in (3, 1)] if kind == "variable sizes" else [build.feeds]:
            results = run_random(tmp_path / "random.onnx", feeds, theirs=kind != "no elements")
            for result, wanted in zip(results, evaluate(build.graph, feeds), strict=True):
                assert result.dtype == wanted.dtype and result.shape == wanted.shape
                scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3) if wanted.dtype.kind == "f" else 0
                np.testing.assert_allclose(result, wanted, 2e-4, 2e-4 * scale)


def run_random(path: Path, feeds: dict[str, Any], theirs: bool) -> list[Any]:
    """The outputs in onnxruntime, or, which tensors without elements are too much for it, evaluated on NumPy."""
    if not theirs:
        return evaluate(load(path).graph, feeds)
    session = onnxruntime.InferenceSession(path, providers=CPU)
    return session.run(None, {each.name: feeds[each.name] for each in session.get_inputs()})


# ---------------------------------------------------------------- what a model may be made of


def scalar(name: str, kind: int = FLOAT) -> Any:
    return tensor(name, (), kind)


def test_what_a_file_says_is_kept(tmp_path: Path) -> None:
    """Metadata, names of dimensions, inputs with defaults, outputs that are inputs, constants or one another."""
    source = proto(
        [node("Add", ["x", "bias"], ["a"]), node("Identity", ["a"], ["b"])],
        [tensor("x", ("batch", 3)), tensor("bias", (3,))],
        [tensor("a", ("batch", 3)), tensor("b", ("batch", 3)), tensor("x", ("batch", 3)), tensor("bias", (3,))],
        {"bias": np.array([1, 2, 3], np.float32)},
        producer_name="maker",
        model_version=7,
        doc_string="about it",
        domain="some.where",
    )
    source.graph.doc_string = "about the graph"
    helper.set_model_props(source, {"key": "value"})
    del source.graph.output[2:]
    feed = {"x": numbers(2, 3)}
    made = check(source.SerializeToString(), tmp_path, feed, {**feed, "bias": numbers(3)})
    for field in ("producer_name", "model_version", "doc_string", "domain"):
        assert getattr(made, field) == getattr(source, field)
    assert made.graph.doc_string == "about the graph" and made.metadata_props[0].value == "value"
    assert made.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [each.name for each in made.graph.input] == ["x", "bias"]


def test_basic_level_leaves_what_onnxruntime_leaves(tmp_path: Path) -> None:
    """Operators of onnxruntime's own, shapes as exporters compute them, equal products; what does nothing goes."""
    weights = {"w": numbers(3, 4), "w2": numbers(3, 4), "b": numbers(4), "zero": np.zeros((), np.float32)}
    nodes = [
        helper.make_node("FastGelu", ["x"], ["g"], name="gelu", domain="com.microsoft"),
        node("Identity", ["g"], ["copy"]),
        node("Add", ["copy", "zero"], ["sum"]),
        node("MatMul", ["sum", "w"], ["m"]),
        node("MatMul", ["sum", "w2"], ["m2"]),
        node("Add", ["m", "b"], ["biased"]),
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "first"], ["rows"], axis=0),
        node("Add", ["four", "four"], ["eight"]),
        node("Unsqueeze", ["rows", "axis"], ["rows_vector"]),
        node("Concat", ["rows_vector", "two", "two"], ["shape"], axis=0),
        node("Reshape", ["biased", "shape"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        node("ReduceSum", ["t"], ["total"], keepdims=1),
        node("Mul", ["total", "eight"], ["y"]),
    ]
    integers = {"first": np.array(0), "axis": np.array([0]), "two": np.array([2])}
    source = proto(
        nodes,
        [tensor("x", ("N", 3))],
        [tensor("y", (1, 1, 1)), tensor("m2", ("N", 4))],
        {**weights, **integers, "four": np.array(4, np.float32)},
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
    )
    source.graph.value_info.append(tensor("m", ("N", 4)))
    made = check(source.SerializeToString(), tmp_path, {"x": numbers(5, 3)}, levels=[1])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "theirs.onnx")
    apart = ["MatMulAddFusion", "ReshapeFusion"]  # what its level 1 fuses, too
    onnxruntime.InferenceSession(source.SerializeToString(), options, CPU, disabled_optimizers=apart)
    assert sorted(operators(made)) == sorted(operators(onnx.load(tmp_path / "theirs.onnx")))
    assert "FastGelu" in operators(made) and "Identity" not in operators(made)
    known = [each.name for each in onnx.load(tmp_path / "theirs.onnx").graph.initializer]
    assert [each.name for each in made.graph.initializer if each.name in known][:3] == known[:3]
    assert [each.name for each in made.graph.value_info] == ["m"]
    (reduction,) = (each for each in made.graph.node if each.op_type == "ReduceSum")
    assert [each.name for each in reduction.attribute] == ["keepdims"] and not reduction.HasField("domain")


def test_attributes_that_mean_nothing_are_kept(tmp_path: Path) -> None:
    """onnxruntime passes over attributes of its own operators in ONNX's domain, and writes them."""
    nodes = [helper.make_node("LayerNormalization", ["x", "s"], ["y"], name="norm", epsilon=1e-3, epsion=1e-5)]
    source = proto(nodes, [tensor("x", ("N", 3))], [tensor("y", ("N", 3))], {"s": numbers(3)})
    made = check(source.SerializeToString(), tmp_path, {"x": numbers(5, 3)}, levels=[1])
    told = {one.name: one.f for one in made.graph.node[0].attribute}
    assert told == pytest.approx({"epsilon": 1e-3, "epsion": 1e-5})


def test_outputs_without_a_node(tmp_path: Path) -> None:
    nodes = [node("Identity", ["x"], ["y"]), node("Shape", ["x"], ["z"]), node("Relu", ["one"], ["u"])]
    outputs = [tensor("y"), tensor("z", (2,), INT64), tensor("u", (1,))]
    check(model(nodes, [tensor("x")], outputs, {"one": np.ones(1, np.float32)}), tmp_path, {"x": numbers(2, 3)})


def test_open_sizes_are_computed(tmp_path: Path) -> None:
    """Shapes that follow from the input's, with quotients of differences that may be negative, and maxima."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"]),
        node("Sub", ["n", "three"], ["d"]),
        node("Div", ["d", "two"], ["q"]),
        node("Max", ["q", "one"], ["m"]),
        node("Concat", ["m", "two"], ["c"], axis=0),
        node("Expand", ["value", "c"], ["e"]),
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("Reshape", ["t", "flat"], ["r"]),
    ]
    constants = {"one": [1], "two": [2], "three": [3], "flat": [-1, 4], "value": np.ones(1, np.float32)}
    outputs = [tensor("e", (None, None)), tensor("r", (None, 4))]
    source = model(nodes, [tensor("x", ("a", "b", 4))], outputs, constants)
    check(source, tmp_path, *({"x": numbers(a, b, 4)} for a in (1, 2) for b in (1, 2, 3, 7)))


def test_nothing_is_assumed_of_sizes(tmp_path: Path) -> None:
    """Two variables that are broadcast may be equal, or one of them 1; an axis that is squeezed away may stay."""
    nodes = [
        node("Add", ["x", "y"], ["sum"]),
        node("Shape", ["sum"], ["s"]),
        node("Expand", ["x", "s"], ["e"]),
        node("Reshape", ["e", "flat"], ["r"]),
        node("Squeeze", ["x"], ["q"]),
        node("Size", ["q"], ["size"]),
    ]
    outputs = [tensor("sum", (None, 3)), tensor("r", (None,)), scalar("size", INT64)]
    source = model(nodes, [tensor("x", ("a", 3)), tensor("y", ("b", 3))], outputs, {"flat": [-1]})
    sizes = [(2, 2), (1, 4), (4, 1), (1, 1)]
    check(source, tmp_path, *({"x": numbers(a, 3), "y": numbers(b, 3)} for a, b in sizes))


BROADCAST: dict[str, tuple[Any, list[Any], list[tuple[int, ...]]]] = {
    "Gemm": (
        node("Gemm", ["x", "y", "z"], ["r"]),
        [("a", "b"), ("b", "c"), ("d", "e")],
        [(2, 3, 3, 4, 1, 1), (2, 3, 3, 4, 2, 4), (2, 3, 3, 4, 2, 1), (1, 3, 3, 1, 1, 1)],
    ),
    "MatMul": (
        node("MatMul", ["x", "y"], ["r"]),
        [("a", "b", "c"), ("d", "c", "e")],
        [(1, 2, 3, 4, 3, 5), (4, 2, 3, 1, 3, 5), (4, 2, 3, 4, 3, 5), (1, 1, 1, 1, 1, 1)],
    ),
    "Einsum": (
        node("Einsum", ["x", "y"], ["r"], equation="...ij,...jk->...ik"),
        [("a", "b", "c"), ("d", "c", "e")],
        [(1, 2, 3, 4, 3, 5), (4, 2, 3, 4, 3, 5)],
    ),
    "Max": (
        node("Max", ["x", "y", "z"], ["r"]),
        [("a",), ("b", "c"), ("d", 2)],
        [(2, 3, 1, 1, 2), (1, 1, 2, 3, 2), (1, 1, 1, 1, 2)],
    ),
}


@pytest.mark.parametrize("name", BROADCAST)
def test_open_sizes_that_are_broadcast(name: str, tmp_path: Path) -> None:
    made, shapes, feeds = BROADCAST[name]
    names = ["x", "y", "z"][: len(shapes)]
    nodes = [made, node("Shape", ["r"], ["s"]), node("Relu", ["r"], ["t"]), node("Reshape", ["t", "s"], ["u"])]
    inputs = [tensor(one, shape) for one, shape in zip(names, shapes, strict=True)]
    source = model(nodes, inputs, [tensor("u", (None,) * max(map(len, shapes)))])
    for sizes in feeds:
        given = iter(sizes)
        fed = {one: numbers(*(next(given) for _ in shape)) for one, shape in zip(names, shapes, strict=True)}
        check(source, tmp_path, fed, levels=[0, 99])


def test_sizes_that_a_run_tells(tmp_path: Path) -> None:
    nodes = [
        node("NonZero", ["x"], ["i"]),
        node("Transpose", ["i"], ["t"]),
        node("Shape", ["t"], ["s"]),
        node("ConstantOfShape", ["s"], ["zeros"]),
        node("Range", ["zero", "count", "step"], ["r"]),
    ]
    constants = {"zero": np.array(0), "step": np.array(2)}
    outputs = [tensor("t", (None, 2), INT64), tensor("zeros", (None, 2)), tensor("r", (None,), INT64)]
    source = model(nodes, [tensor("x"), scalar("count", INT64)], outputs, constants)
    feeds = [{"x": numbers(n, 3) > 0.5, "count": np.array(n * 3)} for n in (0, 2, 5)]
    check(source, tmp_path, *({**feed, "x": feed["x"].astype(np.float32)} for feed in feeds))


def test_control_flow(tmp_path: Path) -> None:
    """A branch within a loop that reads values and sizes of the graphs around it, and weights that several share."""
    weights = constant("w", np.arange(64).reshape(8, 8) / 64, FLOAT)
    branches = [
        graph([node("MatMul", ["h", "w"], [f"p{n}"]), node(kind, [f"p{n}"], [f"r{n}"])], [], [tensor(f"r{n}", None)])
        for n, kind in enumerate(("Tanh", "Relu"))
    ]
    body = graph(
        [
            node("ReduceSum", ["h"], ["total"], keepdims=0),
            node("Greater", ["total", "bound"], ["large"]),
            node("If", ["large"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
            node("Shape", ["x"], ["rows_of_x"]),
            node("Expand", ["chosen", "rows_of_x"], ["spread"]),
            node("Identity", ["going"], ["condition_out"]),
            node("Identity", ["spread"], ["row"]),
        ],
        [scalar("number", INT64), scalar("going", BOOL), tensor("h", None)],
        [scalar("condition_out", BOOL), tensor("spread", None), tensor("row", None)],
    )
    nodes = [weights, constant("bound", 0.5, FLOAT), node("Loop", ["times", "", "x"], ["last", "rows"], body=body)]
    source = bytes_of(
        nodes, [scalar("times", INT64), tensor("x", ("n", 8))], [tensor("last", None), tensor("rows", None)]
    )
    feeds = [{"times": np.array(times), "x": numbers(rows, 8)} for times in (1, 3) for rows in (1, 4)]
    made = check(source, tmp_path, *feeds, levels=[0, 99])
    assert sum(each.dims == [8, 8] for each in made.graph.initializer) == 1, "weights are written once"


def test_scans(tmp_path: Path) -> None:
    body = graph(
        [node("Add", ["s", "e"], ["next"]), node("Mul", ["next", "k"], ["row"])],
        [tensor("s", (3,)), tensor("e", (3,))],
        [tensor("next", (3,)), tensor("row", (3,))],
    )
    nodes = [
        constant("k", [1.0, 2.0, 3.0], FLOAT),
        node("Scan", ["start", "x"], ["final", "rows"], body=body, num_scan_inputs=1, scan_input_directions=[1]),
    ]
    outputs = [tensor("final", (3,)), tensor("rows", ("n", 3))]
    source = bytes_of(nodes, [tensor("start", (3,)), tensor("x", ("n", 3))], outputs)
    check(source, tmp_path, {"start": numbers(3), "x": numbers(4, 3)})


def test_strings_and_sequences(tmp_path: Path) -> None:
    nodes = [
        node("StringConcat", ["text", "text"], ["twice"]),
        node("SplitToSequence", ["x", "two"], ["parts"], axis=0),
        node("SequenceInsert", ["parts", "x"], ["more"]),
        node("ConcatFromSequence", ["more"], ["joined"], axis=0),
    ]
    sequence = helper.make_tensor_sequence_value_info("more", FLOAT, None)
    outputs = [tensor("twice", (None,), STRING), sequence, tensor("joined", (None, 3))]
    source = model(nodes, [tensor("text", (2,), STRING), tensor("x", (None, 3))], outputs, {"two": np.array(2)})
    feed = {"text": np.array(["ä b", "Ccc"], object), "x": numbers(5, 3)}
    original = onnxruntime.InferenceSession(source, providers=CPU).run(None, feed)
    for level in LEVELS:
        path = written(source, tmp_path, level)
        for result in (onnxruntime.InferenceSession(path, providers=CPU), jitonnx.InferenceSession(path)):
            twice, more, joined = result.run(None, feed)
            assert twice.tolist() == original[0].tolist()
            assert_same(more, original[1])
            assert_same(joined, original[2])


def test_recurrent_layers(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weights = {"w": rng.random((1, 16, 3)), "r": rng.random((1, 16, 4)), "b": rng.random((1, 32))}
    nodes = [node("LSTM", ["x", "w", "r", "b"], ["", "h"], hidden_size=4)]
    constants = {name: array.astype(np.float32) for name, array in weights.items()}
    source = model(nodes, [tensor("x", ("t", "n", 3))], [tensor("h", (1, None, 4))], constants)
    check(source, tmp_path, {"x": numbers(5, 2, 3)})


def test_quantised_models_keep_their_integers(tmp_path: Path) -> None:
    """Weights stay integers, so that another runtime still finds the pattern that it computes with integers."""
    weights = np.arange(-12, 12, dtype=np.int8).reshape(4, 6)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        node("DequantizeLinear", ["w", "s", "zw"], ["wd"]),
        node("MatMul", ["xd", "wd"], ["p"]),
        node("QuantizeLinear", ["p", "s", "z"], ["pq"]),
        node("DequantizeLinear", ["pq", "s", "z"], ["y"]),
    ]
    constants = {"w": weights, "s": np.float32(0.1), "z": np.uint8(128), "zw": np.int8(0)}
    source = model(nodes, [tensor("x", ("n", 4))], [tensor("y", ("n", 6))], constants)
    made = check(source, tmp_path, {"x": numbers(3, 4)})
    assert operators(made) == [each.op_type for each in nodes]
    kept = [numpy_helper.to_array(each) for each in made.graph.initializer if each.data_type == TensorProto.INT8]
    assert any(np.array_equal(array, weights) for array in kept)


OLD: dict[str, tuple[int, list[Any], dict[str, Any]]] = {
    "Softmax": (11, [node("Softmax", ["x"], ["y"], axis=1)], {}),
    "LogSoftmax": (7, [node("LogSoftmax", ["x"], ["y"], axis=1)], {}),
    "Resize": (
        10,
        [node("Resize", ["x", "scales"], ["y"], mode="nearest")],
        {"scales": np.array([1, 1, 2, 0.5], np.float32)},
    ),
    "Upsample": (
        9,
        [node("Upsample", ["x", "scales"], ["y"], mode="nearest")],
        {"scales": np.array([1, 1, 2, 3], np.float32)},
    ),
    "Scatter": (
        10,
        [node("Scatter", ["x", "at", "x"], ["y"], axis=2)],
        {"at": np.random.default_rng(1).permuted(np.tile(np.arange(4), (2, 3, 4, 1)), axis=2).swapaxes(2, 3)},
    ),
    "Clip": (7, [node("Clip", ["x"], ["y"], min=-0.5, max=0.5)], {}),
    "Split": (
        7,
        [node("Split", ["x"], ["a", "b"], axis=2), node("Sub", ["a", "b"], ["y"])],
        {},
    ),
    "ReduceSum": (11, [node("ReduceSum", ["x"], ["y"], axes=[1, 2])], {}),
    "BatchNormalization": (
        7,
        [node("BatchNormalization", ["x", "s", "s", "s", "s"], ["y"])],
        {"s": np.arange(1, 4, dtype=np.float32)},
    ),
    "GroupNormalization": (
        18,
        [node("GroupNormalization", ["x", "s", "s"], ["y"], num_groups=3)],
        {"s": np.arange(1, 4, dtype=np.float32)},
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_older_versions(name: str, tmp_path: Path) -> None:
    version, nodes, constants = OLD[name]
    kinds = {"opset_imports": [helper.make_opsetid("", version)], "ir_version": 4 if version < 15 else 8}
    source = model(nodes, [tensor("x", (2, 3, 4, 4))], [tensor("y", None)], constants, **kinds)
    made = check(source, tmp_path, {"x": numbers(2, 3, 4, 4)})
    assert opset(made) >= version


def test_one_hot_of_version_9(tmp_path: Path) -> None:
    source = model(
        [node("OneHot", ["at", "depth", "values"], ["y"])],
        [tensor("at", (4,), INT64)],
        [tensor("y", (4, 3))],
        {"depth": np.array(3), "values": np.array([0, 1], np.float32)},
        opset_imports=[helper.make_opsetid("", 9)],
        ir_version=4,
    )
    path = written(source, tmp_path)
    (result,) = onnxruntime.InferenceSession(path, providers=CPU).run(None, {"at": np.array([0, 2, -1, 3])})
    assert result.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]


def test_the_operator_set_is_the_models_own_or_the_next(tmp_path: Path) -> None:
    relu = [node("Relu", ["x"], ["y"])]
    for version in (9, 14, 20):
        source = model(relu, [tensor("x")], [tensor("y")], opset_imports=[helper.make_opsetid("", version)])
        assert opset(onnx.load(written(source, tmp_path))) == version
    clip = [node("Clip", ["x"], ["y"], max=6.0)]
    source = model(clip, [tensor("x")], [tensor("y")], opset_imports=[helper.make_opsetid("", 7)])
    assert opset(onnx.load(written(source, tmp_path))) == 11, "from which on bounds are inputs"


# ---------------------------------------------------------------- where it is written


def wide() -> bytes:
    """x [n, 64] times weights of 16 KB."""
    weights = {"w": numbers(64, 64), "b": numbers(64)}
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    return model(nodes, [tensor("x", ("n", 64))], [tensor("y", ("n", 64))], weights)


def test_large_initializers_lie_in_a_file_of_their_own(tmp_path: Path) -> None:
    key = "optimized_model_external_initializers"
    path = written(wide(), tmp_path, **{f"{key}_file_name": "weights.bin"})
    assert (tmp_path / "weights.bin").stat().st_size == 4 * 64 * 64 and path.stat().st_size < 2000
    feed = {"x": numbers(3, 64)}
    expected = onnxruntime.InferenceSession(wide(), providers=CPU).run(None, feed)
    for session in (onnxruntime.InferenceSession(path, providers=CPU), jitonnx.InferenceSession(path)):
        assert_same(session.run(None, feed), expected)
    written(wide(), tmp_path, **{f"{key}_file_name": "weights.bin", f"{key}_min_size_in_bytes": "64"})
    assert (tmp_path / "weights.bin").stat().st_size == 4 * 64 * 65
    assert sorted(each.name for each in tmp_path.iterdir()) == ["weights.bin", "written.onnx"]


@pytest.mark.parametrize(
    ("name", "entries", "error", "text"),
    [
        ("none/written.onnx", {}, InvalidArgument, "SystemError : 2"),
        ("written.ort", {}, Fail, r"ends in \.onnx"),
        ("written.onnx", {"save_model_format": "ORT"}, Fail, "format 'ORT'"),
        ("written.onnx", {"optimized_model_external_initializers_file_name": "../w"}, InvalidArgument, "folder"),
        (
            "written.onnx",
            {
                "optimized_model_external_initializers_file_name": "w",
                "optimized_model_external_initializers_min_size_in_bytes": "-1",
            },
            InvalidArgument,
            "number of bytes",
        ),
    ],
)
def test_errors(name: str, entries: dict[str, str], error: type[Exception], text: str, tmp_path: Path) -> None:
    options = jitonnx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / name)
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    with pytest.raises(error, match=text):
        jitonnx.InferenceSession(relu_add(), options)
    assert list(tmp_path.iterdir()) == []


def test_what_no_operator_says_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    """The operators of version 8 whose samples have lengths of their own are not in any newer one."""
    body = graph([node("Identity", ["e"], ["row"])], [tensor("e", (3,))], [tensor("row", (3,))])
    made = helper.make_model(
        graph([node("Scan", ["lengths", "x"], ["y"], body=body, num_scan_inputs=1)],
              [tensor("lengths", ("n",), INT64), tensor("x", ("n", "t", 3))], [tensor("y", ("n", "t", 3))]),
        opset_imports=[helper.make_opsetid("", 8)],
        ir_version=4,
    )  # fmt: skip
    path = written(made.SerializeToString(), tmp_path)  # under its own version it can be said
    assert opset(onnx.load(path)) == 8
    made.opset_import[0].version = 8
    made.graph.node.append(node("Clip", ["y"], ["z"], min=0.0))
    made.graph.output.append(tensor("z", ("n", "t", 3)))
    path.unlink()
    with pytest.raises(Fail, match=r"operator set 'ai\.onnx'"):
        written(made.SerializeToString(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_model_may_be_written_in_its_own_place(tmp_path: Path) -> None:
    path = tmp_path / "written.onnx"
    path.write_bytes(wide())
    options = jitonnx.SessionOptions()
    options.optimized_model_filepath = str(path)
    session = jitonnx.InferenceSession(path, options)
    feed = {"x": numbers(3, 64)}
    assert_same(jitonnx.InferenceSession(path).run(None, feed), session.run(None, feed))
    assert list(tmp_path.iterdir()) == [path]
