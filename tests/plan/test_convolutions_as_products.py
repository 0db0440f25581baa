"""Convolutions that are products, from planes of pixels to such, as single nodes have them, and between kernels that
work channels-last: which kernels, and what they compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.computation.lowering import lower
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.make import make_plan
from jitonnx.target.machine import host

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
    assert labels(data) == ["copy", *("copy", "gemm", "copy"), "gemm"]  # few pixels channels-last, many in planes
    for height, width in ((9, 14), (1, 1), (70, 90)):
        check(data, (2, 20, height, width), (1, 12, 1, 1))


PATCHES: tuple[tuple[tuple[int | str, ...], tuple[int, ...], int, dict[str, list[int]], list[str]], ...] = (
    ((1, 3, 32, 48), (16, 16), 24, {}, ["copy", "gemm"]),
    ((2, 3, 33, 47), (4, 9), 17, {}, ["copy", "gemm"]),
    ((1, 5, 12, 40), (1, 8), 17, {"dilations": [3, 1]}, ["copy", "gemm"]),
    ((2, 3, 50), (11,), 9, {}, ["copy", "gemm"]),
    ((2, 3, 4, 20, 33), (2, 10, 16), 13, {}, ["copy", "gemm"]),
    (("n", 3, "h", "w"), (8, 8), 20, {}, ["copy", "gemm"]),
    ((1, 3, 32, 48), (16, 16), 24, {"pads": [0, 0, 1, 0]}, ["convolution"]),
    ((1, 3, 32, 48), (16, 16), 24, {"strides": [16, 15]}, ["convolution"]),
    ((1, 6, 32, 48), (16, 16), 24, {"group": 2}, ["copy", "convolution"]),
    ((1, 3, 12, 16), (4, 4), 24, {}, ["convolution"]),
)
"""The image, kernel and strides, output channels, other attributes, and what the kernels' labels begin with."""


@pytest.mark.parametrize(("shape", "kernel", "outputs", "options", "kernels"), PATCHES, ids=str)
def test_patches(
    shape: tuple[int | str, ...], kernel: tuple[int, ...], outputs: int, options: dict[str, object], kernels: list[str]
) -> None:
    """Windows side by side whose rows are long are the rows of a product."""
    channels = int(shape[1]) // int(str(options.get("group", 1)))
    weights = np.random.default_rng(2).normal(size=(outputs, channels, *kernel)).astype(np.float32)
    result = (1, outputs, *[1] * len(kernel))
    data = model("Conv", shape, weights, result, **{"strides": kernel, **options})
    labelled = labels(data)
    assert labelled[: len(kernels)] == kernels
    assert set(labelled[len(kernels) :]) <= {"copy"}  # to planes, in which the graph's output lies
    for sizes in ((2, 3, 17, 29), (1, 3, 8, 8), (3, 3, 70, 90)) if "n" in shape else (shape,):
        check(data, [int(size) for size in sizes], result)


def between(node: object, shape: Sequence[int | str], given: dict[str, np.ndarray]) -> bytes:
    """The node, from "a" to "b", between convolutions with "first" and "last"; "c" is relu("a")."""
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"]),
        helper.make_node("Relu", ["a"], ["c"]),
        node,
        helper.make_node("Conv", ["b", "last"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, shape)]
    used = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in given.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", 1, None)], used)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def check_between(data: bytes, shape: Sequence[int]) -> None:
    feeds = {"x": np.random.default_rng(4).normal(size=shape).astype(np.float32)}
    (made,) = jitonnx.InferenceSession(data).run(None, feeds)
    (expected,) = evaluate(load(data).graph, feeds)
    np.testing.assert_allclose(made, expected, 1e-4, 5e-4)


@pytest.mark.parametrize(("strides", "copies"), [([1, 1], 0), ([2, 2], 1), ([1, 2], 0), ([2, 1], 1)], ids=str)
def test_pointwise_between_images(strides: list[int], copies: int) -> None:
    """Of rows of 18 pixels, every second pixel is evenly spaced."""
    random = np.random.default_rng(2)
    shapes = {"first": (20, 5, 3, 3), "w": (12, 20, 1, 1), "last": (7, 12, 2, 2)}
    given = {name: random.normal(size=dims) for name, dims in shapes.items()}
    data = between(helper.make_node("Conv", ["c", "w"], ["b"], strides=strides), (2, 5, 17, 20), given)
    assert labels(data) == ["convolution", *["copy"] * copies, "gemm", "convolution"]
    check_between(data, (2, 5, 17, 20))


