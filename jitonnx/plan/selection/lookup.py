"""Bytes looked up in a table, in the memory order that they lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.graph import Value
from jitonnx.kernels.lookup.spec import LookupBuffers, LookupSizes, LookupSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.windows import rows_in_memory

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def lookup(planner: Planner, group: Group, computation: c.Lookup, source: Value, table: Value) -> None:
    """The elements of a table at the places that a tensor's bytes are."""
    x, y, (rows, length, (x_row, y_row)) = rows_in_memory(planner, source, group.output)
    loops = LookupSizes(rows=rows, length=length, x_row=x_row, y_row=y_row)
    call = KernelCall(LookupSpec(), LookupBuffers(x=x, table=planner.tensor(table), y=y), loops)
    call.label, call.reason = "lookup", "a function of a byte"
    planner.call(call)
