"""Constants of products and convolutions without denormal numbers: multiplying by one takes a hundred times as long as
by others, and training leaves them where weights of channels that nothing uses decay.

Numbers below the least normal one (1.2e-38 in float32) are taken for 0, so a product changes by less than that times
what it is multiplied with. What is computed in runs stays as it is (`session.set_denormal_as_zero`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowered, Statement
from jitonnx.ir.graph import Value

_PRODUCTS = (c.MatMul, c.Convolution, c.TransposedConvolution, c.Recurrent)
_BITS = {np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}
_PIECE = 1 << 15
"""Elements that are looked at together: what is computed of them stays in the caches."""


def without_denormals(lowered: Lowered) -> Lowered:
    """The same statements with such constants as they should be."""
    made: dict[Value, Value] = {}

    def normal(value: Value | None) -> Value | None:
        if value is None or value.constant is None:
            return value
        if value not in made:
            made[value] = _normal(value)
        return made[value]

    def changed(statement: Statement) -> Statement:
        if not isinstance(statement.computation, _PRODUCTS):
            return statement
        inputs = tuple(normal(value) for value in statement.inputs)
        return statement if inputs == statement.inputs else replace(statement, inputs=inputs)

    statements = [changed(statement) for statement in lowered.statements]
    return replace(lowered, statements=statements) if any(a is not b for a, b in made.items()) else lowered


def _normal(value: Value) -> Value:
    array = value.constant
    if array is None or not has_denormals(array):
        return value
    array = array.copy()
    np.multiply(array, 0, out=array, where=np.abs(array) < np.finfo(array.dtype).tiny)  # zeros keep their signs
    return Value(value.name, value.type, array)


def has_denormals(array: np.ndarray) -> bool:
    """Whether there is one: its exponent's bits are 0, and others but the sign are not."""
    if array.dtype not in _BITS:
        return False
    flat = array.ravel(order="K").view(_BITS[array.dtype])
    least_normal = np.finfo(array.dtype).tiny.view(flat.dtype) << 1
    pieces = (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
    return any(((piece << 1) - 1).min() < least_normal - 1 for piece in pieces)
