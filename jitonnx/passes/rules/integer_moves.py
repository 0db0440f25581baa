"""Operators that move, choose or join elements, on integers instead of dequantised numbers."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.depth_to_space import DepthToSpace, SpaceToDepth
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.normalization import LayerNormalization, RMSNormalization
from jitonnx.ops.onnx.pooling import MaxPool
from jitonnx.ops.onnx.quantization import DequantizeLinear, QuantizeLinear
from jitonnx.ops.onnx.shape import Expand, Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.ops.onnx.tile import Tile
from jitonnx.passes.quantized import (
    BYTES,
    IN_PLACE,
    as_scalar,
    constant_scales,
    dequantised,
    equal_numbers,
    of_integers,
    read_once,
    same_zero,
)
from jitonnx.passes.rewriting import Edit, Level, Result, array, producer, ranked, rule, scalar

MOVES = (DepthToSpace, Expand, Flatten, Gather, Reshape, Slice, SpaceToDepth, Squeeze, Tile, Transpose, Unsqueeze)
"""Operators that move the elements of their first input."""


@rule(
    "moved integers",
    *MOVES,
    MaxPool,
    equation="Reshape(DequantizeLinear(x)) = DequantizeLinear(Reshape(x)), and whatever else moves or chooses elements",
    level=Level.EXTENDED,
)
def moved_integers(node: Node, edit: Edit) -> Result:
    """Bytes are moved, a quarter of what float32 takes, and stay what they are if they are quantised behind.

    before: Reshape(DequantizeLinear(x, s, z))
    after:  DequantizeLinear(Reshape(x), s, z)
    """
    numbers = dequantised(node.inputs[0])
    if numbers is None or len(node.outputs) != 1 or not ranked(node):
        return None
    x, scale, zero = (*numbers.inputs, None)[:3]
    assert x is not None and scale is not None
    steps = constant_scales(numbers, None)
    if array(x) is not None or steps is None or (isinstance(node.operator, MaxPool) and steps[0] <= 0):
        return None
    edit.shares([numbers])
    moved = edit.add(node.operator, x, *node.inputs[1:])
    return edit.add(DequantizeLinear(), moved, edit.constant(np.asarray(steps[0])), as_scalar(edit, zero))


_REORDERS = (DepthToSpace, Expand, Flatten, Reshape, SpaceToDepth, Squeeze, Tile, Transpose, Unsqueeze)
"""Operators whose result has all elements of their first input: quantising that is no more work."""


_GIVES_BYTES = (LayerNormalization, RMSNormalization, Softmax)
"""Operators beside elementwise ones whose kernels quantise what they give."""


@rule(
    "activation of blocks",
    *IN_PLACE,
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
    if above is None or moved is None or not read_once(edit, moved) or not ranked(node) or above.inputs[0] is None:
        return None
    if any(given is not None and scalar(given) is None for given in node.inputs[1:]) or not of_integers(
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
    if above is None or moved is None or scale is None or node.output.dtype not in BYTES or not ranked(node):
        return None
    scales, zeros, x = array(scale), None if zero is None else array(zero), above.inputs[0]
    if scales is None or scales.size != 1 or (zero is not None and zeros is None) or not read_once(edit, moved):
        return None
    if x is None or array(x) is not None or not ranked(above) or x.dtype is not DType.FLOAT:
        return None
    made = None if x.producer is None else x.producer.operator
    if made is None or not (made.elementwise or isinstance(made, _GIVES_BYTES)):  # it would be a pass of its own
        return None
    edit.consume([above])
    numbers = edit.add(node.operator, x, edit.constant(scales.reshape(())), as_scalar(edit, zero))
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
    if above is None or joined is None or node.output.dtype not in BYTES or not ranked(node):
        return None
    scales, zeros = array(scale), None if zero is None else array(zero)  # type: ignore[arg-type]
    if scales is None or scales.size != 1 or (zero is not None and zeros is None) or not read_once(edit, joined):
        return None
    parts = [part for part in above.inputs if part is not None]
    if any(dequantised(part) is None or not read_once(edit, part) for part in parts):
        return None
    edit.consume([above])
    given = edit.constant(scales.reshape(())), as_scalar(edit, zero)
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
    numbers = dequantised(x)
    if numbers is None or scale is None or not ranked(node):
        return None
    source, other, other_zero = (*numbers.inputs, None)[:3]
    assert source is not None and other is not None
    if (
        not same_zero(zero, other_zero)
        or not equal_numbers(array(scale), array(other))
        or source.dtype is not node.output.dtype
    ):
        return None
    edit.shares([numbers])
    return source


RULES = (
    activation_of_blocks,
    moved_integers,
    quantised_before_moved,
    concatenated_integers,
    quantised_again,
)
