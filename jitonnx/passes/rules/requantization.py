"""Sums of integers quantised by a multiplication, activations that quantising repeats, and numbers that are rounded as
quantising rounds them where they stay float32."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ops.fused import ROUNDED, ROUNDED_QUOTIENT, SumOfBytes
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Add, Clip, Div, Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.quantization import (
    ConvInteger,
    DequantizeLinear,
    MatMulInteger,
    QuantizeLinear,
    bounds_about,
    bounds_of_quotient,
    divides_by_factor,
)
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
    "cut off by quantising",
    QuantizeLinear,
    equation="QuantizeLinear(Relu(x), s, z) = QuantizeLinear(x, s, z), z the least of its type; Clip alike",
    level=Level.EXTENDED,
)
def cut_off_by_quantising(node: Node, edit: Edit) -> Result:
    """An activation that cuts off no more than quantising does vanishes, or the bound of it that does not.

    before: QuantizeLinear(Relu(x), s, 0)
    after:  QuantizeLinear(x, s, 0)
    """
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None and scale is not None
    steps, above = scalar(scale), producer(x, Relu, Clip)
    if steps is None or above is None or not ranked(node) or not steps > 0 or not read_once(edit, x):
        return None
    inside = _within_range(edit, above, steps, zero, node.output.dtype)
    return None if inside is None or not of_integers(inside) else edit.add(node.operator, inside, *node.inputs[1:])


@rule(
    "requantisation",
    QuantizeLinear,
    equation="QuantizeLinear(s x, t, z) = QuantizeLinear((s / t) x, 1, z), x sums of integers",
    level=Level.EXTENDED,
)
def requantisation(node: Node, edit: Edit) -> Result:
    """Sums of integers are quantised by one multiplication, as QLinearConv, QLinearMatMul and onnxruntime do it. All
    else is divided by the scale, as QuantizeLinear says: a last place decides what is rounded to which integer.

    before: QuantizeLinear(Relu(Mul(x, s)), t, z)
    after:  QuantizeLinear(Relu(Mul(x, s / t)), 1, z)
    """
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None and scale is not None
    steps = array(scale)
    if x.dtype is not DType.FLOAT or steps is None or steps.dtype != np.float32 or steps.size != 1 or not ranked(node):
        return None
    step, inner, activations = steps.reshape(()), x, list[Node]()
    while (above := producer(inner, Relu, Clip)) is not None and read_once(edit, inner) and _known(above):
        activations.append(above)
        inner = above.inputs[0]  # type: ignore[assignment]
    found = _product(edit, inner)
    if step == 1 or found is None:
        return None
    sums, factor, count = found
    with np.errstate(all="ignore"):
        factors = np.asarray(factor / (step * (np.float32(1) if isinstance(count, Value) else count)), np.float32)
    if not step > 0 or not np.isfinite(factors).all() or not factors.all():
        return None
    edit.shares([*activations, inner.producer])  # type: ignore[list-item]
    if isinstance(count, Value):
        steps_of_count = edit.add(Mul(), edit.constant(np.asarray(step)), count)
        y = edit.add(Mul(), sums, edit.add(Div(), edit.constant(factor), steps_of_count))
    else:
        y = edit.add(Mul(), sums, edit.constant(factors))
    for activation in reversed(activations):
        limits = [None if limit is None else edit.constant(array(limit) / step) for limit in activation.inputs[1:]]
        y = edit.add(activation.operator, y, *limits)
    return edit.add(node.operator, y, edit.constant(np.ones_like(steps)), zero)


@rule(
    "rounded in place",
    DequantizeLinear,
    equation="DequantizeLinear(QuantizeLinear(x, t, z), s, z) = s clip(round(x / t), low - z, high - z)",
    level=Level.EXTENDED,
)
def rounded_in_place(node: Node, edit: Edit) -> Result:
    """What is quantised for an element-wise operator that goes on with it in float32, and for nobody else, stays
    float32: the result of a convolution that a residual is added to.

    before: DequantizeLinear(QuantizeLinear(x, t, z), s, z)
    after:  Pointwise -> Mul(s)
    """
    above = producer(node.inputs[0], QuantizeLinear)
    if above is None or node.inputs[0].dtype not in BYTES:  # type: ignore[union-attr]
        return None
    x = above.inputs[0]
    assert x is not None
    if not of_integers(x) or not all(map(_finite, leaves(x))):
        return None
    if not all(isinstance(user.operator, Add | Mul) for user in node.output.users):  # others may take the integers
        return None
    beside = [given for user in node.output.users for given in user.inputs if given is not node.output]
    if any(dequantised(given) is None for given in beside):  # one operand of a sum stays in registers, not several
        return None
    return _rounded(node, above, edit)


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
    above = producer(node.inputs[0], QuantizeLinear)
    if above is None or node.inputs[0].dtype not in (DType.INT16, DType.UINT16):  # type: ignore[union-attr]
        return None
    return _rounded(node, above, edit)


def _rounded(node: Node, above: Node, edit: Edit) -> Result:
    """What a DequantizeLinear gives of what a QuantizeLinear above it does, in float32."""
    numbers, scale, zero = (*node.inputs, None)[:3]
    x, step, other = (*above.inputs, None)[:3]
    assert numbers is not None and x is not None and scale is not None and step is not None
    steps, zeros = array(step), np.zeros((), numbers.dtype.numpy) if zero is None else array(zero)
    if not ranked(node) or zeros is None or zeros.size != 1 or not same_zero(zero, other):
        return None
    if {x.dtype, scale.dtype, node.output.dtype} != {DType.FLOAT} or constant_scales(node, None) is None:
        return None
    if steps is None or not divides_by_factor(steps):
        return None
    edit.consume([above])
    if steps.item() == 1:
        bounds = (edit.constant(bound) for bound in bounds_about(zeros.reshape(())))
        return edit.add(Mul(), edit.add(ROUNDED, x, *bounds), scale)
    by, given = as_scalar(edit, step), map(edit.constant, bounds_of_quotient(steps, zeros.reshape(())))
    again = by if equal_numbers(array(scale), steps) else as_scalar(edit, scale)  # one number is one operand
    return edit.add(Mul(), edit.add(ROUNDED_QUOTIENT, x, by, *given), again)


def _finite(leaf: Node | Value) -> bool:
    """Whether a leaf is a finite number, whatever the inputs are."""
    if isinstance(leaf, Node):
        return integral(leaf) or _dequantised_constant(leaf)
    constant = array(leaf)
    return constant is not None and bool(np.isfinite(constant).all())


def _dequantised_constant(node: Node) -> bool:
    numbers = node.inputs[0]
    return isinstance(node.operator, DequantizeLinear) and numbers is not None and numbers.constant is not None


def _within_range(edit: Edit, node: Node, scale: float, zero: Value | None, dtype: DType | None) -> Value | None:
    """What a Relu or Clip does with its input beyond leaving all that quantising by `scale` tells apart: the input
    itself, or clipped at one side. None where nothing of it can be left out."""
    zeros = np.zeros((), np.uint8) if zero is None else array(zero)
    if zeros is None or zeros.size != 1 or dtype not in BYTES:
        return None
    least, most = (bound * np.float32(scale) for bound in bounds_about(zeros.reshape(-1)[0]))
    inside, low, high = (*node.inputs, None, None)[:3]
    assert inside is not None
    if isinstance(node.operator, Relu):
        return inside if least >= 0 else None
    below, above = scalar(low), scalar(high)
    if (low is not None and below is None) or (high is not None and above is None):
        return None
    kept = [None if below is None or below <= least else low, None if above is None or above >= most else high]
    if kept == [low, high]:
        return None
    edit.shares([node])
    return inside if kept == [None, None] else edit.add(Clip(), inside, *kept)


def _known(activation: Node) -> bool:
    """Whether the bounds of an activation are known."""
    return all(limit is None or scalar(limit) is not None for limit in activation.inputs[1:])


def _product(edit: Edit, x: Value) -> tuple[Value, np.ndarray, np.float32 | Value] | None:
    """Sums of integers as float32, the constants that these are multiplied with, and the number that they are divided
    by, as it is in means, if that is all that x is and nobody else reads it. The number is a value where it is one of
    elements that a run tells."""
    count: np.float32 | Value = np.float32(1)
    divided = producer(x, Div)
    if divided is not None:
        x, by = divided.inputs  # type: ignore[assignment]
        number = scalar(by)
        if number is not None:
            count = np.float32(number)
        elif by is not None and _is_size(producer(by, Cast)):
            count = by
        else:
            return None
    product = producer(x, Mul)
    if product is None or not read_once(edit, x) or x.dtype is not DType.FLOAT:
        return None
    sums, factor = product.inputs
    assert sums is not None and factor is not None
    factors, cast = array(factor), producer(sums, Cast)
    if factors is None or cast is None or not _whole_sums(cast.inputs[0]):
        return None
    return sums, factors, count


def _whole_sums(x: Value | None) -> bool:
    """Whether x is a product of integers or sums of bytes, or those plus constants or sizes."""
    added = producer(x, Add)
    if added is not None and added.inputs[1].contents is not None:  # type: ignore[union-attr]
        x = added.inputs[0]
    return producer(x, ConvInteger, MatMulInteger, SumOfBytes) is not None


def _is_size(cast: Node | None) -> bool:
    """Whether a Cast is of one number that follows from the sizes of a run."""
    x = None if cast is None else cast.inputs[0]
    return x is not None and x.contents is not None and x.contents.size == 1


RULES = (
    cut_off_by_quantising,
    requantisation,
    rounded_in_place,
    rounded_to_16_bits,
)
