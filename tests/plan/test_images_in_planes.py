"""Convolutions from planes of pixels to such, as single nodes have them: which kernels, and what they compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.ir.lowering import lower
from jitonnx.model import evaluate, load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.make import make_plan
from jitonnx.target import host

POINTWISE: tuple[tuple[tuple[int, ...], int, dict[str, list[int]], list[str]], ...] = (
    ((1, 20, 24, 24), 12, {}, ["gemm"]),
    ((2, 20, 24, 23), 12, {}, ["gemm"]),
    ((1, 20, 24, 30), 16, {"strides": [2, 2]}, ["copy", "gemm"]),
    ((2, 20, 25, 31), 12, {"strides": [2, 2]}, ["copy", "gemm"]),
    ((2, 20, 25, 31), 12, {"strides": [1, 3]}, ["copy", "gemm"]),
    ((2, 20, 25, 31), 12, {"strides": [2, 1]}, ["copy", "gemm"]),
    ((1, 20, 101), 12, {"strides": [2]}, ["copy", "gemm"]),
    ((1, 8, 9, 10, 11), 12, {"strides": [2, 2, 3]}, ["copy", "gemm"]),
    ((1, 20, 24, 24), 12, {"strides": [2, 2], "pads": [1, 1, 0, 0]}, ["copy", "convolution"]),
)
"""The image, the output channels, attributes, and what the kernels' labels begin with."""


def model(
    operator: str, shape: Sequence[int | str], weights: np.ndarray, result: Sequence[int], **options: object
) -> bytes:
    """relu(operator(x, weights) + bias + r)."""
    channels = weights.shape[1] if operator == "ConvTranspose" else weights.shape[0]
    random = np.random.default_rng(3)
    given = {"w": weights, "bias": random.normal(size=channels).astype(np.float32)}
    nodes = [
        helper.make_node(operator, ["x", "w", "bias"], ["a"], **options),
        helper.make_node("Add", ["a", "r"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info(name, 1, dims) for name, dims in (("x", shape), ("r", result))]
    used = [numpy_helper.from_array(array, name) for name, array in given.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", 1, None)], used)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def labels(data: bytes) -> list[str]:
    graph = load(data).graph
    optimize(graph, 99)
    return [call.label.split()[0] for call in make_plan(lower(graph), host()).calls]


def check(data: bytes, shape: Sequence[int], result: Sequence[int]) -> None:
    random = np.random.default_rng(4)
    feeds = {name: random.normal(size=dims).astype(np.float32) for name, dims in (("x", shape), ("r", result))}
    (made,) = jitonnx.InferenceSession(data).run(None, feeds)
    (expected,) = evaluate(load(data).graph, feeds)
    np.testing.assert_allclose(made, expected, 1e-4, 1e-4)


@pytest.mark.parametrize(("shape", "outputs", "options", "kernels"), POINTWISE, ids=str)
def test_pointwise(shape: tuple[int, ...], outputs: int, options: dict[str, list[int]], kernels: list[str]) -> None:
    """Convolutions of one tap, of all pixels or of some."""
    axes = len(shape) - 2
    strides, pads = options.get("strides", [1] * axes), options.get("pads", [0] * 2 * axes)
    size = [(dim + sum(pads[axis::axes]) - 1) // strides[axis] + 1 for axis, dim in enumerate(shape[2:])]
    weights = np.random.default_rng(2).normal(size=(outputs, shape[1], *[1] * axes)).astype(np.float32)
    result = (shape[0], outputs, *size)
    data = model("Conv", shape, weights, result, **options)
    assert labels(data) == kernels
    check(data, shape, result)


def test_pointwise_of_an_unknown_size() -> None:
    weights = np.random.default_rng(2).normal(size=(12, 20, 1, 1)).astype(np.float32)
    data = model("Conv", ("n", 20, "h", "w"), weights, (1, 12, 1, 1), strides=[2, 2])
    assert labels(data) == ["copy", "gemm"]
    check(data, (2, 20, 9, 14), (1, 12, 1, 1))


@pytest.mark.parametrize(("strides", "copies"), [([1, 1], 0), ([2, 2], 1), ([1, 2], 0), ([2, 1], 1)], ids=str)
def test_pointwise_between_images(strides: list[int], copies: int) -> None:
    """The same between kernels that work channels-last. Of rows of 18 pixels, every second pixel is evenly spaced."""
    random = np.random.default_rng(2)
    given = {
        "first": random.normal(size=(20, 5, 3, 3)),
        "w": random.normal(size=(12, 20, 1, 1)),
        "last": random.normal(size=(7, 12, 3, 3)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["b"], strides=strides),
        helper.make_node("Conv", ["b", "last"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, [2, 5, 17, 20])]
    used = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in given.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", 1, None)], used)
    opsets = [helper.make_opsetid("", 18)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    assert labels(data) == ["convolution", *["copy"] * copies, "gemm", "convolution"]
    feeds = {"x": random.normal(size=(2, 5, 17, 20)).astype(np.float32)}
    (made,) = jitonnx.InferenceSession(data).run(None, feeds)
    (expected,) = evaluate(load(data).graph, feeds)
    np.testing.assert_allclose(made, expected, 1e-4, 2e-4)
