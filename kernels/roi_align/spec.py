"""What the kernels are that bring regions of images to one size, without compiling them."""

from __future__ import annotations

import struct

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

MODES = ("avg", "max", "pool")
LANES = 16
"""Output columns whose sums are made together at most."""
MAX_SAMPLES = 1 << 20
"""The most samples of a bin each way, where they follow from its size: a region of infinite size has no more."""


def bits(number: float) -> int:
    """A number as the size that carries it to the kernel."""
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


class RoiAlignBuffers(Arguments):
    x: Buffer
    rois: Buffer
    batch_indices: Buffer
    y: Buffer = result()
    error: Buffer = result()


class RoiAlignSizes(Arguments):
    rois: Size
    channels: Size
    out_height: Size
    out_width: Size
    images: Size
    height: Size
    width: Size
    x_image: Size
    x_channel: Size
    x_row: Size
    x_column: Size
    y_roi: Size
    y_channel: Size
    y_row: Size
    y_column: Size
    scale: Size
    """`bits` of the factor from the coordinates of regions to pixels."""
    pieces: Size = computed()
    piece: Size = computed()
    """A region has so many tasks, of so many rows of bins or channels each."""


@dataclass(frozen=True)
class RoiAlignSpec(KernelSpec):
    """ONNX's RoiAlign and MaxRoiPool: each region of x becomes bins, averages or largest of samples in them.

    A sample is made of four pixels, with weights that are products of one for its row and one for its column. So the
    samples of a bin are a window of rows and columns with weights that are added up once for all channels: an average
    is Σ row_weight * Σ column_weight * x. Only for the largest each sample is made by itself.

    Mode "pool" is MaxRoiPool: the corners of regions are rounded, both belong to the region, and the bins are the
    largest of its pixels; 0 where they have none.

    Element (n, c, h, w) of x lies at n * x_image + c * x_channel + h * x_row + w * x_column, that of y likewise with
    the region in the place of n. Region r is rois[4 r : 4 r + 4]. An image index that is none sets `error`, and its
    region's bins stay as they are.

    pixels: x_channel and y_channel are 1, and vectors lie along channels. Else x_column and y_column are 1, and they
    lie along columns: first of a row of x, as the window's rows are added up, then of the bins.

    Task: task_rows rows of bins of a region, or task_channels channels of it.
    """

    mode: str
    half_pixel: bool
    sampling: int
    """Samples of a bin each way; 0: as many as it has pixels, rounded up."""
    pixels: bool
    element: str = "float32"

    BUFFERS = RoiAlignBuffers
    SIZES = RoiAlignSizes

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.element not in ("float32", "float64") or self.sampling < 0:
            raise ValueError(f"no kernel aligns regions of {self.element} by {self.mode!r}, sampling {self.sampling}")

    def complete(self, sizes: RoiAlignSizes) -> RoiAlignSizes:
        whole = sizes.out_height if self.pixels else sizes.channels
        elements = max(1, sizes.channels * sizes.out_height * sizes.out_width)
        piece = max(1, min(whole, whole * tuning.INTERPOLATED_TASK_ELEMENTS // elements))
        return RoiAlignSizes.following(sizes, pieces=-(-whole // piece), piece=piece)

    def tasks(self, sizes: RoiAlignSizes) -> int:
        return sizes.rois * sizes.pieces if sizes.channels * sizes.out_height * sizes.out_width else 0

    def scratch_bytes(self, sizes: RoiAlignSizes) -> int:
        """The windows of all bins along both axes, and a row of x."""
        out_height, out_width = sizes.out_height + LANES, sizes.out_width + LANES
        height, width = sizes.height, sizes.width + LANES
        itemsize = np.dtype(self.element).itemsize
        return 16 * (out_height + out_width) + itemsize * (out_height * height + (out_width + 1) * width)

    def work(self, sizes: RoiAlignSizes) -> Work:
        outputs = sizes.rois * sizes.channels * sizes.out_height * sizes.out_width
        samples = max(self.sampling, 1) ** 2
        return Work(8 * outputs * samples, 2 * outputs * np.dtype(self.element).itemsize)
