"""Images read between their pixels: in planes, or as pixels where there are many channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import DimLike, concrete, minimum
from jitonnx.ir.graph import Value
from jitonnx.kernels.grid_sample.spec import (
    MAX_AXES,
    SampleBuffers,
    SamplePixelsSpec,
    SamplePlanesSpec,
    SampleSizes,
    prefers_pixels,
)
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.tensor import channels_last_order

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner

_WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_REACH = (1 << 31) - 1
"""Elements that an image's channel spans at most: offsets in it are 32 bits."""


def reads_pixels(x: Value) -> bool:
    """Whether the channels of a sampled image [N, C, …] are to lie side by side, in it and in the result."""
    channels = concrete(x.shape[1])
    return channels is None or prefers_pixels(channels)


def sample(
    planner: Planner, group: Group, computation: c.Sample, image: Value, points: Value, *given: Value | None
) -> None:
    """GridSample, and what a deformable convolution reads."""
    axes = len(image.shape) - 2
    if axes > MAX_AXES:
        # Of four axes cubic interpolation would take 256 taps, written out; models have up to three.
        planner.unplannable(f"it samples {axes} axes; kernels sample up to {MAX_AXES}")
    pixels = reads_pixels(image)
    x = planner.tensor(image)
    if pixels and x.strides[1] != 1:
        x = planner.channels_last(image)
    order = channels_last_order(3) if pixels else (0, 1, 2)
    y = planner.place(group.output, order)
    if y.strides[order[-1]] != 1:
        y = planner.move(group.output, order)
    spans: list[DimLike] = [size * stride for size, stride in zip(x.shape[2:], x.strides[2:], strict=True)]
    if not all(planner.assume(minimum(span, _REACH), span) for span in spans):
        planner.unplannable("a channel of the image it samples spans 2**31 elements or more")
    coordinates = planner.dense(points)
    weights = given[0] if given else None
    factors = coordinates if weights is None else planner.dense(weights)
    element = _WORDS[x.dtype.itemsize] if computation.mode == "nearest" else x.dtype.numpy.name
    kind = SamplePixelsSpec if pixels else SamplePlanesSpec
    spec = kind(computation.mode, computation.outside, axes, computation.aligned, element, weights is not None)
    sizes = SampleSizes(
        **by_name("images channels places", y.shape),
        **by_name("x_image x_channel", x.strides[:2]),
        **by_name("y_image y_channel y_place", y.strides),
        **by_name("c_image c_axis", coordinates.strides[:2]),
        f_image=factors.strides[0],
        extents=x.shape[2:],
        x_steps=x.strides[2:],
    )
    buffers = SampleBuffers(x=x, coordinates=coordinates, factors=factors, y=y)
    call = KernelCall(spec, buffers, sizes, label=f"sample {computation.mode}")
    call.reason = "whole pixels" if pixels else "elements gathered, as channels are few"
    planner.call(call)
