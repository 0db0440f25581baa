"""Convolutions of one image that are summed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Add, Div, Mul, Sub
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.normalization import BatchNormalization
from tests.passes.graphs import Build, Value, normal, only, operators, rewritten


def conv(b: Build, x: Value, kernel: int, channels: int = 6, bias: bool = True, **attributes: Any) -> Value:
    """A convolution of images of 6 channels that keeps their size, unless attributes say otherwise."""
    pads = attributes.pop("pads", (kernel // 2 * (attributes.get("dilations", (1, 1))[0]),) * 4)
    weights = normal(channels, 6 // attributes.get("group", 1), kernel, kernel, seed=kernel)
    given = [normal(channels, seed=kernel + 1)] if bias else []
    return b.op(Conv(pads=pads, **attributes), x, weights, *given)


def normalized(b: Build, x: Value) -> Value:
    statistics = [normal(6, seed=1), normal(6, seed=2), normal(6, seed=3), np.abs(normal(6, seed=4)) + 0.5]
    return b.op(BatchNormalization(), x, *(array.astype(np.float32) for array in statistics))


@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("order", ["wide first", "narrow first"])
@pytest.mark.parametrize("operator", [Add(), Sub()])
def test_two_windows(group, stride, order, operator) -> None:
    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(2, 6, 9, 8)))
        both = [conv(b, x, kernel, bias=kernel == 3, group=group, strides=(stride, stride)) for kernel in (5, 3)]
        return b.op(Relu(), b.op(operator, *(both if order == "wide first" else both[::-1])))

    graph, _ = rewritten(author, atol=1e-4)
    assert operators(graph) == {"Relu": 2, "Conv": 1}
    assert only(graph, Conv).inputs[1].shape[2:] == (5, 5)


@pytest.mark.parametrize("group", [1, 3, 6])
@pytest.mark.parametrize("operator", [Add(), Sub()])
@pytest.mark.parametrize("image_first", [True, False])
def test_the_image_itself(group, operator, image_first) -> None:
    """RepVGG has it so: an image, one normalised, and convolutions over windows of 1 and 3."""

    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(2, 6, 5, 7)))
        y = b.op(Add(), conv(b, x, 3, group=group), conv(b, x, 1, bias=False, group=group))
        y = b.op(operator, *((x, y) if image_first else (y, x)))
        return b.op(Relu(), b.op(Mul(), b.op(Add(), normalized(b, x), y), normal(6, 1, 1, seed=9)))

    graph, _ = rewritten(author, atol=1e-4)
    assert operators(graph) == {"Relu": 2, "Conv": 1}


def test_one_axis_with_dilation_and_symbolic_sizes() -> None:
    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(2, 6, 11), ("batch", 6, "time")))
        y = b.op(Conv(pads=(4, 4), dilations=(2,)), x, normal(6, 6, 5, seed=1))
        y = b.op(Add(), y, b.op(Conv(pads=(2, 2), dilations=(2,)), x, normal(6, 6, 3, seed=2)))
        return b.op(Add(), y, b.op(Div(), x, np.float32(3)))

    graph, _ = rewritten(author, atol=1e-4)
    assert operators(graph) == {"Relu": 1, "Conv": 1}


def test_windows_that_begin_elsewhere() -> None:
    """Two windows of 2, the second one pixel further: the first one's last tap is the second one's first."""

    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(1, 6, 8, 8)))
        y = conv(b, x, 3, pads=(2, 2, 0, 0))
        return b.op(Relu(), b.op(Add(), y, conv(b, x, 2, pads=(1, 1, 0, 0))))

    graph, _ = rewritten(author, atol=1e-4)
    assert operators(graph) == {"Relu": 2, "Conv": 1}


KEPT = {
    "neither window holds the other": ({"pads": (1, 1, 1, 1)}, 3, {"pads": (2, 2, 0, 0)}, 3),
    "taps between": ({"pads": (2, 2, 2, 2), "dilations": (2, 2)}, 3, {"pads": (1, 1, 1, 1)}, 3),
    "other groups": ({"group": 2}, 3, {"group": 3}, 1),
    "other strides": ({"strides": (2, 1), "pads": (1, 1, 1, 1)}, 3, {"strides": (2, 2), "pads": (0, 0, 0, 7)}, 1),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_stays(case) -> None:
    first, kernel, second, other = KEPT[case]

    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(1, 6, 8, 8)))
        y = conv(b, x, kernel, **first)
        return b.op(Relu(), b.op(Add(), y, conv(b, x, other, **second)))

    graph, _ = rewritten(author, atol=1e-4)
    assert operators(graph)["Conv"] == 2


def test_other_images_broadcasts_and_readers() -> None:
    def author(b: Build) -> list[Value]:
        x, z = (b.op(Relu(), b.input(normal(1, 6, 4, 4, seed=seed))) for seed in (0, 1))
        y = conv(b, x, 3)
        pixel = b.op(Relu(), b.input(normal(1, 6, 1, 1, seed=2)))
        return [
            b.op(Add(), conv(b, x, 5), conv(b, z, 3)),  # of two images
            b.op(Add(), conv(b, z, 5), conv(b, pixel, 1)),  # broadcast
            b.op(Add(), y, x),
            b.op(Relu(), y),  # which another reads
            b.op(Add(), conv(b, z, 1), b.op(Mul(), z, normal(4, 1, seed=3))),  # factors by row
        ]

    graph, _ = rewritten(author, atol=1e-4)
    assert operators(graph)["Conv"] == 6
    assert operators(graph)["Add"] == 4


@pytest.mark.parametrize("seed", range(30))
def test_random_branches(seed: int) -> None:
    def author(b: Build) -> Value:
        random = np.random.default_rng(seed)
        group, stride = int(random.choice([1, 2, 6])), int(random.choice([1, 1, 2]))
        x = b.op(Relu(), b.input(normal(1, 6, int(random.integers(5, 9)), 7)))
        y = conv(b, x, 5, group=group, strides=(stride, stride))
        for kernel in map(int, random.integers(1, 5, size=3)):
            if stride == 1 and random.random() < 0.3:
                y = b.op(Add(), b.op(Mul(), x, normal(6, 1, 1, seed=seed)), y)
            before = [int(size) for size in random.integers(0, kernel, size=2)]
            after = [kernel - 1 - size for size in before]
            operator = Conv(pads=(*before, *after), group=group, strides=(stride, stride))
            weights = normal(6, 6 // group, kernel, kernel, seed=seed + 1)
            y = b.op(random.choice([Add(), Sub()]), b.op(operator, x, weights), y)
        return b.op(Relu(), y)

    graph, _ = rewritten(author, atol=1e-4)
    assert operators(graph)["Conv"] <= 4
