"""What the pooling kernels are, without compiling them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np

from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

KINDS = ("max", "average", "lp")
ELEMENTS = {
    "max": ("float32", "float16", "float64", "int8", "uint8"),
    "average": ("float32", "float16", "float64"),
    "lp": ("float32", "float16", "float64"),
}


@dataclass(frozen=True)
class PoolSpec(KernelSpec):
    """ONNX's MaxPool, AveragePool and LpPool over one to three spatial axes; missing ones have size and window 1.

    Element (n, d, h, w, c) of x lies at n * x_image + d * x_plane + h * x_row + w * x_pixel + c, and y's likewise;
    `indices`, int64, is laid out as y. Task: one row of output pixels, (n * out_depth + d) * out_height + h.
    The epilogue's row is the linear output pixel (d * out_height + h) * out_width + w.

    Maximum: the first tap is taken, then each that is greater. So a NaN stays if it is the first and loses otherwise,
    as in ONNX's reference and in onnxruntime's MaxPool with indices; onnxruntime's without indices depends on its
    vectors. A window that lies in the padding altogether gives the lowest number.
    """

    kind: str
    """"max", "average" or "lp"."""
    element: str = "float32"
    """Element type of x and y, as NumPy names it; float16 is summed in float32."""
    with_indices: bool = False
    """Max only: a second output, where in ONNX's x each maximum was found (the first of equals)."""
    count_include_pad: bool = False
    """Average only: divide by the number of taps within the padded x, not within x."""
    power: int = 2
    """Lp only: the exponent p >= 1."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "y", "indices")
    SIZES: ClassVar[tuple[str, ...]] = (
        *("images", "depth", "height", "width", "channels"),
        *("out_depth", "out_height", "out_width"),
        *("x_image", "x_plane", "x_row", "x_pixel"),
        *("y_image", "y_plane", "y_row", "y_pixel"),
        *("kernel_depth", "kernel_height", "kernel_width"),
        *("stride_depth", "stride_height", "stride_width"),
        *("dilation_depth", "dilation_height", "dilation_width"),
        *("pad_depth", "pad_height", "pad_width"),
        *("pad_depth_after", "pad_height_after", "pad_width_after"),
        *("index_image", "index_channel", "index_plane", "index_row", "index_pixel"),
    )
    """Extents, strides in elements, the window and the padding before and after. index_*: what a step along an axis of
    x adds to a reported index: for x [N, C, H, W] and storage_order 0 these are C*H*W, H*W, 0, W, 1, and for
    storage_order 1 C*H*W, H*W, 0, 1, H. Only count_include_pad needs the padding after, only with_indices index_*."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.element not in ELEMENTS[self.kind]:
            raise ValueError(f"no pooling kernel of kind {self.kind!r} for {self.element!r}")
        if self.with_indices and self.kind != "max":
            raise ValueError(f"pooling of kind {self.kind!r} has no indices")
        if self.power < 1:
            raise ValueError(f"LpPool: p must be at least 1, not {self.power}")

    def tasks(self, sizes: Sequence[int]) -> int:
        images, _, _, _, channels, depth, height, width = sizes[:8]
        return images * depth * height if channels * width * prod(sizes[1:4]) > 0 else 0

    def work(self, sizes: Sequence[int]) -> Work:
        named = dict(zip(self.SIZES, sizes, strict=False))
        outputs = prod(sizes[5:8]) * sizes[0] * sizes[4]
        window = named["kernel_depth"] * named["kernel_height"] * named["kernel_width"]
        item = np.dtype(self.element).itemsize
        return Work(outputs * window, item * (prod(sizes[:5]) + outputs) + 8 * outputs * self.with_indices)


def choose(
    kind: str, element: str = "float32", with_indices: bool = False, count_include_pad: bool = False, power: int = 2
) -> PoolSpec:
    """The spec for a pooling node. The window's sizes are arguments: one kernel serves them all at the same speed.

    Fields that the kind does not use are brought to their defaults, so that equal code has equal specs.
    """
    return PoolSpec(
        kind,
        element,
        with_indices and kind == "max",
        count_include_pad and kind == "average",
        power if kind == "lp" else 2,
    )
