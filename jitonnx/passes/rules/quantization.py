"""Products of dequantised numbers as products of the integers themselves."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dims import product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.operator import Operator, shared_attributes
from jitonnx.ops.fused import ROUNDED, Lookup, Pointwise, SumOfBytes
from jitonnx.ops.onnx.activation import LeakyRelu, Relu
from jitonnx.ops.onnx.arithmetic import Add, Clip, IsNaN, Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.convolution import Conv, ConvTranspose
from jitonnx.ops.onnx.depth_to_space import DepthToSpace, SpaceToDepth
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.logic import Where
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.normalization import LayerNormalization, RMSNormalization
from jitonnx.ops.onnx.pooling import AveragePool, GlobalAveragePool, MaxPool
from jitonnx.ops.onnx.quantization import (
    ConvInteger,
    DequantizeLinear,
    MatMulInteger,
    QLinearConv,
    QLinearMatMul,
    QuantizeLinear,
    bounds_about,
)
from jitonnx.ops.onnx.reduction import ReduceMean
from jitonnx.ops.onnx.shape import Expand, Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.ops.onnx.tile import Tile
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Level, Result, array, producer, ranked, rule, scalar
from jitonnx.passes.rules.weights import plain_product

_BYTES = (DType.INT8, DType.UINT8)


_KNOWN = "scales and zero points, one of what is computed, one for each output of weights; it is done in float32"
"""What products of integers want to be constant."""


@rule(
    "integer convolution",
    Conv,
    equation="Conv(s (x - z), t (w - u)) + b = s t ConvInteger(x, w, z, u) + b",
    level=Level.EXTENDED,
)
def integer_convolution(node: Node, edit: Edit) -> Result:
    """A convolution of what DequantizeLinear gives, by the exact sums of integers: those that quantised models mean,
    and that other orders of summing and multiplying miss by a unit now and then.

    before: Conv(DequantizeLinear(x, s, z), DequantizeLinear(w, t, u), b)
    after:  ConvInteger(x, w, z, u) -> Cast -> Mul(s t) -> Add(b)
    """
    x, w, bias = (*node.inputs, None)[:3]
    numbers, weights = _dequantised(x), _dequantised(w)
    if numbers is None or weights is None or not ranked(node):
        return None
    scale, by_channel = _scales(numbers, None), _scales(weights, 0)
    if scale is None or by_channel is None or array(weights.inputs[0]) is None:  # type: ignore[arg-type]
        raise Decline(Reason.NOT_CONSTANT, f"weights, {_KNOWN}")
    if _has_wide_groups(node) and _is_quantised(edit, node.output):  # `grouped convolution of integers`
        return None
    integer = ConvInteger(**shared_attributes(node.operator, ConvInteger))
    tail = (1,) * (len(node.output.shape) - 2)
    return _scaled_sums(edit, integer, numbers, weights, (scale * by_channel).reshape(-1, *tail), bias, (-1, *tail))


@rule(
    "integer product",
    MatMul,
    Gemm,
    equation="s (a - z) * t (b - u) + c = s t MatMulInteger(a, b, z, u) + c",
    level=Level.EXTENDED,
)
def integer_product(node: Node, edit: Edit) -> Result:
    """A matrix product of what DequantizeLinear gives, as `integer convolution`: with constants, which may have a scale
    for each column, or of two computed tensors, attention's for instance.

    before: MatMul or Gemm(DequantizeLinear(a, s, z), DequantizeLinear(b, t, u), c)
    after:  MatMulInteger(a, b, z, u) -> Cast -> Mul(s t) -> Add(c)
    """
    found = plain_product(node)
    if found is None:
        return None
    a, b, bias, turned = found
    numbers, weights = _dequantised(a), _dequantised(b)
    if numbers is None or weights is None or not ranked(node):
        return None
    matrix = weights.inputs[0]
    assert matrix is not None
    columns = None if array(matrix) is None else len(matrix.shape) - (2 if turned else 1)
    scale, by_column = _scales(numbers, None), _scales(weights, columns)
    if scale is None or by_column is None:
        raise Decline(Reason.NOT_CONSTANT, _KNOWN)
    if turned and len(matrix.shape) != 2:
        return None
    if columns is None and min(len(matrix.shape), len(numbers.output.shape)) < 2:
        return None
    return _scaled_sums(edit, MatMulInteger(), numbers, weights, scale * by_column, bias, None, turned)


@rule(
    "quantised operator",
    QLinearConv,
    QLinearMatMul,
    equation="QLinearConv(x, w) = QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w))), QLinearMatMul alike",
    level=Level.EXTENDED,
)
def quantised_operator(node: Node, edit: Edit) -> Result:
    """An operator on integers as models spell it out between QuantizeLinear and DequantizeLinear, for one set of rules.

    before: QLinearConv(x, s, z, w, t, u, r, v, b)
    after:  QuantizeLinear(Conv(DequantizeLinear(x, s, z), DequantizeLinear(w, t, u), DequantizeLinear(b, s t)), r, v)
    """
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*node.inputs, None)[:9]
    assert x is not None and w is not None and x_scale is not None and w_scale is not None and y_scale is not None
    if not ranked(node) or array(w) is None or x.dtype not in _BYTES or w.dtype not in _BYTES:
        return None
    convolution = isinstance(node.operator, QLinearConv)
    axis = 0 if convolution else len(w.shape) - 1
    one, steps = array(x_scale), array(w_scale)
    if one is None or one.size != 1 or steps is None or steps.ndim > 1 or array(y_scale) is None:
        return None
    of_weights = None if w_zero is None else array(w_zero)
    if x_zero is None or not _alike(array(x_zero)) or of_weights is None or not _alike(of_weights):
        return None
    numbers = edit.add(DequantizeLinear(), x, edit.constant(one.reshape(())), _single(edit, x_zero))
    steps = steps if steps.size > 1 else steps.reshape(())
    zeros = np.full(steps.shape, of_weights.reshape(-1)[0])
    weights = edit.add(DequantizeLinear(axis=axis), w, edit.constant(steps), edit.constant(zeros))
    operands = [numbers, weights]
    if bias is not None:
        operands.append(edit.add(DequantizeLinear(axis=0), bias, edit.constant(np.asarray(one.reshape(()) * steps))))
    operator = Conv(**shared_attributes(node.operator, Conv)) if convolution else MatMul()
    return edit.add(QuantizeLinear(), edit.add(operator, *operands), _single(edit, y_scale), _single(edit, y_zero))


_MOVES = (DepthToSpace, Expand, Flatten, Gather, Reshape, Slice, SpaceToDepth, Squeeze, Tile, Transpose, Unsqueeze)
"""Operators that move the elements of their first input."""


@rule(
    "moved integers",
    *_MOVES,
    MaxPool,
    equation="Reshape(DequantizeLinear(x)) = DequantizeLinear(Reshape(x)), and whatever else moves or chooses elements",
    level=Level.EXTENDED,
)
def moved_integers(node: Node, edit: Edit) -> Result:
    """Bytes are moved, a quarter of what float32 takes, and stay what they are if they are quantised behind.

    before: Reshape(DequantizeLinear(x, s, z))
    after:  DequantizeLinear(Reshape(x), s, z)
    """
    numbers = _dequantised(node.inputs[0])
    if numbers is None or len(node.outputs) != 1 or not ranked(node):
        return None
    x, scale, zero = (*numbers.inputs, None)[:3]
    assert x is not None and scale is not None
    steps = _scales(numbers, None)
    if array(x) is not None or steps is None or (isinstance(node.operator, MaxPool) and steps[0] <= 0):
        return None
    edit.shares([numbers])
    moved = edit.add(node.operator, x, *node.inputs[1:])
    return edit.add(DequantizeLinear(), moved, edit.constant(np.asarray(steps[0])), _single(edit, zero))


_REORDERS = (DepthToSpace, Expand, Flatten, Reshape, SpaceToDepth, Squeeze, Tile, Transpose, Unsqueeze)
"""Operators whose result has all elements of their first input: quantising that is no more work."""
_GIVES_BYTES = (LayerNormalization, RMSNormalization, Softmax)
"""Operators beside elementwise ones whose kernels quantise what they give."""


_MOST_SUMMED = (1 << 24) // 255
"""Bytes whose sum float32 holds, whatever they are."""


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

    before: GlobalAveragePool(DequantizeLinear(x, s, z))
    after:  SumOfBytes(x) -> Cast -> Add(-n z) -> Mul(s / n)
    """
    numbers = _dequantised(node.inputs[0])
    if numbers is None or not ranked(node):
        return None
    x, _, zero = (*numbers.inputs, None)[:3]
    assert x is not None
    steps, operator, axes, keepdims = _scales(numbers, None), node.operator, tuple(range(2, len(x.shape))), True
    if isinstance(operator, ReduceMean):
        given = (*node.inputs, None)[1]
        if given is not None and array(given) is None:
            return None
        axes, keepdims = operator.axes_of(x, given), bool(operator.keepdims)
    count = product(x.shape[axis] for axis in axes)
    if steps is None or not axes or not isinstance(count, int) or not 0 < count <= _MOST_SUMMED:
        return None
    edit.shares([numbers])
    zeros = 0 if zero is None else int(array(zero).reshape(-1)[0])  # type: ignore[union-attr]
    sums = edit.add(Cast(to=int(DType.FLOAT)), edit.add(SumOfBytes(axes=axes, keepdims=keepdims), x))
    shifted = edit.add(Add(), sums, edit.constant(np.asarray(-count * zeros, np.float32)))
    return edit.add(Mul(), shifted, edit.constant(np.asarray(steps[0] / np.float32(count), np.float32)))


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
    numbers, pool = _dequantised(node.inputs[0]), node.operator
    assert isinstance(pool, AveragePool)
    if numbers is None or len(numbers.output.shape) != 4 or pool.ceil_mode or _scales(numbers, None) is None:
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
    edit.shares([numbers])
    ones = edit.constant(np.ones((channels, 1, *pool.kernel_shape), np.int8))
    weights = edit.add(DequantizeLinear(), ones, edit.constant(np.asarray(1 / count, np.float32)))
    means = edit.add(Conv(**{**shared_attributes(pool, Conv), "group": channels}), x, weights)
    return means if shares is None else edit.add(Mul(), means, edit.constant(1 / shares))


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
    numbers, weights, operator = _dequantised(x), _dequantised(w), node.operator
    assert isinstance(operator, ConvTranspose)
    if numbers is None or weights is None or not ranked(node) or len(node.output.shape) != 4:
        return None
    elements, steps = array(weights.inputs[0]), _scales(weights, 1)  # type: ignore[arg-type]
    if _scales(numbers, None) is None or steps is None or elements is None:
        raise Decline(Reason.NOT_CONSTANT, f"weights, {_KNOWN}")
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
    zero = _one_zero(edit, weights)
    zeros = None if zero is None else edit.constant(np.full(scales.shape, array(zero)))
    factors = edit.add(DequantizeLinear(axis=0), matrix, edit.constant(scales), zeros)
    biases = [] if bias is None else [edit.add(Concat(axis=0), *[bias] * blocks)]
    return edit.add(DepthToSpace(blocksize=size), edit.add(Conv(), x, factors, *biases))


