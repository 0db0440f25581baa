"""What the normalization kernels are, without compiling them.

All subtract a mean and divide by a standard deviation sqrt(variance + epsilon). Means and variances are taken one after
the other over data that stays in the cache, so the variance is a sum of squared differences and can't cancel.
`epsilon_bits` among the sizes is the bit pattern of epsilon as float64 (`float_bits`).

prologue(value, buffers, sizes, batch, row, column, live) -> Vector is applied to x as it is read, the epilogue, of the
same form, to what is stored.
"""

from __future__ import annotations

import struct

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.parts.sharing import units_per_task
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work, only
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

BLOCKS = 16
"""Blocks that the pixels of an image are cut into at most, channels last."""


def float_bits(value: float) -> int:
    """The bit pattern of a float64 as a signed integer, which is how kernels take floats among their sizes."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


ELEMENTS = ("float32", "float64")


class NormalizationBuffers(Arguments):
    """scale and bias are not touched unless the spec says so."""

    x: Buffer
    scale: Buffer
    bias: Buffer
    y: Buffer = result()


class LayerNormBuffers(NormalizationBuffers):
    kept: Buffer = result()
    """It is not touched unless the spec says so."""


class LayerNormSizes(Arguments):
    rows: Size
    columns: Size
    x_row: Size
    y_row: Size
    kept_row: Size
    epsilon_bits: Size


@dataclass(frozen=True)
class LayerNormSpec(KernelSpec):
    """LayerNormalization or RMSNormalization over rows: y = (x - mean) / sqrt(variance + epsilon) * scale + bias.

    Element (row, column) of x lies at row * x_row + column; so for y and kept. scale and bias have `columns` elements.
    y may be x itself. To the prologue and the epilogue batch is 0. Task: some rows.
    """

    kind: str = "layer"
    """"layer", or "rms": y = x / sqrt(mean(x * x) + epsilon) * scale."""
    scale: bool = True
    bias: bool = True
    keep: bool = False
    """The prologue's values are stored to `kept` too (a residual stream)."""
    element: str = "float32"
    together: int = 4
    """Rows done at a time, a power of two: their chains of dependent operations hide each other's latency, the sums
    across their lanes cost a fraction, and they share the loads of scale and bias."""
    result: str = ""
    """Element type of y where it is not `element`: of bytes that the epilogue quantises to."""

    BUFFERS = LayerNormBuffers
    SIZES = LayerNormSizes
    PRESCHEDULED = True
    ALLOWED = only(kind=("layer", "rms"), element=ELEMENTS)

    def tasks(self, sizes: LayerNormSizes) -> int:
        return -(-sizes.rows // units_per_task(sizes.columns)) if sizes.columns else 0

    def work(self, sizes: LayerNormSizes) -> Work:
        elements, itemsize = sizes.rows * sizes.columns, np.dtype(self.element).itemsize
        written = np.dtype(self.result or self.element).itemsize
        return Work(8 * elements, elements * ((2 if self.keep else 1) * itemsize + written))


def choose_rows(
    kind: str, *, scale: bool, bias: bool, element: str, rows: int | None, columns: int | None, result: str = ""
) -> LayerNormSpec:
    """The kernel for so many rows of so many columns; None: known only at run time.

    Four rows at a time, two where those would fill most of the first-level cache of 32 KB, and one where there is one.
    """
    row_bytes = (columns or 0) * np.dtype(element).itemsize
    together = 1 if rows == 1 else 2 if 4 * row_bytes > 1 << 14 else 4
    return LayerNormSpec(kind, scale, bias, element=element, together=together, result=result)


class GroupNormSizes(Arguments):
    images: Size
    channels: Size
    positions: Size
    groups: Size
    x_image: Size
    x_channel: Size
    y_image: Size
    y_channel: Size
    epsilon_bits: Size


@dataclass(frozen=True)
class GroupNormSpec(KernelSpec):
    """GroupNormalization of channels-first tensors; InstanceNormalization where groups = channels.

    Element (image, channel, position) of x lies at image * x_image + channel * x_channel + position, y's likewise.
    Channels are divided into `groups` of neighbours, whose elements are normalized together; scale and bias have an
    element a channel. To the prologue and the epilogue batch is the image, row the channel, column the position.
    y may be x itself. Task: a group of an image.
    """

    scale: bool = True
    bias: bool = True
    element: str = "float32"
    outside: bool = False
    """Divided by sqrt(variance) + epsilon, not by sqrt(variance + epsilon)."""

    BUFFERS = NormalizationBuffers
    SIZES = GroupNormSizes
    ALLOWED = only(element=ELEMENTS)

    def tasks(self, sizes: GroupNormSizes) -> int:
        return sizes.images * sizes.groups if sizes.channels * sizes.positions else 0

    def work(self, sizes: GroupNormSizes) -> Work:
        elements = sizes.images * sizes.channels * sizes.positions
        return Work(8 * elements, 2 * elements * np.dtype(self.element).itemsize)


class GroupStatisticsBuffers(Arguments):
    x: Buffer
    partial: Buffer = result()


class GroupStatisticsSizes(Arguments):
    images: Size
    pixels: Size
    channels: Size
    x_image: Size
    x_pixel: Size


class GroupApplyBuffers(Arguments):
    x: Buffer
    partial: Buffer
    scale: Buffer
    bias: Buffer
    y: Buffer = result()


class GroupApplySizes(GroupStatisticsSizes):
    groups: Size
    y_image: Size
    y_pixel: Size
    epsilon_bits: Size


class _ChannelsLast(KernelSpec):
    """Both steps over [images, pixels, channels] cut the pixels of an image into the same blocks."""

    element: str

    def blocks(self, sizes: GroupStatisticsSizes) -> int:
        """Blocks an image is cut into: as many as make tasks of 2**14 elements, at most 16."""
        pixels = sizes.pixels
        wanted = smaller(BLOCKS, larger(1, pixels * sizes.channels // tuning.TASK_ELEMENTS))
        return -(-pixels // -(-pixels // wanted)) if pixels else 0

    def tasks(self, sizes: GroupStatisticsSizes) -> int:
        return sizes.images * self.blocks(sizes) if sizes.channels else 0


@dataclass(frozen=True)
class GroupStatisticsSpec(_ChannelsLast):
    """First step of group normalization, channels last: each channel's mean and sum of squared differences, by blocks.

    Element (image, pixel, channel) of x lies at image * x_image + pixel * x_pixel + channel. partial, contiguous
    [images, blocks, 2, channels], receives mean and sum. The prologue's batch is the image, its row the pixel, its
    column the channel. Task: a block of an image.
    """

    element: str = "float32"

    BUFFERS = GroupStatisticsBuffers
    SIZES = GroupStatisticsSizes
    ALLOWED = only(element=ELEMENTS)

    def work(self, sizes: GroupStatisticsSizes) -> Work:
        elements = sizes.images * sizes.pixels * sizes.channels
        return Work(3 * elements, elements * np.dtype(self.element).itemsize)


@dataclass(frozen=True)
class GroupApplySpec(_ChannelsLast):
    """Second step: merges the blocks' statistics (T. F. Chan, G. H. Golub, R. J. LeVeque, 1979) and normalizes.

    y's elements lie as x's, with strides of its own; y may be x itself. Groups are `groups` runs of neighbouring
    channels (InstanceNormalization: as many as channels). scale and bias have an element a channel. With images = 1 and
    all pixels of a batch this is MeanVarianceNormalization. Prologue and epilogue as the first step's prologue.
    """

    scale: bool = True
    bias: bool = True
    element: str = "float32"
    outside: bool = False
    """It says what it says in `GroupNormSpec`."""

    BUFFERS = GroupApplyBuffers
    SIZES = GroupApplySizes
    ALLOWED = only(element=ELEMENTS)

    def scratch_bytes(self, sizes: GroupApplySizes) -> int:
        """Mean and factor of every channel."""
        return 2 * sizes.channels * np.dtype(self.element).itemsize

    def work(self, sizes: GroupApplySizes) -> Work:
        elements = sizes.images * sizes.pixels * sizes.channels
        return Work(4 * elements, 2 * elements * np.dtype(self.element).itemsize)
