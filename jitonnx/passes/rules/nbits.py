"""Products with weights that are dequantised by blocks, as products of few bits."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ops.microsoft.nbits import MatMulNBits, packed
from jitonnx.ops.onnx.arithmetic import Add
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.quantization import DequantizeLinear
from jitonnx.ops.onnx.shape import Transpose
from jitonnx.passes.rewriting import Edit, Level, Result, array, producer, ranked, rule
from jitonnx.passes.rules.weights import plain_product

_BITS = {DType.UINT2: 2, DType.INT2: 2, DType.UINT4: 4, DType.INT4: 4, DType.UINT8: 8, DType.INT8: 8}


@rule(
    "blocked weights",
    MatMul,
    Gemm,
    equation="a @ DequantizeLinear(w, s, z) + c = MatMulNBits(a, wᵀ, sᵀ, zᵀ) + c, blocks along the rows of w",
    level=Level.EXTENDED,
)
def blocked_weights(node: Node, edit: Edit) -> Result:
    """A product with constant weights of 2, 4 or 8 bits that have a scale for each block of a column: they stay packed,
    where float32 would take 4 to 16 times their memory.

    before: MatMul or Gemm(a, DequantizeLinear(w, s, z, block_size), c), w transposed or not
    after:  MatMulNBits(a, w, s, z) -> Add(c)
    """
    found = plain_product(node)
    if found is None or not ranked(node):
        return None
    a, b, bias, turned = found
    if not a.shape:
        return None
    turn = producer(b, Transpose)
    if turn is None:
        weights = producer(b, DequantizeLinear)
    else:  # a matrix's axes change places, or the rank is another one
        assert isinstance(turn.operator, Transpose)
        if tuple(turn.operator.perm or (1, 0)) != (1, 0):
            return None
        turned, weights = not turned, producer(turn.inputs[0], DequantizeLinear)
    if weights is None or not ranked(weights) or weights.output.dtype is not a.dtype:
        return None
    made = _weights(weights, a.dtype, turned=turned)
    if made is None:
        return None
    product, operands = made
    y = edit.add(product, a, *map(edit.constant, operands))
    return y if bias is None else edit.add(Add(), y, bias)


def _weights(node: Node, dtype: DType, *, turned: bool) -> tuple[MatMulNBits, list[np.ndarray]] | None:
    """The operator and its constants for weights [k, n], or [n, k] if `turned`; None where it cannot say them."""
    numbers, scales, zeros = (*node.inputs, None)[:3]
    operator = node.operator
    assert isinstance(operator, DequantizeLinear)
    block = operator.block_size
    if numbers is None or scales is None or numbers.dtype not in _BITS or len(numbers.shape) != 2:
        return None
    if block < 16 or block & (block - 1) or operator.axis % 2 != (1 if turned else 0) or scales.dtype is not dtype:
        return None
    given: list[Value | None] = [numbers, scales, zeros]
    if any(value is not None and array(value) is None for value in given):
        return None
    q, s, z = (None if value is None else array(value) for value in given)
    assert q is not None and s is not None
    bits = _BITS[numbers.dtype]
    middle = 0 if numbers.dtype in (DType.UINT2, DType.UINT4, DType.UINT8) else 1 << (bits - 1)
    by_column = [x if turned or x is None else x.T for x in (q, s, z)]
    whole, scale, zero = by_column
    assert whole is not None and scale is not None
    (n, k), blocks = whole.shape, scale.shape[1]
    if scale.shape != (n, -(-k // block)):
        return None
    padded = np.zeros((n, blocks * block), np.uint8)
    padded[:, :k] = whole.astype(np.int16) + middle
    offsets = np.full((n, blocks), middle, np.uint8) if zero is None else (zero.astype(np.int16) + middle)
    constants = [packed(padded, bits).reshape(n, blocks, -1), np.ascontiguousarray(scale)]
    if (offsets != 1 << (bits - 1)).any():
        constants.append(packed(offsets.astype(np.uint8), bits))
    return MatMulNBits(K=k, N=n, bits=bits, block_size=block), constants


RULES = (blocked_weights,)
