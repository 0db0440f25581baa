"""Caches of keys and values, which a step adds rows to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Statement
from jitonnx.kernels.kv_cache.spec import CacheBuffers, CacheSizes, CacheSpec
from jitonnx.kernels.sliding_cache.spec import SlidingBuffers, SlidingSizes, SlidingSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.ir.graph import Value
    from jitonnx.plan.planner import Planner
    from jitonnx.plan.tensor import StridedTensor


def _whole(planner: Planner, value: Value) -> StridedTensor:
    """The memory of a result that is dense."""
    order = (0, 1, 2, 3)
    placed = planner.place(value, order)
    return placed if placed.contiguous else planner.move(value, order)


def update(planner: Planner, group: Group, statement: Statement) -> None:
    """The past with new rows in it."""
    past, new, start = statement.inputs
    assert new is not None and start is not None
    present = _whole(planner, statement.outputs[0])
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


def slide(planner: Planner, group: Group, statement: Statement) -> None:
    """What new rows attend to, and the past with them, without its first."""
    past, new, before = statement.inputs
    assert past is not None and new is not None and before is not None
    assert isinstance(statement.computation, c.SlidingCacheUpdate)
    seen, present = (_whole(planner, value) for value in statement.outputs)
    rows = planner.unit_inner(new)
    batch, heads, steps, depth = new.shape
    sizes = SlidingSizes(
        batch=batch,
        heads=heads,
        capacity=past.shape[2],
        window=statement.computation.window,
        seen_rows=seen.shape[2],
        steps=steps,
        depth=depth,
        **by_name("new_batch new_head new_row", rows.strides[:3]),
    )
    error = planner.flag("positions that are added to the cache do not follow those before")
    buffers = SlidingBuffers(
        past=planner.dense(past), new=rows, before=planner.dense(before), seen=seen, present=present, error=error
    )
    spec = SlidingSpec(new.dtype.itemsize)
    planner.call(KernelCall(spec, buffers, sizes, label="cache", reason="in place where past and present are one"))
