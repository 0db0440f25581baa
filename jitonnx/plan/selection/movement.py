"""Data movement: copies, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.graph import Value
from jitonnx.kernels.pad.spec import PadBuffers, PadSizes, PadSpec
from jitonnx.kernels.parts.axes import MAX_RANK
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import memory_order
from jitonnx.plan.tensor import StridedTensor

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def bit_cast(planner: Planner, group: Group, computation: c.BitCast, source: Value) -> None:
    """No work: the operand seen with another type, unless the result is to lie somewhere."""
    value, seen = group.output, replace(planner.tensor(source), seen=computation.dtype)
    if planner.destination(value) is None:
        planner.bind(value, seen)
    else:
        planner.copy_into(seen, planner.place(value, planner.order(value)), "a graph output, or part of another value")


def concat(planner: Planner, group: Group, computation: c.Concat, *operands: Value) -> None:
    """Operands whose producers wrote into the result already cost nothing; the others are copied."""
    axis, whole = computation.axis, planner.place(group.output, planner.order(group.output))
    start = whole.offset
    for operand in operands:
        part = replace(whole, offset=start, shape=operand.shape)
        start = start + operand.shape[axis] * whole.strides[axis]
        source = planner.tensor(operand)
        if (source.buffer, source.offset) != (part.buffer, part.offset) or source.strides != part.strides:
            planner.copy_into(source, part, f"{operand.name} is not written into the concatenation by its producer")


def pad(planner: Planner, group: Group, computation: c.Pad, padded: Value, filling: Value | None = None) -> None:
    """The operand, and around it what its edges continue to, or a value."""
    value = group.output
    source, target = planner.tensor(padded), planner.place(value, planner.order(value))
    if target.rank > MAX_RANK:
        # As for gathering: exporters write up to 6 axes.
        planner.unplannable(f"it has more than {MAX_RANK} axes")
    order = memory_order(target)
    if not _along_rows(target, order):
        target = planner.move(value, order)
    if not _along_rows(source, [axis for axis in order if target.shape[axis] != 1]):
        source = planner.copy(source, order, "needed along the rows of the padded")
    itemsize = target.dtype.itemsize
    added = planner.tensor(filling) if filling is not None else planner.constant(np.zeros(1, f"u{itemsize}"))
    sizes = PadSizes(
        extents=target.shape,
        targets=target.strides,
        sources=source.strides,
        before=computation.before,
        source_extents=source.shape,
    )
    spec, buffers = PadSpec(itemsize, computation.mode), PadBuffers(source=source, value=added, target=target)
    call = KernelCall(spec, buffers, sizes, label=f"pad {value.name}", reason=computation.mode)
    planner.call(call)


def _along_rows(tensor: StridedTensor, order: Sequence[int]) -> bool:
    """Whether elements lie side by side along the last axis of `order`."""
    return not order or tensor.strides[order[-1]] == 1 or tensor.shape[order[-1]] == 1
