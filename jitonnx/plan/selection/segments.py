"""Rows reduced by segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import product
from jitonnx.ir.graph import Value
from jitonnx.kernels.segments.spec import SegmentsBuffers, SegmentsSizes, SegmentsSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def reduce_segments(planner: Planner, group: Group, computation: c.ReduceSegments, data: Value, bounds: Value) -> None:
    """What bags of embeddings become."""
    x, offsets, y = planner.dense(data), planner.dense(bounds), planner.dense_place(group.output)
    error = planner.flag("offsets of bags are negative, beyond the last row, or not in order")
    spec = SegmentsSpec(computation.kind, x.dtype.numpy.name)
    sizes = SegmentsSizes(rows=x.shape[0], segments=y.shape[0], columns=product(y.shape[1:]))
    call = KernelCall(spec, SegmentsBuffers(x=x, offsets=offsets, y=y, error=error), sizes)
    call.label, call.reason = f"{computation.kind} of segments", "rows reduced bag by bag"
    planner.call(call)
