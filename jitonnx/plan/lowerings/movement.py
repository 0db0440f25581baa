"""Data movement: copies, concatenation, padding, gathering."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jitonnx.ir import computation as c
from jitonnx.ir import expr as e
from jitonnx.ir.lowering import Statement
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import region_call
from jitonnx.plan.tensor import Tensor

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def copy_call(planner: Planner, source: Tensor, target: Tensor, *, label: str, reason: str) -> KernelCall:
    """The call that copies `source` to `target`, of equal shape and any strides."""
    expr = e.operand(0, source.dtype)
    return region_call([expr], [source], [target], label=label, origin=(), reason=reason)


def concat(planner: Planner, group: Group, statement: Statement) -> None:
    """Operands whose producers wrote into the result already cost nothing; the others are copied."""
    assert isinstance(statement.computation, c.Concat)
    axis = statement.computation.axis
    value = statement.outputs[0]
    whole = planner.place(value, planner.order(value))
    start = whole.offset
    for operand in statement.inputs:
        assert operand is not None
        part = replace(whole, offset=start, shape=operand.shape)
        start = start + operand.shape[axis] * whole.strides[axis]
        source = planner.tensor(operand)
        if (source.buffer, source.offset) != (part.buffer, part.offset) or source.strides != part.strides:
            planner.copy_into(source, part, f"{operand.name} is not written into the concatenation by its producer")
