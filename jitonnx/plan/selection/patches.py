"""Convolutions of windows that lie side by side, as vision transformers begin: a product of patches and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import integers, product
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.products import GemmResult, gemm
from jitonnx.plan.tensor import StridedTensor, is_channels_last, pixels_as_rows, reshape_strides
from jitonnx.target import tuning

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def patches_product(
    planner: Planner,
    group: Group,
    computation: c.Convolution,
    weights: StridedTensor,
    x: StridedTensor,
    y: StridedTensor,
) -> bool:
    """Plan a convolution to a channels-last y whose windows neither overlap nor leave gaps nor reach beyond x, as a
    product of its patches, copied one behind the other; False if it is another one, or another kernel is better for it.
    """
    kernel, out = integers(weights.shape[2:]), pixels_as_rows(y)
    steps = zip(kernel, computation.strides, computation.dilations, strict=True)
    side_by_side = all(size == step and (size == 1 or dilation == 1) for size, step, dilation in steps)
    if not side_by_side or computation.group != 1 or any((*computation.pads_before, *computation.pads_after)):
        return False
    if is_channels_last(x) or kernel[-1] < tuning.PATCH_COLUMNS or out is None:
        return False
    images, channels, *_ = x.shape
    elements = product((channels, *kernel))
    columns = reshape_strides(weights.shape[1:], weights.strides[1:], (elements,))
    if columns is None:
        return False
    windows, spatial = y.shape[2:], x.strides[2:]
    between = [size * stride for size, stride in zip(kernel, spatial, strict=True)]
    patches = replace(
        x,
        shape=(images, *windows, channels, *kernel),
        strides=(x.strides[0], *between, x.strides[1], *spatial),
    )
    rows = planner.copy(patches, tuple(range(patches.rank)), "patches one behind the other are rows of a product")
    shape = (images, product(windows), elements)
    matrix = replace(rows, shape=shape, strides=(shape[1] * elements, elements, 1))
    planner.note("a convolution of windows side by side is a product of patches and weights")
    turned = replace(weights, shape=(elements, weights.shape[0]), strides=(columns[0], weights.strides[0]))
    gemm(planner, group, matrix, turned, GemmResult(out, pixels_as_rows))
    return True
