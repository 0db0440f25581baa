"""Cases that choose, move and join elements, or compute each from its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from bench.operators.layers import activated
from bench.operators.net import Build, Net, Shape

# ---------------------------------------------------------------- numbers chosen


def unique(count: int, different: int, outputs: int) -> Build:
    """Unique of `count` numbers, of which no more than so many are different."""

    def build(net: Net) -> list[str]:
        x = net.feed_array(np.random.default_rng(2).integers(0, different, count).astype(np.float32))
        return net.nodes_outputs("Unique", outputs, x)

    return build


def suppression(boxes: int, classes: int) -> Build:
    """NonMaxSuppression of boxes of an image, of which it keeps up to 100 of each class."""

    def build(net: Net) -> str:
        corners = np.random.default_rng(3).uniform(0, 500, (1, boxes, 2))
        sizes = np.random.default_rng(4).uniform(10, 120, (1, boxes, 2))
        given = np.concatenate([corners, corners + sizes], 2).astype(np.float32)
        limits = net.constant([100], "int64"), net.constant([0.5], "float32"), net.constant([0.2], "float32")
        return net.node("NonMaxSuppression", net.feed_array(given), net.feed((1, classes, boxes), 0), *limits)

    return build


def compress(rows: int, columns: int) -> Build:
    """About every second row."""
    return lambda net: net.node("Compress", net.feed((rows, columns)), net.feed((rows,), 0, 2, "bool"), axis=0)


def fed_range(count: int, dtype: str) -> Build:
    """Range of 0 to `count`, whose start, limit and delta are fed."""
    return lambda net: net.node("Range", *(net.feed_array(np.array(value, dtype)) for value in (0, count, 1)))


# ---------------------------------------------------------------- moving elements


def gather(data: Shape, indices: Shape, axis: int = 0) -> Build:
    """Gather from a constant table."""

    def build(net: Net) -> str:
        net.picked = net.weight(*data)
        return net.node("Gather", net.picked, net.feed(indices, 0, data[axis], "int64"), axis=axis)

    return build


def gather_nd(data: Shape, count: int, width: int) -> Build:
    def build(net: Net) -> str:
        net.picked = net.feed(data)
        tuples = np.random.default_rng(1).integers(0, data[:width], (count, width))
        return net.node("GatherND", net.picked, net.feed_array(tuples))

    return build


def gather_elements(shape: Shape, axis: int) -> Build:
    return lambda net: net.node("GatherElements", net.feed(shape), net.feed(shape, 0, shape[axis], "int64"), axis=axis)


def scatter_nd(shape: Shape, rows: int) -> Build:
    """Whole rows of the first axis replaced: each once."""

    def build(net: Net) -> str:
        places = np.random.default_rng(1).permutation(shape[0])[:rows, None]
        return net.node("ScatterND", net.feed(shape), net.feed_array(places), net.feed((rows, *shape[1:])))

    return build


def scatter_elements(shape: Shape, axis: int, operator: str = "ScatterElements") -> Build:
    """Every element of the result written, in another order along `axis`."""

    def build(net: Net) -> str:
        order = np.argsort(np.random.default_rng(1).random(shape), axis)
        return net.node(operator, net.feed(shape), net.feed_array(order), net.feed(shape), axis=axis)

    return build


def tensor_scatter(length: int, new: int) -> Build:
    """So many rows written into a cache of `length`, of 12 heads of size 64."""

    def build(net: Net) -> str:
        given = net.feed((1, 12, length, 64)), net.feed((1, 12, new, 64)), net.feed_array(np.array([100]))
        return net.node("TensorScatter", *given)

    return build


def slice_(shape: Shape, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> Build:
    """Slice of the last axes."""

    def build(net: Net) -> str:
        axes = range(len(shape) - len(starts), len(shape))
        net.picked = net.feed(shape)
        return net.node("Slice", net.picked, *(net.integers(*values) for values in (starts, ends, axes, steps)))

    return build


def split(shape: Shape, parts: int, axis: int) -> Build:
    return lambda net: net.nodes_outputs("Split", parts, net.feed(shape), axis=axis, num_outputs=parts)


def resize(shape: Shape, scale: float, mode: str, **attributes: Any) -> Build:
    """Height and width by `scale`."""

    def build(net: Net) -> str:
        scales = net.constant([1, 1, scale, scale], "float32")
        return net.node("Resize", net.feed(shape), "", scales, mode=mode, **attributes)

    return build


def top_k(shape: Shape, count: int) -> Build:
    return lambda net: net.nodes_outputs("TopK", 2, net.feed(shape), net.integers(count), axis=-1)


def cast(dtype: str, target: str, shape: Shape) -> Build:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    return lambda net: net.node("Cast", net.feed(shape, -100, 100, dtype), to=to)


def where(shape: Shape) -> Build:
    return lambda net: net.node("Where", net.feed(shape, 0, 2, "bool"), net.feed(shape), net.feed(shape))


def prelu(shape: Shape) -> Build:
    return lambda net: net.node("PRelu", net.feed(shape), net.weight(shape[1], 1, 1))


def clip(shape: Shape) -> Build:
    return lambda net: activated(net, net.feed(shape), "relu6")


def chain(then: str, shape: Shape) -> Build:
    """An activation that exporters spell out."""
    return lambda net: activated(net, net.feed(shape), then)


def tanh_gelu(shape: Shape) -> Build:
    """Gelu by tanh as GPT-2 spells it out."""

    def build(net: Net) -> str:
        x = net.feed(shape)
        cube = net.node("Pow", x, net.constant(3, "float32"))
        sum_ = net.node("Add", x, net.node("Mul", cube, net.constant(0.044715, "float32")))
        tanh = net.node("Tanh", net.node("Mul", sum_, net.constant((2 / np.pi) ** 0.5, "float32")))
        half = net.node("Mul", x, net.constant(0.5, "float32"))
        return net.node("Mul", half, net.node("Add", tanh, net.constant(1, "float32")))

    return build


def power(shape: Shape, exponent: float) -> Build:
    return lambda net: net.node("Pow", net.feed(shape, 0.1, 4.0), net.constant(exponent, "float32"))
