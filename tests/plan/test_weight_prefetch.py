"""Products of many rows ask for the weights of products of few rows that follow, and results stay what they were."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.computation.lowering import lower
from jitonnx.kernels.gemm.spec import GemmSpec
from jitonnx.kernels.recurrent.spec import RecurrentSpec
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.make import make_plan
from jitonnx.target.machine import host
from jitonnx.tools.explain import explain
from tests.targets import named

_CLASSES = 700


def classifier(rows: int | str, seed: int = 0) -> bytes:
    """Two products of `rows` rows, 96 -> 256 -> 128, the mean of these, and two products of that row, -> 700 -> 5."""
    random = np.random.default_rng(seed)
    shapes = {"w1": (96, 256), "w2": (256, 128), "w3": (128, _CLASSES), "w4": (_CLASSES, 5), "b": (256,)}
    weights = [numpy_helper.from_array(random.normal(size=s).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["c"]),
        helper.make_node("MatMul", ["c", "w2"], ["d"]),
        helper.make_node("ReduceMean", ["d", "first"], ["e"], keepdims=1),
        helper.make_node("MatMul", ["e", "w3"], ["f"]),
        helper.make_node("Tanh", ["f"], ["g"]),
        helper.make_node("MatMul", ["g", "w4"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", 1, [rows, 96])],
        [helper.make_tensor_value_info("y", 1, None)],
        [*weights, numpy_helper.from_array(np.array([0]), "first")],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def products(rows: int | str) -> list[KernelCall]:
    """The products of its plan."""
    graph = load(classifier(rows)).graph
    optimize(graph, 99)
    return [call for call in make_plan(lower(graph), host()).calls if isinstance(call.spec, GemmSpec)]


def requests(call: KernelCall) -> list[tuple[int, int, int]]:
    """(buffer, first strip, bytes asked for) of each request of a call that has strips."""
    assert isinstance(call.spec, GemmSpec)
    found, begin = [], 0
    for buffer, number in zip(call.spec.later[::2], call.spec.later[1::2], strict=True):
        place = number - call.spec.size_count
        end, share = call.stage_sizes[place : place + 2]
        assert isinstance(end, int) and isinstance(share, int) and share % 16 == 0 and begin <= end
        if end > begin:
            found.append((buffer, begin, (end - begin) * share * 4))
        begin = end
    return found


def test_weights_are_asked_for_once_by_the_products_before() -> None:
    first, second, wide, narrow = products(196)
    weights = wide.tensors[1]
    assert not requests(wide) and not requests(narrow)
    reached = 0
    for call in (second, first):  # the nearer one begins
        for buffer, _, size in requests(call):
            part = call.tensors[buffer]
            assert part.buffer is weights.buffer
            assert part.offset * 4 == reached
            reached += size
    assert reached >= _CLASSES * 128 * 4
    assert any("asks for" in note for note in second.notes)


@pytest.mark.parametrize("rows", ["rows", 8])
def test_products_of_few_or_unknown_rows_do_not_ask(rows: int | str) -> None:
    assert not any(call.spec.later for call in products(rows) if isinstance(call.spec, GemmSpec))


def layer(kind: str, directions: int, hidden: int, steps: int | str = 60) -> bytes:
    """A recurrent layer of one row."""
    random, gates = np.random.default_rng(0), {"LSTM": 4, "GRU": 3}[kind]
    shapes = {"W": (directions, gates * hidden, 128), "R": (directions, gates * hidden, hidden)}
    weights = [numpy_helper.from_array(random.uniform(-0.1, 0.1, s).astype(np.float32), n) for n, s in shapes.items()]
    direction = "bidirectional" if directions == 2 else "forward"
    node = helper.make_node(kind, ["x", "W", "R"], ["y"], hidden_size=hidden, direction=direction)
    x = helper.make_tensor_value_info("x", 1, [steps, 1, 128])
    graph = helper.make_graph([node], "graph", [x], [helper.make_tensor_value_info("y", 1, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


@pytest.mark.parametrize(
    ("kind", "directions", "hidden", "steps", "cpu", "asked"),
    [
        ("LSTM", 2, 256, 60, "sapphirerapids", 4 * 256 * 256 * 4),
        ("GRU", 1, 256, 60, "sapphirerapids", 3 * 256 * 256 * 4),
        ("LSTM", 2, 256, 60, "znver4", 0),  # whose third-level cache keeps up
        ("LSTM", 1, 512, 60, "sapphirerapids", 0),  # which outgrow the second-level cache
        ("LSTM", 1, 32, 60, "sapphirerapids", 0),
        ("LSTM", 2, 256, "steps", "sapphirerapids", 0),
    ],
)
def test_the_first_direction_of_a_recurrent_layer_is_asked_for_in_the_end(
    kind: str, directions: int, hidden: int, steps: int | str, cpu: str, asked: int
) -> None:
    graph = load(layer(kind, directions, hidden, steps)).graph
    calls = make_plan(lower(graph), named(cpu)).calls
    (product,) = (call for call in calls if isinstance(call.spec, GemmSpec))
    (recurrent,) = (call for call in calls if isinstance(call.spec, RecurrentSpec))
    found = [request for request in requests(product) if request[2]]
    assert bool(found) == bool(asked)
    for buffer, first, size in found:
        part = product.tensors[buffer]
        assert part.buffer is recurrent.tensors[1].buffer and part.offset == 0
        assert asked <= size < asked * 1.1
        assert (first > 0) == (kind == "LSTM")  # strips of a GRU's product hold just what it asks for


@pytest.mark.parametrize(("kind", "directions"), [("LSTM", 2), ("GRU", 1)])
def test_results_of_recurrent_layers(kind: str, directions: int) -> None:
    data = layer(kind, directions, 256)
    x = np.random.default_rng(1).normal(size=(60, 1, 128)).astype(np.float32)
    (result,) = jitonnx.InferenceSession(data).run(None, {"x": x})
    (expected,) = evaluate(load(data).graph, {"x": x})
    np.testing.assert_allclose(result, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [33, 49, 196, 1000])
def test_results(rows: int, threads: int) -> None:
    data = classifier(rows, seed=rows)
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    x = np.random.default_rng(rows).normal(size=(rows, 96)).astype(np.float32)
    (result,) = jitonnx.InferenceSession(data, options).run(None, {"x": x})
    (expected,) = evaluate(load(data).graph, {"x": x})
    np.testing.assert_allclose(result, expected, 1e-4, 1e-4)


def test_weights_asked_for_are_explained() -> None:
    session = jitonnx.InferenceSession(classifier(128))
    kernels = explain(session, {"x": (128, 96)}).kernels
    asking = [kernel for kernel in kernels if any("asks for" in note for note in kernel.notes)]
    assert asking
    assert all(any("asked for ahead" in read.argument for read in kernel.reads) for kernel in asking)
