"""Means, transposed convolutions and convolutions in groups of dequantised numbers, by those of the integers."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dims import product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.operator import shared_attributes
from jitonnx.ops.fused import SumOfBytes
from jitonnx.ops.onnx.arithmetic import Add, Div, Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.convolution import Conv, ConvTranspose
from jitonnx.ops.onnx.depth_to_space import DepthToSpace
from jitonnx.ops.onnx.pooling import AveragePool, GlobalAveragePool
from jitonnx.ops.onnx.quantization import DequantizeLinear, QuantizeLinear
from jitonnx.ops.onnx.reduction import ReduceMean
from jitonnx.ops.onnx.slice import Slice
from jitonnx.passes.quantized import BYTES, IN_PLACE, KNOWN, as_scalar, constant_scales, dequantised, one_zero
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Level, Result, array, producer, ranked, rule, scalar

_MOST_SUMMED = (1 << 24) // 255
"""Bytes whose sum float32 holds, whatever they are."""
_MOST_IN_32_BITS = ((1 << 31) - 1) // 255
"""Bytes whose sum, less as many zero points, int32 holds."""


@rule(
    "mean of integers",
    GlobalAveragePool,
    ReduceMean,
    equation="ReduceMean(DequantizeLinear(x, s, z)) = s / n Σ (x - z) over n elements, GlobalAveragePool alike",
    level=Level.EXTENDED,
)
def mean_of_integers(node: Node, edit: Edit) -> Result:
    """The mean of what DequantizeLinear gives, by the exact sum of the bytes, which are a quarter of what would be
    written and read as float32.

    n may be open: sums are of 64 bits then, and n is worked out in each run.

    before: GlobalAveragePool(DequantizeLinear(x, s, z))
    after:  SumOfBytes(x) -> Add(-n z) -> Cast -> Mul(s) -> Div(n)
    """
    numbers = dequantised(node.inputs[0])
    if numbers is None or not ranked(node):
        return None
    x, _, zero = (*numbers.inputs, None)[:3]
    assert x is not None
    steps, operator, axes, keepdims = constant_scales(numbers, None), node.operator, tuple(range(2, len(x.shape))), True
    if isinstance(operator, ReduceMean):
        given = (*node.inputs, None)[1]
        if given is not None and array(given) is None:
            return None
        axes, keepdims = operator.axes_of(x, given), bool(operator.keepdims)
    count = product(x.shape[axis] for axis in axes)
    if steps is None or not axes or count == 0:
        return None
    edit.shares([numbers])
    zeros = 0 if zero is None else int(array(zero).reshape(-1)[0])  # type: ignore[union-attr]
    to_float = Cast(to=int(DType.FLOAT))
    if isinstance(count, int):
        wide = count > _MOST_IN_32_BITS
        shift = edit.constant(np.asarray(-count * zeros, np.int64 if wide else np.int32))
        divisor = edit.constant(np.asarray(count, np.float32))
    else:
        wide, number = True, edit.reshape(edit.dims([count]), ())
        shift = edit.add(Mul(), number, edit.constant(np.asarray(-zeros, np.int64)))
        divisor = edit.add(to_float, number)
    shifted = edit.add(Add(), edit.add(SumOfBytes(axes=axes, keepdims=keepdims, wide=wide), x), shift)
    total = edit.add(Mul(), edit.add(to_float, shifted), edit.constant(np.asarray(steps[0])))
    return edit.add(Div(), total, divisor)


@rule(
    "average of integers",
    AveragePool,
    equation="AveragePool(DequantizeLinear(x, s, z)) = Conv(DequantizeLinear(x, s, z), DequantizeLinear(1, 1 / n))",
    level=Level.EXTENDED,
)
def average_of_integers(node: Node, edit: Edit) -> Result:
    """Means of windows of what DequantizeLinear gives, as a depthwise convolution, which is one of the bytes.

    before: AveragePool(DequantizeLinear(x, s, z))
    after:  Conv(DequantizeLinear(x, s, z), DequantizeLinear(1, 1 / n)), times n over the elements of X in each window
    """
    numbers, pool = dequantised(node.inputs[0]), node.operator
    assert isinstance(pool, AveragePool)
    if numbers is None or len(numbers.output.shape) != 4 or pool.ceil_mode or constant_scales(numbers, None) is None:
        return None
    x, count = numbers.output, int(np.prod(pool.kernel_shape))
    channels, *spatial = x.shape[1:]
    if not isinstance(channels, int) or not 0 < count <= _MOST_SUMMED:
        return None
    inside = pool.auto_pad in ("NOTSET", "VALID") and not any(pool.pads or ())
    shares = None
    if not inside and not pool.count_include_pad:
        if not all(isinstance(size, int) for size in spatial):
            return None
        given = {**shared_attributes(pool, AveragePool), "count_include_pad": True}
        shares = AveragePool(**given).evaluate(np.ones((1, 1, *spatial), np.float32))  # type: ignore[arg-type]
        if not shares.all():
            return None
    if (count % 2 == 0 or shares is not None) and _keeps_scale(numbers, node.output):
        return None
    edit.shares([numbers])
    ones = edit.constant(np.ones((channels, 1, *pool.kernel_shape), np.int8))
    weights = edit.add(DequantizeLinear(), ones, edit.constant(np.asarray(1 / count, np.float32)))
    means = edit.add(Conv(**{**shared_attributes(pool, Conv), "group": channels}), x, weights)
    return means if shares is None else edit.add(Mul(), means, edit.constant(1 / shares))


def _keeps_scale(numbers: Node, mean: Value) -> bool:
    """Whether means of numbers are quantised by the scale that these have: of an even number of them, one in so many
    lies half way between two integers, and it is the roundings of sums of float32 that tell which it becomes."""
    scale = scalar(numbers.inputs[1])
    return any(
        isinstance(user.operator, QuantizeLinear | Div) and user.inputs[0] is mean and scalar(user.inputs[1]) == scale
        for user in mean.users
    )


@rule(
    "transposed convolution of integers",
    ConvTranspose,
    equation="ConvTranspose(DequantizeLinear(x), DequantizeLinear(w)) = DepthToSpace(Conv(the same, 1x1))",
    level=Level.EXTENDED,
)
def transposed_integers(node: Node, edit: Edit) -> Result:
    """A transposed convolution whose windows do not overlap: each pixel gives a block, by a product of bytes.

    before: ConvTranspose 2x2, strides 2, of DequantizeLinear(x, s, z), DequantizeLinear(w, t, u)
    after:  Conv 1x1 of DequantizeLinear(x, s, z), DequantizeLinear(w', t', u) -> DepthToSpace
    """
    x, w, bias = (*node.inputs, None)[:3]
    numbers, weights, operator = dequantised(x), dequantised(w), node.operator
    assert isinstance(operator, ConvTranspose)
    if numbers is None or weights is None or not ranked(node) or len(node.output.shape) != 4:
        return None
    elements, steps = array(weights.inputs[0]), constant_scales(weights, 1)  # type: ignore[arg-type]
    if constant_scales(numbers, None) is None or steps is None or elements is None:
        raise Decline(Reason.NOT_CONSTANT, f"weights, {KNOWN}")
    inputs, outputs, size, other = elements.shape
    if size != other or tuple(operator.strides or (1, 1)) != (size, size) or size == 1 or operator.group != 1:
        return None
    shifted = (*(operator.pads or ()), *(operator.output_padding or ()))
    if any(shifted) or operator.output_shape is not None or operator.auto_pad not in ("NOTSET", "VALID"):
        return None
    if any(one != 1 for one in operator.dilations or ()):
        return None
    edit.shares([numbers, weights])
    blocks = size * size
    matrix = edit.constant(np.ascontiguousarray(elements.transpose(2, 3, 1, 0).reshape(blocks * outputs, inputs, 1, 1)))
    scales = np.asarray(steps[0] if steps.size == 1 else np.tile(steps, blocks))
    zero = one_zero(edit, weights)
    zeros = None if zero is None else edit.constant(np.full(scales.shape, array(zero)))
    factors = edit.add(DequantizeLinear(axis=0), matrix, edit.constant(scales), zeros)
    biases = [] if bias is None else [edit.add(Concat(axis=0), *[bias] * blocks)]
    return edit.add(DepthToSpace(blocksize=size), edit.add(Conv(), x, factors, *biases))


@rule(
    "grouped convolution of integers",
    QuantizeLinear,
    equation="QuantizeLinear(f(Conv(x, w, group=g))) = Concat(QuantizeLinear(f(Conv(x[i], w[i]))), …)",
    level=Level.EXTENDED,
)
def grouped_integers(node: Node, edit: Edit) -> Result:
    """A convolution of wide groups between quantised tensors, as one of bytes for each group.

    before: QuantizeLinear(Relu(Conv(DequantizeLinear(x), DequantizeLinear(w), b, group=4)))
    after:  Concat of four QuantizeLinear(Relu(Conv(DequantizeLinear(x[i]), DequantizeLinear(w[i]), b[i])))
    """
    inner, activations = node.inputs[0], list[Node]()
    while (above := producer(inner, *IN_PLACE)) is not None:
        activations.append(above)
        inner = above.inputs[0]
    product = producer(inner, Conv)
    if product is None or inner is None or not has_wide_groups(product) or not is_quantised(edit, inner):
        return None
    x, w, bias = (*product.inputs, None)[:3]
    numbers, weights, operator = dequantised(x), dequantised(w), product.operator
    assert isinstance(operator, Conv) and numbers is not None and weights is not None and weights.inputs[0] is not None
    elements, steps, group = array(weights.inputs[0]), constant_scales(weights, 0), operator.group
    if constant_scales(numbers, None) is None or steps is None or elements is None:
        return None
    inputs, outputs = elements.shape[1], len(elements) // group
    edit.shares([numbers, weights])
    edit.consume([*activations, product])
    alone = Conv(**{**shared_attributes(operator, Conv), "group": 1})
    zero, parts = one_zero(edit, weights), list[Value]()
    zeros = 0 if zero is None else array(zero)
    for number in range(group):
        rows = slice(number * outputs, (number + 1) * outputs)
        scales = np.asarray(steps[0] if steps.size == 1 else steps[rows])
        given = edit.constant(np.full(scales.shape, zeros, elements.dtype))
        matrix = edit.add(DequantizeLinear(axis=0), edit.constant(elements[rows]), edit.constant(scales), given)
        biases = [] if bias is None else [_rows(edit, bias, rows)]
        source = numbers.inputs[0]
        assert source is not None
        bounds = (edit.dims([one]) for one in (number * inputs, (number + 1) * inputs, 1))
        image = edit.add(DequantizeLinear(), edit.add(Slice(), source, *bounds), *_singles(edit, numbers))
        y = edit.add(alone, image, matrix, *biases)
        for activation in reversed(activations):
            y = edit.add(activation.operator, y, *activation.inputs[1:])
        parts.append(edit.add(node.operator, y, *node.inputs[1:]))
    return edit.add(Concat(axis=1), *parts)


_WIDE_GROUP = 32
"""Channels of a group from which on a product of bytes for each is less work than one of floats for all."""


def has_wide_groups(node: Node) -> bool:
    """Whether a convolution of dequantised numbers has groups that are worth a product of their own."""
    x, w = node.inputs[:2]
    assert isinstance(node.operator, Conv)
    group = node.operator.group
    if group == 1 or w is None or dequantised(x) is None or dequantised(w) is None or not ranked(node):
        return False
    outputs, inputs = w.shape[:2]
    return isinstance(outputs, int) and isinstance(inputs, int) and min(inputs, outputs // group) >= _WIDE_GROUP


def is_quantised(edit: Edit, x: Value) -> bool:
    """Whether all that becomes of x is one tensor of bytes, of one scale, by way of activations with numbers."""
    while x not in edit.graph.results and len(x.users) == 1:
        (user,) = x.users
        if user.inputs[0] is not x or any(given and scalar(given) is None for given in user.inputs[1:]):
            return False
        if isinstance(user.operator, QuantizeLinear):
            return user.output.dtype in BYTES
        if not isinstance(user.operator, IN_PLACE):
            return False
        x = user.output
    return False


def _rows(edit: Edit, x: Value, rows: slice) -> Value:
    return edit.add(Slice(), x, *(edit.dims([one]) for one in (rows.start, rows.stop, 0)))


def _singles(edit: Edit, numbers: Node) -> list[Value | None]:
    """The scale and zero point, if there is one, of a DequantizeLinear by one scale, as scalars."""
    return [as_scalar(edit, given) for given in numbers.inputs[1:]]


RULES = (
    grouped_integers,
    mean_of_integers,
    average_of_integers,
    transposed_integers,
)
