"""Constant weights as the bytes that products of integers take, however a quantiser wrote them."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node
from jitonnx.ops.base import normalize_axis
from jitonnx.ops.onnx.quantization import DequantizeLinear, QuantizeLinear
from jitonnx.ops.onnx.shape import Transpose
from jitonnx.passes.quantized import dequantised, read_once
from jitonnx.passes.rewriting import Edit, Result, array, ranked, rule
from jitonnx.passes.rules.fold import constants

_OF_BYTES = {DType.INT2: np.int8, DType.INT4: np.int8, DType.UINT2: np.uint8, DType.UINT4: np.uint8}


@rule("quantised constants", QuantizeLinear, equation="QuantizeLinear(constant) = constant")
def quantised_constants(node: Node, edit: Edit) -> Result:
    """Weights that are floats in the file, quantised and dequantised in the graph, are constant integers. They have to
    be so before what DequantizeLinear makes of them is a constant, too."""
    return constants.apply(node, edit)


@rule(
    "bytes of few bits",
    DequantizeLinear,
    equation="DequantizeLinear(w, s, z) = DequantizeLinear(w as bytes, s, z as bytes), w a constant of 2 or 4 bits",
)
def bytes_of_few_bits(node: Node, edit: Edit) -> Result:
    """Weights of few bits with a scale for all or for each output, as products of integers take them. Blocks have
    kernels of their own, which leave them packed (`blocked weights`)."""
    numbers, scale, zero = (*node.inputs, None)[:3]
    operator = node.operator
    assert isinstance(operator, DequantizeLinear) and numbers is not None
    if operator.block_size or numbers.dtype not in _OF_BYTES or not ranked(node):
        return None
    weights, zeros = array(numbers), None if zero is None else array(zero)
    if weights is None or (zero is not None and zeros is None):
        return None
    wide = [
        None if given is None else edit.constant(given.astype(_OF_BYTES[numbers.dtype])) for given in (weights, zeros)
    ]
    return edit.add(operator, wide[0], scale, wide[1])


@rule(
    "transposed weights",
    Transpose,
    equation="Transpose(DequantizeLinear(w, s, z)) = DequantizeLinear(Transpose(w), s, z), w constant",
)
def transposed_weights(node: Node, edit: Edit) -> Result:
    """A matrix that is transposed behind its DequantizeLinear, as a linear layer of PyTorch has it.

    before: Transpose(DequantizeLinear(w, s, z, axis=0), perm=[1, 0])
    after:  DequantizeLinear(w', s, z, axis=1)
    """
    above = dequantised(node.inputs[0])
    if above is None or not ranked(node) or not read_once(edit, above.output):
        return None
    numbers, *others = above.inputs
    weights, operator = None if numbers is None else array(numbers), above.operator
    assert isinstance(operator, DequantizeLinear) and isinstance(node.operator, Transpose)
    if weights is None or weights.ndim < 2:
        return None
    rank = weights.ndim
    order = node.operator.perm or tuple(reversed(range(rank)))
    axis = operator.axis
    if -rank <= axis < rank:  # else one scale is for all
        axis = order.index(normalize_axis(axis, rank))
    turned = edit.constant(np.ascontiguousarray(weights.transpose(order)))
    return edit.add(DequantizeLinear(axis=axis, output_dtype=operator.output_dtype), turned, *others)


RULES = (quantised_constants, bytes_of_few_bits, transposed_weights)
