"""More threads than there are CPUs, as a user may ask for: the same bits as with one, run after run, side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import jitonnx


def model() -> bytes:
    """x, float32 [2, 16, 40, 40]: convolutions with a residual, a mean, products with a long softmax between them, a
    recurrent layer both ways, and the largest of what it gives."""
    random = np.random.default_rng(0)
    shapes = {"w1": (32, 16, 3, 3), "w2": (32, 32, 3, 3), "d": (32, 1, 5, 5), "p": (1600, 512), "q": (512, 96)}
    shapes |= {"wx": (2, 64, 96), "wr": (2, 64, 16)}
    weights = [
        numpy_helper.from_array((random.normal(size=shape) / 9).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1]),
        node("Add", ["b", "c"], ["e"]),
        node("Conv", ["e", "d"], ["f"], pads=[2, 2, 2, 2], group=32),
        node("Reshape", ["f", "rows"], ["g"]),
        node("MatMul", ["g", "p"], ["h"]),
        node("Softmax", ["h"], ["i"], axis=-1),
        node("MatMul", ["i", "q"], ["j"]),
        node("LSTM", ["j", "wx", "wr"], ["k"], hidden_size=16, direction="bidirectional"),
        node("ReduceMax", ["k"], ["y"], axes=[0], keepdims=0),
        node("ReduceMean", ["e"], ["z"], axes=[2, 3], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16, 40, 40])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "iyz"],
        [*weights, numpy_helper.from_array(np.array([32, 2, 1600]), "rows")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def session(threads: int) -> jitonnx.InferenceSession:
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    return jitonnx.InferenceSession(model(), options)


@pytest.mark.parametrize("threads", [8, 16])
def test_results_have_the_same_bits(threads: int) -> None:
    x = np.random.default_rng(1).normal(size=(2, 16, 40, 40)).astype(np.float32)
    expected, many = session(1).run(None, {"x": x}), session(threads)

    def check(_: int) -> None:
        for found, wanted in zip(many.run(None, {"x": x}), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)

    for number in range(3):
        check(number)
    with ThreadPoolExecutor(4) as pool:  # callers of one session that do not wait for each other
        list(pool.map(check, range(8)))
