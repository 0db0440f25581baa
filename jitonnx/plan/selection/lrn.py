"""Normalisation over neighbouring channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.lrn.spec import LRNSpec
from jitonnx.kernels.parts.layouts import Pixels, UnaryBuffers
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.windows import Geometry
from jitonnx.plan.tensor import channels_last_order, pixel_strides

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def local_response_normalize(
    planner: Planner, group: Group, computation: c.LocalResponseNormalize, image: Value
) -> None:
    """LRN: windows over neighbouring channels."""
    if image.dtype is not DType.FLOAT or len(image.shape) not in (3, 4):
        # A normalisation of images of a decade ago: it occurs on float images alone.
        planner.unplannable(f"LRN of {image.type}")
    x = planner.channels_last(image)
    y = planner.place(group.output, channels_last_order(x.rank), strict=True)
    geometry = Geometry.of(x, y)
    spec = LRNSpec(computation.size, computation.alpha, computation.beta, computation.bias)
    sizes = Pixels(
        images=x.shape[0],
        channels=x.shape[1],
        **by_name("height width", geometry.size),
        **by_name("x_image x_row x_pixel", geometry.x),
        **by_name("y_image y_row y_pixel", geometry.y),
    )
    label, reason = f"LRN {computation.size}", "; ".join(group.reasons)
    call = KernelCall(spec, UnaryBuffers(x=x, y=y), sizes, label=label, reason=reason)
    planner.epilogue(group, call, pixel_strides)
    planner.call(call)
