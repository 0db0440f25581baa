"""Bytes looked up in a table, in the memory order that they lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.computation.lowering import Statement
from jitonnx.ir.dims import DimLike, product
from jitonnx.kernels.lookup.spec import LookupBuffers, LookupGiven, LookupSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import memory_order
from jitonnx.plan.tensor import Tensor, reshape_strides

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def lookup(planner: Planner, group: Group, statement: Statement) -> None:
    """The elements of a table at the places that a tensor's bytes are."""
    source, table = statement.inputs
    assert source is not None and table is not None
    x = planner.tensor(source)
    order = memory_order(x)
    if _rows(x, order, 1) is None and _rows(x, order, 2) is None:
        x = planner.copy(x, order, "needed without gaps")
        order = memory_order(x)
    y = planner.place(statement.outputs[0], order)
    loops = _loops(x, y, order)
    if loops is None:
        y = planner.move(statement.outputs[0], order)
        loops = _loops(x, y, order)
    assert loops is not None, "Bug: a dense tensor is not rows of bytes"
    call = KernelCall(LookupSpec(), LookupBuffers(x=x, table=planner.tensor(table), y=y), loops)
    call.label, call.reason = "lookup", "a function of a byte"
    planner.call(call)


def _loops(x: Tensor, y: Tensor, order: tuple[int, ...]) -> LookupGiven | None:
    """Both tensors as rows of bytes: a single one, or as many as there are of what is innermost."""
    for loops in (1, 2):
        of_x, of_y = _rows(x, order, loops), _rows(y, order, loops)
        if of_x is not None and of_y is not None:
            rows, length, x_row = of_x
            return LookupGiven(rows=rows, length=length, x_row=x_row, y_row=of_y[2])
    return None


def _rows(tensor: Tensor, order: tuple[int, ...], loops: int) -> tuple[DimLike, DimLike, DimLike] | None:
    """A tensor's rows, their length, and how far apart they are: one row (`loops` 1), or rows of its innermost axis."""
    shape, strides = [tensor.shape[axis] for axis in order], [tensor.strides[axis] for axis in order]
    if not shape:
        return 1, 1, 0
    rows, length = (1, product(shape)) if loops == 1 else (product(shape[:-1]), shape[-1])
    merged = reshape_strides(shape, strides, (rows, length))
    if merged is None or (length != 1 and merged[1] != 1):
        return None
    return rows, length, merged[0]
