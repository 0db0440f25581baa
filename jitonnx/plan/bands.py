"""Expansions and depthwise convolutions in turns, band by band: what lies between stays in the second-level cache.

A 1x1 convolution that makes many channels of few, and the depthwise convolution that reads them, are a product and a
kernel on images. Where the image between them is larger than the second-level cache (112 x 112 x 96 in MobileNet v2),
the first waits for the third-level cache to take it and the second to give it back. So the output rows are cut into
bands: the product makes the rows that a band reads, in memory that all bands use, the depthwise convolution makes the
band of them, and so on. Rows that two bands read are made twice. Each thread has a part of each band.

Measured on a Granite Rapids that others used, CPU time of one thread: MobileNet v2 and EfficientNet B0 take 0.92 to
0.95 of the time, MobileNet v3 0.98. Products write to the third-level cache of a Zen 4 as fast as they multiply:
nothing is cut for such cores. It is done where all sizes are known when the plan is made.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from jitonnx.ir.dims import concrete
from jitonnx.kernels.arguments import Arguments
from jitonnx.kernels.convolution.spec import ConvolutionBuffers, DepthwiseGiven, DepthwiseSpec
from jitonnx.kernels.gemm.spec import GemmBuffers, GemmGiven, GemmSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.tensor import Buffer, Tensor, channels_last, channels_last_order, dense_tensor
from jitonnx.records import dataclass
from jitonnx.target import Target

_SHARE = 2
"""What lies between takes the second-level cache's size over this; 1 gained less, 4 as much."""
_ONCE = 8
"""For one row that is made twice so many are made once, at least."""


def in_bands(calls: list[KernelCall], target: Target) -> list[KernelCall]:
    """The calls, with those that gain by it cut into bands."""
    if not target.core.waits_for_l3:
        return calls
    uses = Counter(tensor.buffer for call in calls for tensor in call.tensors)
    result: list[KernelCall] = []
    for call in calls:
        pair = _pair(result[-1], call, uses) if result else None
        bands = pair.bands(target) if pair is not None else []
        if pair is None or len(bands) < 2:
            result.append(call)
            continue
        del result[-1]
        between = pair.memory(max(band.below - band.above for band in bands))
        heights = pair.heights(bands)
        for band in bands:
            result += pair.calls(band, between, heights)
    return result


@dataclass(frozen=True)
class _Band:
    """Output rows `first` up to `end`, and the rows `above` up to `below` of the image between that they read."""

    first: int
    end: int
    above: int
    below: int


