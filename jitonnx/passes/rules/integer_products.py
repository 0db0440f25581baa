"""Products and convolutions of dequantised numbers as those of the integers themselves."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.operator import Operator, shared_attributes
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.quantization import (
    ConvInteger,
    DequantizeLinear,
    MatMulInteger,
    QLinearConv,
    QLinearMatMul,
    QuantizeLinear,
)
from jitonnx.ops.onnx.shape import Transpose
from jitonnx.passes.quantized import BYTES, KNOWN, all_alike, as_scalar, constant_scales, dequantised, one_zero
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Level, Result, array, producer, ranked, rule
from jitonnx.passes.rules.integer_windows import has_wide_groups, is_quantised
from jitonnx.passes.rules.weights import plain_product


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
    after:  ConvInteger(x, w, z, u) -> Cast -> Mul(s t) -> Add(b), or with b = s t n, n of int32: Add(n) -> Cast -> Mul
    """
    x, w, bias = (*node.inputs, None)[:3]
    numbers, weights = dequantised(x), dequantised(w)
    if numbers is None or weights is None or not ranked(node):
        return None
    scale, by_channel = constant_scales(numbers, None), constant_scales(weights, 0)
    if scale is None or by_channel is None or array(weights.inputs[0]) is None:  # type: ignore[arg-type]
        raise Decline(Reason.NOT_CONSTANT, f"weights, {KNOWN}")
    if has_wide_groups(node) and is_quantised(edit, node.output):  # `grouped convolution of integers`
        return None
    integer = ConvInteger(**shared_attributes(node.operator, ConvInteger))
    tail = (1,) * (len(node.output.shape) - 2)
    return _scaled_sums(edit, integer, (numbers, weights), (scale * by_channel).reshape(-1, *tail), bias, (-1, *tail))


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
    numbers, weights = dequantised(a), dequantised(b)
    if numbers is None or weights is None or not ranked(node):
        return None
    matrix = weights.inputs[0]
    assert matrix is not None
    columns = None if array(matrix) is None else len(matrix.shape) - (2 if turned else 1)
    scale, by_column = constant_scales(numbers, None), constant_scales(weights, columns)
    if scale is None or by_column is None:
        raise Decline(Reason.NOT_CONSTANT, KNOWN)
    if turned and len(matrix.shape) != 2:
        return None
    if columns is None and min(len(matrix.shape), len(numbers.output.shape)) < 2:
        return None
    return _scaled_sums(edit, MatMulInteger(), (numbers, weights), scale * by_column, bias, None, turned=turned)


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
    if not ranked(node) or array(w) is None or x.dtype not in BYTES or w.dtype not in BYTES:
        return None
    convolution = isinstance(node.operator, QLinearConv)
    axis = 0 if convolution else len(w.shape) - 1
    one, steps = array(x_scale), array(w_scale)
    if one is None or one.size != 1 or steps is None or steps.ndim > 1 or array(y_scale) is None:
        return None
    of_weights = None if w_zero is None else array(w_zero)
    if x_zero is None or not all_alike(array(x_zero)) or of_weights is None or not all_alike(of_weights):
        return None
    numbers = edit.add(DequantizeLinear(), x, edit.constant(one.reshape(())), as_scalar(edit, x_zero))
    steps = steps if steps.size > 1 else steps.reshape(())
    zeros = np.full(steps.shape, of_weights.reshape(-1)[0])
    weights = edit.add(DequantizeLinear(axis=axis), w, edit.constant(steps), edit.constant(zeros))
    operands = [numbers, weights]
    if bias is not None:
        operands.append(edit.add(DequantizeLinear(axis=0), bias, edit.constant(np.asarray(one.reshape(()) * steps))))
    operator = Conv(**shared_attributes(node.operator, Conv)) if convolution else MatMul()
    return edit.add(QuantizeLinear(), edit.add(operator, *operands), as_scalar(edit, y_scale), as_scalar(edit, y_zero))


def _scaled_sums(
    edit: Edit,
    operator: Operator,
    operands: tuple[Node, Node],
    scales: np.ndarray,
    bias: Value | None,
    bias_shape: tuple[int, ...] | None,
    *,
    turned: bool = False,
) -> Value:
    """The integer operator on what two DequantizeLinears read, of numbers and of weights, times `scales`, plus the
    bias."""
    numbers, weights = operands
    matrix = weights.inputs[0]
    assert matrix is not None
    if turned:
        matrix = edit.add(Transpose(perm=(1, 0)), matrix)
    zeros = [one_zero(edit, node) for node in operands]
    sums = edit.add(operator, numbers.inputs[0], matrix, *zeros)
    whole = None if bias is None else _whole_bias(bias, scales)
    if whole is not None:
        bias = None
        sums = edit.add(Add(), sums, edit.constant(whole if bias_shape is None else whole.reshape(bias_shape)))
    result = edit.add(Mul(), edit.add(Cast(to=int(DType.FLOAT)), sums), edit.constant(scales.astype(np.float32)))
    if bias is None:
        return result
    return edit.add(Add(), result, bias if bias_shape is None else edit.reshape(bias, bias_shape))


_LARGEST_BIAS = 1 << 30
"""The bound of a bias with which sums of 16,000 products of bytes are within int32, whatever the bytes are."""
_UNEVEN = 1e-6
"""How far scales of a bias may be off the products of others, by rounding, relative to these."""


def _whole_bias(bias: Value, scales: np.ndarray) -> np.ndarray | None:
    """The int32 that a bias [N] is, times `scales`, as quantisers write it; None for others."""
    node = producer(bias, DequantizeLinear)
    if node is None or len(bias.shape) != 1:
        return None
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None and scale is not None
    integers, steps, zeros = array(x), array(scale), None if zero is None else array(zero)
    if integers is None or steps is None or integers.dtype != np.int32 or (zero is not None and zeros is None):
        return None
    wanted, given = scales.reshape(-1), steps.reshape(-1)
    if given.dtype != np.float32 or given.size not in (1, integers.size) or wanted.size not in (1, integers.size):
        return None
    with np.errstate(all="ignore"):
        even = bool(np.all(np.abs(given - wanted) <= _UNEVEN * np.abs(wanted)))
    if (
        not even
        or (zeros is not None and zeros.any())
        or np.abs(integers.astype(np.int64)).max(initial=0) > _LARGEST_BIAS
    ):
        return None
    return integers


RULES = (
    integer_convolution,
    integer_product,
    quantised_operator,
)
