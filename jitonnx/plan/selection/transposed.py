"""Transposed convolution: products where its windows do not overlap, else a kernel for windows over images."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as product_of
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.convolution.choose import choose_transposed
from jitonnx.kernels.convolution.problem import ConvolutionBuffers, Problem
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.narrow import narrow_convolution
from jitonnx.plan.selection.products import GemmResult, gemm
from jitonnx.plan.selection.windows import (
    Geometry,
    add_bias,
    every_step,
    is_by_channel,
    reading,
    square,
    window_steps,
    writing,
)
from jitonnx.plan.tensor import StridedTensor, broadcast_to, channels_last_order, is_channels_last, pair, pixel_strides

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def transposed_convolution(
    planner: Planner,
    group: Group,
    computation: c.TransposedConvolution,
    image: Value,
    kernel: Value,
    bias: Value | None = None,
) -> None:
    """ConvTranspose over one or two spatial axes."""
    weights = planner.tensor(kernel)
    array = weights.constant
    if array is None or array.ndim not in (3, 4) or image.dtype is not DType.FLOAT:
        # Conv and ConvTranspose give such to products of unfolded images instead; this is for constants that only
        # seem so, as views of what a run computes.
        planner.unplannable(
            "a transposed convolution of computed weights, over more than two axes, or of another type than float"
        )
    x = planner.tensor(image)
    if narrow_convolution(planner, group, computation, weights, x, bias):
        return
    y = planner.place(group.output, channels_last_order(x.rank), strict=True)
    if bias is not None:
        add_bias(planner, group, bias, x.rank)
    if _makes_blocks(planner, group, computation, array, x, y):
        _blocks_of_pixels(planner, group, computation, weights, x, y)
        return
    kernel_size, strides, dilations = pair(array.shape[2:]), pair(computation.strides), pair(computation.dilations)
    out_channels = array.shape[1] * computation.group
    height, width = (dim if isinstance(dim, int) else None for dim in pair(y.shape[2:]))
    spec = choose_transposed(strides, computation.group, out_channels, (height, width), planner.target)
    spec, y = writing(planner, group, spec, y)
    spec, x = reading(planner, spec, x)
    packed = planner.packed(
        weights, lambda w: spec.pack_weights(square(w), computation.group, dilations), (spec, dilations)
    )
    sizes = Problem(
        images=x.shape[0],
        channels=array.shape[0],
        out_channels=out_channels,
        groups=computation.group,
        **Geometry.of(x, y).named(),
        **window_steps(kernel_size, strides, dilations, computation.pads_before),
        x_channel=x.strides[1],
        y_channel=y.strides[1],
    )
    call = KernelCall(spec, ConvolutionBuffers(x=x, w=packed, y=y), sizes)
    call.label = f"transposed convolution {kernel_size[0]}x{kernel_size[1]} {array.shape[0]}->{out_channels}"
    call.reason = "; ".join(group.reasons)
    planner.epilogue(group, call, pixel_strides)
    planner.call(call)


def _makes_blocks(
    planner: Planner,
    group: Group,
    computation: c.TransposedConvolution,
    weights: np.ndarray,
    x: StridedTensor,
    y: StridedTensor,
) -> bool:
    """Whether a transposed convolution makes a block of its own of each pixel, and is faster as a product for each
    place in the blocks: channels-last, where weights stay in the second-level cache, as each row of pixels reads them,
    and if its epilogue's operands are the same for all pixels.
    """
    blocks = tuple(dim * step for dim, step in zip(x.shape[2:], computation.strides, strict=True))
    apart = weights.shape[2:] == computation.strides and y.shape[2:] == blocks and computation.group == 1
    if not apart or any(computation.pads_before) or any(dilation != 1 for dilation in computation.dilations):
        return False
    if not all(is_by_channel(broadcast_to(planner.tensor(value), y.shape)) for value in group.operands):
        return False
    target = planner.destination(group.output) or y
    prefetch_distance = 4 * weights.shape[0] * weights.shape[1] <= planner.target.l2_bytes // 2
    return prefetch_distance and all(is_channels_last(tensor) for tensor in (x, y, target))


def _blocks_of_pixels(
    planner: Planner,
    group: Group,
    computation: c.TransposedConvolution,
    weights: StridedTensor,
    x: StridedTensor,
    y: StridedTensor,
) -> None:
    """The products of `_makes_blocks`: rows of pixels times weights, into pixels of y that are strides apart."""
    planner.note("a product for each place in the blocks that pixels become")
    for place in product_of(*map(range, computation.strides)):
        matrix = replace(
            weights,
            offset=weights.offset + sum(at * step for at, step in zip(place, weights.strides[2:], strict=True)),
            shape=weights.shape[:2],
            strides=weights.strides[:2],
        )

        def there(tensor: StridedTensor, place: tuple[int, ...] = place) -> StridedTensor:
            return _channels_behind(every_step(tensor, computation.strides, place))

        gemm(planner, group, _channels_behind(x), matrix, GemmResult(there(y), there))


def _channels_behind(image: StridedTensor) -> StridedTensor:
    """An image as [N, spatial..., C]."""
    shape, strides = image.shape, image.strides
    return replace(image, shape=(shape[0], *shape[2:], shape[1]), strides=(strides[0], *strides[2:], strides[1]))
