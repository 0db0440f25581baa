"""Products of many rows ask for the weights of products of few rows that follow, and results stay what they were."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.computation.lowering import lower
from jitonnx.explain import explain
from jitonnx.interpreter import evaluate
from jitonnx.kernels.gemm.spec import GemmSpec
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.make import make_plan
from jitonnx.target import host

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