@dataclass(eq=False)
class _Pair:
    """A product that makes an image, pixel by pixel, and the depthwise convolution that alone reads it."""

    product: KernelCall
    depthwise: KernelCall
    height: int
    width: int
    channels: int
    out_height: int

    @property
    def reader(self) -> DepthwiseSpec:
        """What reads the image."""
        assert isinstance(self.depthwise.spec, DepthwiseSpec)
        return self.depthwise.spec

    @property
    def pad(self) -> int:
        """Rows of padding above the image."""
        return concrete(_image(self.depthwise).pad_top) or 0

    def bands(self, target: Target) -> list[_Band]:
        """The bands; one or none where they bring nothing."""
        stride, memory = self.reader.strides[0], target.l2_bytes // _SHARE
        reach = self.reader.dilations[0] * (self.reader.kernel[0] - 1) + 1
        row_bytes = self.width * self.channels * _read(self.depthwise).dtype.itemsize
        rows = (memory // row_bytes - max(reach - stride, 0)) // stride  # of the output
        if self.height * row_bytes <= memory or rows * stride < _ONCE * (reach - stride):
            return []
        number = -(-self.out_height // max(rows, 1))
        rows = -(-self.out_height // number)
        found = []
        for first in range(0, self.out_height, rows):
            end = min(first + rows, self.out_height)
            above, below = first * stride - self.pad, (end - 1) * stride - self.pad + reach
            found.append(_Band(first, end, min(max(above, 0), self.height), max(0, min(below, self.height))))
        return found

    def heights(self, bands: list[_Band]) -> tuple[int, ...]:
        """The heights of tiles that make up the product's rows in all bands: one that makes up each row of pixels,
        which other pairs may share, or else the usual one and what it leaves.
        """
        assert isinstance(self.product.spec, GemmSpec)
        usual = self.product.spec.rows[0]
        for size in range(usual, 3 * usual // 4, -1):
            if self.width % size == 0:
                return (size,)
        left = {(band.below - band.above) * self.width % usual for band in bands}
        return (usual, *sorted(left - {0}, reverse=True))

    def memory(self, rows: int) -> Tensor:
        """New memory for so many rows of the image between."""
        old = _read(self.depthwise)
        return dense_tensor(old.buffer.name, (1, self.channels, rows, self.width), old.dtype, channels_last_order(4))

    def calls(self, band: _Band, between: Tensor, heights: tuple[int, ...]) -> list[KernelCall]:
        """What makes the rows of the image between that a band reads, and then the band."""
        note = f"rows {band.first} to {band.end} of {self.out_height}, whose input stays in the second-level cache"
        assert isinstance(self.product.spec, GemmSpec)
        wide, image = _matrices(self.product), _image(self.depthwise)
        pixels, y = self.product.buffers, self.depthwise.buffers
        assert isinstance(pixels, GemmBuffers) and isinstance(y, ConvolutionBuffers)
        first_pixel, count = band.above * self.width, (band.below - band.above) * self.width
        product = replace(
            self.product,
            spec=replace(self.product.spec, rows=heights),
            buffers=_with(pixels, a=replace(pixels.a, offset=pixels.a.offset + first_pixel * wide.a_row), c=between),
            sizes=_with(wide, m=count),
            stage_tensors=[*self.product.stage_tensors],
            stage_sizes=[*self.product.stage_sizes],
            notes=[*self.product.notes, note],
        )
        below = {"height": band.below - band.above, "out_height": band.end - band.first}
        pad = band.above - (band.first * self.reader.strides[0] - self.pad)
        depthwise = replace(
            self.depthwise,
            buffers=_with(y, x=between, y=replace(y.y, offset=y.y.offset + band.first * image.y_row)),
            sizes=_with(image, **below, pad_top=pad),
            stage_tensors=[*self.depthwise.stage_tensors],
            stage_sizes=[*self.depthwise.stage_sizes],
            notes=[*self.depthwise.notes, note],
        )
        return [product, depthwise]


def _pair(product: KernelCall, depthwise: KernelCall, uses: Counter[Buffer]) -> _Pair | None:
    """The pair that two calls are, if they are one, of known sizes, and what stages add is the same for all pixels."""
    if not isinstance(product.spec, GemmSpec) or not isinstance(depthwise.spec, DepthwiseSpec):
        return None
    wide, image, read = _matrices(product), _image(depthwise), _read(depthwise)
    (made,) = product.written
    (result,) = depthwise.written
    names = image.images, image.height, image.width, image.channels, image.out_height, image.pad_top
    shapes = [concrete(size) for size in (*names, wide.m, wide.n, wide.outer, wide.inner)]
    if made.buffer is not read.buffer or read.buffer.space != "arena" or uses[read.buffer] != 2 or None in shapes:
        return None
    images, height, width, channels, out_height, _, m, n, outer, inner = (size or 0 for size in shapes)
    alike = (
        (images, outer, inner, made.offset, read.offset) == (1, 1, 1, 0, 0)
        and (m, n) == (height * width, channels)
        and read.strides == channels_last((1, channels, height, width))
        and all(tensor.buffer is not result.buffer for tensor in product.read)
        and _is_by_channel(product)
        and _is_by_channel(depthwise)
    )
    return _Pair(product, depthwise, height, width, channels, out_height) if alike else None


def _is_by_channel(call: KernelCall) -> bool:
    """Whether what a call's stages read is the same for all pixels."""
    return call.prologue is None and (call.epilogue is None or not any(call.epilogue.rows))


def _matrices(call: KernelCall) -> GemmGiven:
    """The sizes of a product."""
    assert isinstance(call.sizes, GemmGiven)
    return call.sizes


def _image(call: KernelCall) -> DepthwiseGiven:
    """The sizes of a depthwise convolution."""
    assert isinstance(call.sizes, DepthwiseGiven)
    return call.sizes


def _read(call: KernelCall) -> Tensor:
    """The image that a depthwise convolution reads."""
    assert isinstance(call.buffers, ConvolutionBuffers)
    return call.buffers.x  # type: ignore[no-any-return]


def _with(record: Arguments, **changed: Any) -> Arguments:
    """The record with other values of some names."""
    values = [*record]
    for name, value in changed.items():
        values[record.place(name)] = value
    return type(record).make(values)
