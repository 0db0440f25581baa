"""Bytes looked up in a table, in the memory order that they lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation.lowering import Statement
from jitonnx.kernels.lookup.spec import LookupBuffers, LookupGiven, LookupSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import memory_order
from jitonnx.plan.tensor import as_rows

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def lookup(planner: Planner, group: Group, statement: Statement) -> None:
    """The elements of a table at the places that a tensor's bytes are."""
    source, table = statement.inputs
    assert source is not None and table is not None
    x = planner.tensor(source)
    order = memory_order(x)
    if as_rows(order, x) is None:
        x = planner.copy(x, order, "needed without gaps")
        order = memory_order(x)
    y = planner.place(statement.outputs[0], order)
    found = as_rows(order, x, y)
    if found is None:
        y = planner.move(statement.outputs[0], order)
        found = as_rows(order, x, y)
    assert found is not None, "Bug: a dense tensor is not rows of bytes"
    rows, length, (x_row, y_row) = found
    loops = LookupGiven(rows=rows, length=length, x_row=x_row, y_row=y_row)
    call = KernelCall(LookupSpec(), LookupBuffers(x=x, table=planner.tensor(table), y=y), loops)
    call.label, call.reason = "lookup", "a function of a byte"
    planner.call(call)
