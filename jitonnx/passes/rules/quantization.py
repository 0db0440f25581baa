"""Products of dequantised numbers as products of the integers themselves."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.operator import Operator, shared_attributes
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Add, Clip, Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.quantization import ConvInteger, DequantizeLinear, MatMulInteger, QuantizeLinear
from jitonnx.ops.onnx.shape import Transpose
from jitonnx.passes.rewriting import Edit, Level, Result, array, producer, ranked, rule

_BYTES = (DType.INT8, DType.UINT8)


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
    """A matrix product of what DequantizeLinear gives with constants, as `integer convolution`.

    before: MatMul or Gemm(DequantizeLinear(a, s, z), DequantizeLinear(b, t, u), c)
    after:  MatMulInteger(a, b, z, u) -> Cast -> Mul(s t) -> Add(c)
    """
    a, b, bias = (*node.inputs, None)[:3]
    numbers, weights = _dequantised(a), _dequantised(b)
    if numbers is None or weights is None or not ranked(node):
        return None
    operator, turned = node.operator, False
    if isinstance(operator, Gemm):
        if operator.alpha != 1 or operator.transA or (bias is not None and operator.beta != 1):
            return None
        turned = bool(operator.transB)
    matrix = weights.inputs[0]
    assert matrix is not None
    scale, by_column = _scales(numbers, None), _scales(weights, len(matrix.shape) - (2 if turned else 1))
    if scale is None or by_column is None or array(matrix) is None or (turned and len(matrix.shape) != 2):
        return None
    return _scaled_sums(edit, MatMulInteger(), numbers, weights, scale * by_column, bias, None, turned)


@rule(
    "requantisation",
    QuantizeLinear,
    equation="QuantizeLinear(x, s, z) = QuantizeLinear(x (1 / s), 1, z), x a product of integers",
    level=Level.EXTENDED,
)
def requantisation(node: Node, edit: Edit) -> Result:
    """What comes of a product of integers quantised by a multiplication, as QLinearConv does it, and not by a division,
    which takes ten times as long. The two differ in the last place of a float32.

    before: QuantizeLinear(x, s, z)
    after:  Mul(1 / s) -> QuantizeLinear(1, z)
    """
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None and scale is not None
    scales = array(scale)
    if scales is None or scales.dtype != np.float32 or scales.size != 1 or scales.flat[0] == 1 or not ranked(node):
        return None
    factor = np.float32(1) / scales
    if x.dtype is not DType.FLOAT or not np.isfinite(factor).all() or not _of_integer_product(x):
        return None
    product = edit.add(Mul(), x, edit.constant(factor.reshape(())))
    return edit.add(node.operator, product, edit.constant(np.ones_like(scales)), zero)


_STEPS = 12
"""How far behind a product of integers its result is looked for."""


def _of_integer_product(value: Value) -> bool:
    """Whether a product of integers is among what a number is made of by few steps of arithmetic."""
    waiting, steps = [value], 0
    while waiting and steps < _STEPS:
        node, steps = waiting.pop().producer, steps + 1
        if node is None:
            continue
        if isinstance(node.operator, ConvInteger | MatMulInteger):
            return True
        if isinstance(node.operator, Add | Cast | Clip | Mul | Relu):
            waiting += [given for given in node.inputs[:2] if given is not None]
    return False


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
    return zero if zeros is None or not zeros.shape else edit.constant(zeros.reshape(-1)[0])


RULES = (integer_convolution, integer_product, requantisation)
