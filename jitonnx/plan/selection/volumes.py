"""Convolutions over three axes, done by the kernels for images: what the depth taps read becomes channels.

y[n, :, d] = Σ_k w[:, :, k] * x[n, :, d * stride + k * dilation - pad], where * is a convolution over height and width,
is one convolution of images (n, d), whose channels are those of the slices that d reads. To put these side by side
copies the volume once a depth tap: a few percent of the time of the convolution, which may then be Winograd's.

Where the kernel has depth taps alone, the volume itself is seen as images, whose rows are the slices, and nothing is
copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import DimLike, ceil_divide, maximum, minimum, product
from jitonnx.plan.copies import copy_call
from jitonnx.plan.region import region_call
from jitonnx.plan.tensor import (
    StridedTensor,
    apply_view,
    channels_last,
    is_channels_last,
    pixel_strides,
    reshape_strides,
)

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def depth_as_channels(weights: np.ndarray) -> np.ndarray:
    """Weights [M, C / groups, kD, kH, kW] as those of images: [M, kD * C / groups, kH, kW]."""
    outputs, channels, depth, height, width = weights.shape
    return weights.transpose(0, 2, 1, 3, 4).reshape(outputs, depth * channels, height, width)


def without_depth(computation: c.Convolution) -> c.Convolution:
    """The convolution of each slice."""
    return replace(
        computation,
        strides=computation.strides[1:],
        dilations=computation.dilations[1:],
        pads_before=computation.pads_before[1:],
        pads_after=computation.pads_after[1:],
    )


def has_depth_taps_alone(computation: c.Convolution, weights: Sequence[DimLike]) -> bool:
    """Whether every output reads pixels of its own place only, of several slices."""
    plain = (*weights[3:], *computation.strides[1:])
    pads = (*computation.pads_before[1:], *computation.pads_after[1:])
    return all(value == 1 for value in plain) and not any(pads)


def without_width(computation: c.Convolution) -> c.Convolution:
    """The convolution of images whose rows are slices, over depth and one more axis."""
    return replace(
        computation,
        strides=computation.strides[:2],
        dilations=computation.dilations[:2],
        pads_before=computation.pads_before[:2],
        pads_after=computation.pads_after[:2],
    )


def slices_as_rows(volume: StridedTensor) -> StridedTensor | None:
    """A volume [N, C, D, H, W] as images [N, C, D, H * W]; None if the pixels of a slice are not evenly spaced."""
    pixels = product(volume.shape[3:])
    merged = reshape_strides(volume.shape[3:], volume.strides[3:], (pixels,))
    if merged is None:
        return None
    return replace(volume, shape=(*volume.shape[:3], pixels), strides=(*volume.strides[:3], *merged))


def rows_as_images(volume: StridedTensor) -> StridedTensor:
    """A single volume [1, C, D, H, W] as images [H, C, D, W]."""
    order = (3, 1, 2, 4)
    shape, strides = (tuple(values[axis] for axis in order) for values in (volume.shape, volume.strides))
    return replace(volume, shape=shape, strides=strides)


def slices_as_images(volume: StridedTensor) -> StridedTensor | None:
    """A volume [N, C, D, H, W] as images [N * D, C, H, W]; None if these are not evenly spaced."""
    images, channels, depth, *size = volume.shape
    merged = reshape_strides((images, depth), (volume.strides[0], volume.strides[2]), (images * depth,))
    if merged is None:
        return None
    strides = (merged[0], volume.strides[1], *volume.strides[3:])
    return replace(volume, shape=(images * depth, channels, *size), strides=strides)


def slice_strides(volume: StridedTensor) -> tuple[DimLike, DimLike, DimLike] | None:
    """Strides of a volume by (slice of an image, linear pixel of the slice, channel): how epilogues address it."""
    images = slices_as_images(volume)
    return None if images is None else pixel_strides(images)


def gather_slices(
    planner: Planner, computation: c.Convolution, x: StridedTensor, taps: int, outputs: DimLike
) -> StridedTensor:
    """The slices that each of `outputs` output depths reads, as channels of images [N * outputs, taps * C, H, W].

    Channels are [group][tap][channel of the group], as `depth_as_channels` has the weights. A single tap that reads
    evenly spaced slices of a channels-last volume needs no copy.
    """
    stride, dilation, pad = computation.strides[0], computation.dilations[0], computation.pads_before[0]
    places = [_valid(x.shape[2], outputs, stride, pad - tap * dilation) for tap in range(taps)]
    if taps == 1 and places[0] == (0, outputs) and is_channels_last(x):
        images = slices_as_images(_along_depth(x, -1 * pad, stride, outputs))
        if images is not None:
            return images
    number, channels, _, height, width = x.shape
    groups, own = computation.group, channels // computation.group
    shape = (number, groups, taps, own, outputs, height, width)
    gathered = planner.temporary(shape, x.dtype, (0, 4, 5, 6, 1, 2, 3))
    source = _grouped(x, groups)
    for tap, (first, last) in enumerate(places):
        strides = gathered.strides
        target = replace(
            gathered,
            offset=gathered.offset + tap * strides[2],
            shape=(*shape[:2], *shape[3:]),
            strides=(*strides[:2], *strides[3:]),
        )
        if first != last:
            read = _along_depth(source, first * stride + tap * dilation - pad, stride, last - first)
            written = _along_depth(target, first, 1, last - first)
            planner.call(copy_call(read, written, label="copy slices", reason=f"depth tap {tap} becomes channels"))
        for start, stop in ((0, first), (last, outputs)):
            if start != stop:
                _fill(planner, _along_depth(target, start, 1, stop - start))
    whole = (number * outputs, groups * taps * own, height, width)
    return replace(gathered, shape=whole, strides=channels_last(whole))


def _valid(depth: DimLike, outputs: DimLike, stride: int, before: DimLike) -> tuple[DimLike, DimLike]:
    """The first output o < outputs with 0 <= o * stride - before < depth, and what is behind the last."""
    first = minimum(maximum(0, ceil_divide(before, stride)), outputs)
    return first, maximum(first, minimum(outputs, (depth - 1 + before) // stride + 1))


def _grouped(volume: StridedTensor, groups: int) -> StridedTensor:
    """[N, C, D, H, W] as [N, groups, C / groups, D, H, W]."""
    own = volume.shape[1] // groups
    shape = (volume.shape[0], groups, own, *volume.shape[2:])
    strides = (volume.strides[0], own * volume.strides[1], volume.strides[1], *volume.strides[2:])
    return replace(volume, shape=shape, strides=strides)


def _along_depth(volume: StridedTensor, start: DimLike, step: int, length: DimLike) -> StridedTensor:
    """`length` slices from `start` on, `step` apart. Depth is the third axis from the last."""
    starts: list[DimLike] = [0] * volume.rank
    steps, shape = [1] * volume.rank, list(volume.shape)
    starts[-3], steps[-3], shape[-3] = start, step, length
    return _view(volume, starts, steps, shape)


def _view(
    tensor: StridedTensor, starts: Sequence[DimLike], steps: Sequence[int], shape: Sequence[DimLike]
) -> StridedTensor:
    seen = apply_view(c.Slice(tuple(starts), tuple(steps), tuple(shape)), tensor)
    assert seen is not None
    return seen


def _fill(planner: Planner, target: StridedTensor) -> None:
    """Zeros for the slices outside of the volume."""
    expr = e.constant(0, target.dtype)
    planner.call(region_call([expr], [], [target], label="pad slices", origin=(), reason="zeros around the volume"))
