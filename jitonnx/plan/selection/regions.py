"""Regions of images brought to one size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.graph import Value
from jitonnx.kernels.roi_align.spec import RoiAlignBuffers, RoiAlignSizes, RoiAlignSpec, bits
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.tensor import channels_last_order

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def roi_align(
    planner: Planner, group: Group, computation: c.RoiAlign, image: Value, regions: Value, batch_indices: Value
) -> None:
    """RoiAlign and MaxRoiPool, in the layout that the image has: it is often larger than all its regions."""
    x = planner.tensor(image)
    pixels = x.strides[1] == 1 and x.shape[1] != 1
    if not pixels and x.strides[3] != 1:
        x = planner.dense(image)
    order = channels_last_order(4) if pixels else (0, 1, 2, 3)
    y = planner.place(group.output, order)
    if y.strides[order[-1]] != 1:
        y = planner.move(group.output, order)
    names = [value.name for value in planner.node.inputs if value is not None]
    error = planner.flag(f"an index in {names[-1]!r} is outside the batch axis of {names[0]!r}")
    spec = RoiAlignSpec(computation.mode, computation.half_pixel, computation.sampling, pixels, x.dtype.numpy.name)
    sizes = RoiAlignSizes(
        **by_name("rois channels out_height out_width", y.shape),
        images=x.shape[0],
        **by_name("height width", x.shape[2:]),
        **by_name("x_image x_channel x_row x_column", x.strides),
        **by_name("y_roi y_channel y_row y_column", y.strides),
        scale=bits(computation.scale),
    )
    rois, numbers = planner.dense(regions), planner.dense(batch_indices)
    buffers = RoiAlignBuffers(x=x, rois=rois, batch_indices=numbers, y=y, error=error)
    call = KernelCall(spec, buffers, sizes, label=f"regions {computation.mode}")
    call.reason = "channels side by side" if pixels else "columns side by side"
    planner.call(call)
