"""Sums of convolutions of one image made one convolution, as networks need it that are trained with branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.inference import unnoted
from jitonnx.ops.onnx.arithmetic import Add, Div, Mul, Sub
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.windows import WindowAttributes, Windows, slide
from jitonnx.passes.rewriting import Edit, Result, array, producer, ranked, rule
from jitonnx.passes.rules.weights import check_copy, constant_operand, finite_constant, wide

Branch: TypeAlias = "tuple[np.ndarray, np.ndarray, list[Node]]"
"""Weights in the other convolution's shape, a bias (float64) by channel, and the nodes that compute it."""


@rule("sum of convolutions", Add, Sub, equation="Conv(x, A) + Conv(x, B) + (x f + s) = Conv(x, A + B + f) + s")
def sum_of_convolutions(node: Node, edit: Edit) -> Result:
    """Branches of one image become one convolution, where its windows hold theirs.

    A branch is a convolution, or the image itself with constants by channel or without.

    before: Conv 3x3 of x, Conv 1x1 of x -> Add; Mul of x by [64,1,1] -> Add
    after:  Conv 3x3 of x
    """
    if not ranked(node) or node.output.dtype not in (DType.FLOAT, DType.DOUBLE):
        return None
    for place, value in enumerate(node.inputs):
        conv, other = producer(value, Conv), node.inputs[1 - place]
        if conv is None or other is None or not _constant_weights(conv):
            continue
        branch = _branch(conv, other) if conv.output.shape == other.shape == node.output.shape else None
        if branch is not None:
            signs = (1, -1) if isinstance(node.operator, Sub) else (1, 1)
            return _joined(conv, branch, signs[place], signs[1 - place], edit)
    return None


def _constant_weights(conv: Node) -> bool:
    given = [value for value in conv.inputs[1:] if value is not None]
    return ranked(conv) and all(array(value) is not None for value in given)


def _branch(conv: Node, other: Value) -> Branch | None:
    """What is added to a convolution's weights and bias if it computes `other` too; None if it can't."""
    narrow = producer(other, Conv)
    if narrow is not None and narrow is not conv and narrow.inputs[0] is conv.inputs[0]:
        return _convolved(conv, narrow)
    return _plain(conv, other)


def _convolved(conv: Node, narrow: Node) -> Branch | None:
    """Another convolution of the same image, with a window inside of that of `conv`."""
    if not _constant_weights(narrow):
        return None
    a, b = _windows(conv), _windows(narrow)
    assert isinstance(conv.operator, Conv) and isinstance(narrow.operator, Conv)
    if conv.operator.group != narrow.operator.group or a.strides != b.strides:
        return None
    if any(size != 1 and d != e for size, d, e in zip(b.kernel, a.dilations, b.dilations, strict=True)):
        return None
    first = _first_taps(a, b.before)
    if first is None or any(tap + size > k for tap, size, k in zip(first, b.kernel, a.kernel, strict=True)):
        return None
    given, elements = _elements(conv, 1), _elements(narrow, 1)
    weights = np.zeros(given.shape, wide(given.dtype))
    inside = tuple(slice(tap, tap + size) for tap, size in zip(first, b.kernel, strict=True))
    weights[(slice(None), slice(None), *inside)] = elements
    bias = _elements(narrow, 2) if len(narrow.inputs) > 2 and narrow.inputs[2] is not None else np.zeros(len(given))
    return weights, bias.astype(np.float64), [narrow]


def _plain(conv: Node, other: Value) -> Branch | None:
    """The image itself, times a factor and plus a summand by channel."""
    image = conv.inputs[0]
    assert image is not None and isinstance(conv.operator, Conv)
    windows, given = _windows(conv), _elements(conv, 1)
    first = _first_taps(windows, (0,) * len(windows.kernel))
    if image.shape != other.shape or not isinstance(image.shape[1], int) or any(s != 1 for s in windows.strides):
        return None
    if first is None or any(tap >= size for tap, size in zip(first, windows.kernel, strict=True)):
        return None
    factor, summand, nodes = np.ones(len(given)), np.zeros(len(given)), []
    value = other
    while value is not image:
        above = producer(value, Mul, Div, Add, Sub)
        found = constant_operand(above) if above is not None and ranked(above) else None
        vectors = found[1].along(1, len(given), len(image.shape)) if found is not None else None
        if above is None or found is None or vectors is None or found[0].shape != image.shape:
            return None
        summand, factor = summand + factor * vectors[1], factor * vectors[0]
        nodes.append(above)
        value = found[0]
    weights = np.zeros(given.shape, wide(given.dtype))
    channels = np.arange(len(given))
    weights[(channels, channels % given.shape[1], *first)] = factor
    return weights, summand, nodes


def _windows(conv: Node) -> Windows:
    x, weight = conv.inputs[:2]
    assert x is not None and weight is not None and isinstance(conv.operator, Conv)
    return slide(unnoted(), x.shape[2:], weight.shape[2:], WindowAttributes.of(conv.operator))


def _first_taps(windows: Windows, before: Sequence[int]) -> tuple[int, ...] | None:
    """The tap along each axis that reads where a window padded by `before` begins; None if none does."""
    taps = []
    for own, other, dilation in zip(windows.before, before, windows.dilations, strict=True):
        if not isinstance(own, int) or not isinstance(other, int) or own < other or (own - other) % dilation:
            return None
        taps.append((own - other) // dilation)
    return tuple(taps)


def _elements(conv: Node, place: int) -> np.ndarray:
    value = conv.inputs[place]
    elements = None if value is None else array(value)
    assert elements is not None
    return elements


def _joined(conv: Node, branch: Branch, sign: int, other_sign: int, edit: Edit) -> Value:
    """sign * conv + other_sign * branch as one convolution."""
    weights, summand, nodes = branch
    x, weight, bias = (*conv.inputs, None)[:3]
    assert x is not None and weight is not None
    edit.consume([conv])
    edit.shares(nodes)
    check_copy(weight, conv)
    total = sign * _elements(conv, 1) + other_sign * weights
    inputs = [x, finite_constant(total, weight, edit)]
    offset = _elements(conv, 2).astype(np.float64) if bias is not None else np.zeros(len(summand))
    if bias is not None or summand.any():
        inputs.append(finite_constant(sign * offset + other_sign * summand, weight, edit))
    return edit.add(conv.operator, *inputs)


RULES = (sum_of_convolutions,)
