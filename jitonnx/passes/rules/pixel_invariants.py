"""What is the same at every pixel of an image, kept out of the products that run over its pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitonnx.ir.dims import integers, known
from jitonnx.ir.graph import Node, Value
from jitonnx.ops.onnx.arithmetic import Add
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.shape import Expand
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Level, Result, array, producer, rank, ranked, rule


@rule(
    "spread pixel",
    Conv,
    equation="Conv(Concat(x, Expand(c)), [A C]) = Conv(x, A) + Conv(c, C) for one pixel c and 1x1 kernels",
    level=Level.EXTENDED,
)
def spread_pixel(node: Node, edit: Edit) -> Result:
    """Pooled features spread over the image and joined to its channels: their products are made once, not per pixel.

    before: GlobalAveragePool -> Expand -> Concat with feature maps -> Conv 1x1
    after:  Conv 1x1 of the feature maps, plus Conv 1x1 of the pooled pixel
    """
    concat = producer(node.inputs[0], Concat)
    if concat is None or not ranked(node) or not ranked(concat):
        return None
    parts = [value for value in concat.inputs if value is not None]
    pixels = [_pixel(value) for value in parts]
    if not any(pixels) or all(pixels):
        return None
    x, weights = node.inputs[0], node.inputs[1]
    assert isinstance(node.operator, Conv) and isinstance(concat.operator, Concat)
    assert x is not None and weights is not None
    kernel = array(weights)
    plain = concat.operator.axis % rank(x) == 1 and _is_plain(node.operator)
    if not plain or kernel is None or kernel.shape[2:].count(1) != rank(x) - 2:
        return None
    edit.consume([concat])
    widths = [value.shape[1] for value in parts]
    if not known(widths):
        raise Decline(Reason.SHAPE, "channels that are not known")
    kernels = np.split(kernel, np.cumsum(integers(widths))[:-1], axis=1)
    whole = [number for number, pixel in enumerate(pixels) if pixel is None]
    result = edit.add(
        node.operator, _joined([parts[n] for n in whole], edit), _weights(kernels, whole, edit), *node.inputs[2:]
    )
    for number, pixel in enumerate(pixels):
        if pixel is not None:
            constant = edit.add(node.operator, pixel, edit.constant(np.ascontiguousarray(kernels[number])))
            result = edit.add(Add(), result, constant)
    return result


def _pixel(value: Value) -> Value | None:
    """The single pixel, of as many channels, that `value` is everywhere."""
    expand = producer(value, Expand)
    if expand is None or not ranked(expand):
        return None
    pixel = expand.inputs[0]
    assert pixel is not None
    if rank(pixel) != rank(value) or pixel.shape[1] != value.shape[1] or pixel.shape[2:].count(1) != rank(value) - 2:
        return None
    return pixel


def _is_plain(operator: Conv) -> bool:
    """Whether no window reads padding, and all channels belong to one group."""
    return operator.group == 1 and operator.auto_pad in ("NOTSET", "VALID") and not any(operator.pads or ())


def _joined(parts: Sequence[Value], edit: Edit) -> Value:
    return parts[0] if len(parts) == 1 else edit.add(Concat(axis=1), *parts)


def _weights(kernels: Sequence[np.ndarray], numbers: Sequence[int], edit: Edit) -> Value:
    return edit.constant(np.concatenate([kernels[number] for number in numbers], axis=1))


RULES = (spread_pixel,)