TRANSPOSED: tuple[tuple[tuple[int | str, ...], int, list[int], dict[str, object], int], ...] = (
    ((1, 5, 8, 9), 11, [2, 2], {}, 4),
    ((3, 5, 8, 9), 35, [2, 3], {}, 6),
    ((2, 5, 30), 11, [4], {}, 4),
    (("n", 5, "h", "w"), 11, [2, 2], {}, 4),
    ((1, 5, 8, 9), 11, [2, 2], {"pads": [0, 0, 1, 1], "output_padding": [1, 1]}, 4),
    ((1, 5, 8, 9), 11, [2, 2], {"pads": [1, 1, 0, 0]}, 0),
    ((1, 5, 8, 9), 11, [2, 2], {"output_padding": [1, 0]}, 0),
    ((1, 5, 8, 9), 10, [2, 2], {"group": 2}, 0),
)
"""The image, the output channels, strides and kernel, other attributes, and how many products."""


@pytest.mark.parametrize(("shape", "outputs", "strides", "options", "products"), TRANSPOSED, ids=str)
def test_transposed_convolution_that_makes_blocks(
    shape: tuple[int | str, ...], outputs: int, strides: list[int], options: dict[str, object], products: int
) -> None:
    """ConvTranspose whose windows do not overlap is a product for each place in them."""
    random, axes = np.random.default_rng(2), len(shape) - 2
    given = {
        "first": random.normal(size=(20, 5, *[2] * axes)),
        "w": random.normal(size=(20, outputs // int(str(options.get("group", 1))), *strides)),
        "bias": random.normal(size=outputs),
        "last": random.normal(size=(7, outputs, *[2] * axes)),
    }
    node = helper.make_node("ConvTranspose", ["c", "w", "bias"], ["b"], strides=strides, **options)
    data = between(node, shape, given)
    middle = ["gemm"] * products or ["transposed"]
    assert labels(data) == ["convolution", *middle, "convolution"]
    check_between(data, [dim if isinstance(dim, int) else size for dim, size in zip(shape, (2, 5, 7, 6), strict=False)])


@pytest.mark.parametrize("added", [(2, 12, 18, 16), (2, 12, 1, 1), (1, 1, 18, 1), (1, 12, 1, 1)], ids=str)
def test_transposed_convolution_with_a_sum(added: tuple[int, ...]) -> None:
    """What is added may differ from place to place or from image to image: the blocks are not products then."""
    random = np.random.default_rng(2)
    given = {"first": random.normal(size=(20, 5, 1, 1)), "w": random.normal(size=(20, 12, 2, 2))}
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"]),
        helper.make_node("Relu", ["a"], ["c"]),
        helper.make_node("ConvTranspose", ["c", "w"], ["b"], strides=[2, 2]),
        helper.make_node("Add", ["b", "r"], ["d"]),
        helper.make_node("LRN", ["d"], ["y"], size=3),
    ]
    shapes = {"x": (2, 5, 9, 8), "r": added}
    inputs = [helper.make_tensor_value_info(name, 1, dims) for name, dims in shapes.items()]
    used = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in given.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", 1, None)], used)
    opsets = [helper.make_opsetid("", 18)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    assert ("transposed" in labels(data)) == (added != (1, 12, 1, 1))
    feeds = {name: random.normal(size=dims).astype(np.float32) for name, dims in shapes.items()}
    (made,) = jitonnx.InferenceSession(data).run(None, feeds)
    (expected,) = evaluate(load(data).graph, feeds)
    np.testing.assert_allclose(made, expected, 1e-4, 1e-4)


@pytest.mark.parametrize(("channels", "outputs", "planar"), [(512, 512, False), (24, 40, True)])
def test_open_sizes_by_what_costs_most(channels: int, outputs: int, planar: bool) -> None:
    """Of many channels, small images gain more by copies than large ones lose; of few it is the other way round."""
    data = model(
        "Conv", (1, channels, "h", "w"), np.ones((outputs, channels, 1, 1), np.float32), (1, outputs, "h", "w")
    )
    assert ("copy" not in labels(data)) == planar
