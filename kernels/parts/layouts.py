"""Arguments that kernels of several families take: how tensors lie that they read and write. For specs, without LLVM.

Strides are in elements.
"""

from __future__ import annotations

from typing import Any

from jitonnx.emit.arguments import Arguments, Buffer, Size, result


class UnaryBuffers(Arguments):
    """Those of a kernel that makes one tensor of another."""

    x: Buffer
    y: Buffer = result()


class ReducedAxis(Arguments):
    """x is [outer, length, inner], y [outer, inner]: element (o, k, i) of x lies at o * x_outer + k * x_step + i."""

    outer: Size
    length: Size
    inner: Size
    x_outer: Size
    x_step: Size
    y_outer: Size


class KeptAxis(ReducedAxis):
    """x and y are [outer, length, inner]: element (o, k, i) of x lies at o * x_outer + k * x_step + i, y's likewise."""

    y_step: Size


class ReadPixels(Arguments):
    """Channels-last images: element (n, h, w, c) of x lies at n * x_image + h * x_row + w * x_pixel + c."""

    images: Size
    height: Size
    width: Size
    channels: Size
    x_image: Size
    x_row: Size
    x_pixel: Size


class Pixels(ReadPixels):
    """The same of y, which may have other extents."""

    y_image: Size
    y_row: Size
    y_pixel: Size


class Planes(Arguments):
    """Images whose pixels lie side by side: element (n, c, h, w) of x lies at n * x_image + c * x_channel + h * x_row
    + w."""

    images: Size
    channels: Size
    height: Size
    width: Size
    x_image: Size
    x_channel: Size
    x_row: Size


class PlanesToPlanes(Planes):
    """The same of y, whose extents are [images, channels, out_height, out_width]."""

    out_height: Size
    out_width: Size
    y_image: Size
    y_channel: Size
    y_row: Size


class Windows(ReadPixels):
    """Windows over the pixels of x, one for each pixel of y, which is [images, out_height, out_width, out_channels]."""

    out_height: Size
    out_width: Size
    out_channels: Size
    kernel_height: Size
    kernel_width: Size
    stride_height: Size
    stride_width: Size
    dilation_height: Size
    dilation_width: Size
    pad_top: Size
    pad_left: Size


class WindowProduct(Windows):
    """A product of windows with weights, or of rows, which are one image of windows of a pixel: y's rows are the output
    pixels of all images, y_pixel apart."""

    y_pixel: Size


def padded_width(given: Any) -> Any:
    """Pixels of a row of an image that output pixels of a row read, padding included."""
    return (given.out_width - 1) * given.stride_width + (given.kernel_width - 1) * given.dilation_width + 1


TILE = 16
"""Rows of a tile register of AMX, and columns of a tile of 32-bit sums."""
LINE = 64
"""Bytes of a row of a tile register, and of a cache line."""
