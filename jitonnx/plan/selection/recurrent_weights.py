"""Weights and biases of recurrent layers as the time loop reads them: packed with the plan, or by copies in each run.

Most are constants. Where a run computes them, the same layouts are made by copies between strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import DimLike
from jitonnx.ir.graph import Value
from jitonnx.kernels.recurrent.spec import GATES, RecurrentSpec
from jitonnx.plan.region import region_call
from jitonnx.plan.tensor import StridedTensor

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner

_REASON = "weights that a run computes"


def input_matrix(planner: Planner, w: Value) -> StridedTensor:
    """W [directions, gates * hidden, inputs] of all directions as one matrix [inputs, columns]."""
    array = planner.tensor(w).constant
    if array is not None:
        return planner.constant(np.ascontiguousarray(array.reshape(-1, array.shape[2]).T))
    tensor = planner.dense(w)
    directions, columns, inputs = tensor.shape
    return replace(tensor, shape=(inputs, directions * columns), strides=(1, inputs))


def packed_recurrence(planner: Planner, spec: RecurrentSpec, r: Value) -> StridedTensor:
    """R as `RecurrentSpec.pack` lays it out."""
    array = planner.tensor(r).constant
    if array is not None:
        return planner.constant(spec.pack(array))
    source = planner.dense(r)
    directions, _, hidden = source.shape
    assert isinstance(directions, int) and isinstance(hidden, int)
    whole, padded, units = spec.packed_elements(hidden), spec.padded(hidden), spec.units
    target = planner.temporary((directions, whole), source.dtype)
    if padded != hidden:
        zeros(planner, target, "units beside the last ones")
    first_gate = offset = 0
    for gates in spec.passes:
        for panel, count, width in ((0, hidden // units, units), (hidden // units, 1, hidden % units)):
            if not count or not width:
                continue
            shape = (directions, count, hidden, gates, width)
            read = _view(source, (first_gate * hidden + panel * units) * hidden, shape)
            written = _view(target, offset + panel * padded * gates * units, shape)
            planner.copy_into(
                replace(read, strides=(source.strides[0], units * hidden, 1, hidden * hidden, hidden)),
                replace(written, strides=(whole, padded * gates * units, gates * units, units, 1)),
                _REASON,
            )
        first_gate, offset = first_gate + gates, offset + padded * padded * gates
    return target


def biases(
    planner: Planner, b: Value | None, computation: c.Recurrent, directions: int, like: Value
) -> tuple[StridedTensor, StridedTensor]:
    """The bias that the input products take, [directions * gates * hidden], and the recurrent one, [directions,
    hidden].

    A GRU that resets behind the product needs the recurrent bias of gate h inside the loop.
    """
    hidden, half = computation.hidden, GATES[computation.kind] * computation.hidden
    inside = computation.kind == "GRU" and computation.linear_before_reset
    array = np.zeros((directions, 2 * half), like.dtype.numpy) if b is None else planner.tensor(b).constant
    if array is not None:
        return _constant_biases(planner, array, hidden, inside=inside)
    assert b is not None
    source, target = planner.dense(b), planner.temporary((directions, half), like.dtype)
    summed = 2 * hidden if inside else half

    def part(tensor: StridedTensor, start: int, count: int) -> StridedTensor:
        return _view(tensor, start, (directions, count), tensor.strides)

    total = e.operand(0, like.dtype) + e.operand(1, like.dtype)
    operands = [part(source, 0, summed), part(source, half, summed)]
    place = part(target, 0, summed)
    planner.call(region_call([total], operands, [place], label="sum of biases", origin=(), reason=_REASON))
    if not inside:
        recurrent = planner.constant(np.zeros((directions, hidden), like.dtype.numpy))
    else:
        planner.copy_into(part(source, 2 * hidden, hidden), part(target, 2 * hidden, hidden), _REASON)
        recurrent = planner.copy(part(source, half + 2 * hidden, hidden), (0, 1), _REASON)
    return replace(target, shape=(directions * half,), strides=(1,)), recurrent


def _constant_biases(
    planner: Planner, bias: np.ndarray, hidden: int, *, inside: bool
) -> tuple[StridedTensor, StridedTensor]:
    half = bias.shape[1] // 2
    inputs, recurrent = bias[:, :half], bias[:, half:].copy()
    kept = np.zeros((len(bias), hidden), bias.dtype)
    if inside:
        kept = recurrent[:, 2 * hidden :].copy()
        recurrent[:, 2 * hidden :] = 0
    return planner.constant((inputs + recurrent).reshape(-1)), planner.constant(kept)


def zeros(planner: Planner, tensor: StridedTensor, reason: str) -> StridedTensor:
    """Fill memory with zeros."""
    expr = e.constant(0, tensor.dtype)
    planner.call(region_call([expr], [], [tensor], label="zeros", origin=(), reason=reason))
    return tensor


def _view(
    tensor: StridedTensor, start: DimLike, shape: Sequence[DimLike], strides: Sequence[DimLike] = ()
) -> StridedTensor:
    return replace(tensor, offset=tensor.offset + start, shape=tuple(shape), strides=tuple(strides))