_WIDE_GROUP = 32
"""Channels of a group from which on a product of bytes for each is less work than one of floats for all."""


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
    while (above := producer(inner, *_IN_PLACE)) is not None:
        activations.append(above)
        inner = above.inputs[0]
    product = producer(inner, Conv)
    if product is None or inner is None or not _has_wide_groups(product) or not _is_quantised(edit, inner):
        return None
    x, w, bias = (*product.inputs, None)[:3]
    numbers, weights, operator = _dequantised(x), _dequantised(w), product.operator
    assert isinstance(operator, Conv) and numbers is not None and weights is not None and weights.inputs[0] is not None
    elements, steps, group = array(weights.inputs[0]), _scales(weights, 0), operator.group
    if _scales(numbers, None) is None or steps is None or elements is None:
        return None
    inputs, outputs = elements.shape[1], len(elements) // group
    edit.shares([numbers, weights])
    edit.consume([*activations, product])
    alone = Conv(**{**shared_attributes(operator, Conv), "group": 1})
    zero, parts = _one_zero(edit, weights), list[Value]()
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


_IN_PLACE = (Clip, LeakyRelu, Relu)
"""Activations that go with what is in front of them."""


def _has_wide_groups(node: Node) -> bool:
    """Whether a convolution of dequantised numbers has groups that are worth a product of their own."""
    x, w = node.inputs[:2]
    assert isinstance(node.operator, Conv)
    group = node.operator.group
    if group == 1 or w is None or _dequantised(x) is None or _dequantised(w) is None or not ranked(node):
        return False
    outputs, inputs = w.shape[:2]
    return isinstance(outputs, int) and isinstance(inputs, int) and min(inputs, outputs // group) >= _WIDE_GROUP


def _is_quantised(edit: Edit, x: Value) -> bool:
    """Whether all that becomes of x is one tensor of bytes, of one scale, by way of activations with numbers."""
    while x not in edit.graph.results and len(x.users) == 1:
        (user,) = x.users
        if user.inputs[0] is not x or any(given and scalar(given) is None for given in user.inputs[1:]):
            return False
        if isinstance(user.operator, QuantizeLinear):
            return user.output.dtype in _BYTES
        if not isinstance(user.operator, _IN_PLACE):
            return False
        x = user.output
    return False


def _rows(edit: Edit, x: Value, rows: slice) -> Value:
    return edit.add(Slice(), x, *(edit.dims([one]) for one in (rows.start, rows.stop, 0)))


def _singles(edit: Edit, numbers: Node) -> list[Value | None]:
    """The scale and zero point, if there is one, of a DequantizeLinear by one scale, as scalars."""
    return [_single(edit, given) for given in numbers.inputs[1:]]


@rule(
    "activation of blocks",
    *_IN_PLACE,
    equation="f(DepthToSpace(x)) = DepthToSpace(f(x))",
    level=Level.EXTENDED,
)
def activation_of_blocks(node: Node, edit: Edit) -> Result:
    """An activation in front of a DepthToSpace: so it and what quantises it stay with the product of integers.

    before: Relu(DepthToSpace(Add(Mul(Cast(ConvInteger)))))
    after:  DepthToSpace(Relu(Add(Mul(Cast(ConvInteger)))))
    """
    moved = node.inputs[0]
    above = producer(moved, DepthToSpace)
    if above is None or moved is None or not _alone(edit, moved) or not ranked(node) or above.inputs[0] is None:
        return None
    if any(given is not None and scalar(given) is None for given in node.inputs[1:]) or not _of_integers(
        above.inputs[0]
    ):
        return None
    edit.consume([above])
    return edit.add(above.operator, edit.add(node.operator, above.inputs[0], *node.inputs[1:]))


@rule(
    "quantised before it is moved",
    QuantizeLinear,
    equation="QuantizeLinear(Reshape(x), s, z) = Reshape(QuantizeLinear(x, s, z)), and what else keeps all elements",
    level=Level.EXTENDED,
)
def quantised_before_moved(node: Node, edit: Edit) -> Result:
    """What makes a tensor quantises it, too, and bytes are moved: so activations behind which exporters put a Reshape
    are tables, and products write bytes.

    before: QuantizeLinear(Reshape(x), s, z)
    after:  Reshape(QuantizeLinear(x, s, z))
    """
    moved, scale, zero = (*node.inputs, None)[:3]
    above = producer(moved, *_REORDERS)
    if above is None or moved is None or scale is None or node.output.dtype not in _BYTES or not ranked(node):
        return None
    scales, zeros, x = array(scale), None if zero is None else array(zero), above.inputs[0]
    if scales is None or scales.size != 1 or (zero is not None and zeros is None) or not _alone(edit, moved):
        return None
    if x is None or array(x) is not None or not ranked(above) or x.dtype is not DType.FLOAT:
        return None
    made = None if x.producer is None else x.producer.operator
    if made is None or not (made.elementwise or isinstance(made, _GIVES_BYTES)):  # it would be a pass of its own
        return None
    edit.consume([above])
    numbers = edit.add(node.operator, x, edit.constant(scales.reshape(())), _single(edit, zero))
    return edit.add(above.operator, numbers, *above.inputs[1:])


@rule(
    "concatenated integers",
    QuantizeLinear,
    equation="QuantizeLinear(Concat(DequantizeLinear(x), …)) = Concat(QuantizeLinear(DequantizeLinear(x)), …)",
    level=Level.EXTENDED,
)
def concatenated_integers(node: Node, edit: Edit) -> Result:
    """Bytes are joined: those of the result's scale as they are, others quantised anew one by one. What further nodes
    read as float32 is left, which is then made once for all of them.

    before: QuantizeLinear(Concat(DequantizeLinear(x, s, z), DequantizeLinear(y, t, u)), r, v)
    after:  Concat(QuantizeLinear(DequantizeLinear(x, s, z), r, v), QuantizeLinear(DequantizeLinear(y, t, u), r, v))
    """
    joined, scale, zero = (*node.inputs, None)[:3]
    above = producer(joined, Concat)
    if above is None or joined is None or node.output.dtype not in _BYTES or not ranked(node):
        return None
    scales, zeros = array(scale), None if zero is None else array(zero)  # type: ignore[arg-type]
    if scales is None or scales.size != 1 or (zero is not None and zeros is None) or not _alone(edit, joined):
        return None
    parts = [part for part in above.inputs if part is not None]
    if any(_dequantised(part) is None or not _alone(edit, part) for part in parts):
        return None
    edit.consume([above])
    given = edit.constant(scales.reshape(())), _single(edit, zero)
    return edit.add(above.operator, *(edit.add(node.operator, part, *given) for part in parts))


@rule(
    "quantised again",
    QuantizeLinear,
    equation="QuantizeLinear(DequantizeLinear(x, s, z), s, z) = x",
    level=Level.EXTENDED,
)
def quantised_again(node: Node, edit: Edit) -> Result:
    """What was bytes becomes the same bytes."""
    x, scale, zero = (*node.inputs, None)[:3]
    numbers = _dequantised(x)
    if numbers is None or scale is None or not ranked(node):
        return None
    source, other, other_zero = (*numbers.inputs, None)[:3]
    assert source is not None and other is not None
    if (
        not _same_zero(zero, other_zero)
        or not _equal(array(scale), array(other))
        or source.dtype is not node.output.dtype
    ):
        return None
    edit.shares([numbers])
    return source


@rule(
    "no NaN among integers",
    Where,
    equation="Where(IsNaN(DequantizeLinear(x)), a, y) = y",
    level=Level.EXTENDED,
)
def no_nan_among_integers(node: Node, edit: Edit) -> Result:
    """What exporters put behind a softmax for rows that are masked as a whole: integers are no NaN.

    before: Where(IsNaN(DequantizeLinear(x, s, z)), a, y)
    after:  y
    """
    condition, _, y = node.inputs
    asked = producer(condition, IsNaN)
    numbers = None if asked is None else _dequantised(asked.inputs[0])
    if asked is None or numbers is None or y is None or y.shape != node.output.shape:
        return None
    scales = array(numbers.inputs[1])  # type: ignore[arg-type]
    if scales is None or not np.isfinite(scales).all():
        return None
    edit.shares([asked])
    return y


@rule(
    "table of bytes",
    QuantizeLinear,
    equation="QuantizeLinear(f(DequantizeLinear(x))) = table[x], the 256 values of it",
    level=Level.EXTENDED,
)
def table_of_bytes(node: Node, edit: Edit) -> Result:
    """An activation between quantised tensors, with all that is rounded on the way, as a table.

    before: QuantizeLinear(Mul(DequantizeLinear(x), DequantizeLinear(QuantizeLinear(Sigmoid(DequantizeLinear(x))))))
    after:  Lookup(x, table)
    """
    if node.output.dtype not in _BYTES or not ranked(node):
        return None
    walk = _Bytes()
    source = walk.source(node.output)
    if source is None or source is node.output or not walk.pays(source) or source.shape != node.output.shape:
        return None
    if array(source) is not None:
        return None
    assert source.dtype is not None
    edit.shares(walk.nodes)
    with np.errstate(all="ignore"):
        table = walk.evaluated(node.output, source, np.arange(256, dtype=np.uint8).view(source.dtype.numpy))
    return edit.add(Lookup(), source, edit.constant(np.ascontiguousarray(table)))


_CHEAP = (Add, Clip, Mul, Relu)
"""Activations of these alone are done where their operand is made."""


class _Bytes:
    """What a number comes from by functions of a byte."""

    def __init__(self) -> None:
        self.nodes: dict[Node, None] = {}
        self._depth = 0

    def pays(self, source: Value) -> bool:
        """Whether what was walked through from `source` on is more than a few instructions, or has nobody to do it."""
        kinds = [node.operator for node in self.nodes]
        if isinstance(source.producer.operator if source.producer else None, _MOVES):
            return True  # the bytes are there: nothing computes them, in whose epilogue this could be
        rounded = sum(isinstance(kind, QuantizeLinear) for kind in kinds)
        return rounded > 2 or not all(isinstance(kind, (*_CHEAP, DequantizeLinear, QuantizeLinear)) for kind in kinds)

    def source(self, value: Value) -> Value | None:
        """The one tensor of bytes, not a constant, that a tensor is made of element by element, by nodes that are then
        in `nodes`; None where there is none."""
        node = value.producer
        quantised = value.dtype in _BYTES
        self._depth += 1
        if node is not None and self._depth <= _STEPS and self._takes(node):
            found = [self.source(given) for given in self._varying(node)]
            if found and all(one is not None and one is found[0] for one in found):
                self.nodes[node] = None
                return found[0]
        return value if quantised else None

    def _takes(self, node: Node) -> bool:
        """Whether a node is a function of each element of its varying inputs."""
        operator = node.operator
        if len(node.outputs) != 1 or not ranked(node):
            return False
        constants = [array(given) for given in node.inputs[1:] if given is not None]
        if isinstance(operator, Lookup):
            return True
        if isinstance(operator, DequantizeLinear | QuantizeLinear):
            byte = node.inputs[0] if isinstance(operator, DequantizeLinear) else node.output
            float32 = node.output if isinstance(operator, DequantizeLinear) else node.inputs[0]
            types = (
                byte is not None
                and float32 is not None
                and (byte.dtype in _BYTES, float32.dtype) == (True, DType.FLOAT)
            )
            return types and not operator.block_size and all(one is not None and one.size == 1 for one in constants)
        return operator.elementwise and operator.deterministic and node.output.dtype is DType.FLOAT

    def _varying(self, node: Node) -> list[Value]:
        """The inputs of a node but constants of one element; those of more are not bytes, and found not to be."""
        given = [value for value in node.inputs if value is not None]
        if isinstance(node.operator, DequantizeLinear | Lookup | QuantizeLinear):
            return given[:1]
        return [value for value in given if (constant := array(value)) is None or constant.size != 1]

    def evaluated(self, value: Value, source: Value, numbers: np.ndarray) -> np.ndarray:
        """What a tensor is where its source is `numbers`."""
        if value is source:
            return numbers
        constant = array(value)
        if constant is not None:
            return constant if isinstance(constant, np.ndarray) and constant.size != 1 else constant.reshape(())
        node = value.producer
        assert node is not None
        arrays = [None if given is None else self.evaluated(given, source, numbers) for given in node.inputs]
        return np.asarray(node.operator.evaluate(*arrays))


def _alike(values: np.ndarray | None) -> bool:
    """Whether all elements of a constant are equal, and there are any."""
    return values is not None and values.size > 0 and not np.any(values != values.reshape(-1)[0])


def _single(edit: Edit, value: Value | None) -> Value | None:
    """A constant of equal elements as a scalar."""
    constant = None if value is None else array(value)
    return value if constant is None or not _alike(constant) else edit.constant(np.asarray(constant.reshape(-1)[0]))


@rule(
    "requantisation",
    QuantizeLinear,
    equation="QuantizeLinear(s x + y, t, z) = QuantizeLinear((s / t) x + y / t, 1, z), x a product of integers",
    level=Level.EXTENDED,
)
def requantisation(node: Node, edit: Edit) -> Result:
    """What comes of integers quantised by a multiplication, as QLinearConv does it, and not by a division: by the
    factors, biases and scales that it is made of. An activation that cuts off no more than quantising does vanishes.
    The two differ in the last place of a float32.

    before: QuantizeLinear(Relu(Add(Mul(x, s), b)), t, z)
    after:  QuantizeLinear(Add(Mul(x, s / t), b / t), 1, z)
    """
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None and scale is not None
    scales = array(scale)
    if scales is None or scales.dtype != np.float32 or scales.size != 1 or scales.flat[0] == 1 or not ranked(node):
        return None
    factor = np.asarray(np.float32(1) / scales.item(), np.float32)
    if x.dtype is not DType.FLOAT or not np.isfinite(factor) or factor <= 0 or not _of_integers(x):
        return None
    product = _scaled(edit, _within_range(edit, x, scales.item(), zero, node.output.dtype), factor)
    return edit.add(node.operator, product, edit.constant(np.ones_like(scales)), zero)


@rule(
    "rounded in place",
    DequantizeLinear,
    equation="DequantizeLinear(QuantizeLinear(x, 1, z), s, z) = s clip(round(x), low - z, high - z)",
    level=Level.EXTENDED,
)
def rounded_in_place(node: Node, edit: Edit) -> Result:
    """What is quantised for an element-wise operator that goes on with it in float32, and for nobody else, stays
    float32: the result of a convolution that a residual is added to.

    before: DequantizeLinear(QuantizeLinear(x, 1, z), s, z)
    after:  Pointwise -> Mul(s)
    """
    numbers, scale, zero = (*node.inputs, None)[:3]
    above = producer(numbers, QuantizeLinear)
    if above is None or numbers is None or scale is None or numbers.dtype not in _BYTES or not ranked(node):
        return None
    x, one, other = (*above.inputs, None)[:3]
    assert x is not None and one is not None
    if not _same_zero(zero, other) or scalar(one) != 1 or _scales(node, None) is None or x.dtype is not DType.FLOAT:
        return None
    if node.output.dtype is not DType.FLOAT or not all(map(_finite, _leaves(x))):
        return None
    if not all(isinstance(user.operator, Add | Mul) for user in node.output.users):  # others may take the integers
        return None
    beside = [given for user in node.output.users for given in user.inputs if given is not node.output]
    if any(_dequantised(given) is None for given in beside):  # one operand of a sum stays in registers, not several
        return None
    edit.consume([above])
    zeros = np.zeros((), numbers.dtype.numpy) if zero is None else array(zero)
    assert zeros is not None
    bounds = (edit.constant(bound) for bound in bounds_about(zeros.reshape(-1)[0]))
    return edit.add(Mul(), edit.add(ROUNDED, x, *bounds), scale)


def _same_zero(a: Value | None, b: Value | None) -> bool:
    """Whether two zero points are one value, or constants of one number."""
    return a is b or (a is not None and b is not None and _equal(array(a), array(b)))


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is not None and b is not None and a.size == b.size == 1 and a.reshape(-1)[0] == b.reshape(-1)[0]


_ARITHMETIC = (Add, Cast, Clip, Mul, Pointwise, Relu)
_STEPS = 24
"""How far behind integers what is made of them is looked for."""


def _leaves(value: Value) -> list[Node | Value]:
    """What a number is made of by some steps of arithmetic: nodes that do something else, and values without a node."""
    waiting, steps, found = [value], 0, list[Node | Value]()
    while waiting:
        one = waiting.pop()
        node, steps = one.producer, steps + 1
        if node is not None and steps <= _STEPS and isinstance(node.operator, _ARITHMETIC):
            waiting += [given for given in node.inputs[:2] if given is not None]
        else:
            found.append(one if node is None else node)
    return found


def _integral(leaf: Node | Value) -> bool:
    """Whether a leaf is a product of integers, or integers dequantised."""
    if isinstance(leaf, Value):
        return False
    return (
        isinstance(leaf.operator, ConvInteger | MatMulInteger | SumOfBytes) or _dequantised(leaf.outputs[0]) is not None
    )


def _finite(leaf: Node | Value) -> bool:
    """Whether a leaf is a finite number, whatever the inputs are."""
    if isinstance(leaf, Node):
        return _integral(leaf) or _dequantised_constant(leaf)
    constant = array(leaf)
    return constant is not None and bool(np.isfinite(constant).all())


def _dequantised_constant(node: Node) -> bool:
    numbers = node.inputs[0]
    return isinstance(node.operator, DequantizeLinear) and numbers is not None and numbers.constant is not None


def _of_integers(value: Value) -> bool:
    """Whether integers are among what a number is made of."""
    return any(map(_integral, _leaves(value)))


def _within_range(edit: Edit, x: Value, scale: float, zero: Value | None, dtype: DType | None) -> Value:
    """x without a last Relu or Clip that leaves all that quantising by `scale` tells apart."""
    zeros = np.zeros((), np.uint8) if zero is None else array(zero)
    node = producer(x, Relu, Clip)
    if node is None or zeros is None or zeros.size != 1 or dtype not in _BYTES or not _alone(edit, x):
        return x
    least, most = (bound * np.float32(scale) for bound in bounds_about(zeros.reshape(-1)[0]))
    inside, low, high = (*node.inputs, None, None)[:3]
    assert inside is not None
    if isinstance(node.operator, Relu):
        return inside if least >= 0 else x
    below, above = scalar(low), scalar(high)
    if (low is not None and below is None) or (high is not None and above is None):
        return x
    kept = [None if below is None or below <= least else low, None if above is None or above >= most else high]
    if kept == [low, high]:
        return x
    edit.shares([node])
    return inside if kept == [None, None] else edit.add(Clip(), inside, *kept)


def _alone(edit: Edit, x: Value) -> bool:
    """Whether one node at most reads x, and the caller does not."""
    return len(x.users) <= 1 and x not in edit.graph.results


def _scaled(edit: Edit, x: Value, factor: np.ndarray) -> Value:
    """x * factor, a positive number, by the constants that x is made of where nobody else reads what is between."""
    constant, node = array(x), x.producer
    if constant is not None:
        return edit.constant(np.asarray(constant * factor, np.float32))
    if node is not None and isinstance(node.operator, DequantizeLinear) and node.output.dtype is DType.FLOAT:
        numbers, scale, *zero = node.inputs
        scales = None if scale is None else array(scale)
        if scales is not None and scales.dtype == np.float32:
            edit.shares([node])
            return edit.add(node.operator, numbers, edit.constant(np.asarray(scales * factor)), *zero)
    if node is not None and _alone(edit, x) and x.dtype is DType.FLOAT:
        inputs = [given for given in node.inputs if given is not None]
        if isinstance(node.operator, Relu):
            edit.shares([node])
            return edit.add(Relu(), _scaled(edit, inputs[0], factor))
        if isinstance(node.operator, Add):
            edit.shares([node])
            return edit.add(Add(), *(_scaled(edit, given, factor) for given in inputs))
        if isinstance(node.operator, Mul) and (held := [given for given in inputs if array(given) is not None]):
            edit.shares([node])
            return edit.add(Mul(), *(_scaled(edit, given, factor) if given is held[0] else given for given in inputs))
        if isinstance(node.operator, Clip) and all(scalar(given) is not None for given in inputs[1:]):
            edit.shares([node])
            first, *limits = node.inputs
            assert first is not None
            scaled = [None if limit is None else _scaled(edit, limit, factor) for limit in limits]
            return edit.add(Clip(), _scaled(edit, first, factor), *scaled)
    return edit.add(Mul(), x, edit.constant(factor))


def _dequantised(value: Value | None) -> Node | None:
    """The DequantizeLinear of 8-bit integers that a value comes from, if it does."""
    node = producer(value, DequantizeLinear)
    if node is None or node.inputs[0] is None or node.inputs[0].dtype not in _BYTES:
        return None
    operator: DequantizeLinear = node.operator  # type: ignore[assignment]
    return node if node.output.dtype is DType.FLOAT and not operator.block_size and ranked(node) else None


def _scales(node: Node, axis: int | None) -> np.ndarray | None:
    """The constant scales of a DequantizeLinear: one, or, where an axis is given, one for each place along that; None
    where they are others, or zero points are not constant, or differ from place to place."""
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None and scale is not None
    scales, zeros = array(scale), None if zero is None else array(zero)
    operator: DequantizeLinear = node.operator  # type: ignore[assignment]
    if scales is None or scales.dtype != np.float32 or (zero is not None and zeros is None):
        return None
    if zeros is not None and zeros.size > 1 and np.any(zeros != zeros.flat[0]):
        return None
    if scales.size != 1 and (axis is None or operator.axis % len(x.shape) != axis):
        return None
    return scales.reshape(-1)


def _scaled_sums(
    edit: Edit,
    operator: Operator,
    numbers: Node,
    weights: Node,
    scales: np.ndarray,
    bias: Value | None,
    bias_shape: tuple[int, ...] | None,
    turned: bool = False,
) -> Value:
    """The integer operator on what two DequantizeLinears read, times `scales`, plus the bias."""
    matrix = weights.inputs[0]
    assert matrix is not None
    if turned:
        matrix = edit.add(Transpose(perm=(1, 0)), matrix)
    zeros = [_one_zero(edit, node) for node in (numbers, weights)]
    sums = edit.add(operator, numbers.inputs[0], matrix, *zeros)
    result = edit.add(Mul(), edit.add(Cast(to=int(DType.FLOAT)), sums), edit.constant(scales.astype(np.float32)))
    if bias is None:
        return result
    return edit.add(Add(), result, bias if bias_shape is None else edit.reshape(bias, bias_shape))


def _one_zero(edit: Edit, node: Node) -> Value | None:
    """The zero point of a DequantizeLinear, all of which are equal, as a scalar."""
    zero = (*node.inputs, None)[2]
    zeros = None if zero is None else array(zero)
    return zero if zeros is None or not zeros.shape else edit.constant(np.asarray(zeros.reshape(-1)[0]))


RULES = (
    grouped_integers,
    integer_convolution,
    integer_product,
    quantised_operator,
    mean_of_integers,
    average_of_integers,
    transposed_integers,
    activation_of_blocks,
    moved_integers,
    quantised_before_moved,
    concatenated_integers,
    quantised_again,
    no_nan_among_integers,
    table_of_bytes,
    requantisation,
    rounded_in_place,
)
