"""Sizes by name, as kernels have them in `kernels/parts/layouts.py`."""

from __future__ import annotations

from collections.abc import Sequence

from jitonnx.emit.arguments import by_name
from jitonnx.kernels.parts.layouts import WindowProduct
from jitonnx.kernels.pooling.spec import PoolSizes


def planes(shape: Sequence[int], steps: Sequence[int]) -> dict[str, int]:
    """Those of `Planes`. shape: [N, C, H, W]; steps: by image, channel and row."""
    return {**by_name("images channels height width", shape), **by_name("x_image x_channel x_row", steps)}


def planes_to_planes(
    shape: Sequence[int], steps: Sequence[int], out: Sequence[int], out_steps: Sequence[int]
) -> dict[str, int]:
    """Those of `PlanesToPlanes`. out: y's height and width; out_steps: as steps, of y."""
    return {
        **planes(shape, steps),
        **by_name("out_height out_width", out),
        **by_name("y_image y_channel y_row", out_steps),
    }


def pixels(shape: Sequence[int], steps: Sequence[int], out_steps: Sequence[int]) -> dict[str, int]:
    """Those of `Pixels`. shape: [N, H, W, C]; steps, out_steps: by image, row and pixel, of x and y."""
    return {
        **by_name("images height width channels", shape),
        **by_name("x_image x_row x_pixel", steps),
        **by_name("y_image y_row y_pixel", out_steps),
    }


def row_product(m: int, n: int, k: int, x_row: int, y_row: int) -> WindowProduct:
    """The product of m rows of k elements with n columns, as windows of one pixel."""
    return window_product((1, m, 1, k), (m, 1, n), [(1, 1), (1, 1), (1, 1), (0, 0)], (0, 0, x_row), y_row)


def window_product(
    shape: Sequence[int],
    out: Sequence[int],
    window: Sequence[Sequence[int]],
    steps: Sequence[int],
    y_pixel: int,
) -> WindowProduct:
    """Those of products of windows. shape: [N, H, W, C]; out: y's height, width and channels.

    window: kernel, strides, dilations and padding before, each by height and width. steps: of x, as of `pixels`.
    """
    names = ("kernel_height kernel_width", "stride_height stride_width", "dilation_height dilation_width")
    by_axis = [by_name(some, values) for some, values in zip((*names, "pad_top pad_left"), window, strict=True)]
    return WindowProduct(
        **by_name("images height width channels", shape),
        **by_name("out_height out_width out_channels", out),
        **{name: value for some in by_axis for name, value in some.items()},
        **by_name("x_image x_row x_pixel", steps),
        y_pixel=y_pixel,
    )


def pool_sizes(
    shape: Sequence[int],
    out: Sequence[int],
    x_steps: Sequence[int],
    y_steps: Sequence[int],
    window: Sequence[Sequence[int]],
    index: Sequence[int] = (0, 0, 0, 0, 0),
) -> PoolSizes:
    """Those of pooling. shape: [N, D, H, W, C]; out: [D, H, W]; steps: by image, plane, row and pixel.

    window: kernel, strides, dilations, and padding before and after, each by depth, height and width. index: what a
    step by image, channel, plane, row and pixel adds to an index.
    """
    names = ("kernel_{}", "stride_{}", "dilation_{}", "pad_{}", "pad_{}_after")
    axes = ("depth", "height", "width")
    by_axis = {
        name.format(axis): value
        for name, values in zip(names, window, strict=True)
        for axis, value in zip(axes, values, strict=True)
    }
    return PoolSizes(
        **by_name("images depth height width channels", shape),
        **by_name("out_depth out_height out_width", out),
        **by_name("x_image x_plane x_row x_pixel", x_steps),
        **by_name("y_image y_plane y_row y_pixel", y_steps),
        **by_axis,
        **by_name("index_image index_channel index_plane index_row index_pixel", index),
    )
