"""What comes of products of integers quantised by a multiplication, or only rounded where it stays float32."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ops.fused import ROUNDED, ROUNDED_QUOTIENT
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Add, Clip, Mul
from jitonnx.ops.onnx.quantization import DequantizeLinear, QuantizeLinear, bounds_about, divides_by_factor
from jitonnx.passes.quantized import (
    BYTES,
    as_scalar,
    constant_scales,
    dequantised,
    equal_numbers,
    integral,
    leaves,
    of_integers,
    read_once,
    same_zero,
)
from jitonnx.passes.rewriting import Edit, Level, Result, array, producer, ranked, rule, scalar


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
    if x.dtype is not DType.FLOAT or not np.isfinite(factor) or factor <= 0 or not of_integers(x):
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
    if above is None or numbers is None or scale is None or numbers.dtype not in BYTES or not ranked(node):
        return None
    x, one, other = (*above.inputs, None)[:3]
    assert x is not None and one is not None
    if not same_zero(zero, other) or scalar(one) != 1 or constant_scales(node, None) is None:
        return None
    if {x.dtype, node.output.dtype} != {DType.FLOAT} or not all(map(_finite, leaves(x))):
        return None
    if not all(isinstance(user.operator, Add | Mul) for user in node.output.users):  # others may take the integers
        return None
    beside = [given for user in node.output.users for given in user.inputs if given is not node.output]
    if any(dequantised(given) is None for given in beside):  # one operand of a sum stays in registers, not several
        return None
    edit.consume([above])
    zeros = np.zeros((), numbers.dtype.numpy) if zero is None else array(zero)
    assert zeros is not None
    bounds = (edit.constant(bound) for bound in bounds_about(zeros.reshape(-1)[0]))
    return edit.add(Mul(), edit.add(ROUNDED, x, *bounds), scale)


@rule(
    "rounded to 16 bits",
    DequantizeLinear,
    equation="DequantizeLinear(QuantizeLinear(x, t, z), s, z) = s clip(round(x / t), low - z, high - z), of 16 bits",
    level=Level.EXTENDED,
)
def rounded_to_16_bits(node: Node, edit: Edit) -> Result:
    """What is quantised to 16 bits stays float32, which holds these whole numbers: no product takes them as integers.

    before: DequantizeLinear(QuantizeLinear(x, t, z), s, z)
    after:  Pointwise -> Mul(s)
    """
    numbers, scale, zero = (*node.inputs, None)[:3]
    above = producer(numbers, QuantizeLinear)
    if above is None or numbers is None or scale is None or numbers.dtype not in (DType.INT16, DType.UINT16):
        return None
    x, step, other = (*above.inputs, None)[:3]
    assert x is not None and step is not None
    steps, zeros = array(step), np.zeros((), numbers.dtype.numpy) if zero is None else array(zero)
    if not ranked(node) or zeros is None or zeros.size != 1 or not same_zero(zero, other):
        return None
    if {x.dtype, scale.dtype, node.output.dtype} != {DType.FLOAT} or constant_scales(node, None) is None:
        return None
    if steps is None or not divides_by_factor(steps):
        return None
    edit.consume([above])
    bounds = bounds_about(zeros.reshape(-1)[0])
    factor = np.asarray(1 / steps.item(), np.float32)
    low, high, inverse = (edit.constant(given) for given in (*bounds, factor))
    by = as_scalar(edit, step)
    again = by if equal_numbers(array(scale), steps) else as_scalar(edit, scale)  # one number is one operand
    return edit.add(Mul(), edit.add(ROUNDED_QUOTIENT, x, low, high, by, inverse), again)


def _finite(leaf: Node | Value) -> bool:
    """Whether a leaf is a finite number, whatever the inputs are."""
    if isinstance(leaf, Node):
        return integral(leaf) or _dequantised_constant(leaf)
    constant = array(leaf)
    return constant is not None and bool(np.isfinite(constant).all())


def _dequantised_constant(node: Node) -> bool:
    numbers = node.inputs[0]
    return isinstance(node.operator, DequantizeLinear) and numbers is not None and numbers.constant is not None


def _within_range(edit: Edit, x: Value, scale: float, zero: Value | None, dtype: DType | None) -> Value:
    """x without a last Relu or Clip that leaves all that quantising by `scale` tells apart."""
    zeros = np.zeros((), np.uint8) if zero is None else array(zero)
    node = producer(x, Relu, Clip)
    if node is None or zeros is None or zeros.size != 1 or dtype not in BYTES or not read_once(edit, x):
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
    if node is not None and read_once(edit, x) and x.dtype is DType.FLOAT:
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


RULES = (
    requantisation,
    rounded_in_place,
    rounded_to_16_bits,
)
