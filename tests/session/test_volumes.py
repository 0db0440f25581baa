"""Convolutions over three axes: compiled without a cut, and what the node says, for all attributes and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jitonnx
from jitonnx.ops.onnx.convolution import Conv
from tests.session.models import model, node, tensor


def data(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compiled_labels(session: jitonnx.InferenceSession) -> list[str]:
    """The labels of the kernels of a session, none of whose nodes is left to NumPy."""
    assert session.engine.schedule is None
    return [call.label for call in session.engine.compiled.plan.calls]


# Channels, kernel, output channels, spatial size, attributes.
CASES: tuple[tuple[int, tuple[int, int, int], int, tuple[int, int, int], dict[str, Any]], ...] = (
    (16, (3, 3, 3), 32, (5, 9, 11), {"pads": [1, 1, 1, 1, 1, 1]}),
    (3, (3, 5, 4), 17, (6, 9, 11), {"pads": [2, 1, 0, 0, 1, 2], "strides": [2, 2, 3]}),
    (1, (3, 3, 3), 8, (4, 6, 7), {"pads": [1, 1, 1, 1, 1, 1]}),
    (20, (2, 3, 1), 19, (9, 7, 8), {"strides": [3, 1, 2], "dilations": [2, 1, 1], "pads": [1, 0, 0, 2, 0, 0]}),
    (12, (3, 3, 3), 18, (5, 6, 7), {"group": 3, "pads": [1, 1, 1, 1, 1, 1]}),
    (24, (3, 3, 3), 24, (5, 6, 7), {"group": 24, "pads": [1, 1, 1, 1, 1, 1], "strides": [2, 1, 1]}),
    (24, (1, 3, 3), 24, (5, 6, 7), {"group": 24, "pads": [0, 1, 1, 0, 1, 1]}),
    (16, (1, 3, 3), 24, (5, 8, 7), {"pads": [1, 1, 1, 2, 1, 1], "strides": [2, 1, 1]}),
    (16, (1, 1, 1), 24, (3, 4, 5), {}),
    (16, (1, 1, 1), 24, (5, 4, 5), {"strides": [2, 2, 2]}),
    (16, (3, 1, 1), 8, (5, 4, 5), {"pads": [1, 0, 0, 1, 0, 0]}),
    (64, (3, 1, 1), 72, (9, 13, 14), {"pads": [1, 0, 0, 1, 0, 0]}),
    (32, (7, 1, 1), 24, (8, 5, 17), {"pads": [3, 0, 0, 3, 0, 0], "strides": [2, 1, 1]}),
    (24, (5, 1, 1), 24, (8, 5, 7), {"group": 24, "pads": [4, 0, 0, 0, 0, 0], "dilations": [2, 1, 1]}),
    (8, (3, 3, 3), 8, (2, 4, 5), {"dilations": [4, 1, 1], "pads": [4, 1, 1, 4, 1, 1]}),
    (8, (3, 2, 2), 8, (3, 4, 5), {"pads": [5, 0, 0, 4, 0, 0]}),
)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(("channels", "kernel", "outputs", "size", "attributes"), CASES)
def test_convolution_with_bias_residual_and_relu(
    channels: int,
    kernel: tuple[int, int, int],
    outputs: int,
    size: tuple[int, int, int],
    attributes: dict[str, Any],
    images: int,
) -> None:
    """relu(conv(x) + residual): first on a graph input, then once more on what that makes, for another layout."""
    group = attributes.get("group", 1)
    weights, bias = data(1, outputs, channels // group, *kernel), data(2, outputs)
    x = data(3, images, channels, *size)
    plain = Conv(**{key: value if key == "group" else tuple(value) for key, value in attributes.items()})
    want = plain.evaluate(x.astype(float), weights.astype(float), bias.astype(float))
    residual = data(4, *want.shape)
    nodes = [
        node("Conv", ["x", "weights", "bias"], ["c"], **attributes),
        node("Add", ["c", "residual"], ["r"]),
        node("Relu", ["r"], ["y"]),
        node("Conv", ["y", "again"], ["z"], pads=[1, 1, 1, 1, 1, 1]),
    ]
    again = data(5, 9, outputs, 3, 3, 3)
    inputs = [tensor("x", x.shape), tensor("residual", want.shape)]
    constants = {"weights": weights, "bias": bias, "again": again}
    session = jitonnx.InferenceSession(model(nodes, inputs, [tensor("y", None), tensor("z", None)], constants))
    y, z = session.run(None, {"x": x, "residual": residual})
    assert not any("region" in label for label in compiled_labels(session)), "bias, residual and ReLU are the epilogue"
    want = np.maximum(want + residual, 0)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
    padded = Conv(pads=(1,) * 6).evaluate(want, again.astype(float))
    np.testing.assert_allclose(z, padded, rtol=1e-4, atol=max(1e-3, 1e-5 * np.abs(padded).max()))


DEPTH_ALONE: tuple[tuple[int, int, int, tuple[int, int, int], dict[str, Any]], ...] = (
    (64, 3, 72, (9, 13, 14), {"pads": [1, 0, 0, 1, 0, 0]}),
    (20, 3, 19, (6, 5, 7), {"pads": [0, 0, 0, 1, 0, 0], "strides": [2, 1, 1]}),
    (32, 7, 24, (8, 5, 17), {"pads": [3, 0, 0, 3, 0, 0], "strides": [2, 1, 1]}),
    (3, 4, 17, (7, 5, 19), {"pads": [2, 0, 0, 0, 0, 0], "dilations": [2, 1, 1]}),
    (24, 5, 24, (8, 5, 7), {"group": 24, "pads": [2, 0, 0, 2, 0, 0]}),
    (32, 2, 48, (8, 1, 7), {"group": 4}),
)
"""Channels, taps, output channels, spatial size, attributes."""


@pytest.mark.parametrize("operator", ["Relu", "Transpose"])
@pytest.mark.parametrize(("channels", "taps", "outputs", "size", "attributes"), DEPTH_ALONE)
def test_depth_taps_alone_need_no_copies_of_slices(
    channels: int, taps: int, outputs: int, size: tuple[int, int, int], attributes: dict[str, Any], operator: str
) -> None:
    """Channels-last, as a layer before leaves it, and in planes, as it is fed."""
    weights, bias = data(1, outputs, channels // attributes.get("group", 1), taps, 1, 1), data(2, outputs)
    x = data(3, 1, channels, *size)
    nodes = [
        node("Relu", ["x"], ["a"]) if operator == "Relu" else node("Transpose", ["x"], ["a"], perm=[0, 4, 1, 2, 3]),
        node("Conv", ["a", "weights", "bias"], ["c"], **attributes),
        node("Relu", ["c"], ["y"]),
    ]
    fed = x if operator == "Relu" else np.ascontiguousarray(x.transpose(0, 2, 3, 4, 1))
    constants = {"weights": weights, "bias": bias}
    session = jitonnx.InferenceSession(model(nodes, [tensor("x", fed.shape)], [tensor("y", None)], constants))
    assert not any("slices" in label for label in compiled_labels(session))
    seen = np.maximum(x, 0) if operator == "Relu" else x
    plain = Conv(**{key: value if key == "group" else tuple(value) for key, value in attributes.items()})
    want = np.maximum(plain.evaluate(seen.astype(float), weights.astype(float), bias.astype(float)), 0)
    (y,) = session.run(None, {"x": fed})
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [(3, 3, 3), (3, 1, 1)])
@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4])
def test_convolutions_joined_along_any_axis(axis: int, kernel: tuple[int, int, int]) -> None:
    """What is written straight into a concatenation, and what lies there unevenly spaced."""
    weights = data(1, 2, 7, 5, *kernel)
    x = data(3, 2 if kernel[1] > 1 else 1, 5, 4, 6, 7)
    pads = [taps // 2 for taps in kernel] * 2
    nodes = [node("Conv", ["x", f"w{i}"], [f"c{i}"], pads=pads) for i in range(2)]
    nodes += [node("Relu", [f"c{i}"], [f"r{i}"]) for i in range(2)]
    nodes += [node("Concat", ["r0", "r1"], ["joined"], axis=axis), node("Sigmoid", ["joined"], ["y"])]
    session = jitonnx.InferenceSession(
        model(nodes, [tensor("x", x.shape)], [tensor("y", None)], {"w0": weights[0], "w1": weights[1]})
    )
    (y,) = session.run(None, {"x": x})
    compiled_labels(session)
    plain = Conv(pads=tuple(pads))
    parts = [np.maximum(plain.evaluate(x.astype(float), w.astype(float)), 0) for w in weights]
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-np.concatenate(parts, axis))), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kernel", "strides"), [((3, 3, 3), (2, 1, 2)), ((3, 1, 1), (1, 1, 1))])
def test_sizes_of_a_run(kernel: tuple[int, int, int], strides: tuple[int, int, int]) -> None:
    """All sizes known only at run time, and empty batches."""
    weights = data(1, 6, 4, *kernel)
    nodes = [node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=list(strides))]
    session = jitonnx.InferenceSession(
        model(nodes, [tensor("x", ["n", 4, "d", "h", "w_"])], [tensor("y", None)], {"w": weights})
    )
    plain = Conv(auto_pad="SAME_UPPER", strides=strides)
    for shape in ((1, 4, 3, 5, 6), (2, 4, 1, 1, 1), (3, 4, 8, 4, 9), (0, 4, 4, 4, 4)):
        x = data(2, *shape)
        (y,) = session.run(None, {"x": x})
        want = plain.evaluate(x.astype(float), weights.astype(float))
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
