"""What rules on quantised models ask: from which integers, by which scales and zero points, a value comes."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ops.fused import Pointwise, SumOfBytes
from jitonnx.ops.onnx.activation import LeakyRelu, Relu
from jitonnx.ops.onnx.arithmetic import Add, Clip, Div, Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.quantization import ConvInteger, DequantizeLinear, MatMulInteger
from jitonnx.passes.rewriting import Edit, array, producer, ranked

BYTES = (DType.INT8, DType.UINT8)

IN_PLACE = (Clip, LeakyRelu, Relu)
"""Activations that go with what is in front of them."""

KNOWN = "scales and zero points, one of what is computed, one for each output of weights; it is done in float32"
"""What products of integers want to be constant."""

STEPS = 24
"""How far behind integers what is made of them is looked for."""


def dequantised(value: Value | None) -> Node | None:
    """The DequantizeLinear of 8-bit integers that a value comes from, if it does."""
    node = producer(value, DequantizeLinear)
    if node is None or node.inputs[0] is None or node.inputs[0].dtype not in BYTES:
        return None
    operator: DequantizeLinear = node.operator  # type: ignore[assignment]
    return node if node.output.dtype is DType.FLOAT and not operator.block_size and ranked(node) else None


def constant_scales(node: Node, axis: int | None) -> np.ndarray | None:
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


def one_zero(edit: Edit, node: Node) -> Value | None:
    """The zero point of a DequantizeLinear, all of which are equal, as a scalar."""
    zero = (*node.inputs, None)[2]
    zeros = None if zero is None else array(zero)
    return zero if zeros is None or not zeros.shape else edit.constant(np.asarray(zeros.reshape(-1)[0]))


def as_scalar(edit: Edit, value: Value | None) -> Value | None:
    """A constant of equal elements as a scalar."""
    constant = None if value is None else array(value)
    return value if constant is None or not all_alike(constant) else edit.constant(np.asarray(constant.reshape(-1)[0]))


def all_alike(values: np.ndarray | None) -> bool:
    """Whether all elements of a constant are equal, and there are any."""
    return values is not None and values.size > 0 and not np.any(values != values.reshape(-1)[0])


def same_zero(a: Value | None, b: Value | None) -> bool:
    """Whether two zero points are one value, or constants of one number."""
    return a is b or (a is not None and b is not None and equal_numbers(array(a), array(b)))


def equal_numbers(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """Whether two constants are one and the same number."""
    return a is not None and b is not None and a.size == b.size == 1 and a.reshape(-1)[0] == b.reshape(-1)[0]


def read_once(edit: Edit, x: Value) -> bool:
    """Whether one node at most reads x, and the caller does not."""
    return len(x.users) <= 1 and x not in edit.graph.results


_ARITHMETIC = (Add, Cast, Clip, Div, Mul, Pointwise, Relu)


def leaves(value: Value) -> list[Node | Value]:
    """What a number is made of by some steps of arithmetic: nodes that do something else, and values without a node."""
    waiting, steps, found = [value], 0, list[Node | Value]()
    while waiting:
        one = waiting.pop()
        node, steps = one.producer, steps + 1
        if node is not None and steps <= STEPS and isinstance(node.operator, _ARITHMETIC):
            waiting += [given for given in node.inputs[:2] if given is not None]
        else:
            found.append(one if node is None else node)
    return found


def integral(leaf: Node | Value) -> bool:
    """Whether a leaf is a product of integers, or integers dequantised."""
    if isinstance(leaf, Value):
        return False
    return (
        isinstance(leaf.operator, ConvInteger | MatMulInteger | SumOfBytes) or dequantised(leaf.outputs[0]) is not None
    )


def of_integers(value: Value) -> bool:
    """Whether integers are among what a number is made of."""
    return any(map(integral, leaves(value)))
