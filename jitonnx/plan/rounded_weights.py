"""Weights of large products of few rows as numbers of bfloat16, where that precision was asked for and the CPU has no
instructions that multiply it faster: such products wait for memory, of which they then read half (`stored_type`).

The weights are rounded to the nearest, ties to even, and widened to float32 as they are read; nothing else is rounded.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowered, Statement
from jitonnx.ir.dims import product
from jitonnx.ir.graph import Value
from jitonnx.kernels.gemm.choose import stored_pays
from jitonnx.kernels.parts.bfloat16 import rounded
from jitonnx.plan.selection.products import fewest


def with_rounded_weights(lowered: Lowered) -> Lowered:
    """The same statements with such weights."""
    made: dict[Value, Value] = {}

    def changed(statement: Statement) -> Statement:
        if not isinstance(statement.computation, c.MatMul):
            return statement
        left, right = statement.inputs[:2]
        assert left is not None and right is not None
        array = right.constant
        one_matrix = array is not None and all(dim == 1 for dim in array.shape[:-2]) and array.ndim >= 2
        if array is None or not one_matrix or not stored_pays(array, fewest(product(left.shape[:-1]))):
            return statement
        if right not in made:
            numbers = (rounded(array).astype(np.uint32) << 16).view(np.float32)
            made[right] = Value(right.name, right.type, numbers)
        return replace(statement, inputs=(left, made[right], *statement.inputs[2:]))

    statements = [changed(statement) for statement in lowered.statements]
    return replace(lowered, statements=statements) if made else lowered
