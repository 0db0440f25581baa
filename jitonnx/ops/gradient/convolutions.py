"""What convolutions and pools hand back: convolutions again.

The adjoint of a convolution by its image is the transposed one with the same weights, and by its weights a product with
the unfolded image.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitonnx.ir.dims import DimLike, floor_divide, known, product
from jitonnx.ir.errors import GraphError
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.inference import unnoted
from jitonnx.ops.gradient.tape import Tape
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.convolution import Conv, ConvTranspose
from jitonnx.ops.onnx.pooling import AveragePool, MaxPool
from jitonnx.ops.onnx.scatter import ScatterElements
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.windows import Windows, extent

Handed = list["Value | None"]


def conv(tape: Tape, node: Node, part: Value) -> Handed:
    """Conv by X, W and B."""
    x, w, bias = (*node.inputs, None)[:3]
    assert isinstance(node.operator, Conv) and x is not None and w is not None
    windows = node.operator._windows(unnoted(), x.shape, w.shape)
    group = node.operator.group
    image = _transposed(tape, part, w, windows, group, x.shape)
    weights = _by_weights(tape, x, part, windows, group, w.shape)
    return [image, weights, None if bias is None else _by_channel(tape, part)]


def conv_transpose(tape: Tape, node: Node, part: Value) -> Handed:
    """ConvTranspose by X, W and B: what the result has is the image of a convolution that gives X's adjoint."""
    x, w, bias = (*node.inputs, None)[:3]
    operator = node.operator
    assert isinstance(operator, ConvTranspose) and x is not None and w is not None
    windows = operator._windows(unnoted(), x.shape, w.shape)
    # As padding of the convolution: what is cut off in front and behind, or, negative, what no window reaches.
    inner = Windows(windows.kernel, windows.strides, windows.dilations, windows.before, (), x.shape[2:])
    behind = _behind(part.shape[2:], inner)
    whole = tape.pad(part, [0, 0, *windows.before], [0, 0, *behind])
    plain = Conv(strides=windows.strides, dilations=windows.dilations, group=operator.group)
    weights = _by_weights(tape, part, x, inner, operator.group, w.shape)
    return [tape.add(plain, whole, w), weights, None if bias is None else _by_channel(tape, part)]


def _by_channel(tape: Tape, part: Value) -> Value:
    return tape.sum(part, [0, *range(2, len(part.shape))], keepdims=False)


def _transposed(tape: Tape, part: Value, w: Value, windows: Windows, group: int, shape: Sequence[DimLike]) -> Value:
    """The transposed convolution of `part`, to an image of `shape`."""
    full = tape.add(ConvTranspose(strides=windows.strides, dilations=windows.dilations, group=group), part, w)
    before = [-low for low in windows.before]
    after = [size - have + low for size, have, low in zip(shape[2:], full.shape[2:], windows.before, strict=True)]
    return tape.pad(full, [0, 0, *before], [0, 0, *after])


def _by_weights(tape: Tape, x: Value, part: Value, windows: Windows, group: int, shape: Sequence[DimLike]) -> Value:
    """The adjoint of weights [M, C / group, kernel...]: a product of `part` with the image as each tap sees it."""
    if not known(windows.kernel):
        raise GraphError(f"the derivative by weights {list(map(str, shape))}: the kernel's size has to be known")
    image = tape.pad(x, [0, 0, *windows.before], [0, 0, *_behind(x.shape[2:], windows)])
    axes = tape.axes(range(2, len(shape)))
    steps, taps = tape.axes(windows.strides), windows.taps()
    seen = []
    for tap in taps:
        starts = [position * dilation for position, dilation in zip(tap, windows.dilations, strict=True)]
        reach = [(out - 1) * stride + 1 for out, stride in zip(windows.output, windows.strides, strict=True)]
        ends = [start + length for start, length in zip(starts, reach, strict=True)]
        part_seen = tape.add(Slice(), image, tape.dims(starts), tape.dims(ends), axes, steps)
        seen.append(tape.reshape(part_seen, (*part_seen.shape[:2], 1, product(windows.output))))
    batch, channels, places = x.shape[0], shape[1], product(windows.output)
    columns = tape.add(Concat(axis=2), *seen) if len(seen) > 1 else seen[0]  # [N, C, taps, places]
    columns = tape.transpose(columns, [1, 2, 0, 3])
    columns = tape.reshape(columns, (group, channels * len(taps), batch * places))
    rows = tape.transpose(tape.reshape(part, (batch, part.shape[1], places)), [1, 0, 2])
    rows = tape.reshape(rows, (group, floor_divide(part.shape[1], group), batch * places))
    return tape.reshape(tape.matmul(rows, tape.swapped(columns)), shape)


def _behind(size: Sequence[DimLike], windows: Windows) -> list[DimLike]:
    """How far the last windows reach over the end of an image; negative where they do not reach it."""
    covers = extent(windows.kernel, windows.dilations)
    each = zip(size, windows.output, windows.strides, covers, windows.before, strict=True)
    return [(out - 1) * stride + cover - length - before for length, out, stride, cover, before in each]


def max_pool(tape: Tape, node: Node, part: Value | None, indices: Value | None = None) -> Handed:
    """The element that each window takes, by its place in X flattened."""
    (x,) = node.inputs
    assert isinstance(node.operator, MaxPool) and x is not None and part is not None
    options = {name: getattr(node.operator, name) for name in ("auto_pad", "ceil_mode", "dilations", "pads", "strides")}
    pool = MaxPool(kernel_shape=node.operator.kernel_shape, **options)
    _, places = tape.add_many(pool, [x], 2)
    count = product(part.shape)
    flat = [tape.reshape(value, (count,)) for value in (places, part)]
    zeros = tape.full(0, (product(x.shape),), x.dtype)
    return [tape.reshape(tape.add(ScatterElements(axis=0, reduction="add"), zeros, *flat), x.shape)]


def average_pool(tape: Tape, node: Node, part: Value) -> Handed:
    """Each window's share goes to all its elements; each channel is an image of its own."""
    (x,) = node.inputs
    operator = node.operator
    assert isinstance(operator, AveragePool) and x is not None
    windows = operator._windows(unnoted(), x.shape)
    kernel = tape.full(1, (1, 1, *windows.kernel), x.dtype)
    whole = tape.full(1, (1, 1, *x.shape[2:]), x.dtype)
    around = tape.pad(whole, [0, 0, *windows.before], [0, 0, *_behind(x.shape[2:], windows)])
    inside = tape.add(Conv(strides=windows.strides, dilations=windows.dilations), around, kernel)
    images = x.shape[0] * x.shape[1]
    # The mean of ones is 1, or less by what of the padding is counted.
    share = tape.over(tape.times(tape.reshape(part, (images, 1, *windows.output)), tape.add(operator, whole)), inside)
    back = _transposed(tape, share, kernel, windows, 1, (images, 1, *x.shape[2:]))
    return [tape.reshape(back, x.shape)]
