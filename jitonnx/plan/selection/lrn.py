"""Normalisation over neighbouring channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.computation import computations as c
from jitonnx.computation.lowering import Statement
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.lrn.spec import LRNSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.windows import Geometry
from jitonnx.plan.tensor import channels_last_order, pixel_strides

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def local_response_normalize(planner: Planner, group: Group, statement: Statement) -> None:
    """LRN: windows over neighbouring channels."""
    computation = statement.computation
    assert isinstance(computation, c.LocalResponseNormalize) and statement.inputs[0] is not None
    assert group.output is not None
    if statement.inputs[0].dtype is not DType.FLOAT or len(statement.inputs[0].shape) not in (3, 4):
        # A normalisation of images of a decade ago: it occurs on float images alone.
        planner.unplannable(f"LRN of {statement.inputs[0].type}")
    x = planner.channels_last(statement.inputs[0])
    y = planner.place(group.output, channels_last_order(x.rank), strict=True)
    geometry = Geometry.of(x, y)
    spec = LRNSpec(computation.size, computation.alpha, computation.beta, computation.bias)
    sizes = [x.shape[0], *geometry.size, x.shape[1], *geometry.x, *geometry.y]
    call = KernelCall(spec, [x, y], list(sizes), 1, 1, label=f"LRN {computation.size}", reason="; ".join(group.reasons))
    planner.epilogue(group, call, pixel_strides)
    planner.call(call)
