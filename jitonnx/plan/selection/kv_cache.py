"""Caches of keys and values, which a step adds rows to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation.lowering import Statement
from jitonnx.kernels.kv_cache.spec import CacheBuffers, CacheSizes, CacheSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def update(planner: Planner, group: Group, statement: Statement) -> None:
    """The past with new rows in it."""
    past, new, start = statement.inputs
    assert new is not None and start is not None
    order = (0, 1, 2, 3)
    present = planner.place(statement.outputs[0], order)
    if not present.contiguous:
        present = planner.move(statement.outputs[0], order)
    rows, starts = planner.unit_inner(new), planner.dense(start)
    # Without a past another operand stands in its place.
    before = rows if past is None else planner.dense(past)
    batch, heads, steps, depth = new.shape
    sizes = CacheSizes(
        batch=batch,
        heads=heads,
        past_rows=0 if past is None else past.shape[2],
        rows=present.shape[2],
        steps=steps,
        depth=depth,
        **by_name("new_batch new_head new_row", rows.strides[:3]),
    )
    error = planner.flag("rows that are added to the cache do not fit into it")
    buffers = CacheBuffers(past=before, new=rows, start=starts, present=present, error=error)
    spec = CacheSpec(new.dtype.itemsize, past is not None)
    planner.call(KernelCall(spec, buffers, sizes, label="cache", reason="in place where past and present are one"))
