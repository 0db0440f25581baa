"""Products of dequantised numbers as products of the integers themselves."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.operator import Operator
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.quantization import ConvInteger, DequantizeLinear, MatMulInteger
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
    operator: Conv = node.operator  # type: ignore[assignment]
    integer = ConvInteger(
        auto_pad=operator.auto_pad,
        dilations=operator.dilations,
        group=operator.group,
        kernel_shape=operator.kernel_shape,
        pads=operator.pads,
        strides=operator.strides,
    )
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


RULES = (integer_convolution, integer_product)
