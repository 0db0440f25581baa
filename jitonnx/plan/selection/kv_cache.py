"""Caches of keys and values, which a step adds rows to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.kernels.kv_cache.spec import CacheBuffers, CacheSizes, CacheSpec
from jitonnx.kernels.sliding_cache.spec import SlidingBuffers, SlidingSizes, SlidingSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.ir.graph import Value
    from jitonnx.plan.planner import Planner


def update(
    planner: Planner, group: Group, computation: c.CacheUpdate, past: Value | None, new: Value, start: Value
) -> None:
    """The past with new rows in it."""
    present = planner.dense_place(group.output)
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


def slide(
    planner: Planner, group: Group, computation: c.SlidingCacheUpdate, past: Value, new: Value, before: Value
) -> None:
    """What new rows attend to, and the past with them, without its first."""
    seen, present = map(planner.dense_place, group.outputs)
    rows = planner.unit_inner(new)
    batch, heads, steps, depth = new.shape
    sizes = SlidingSizes(
        batch=batch,
        heads=heads,
        capacity=past.shape[2],
        window=computation.window,
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
