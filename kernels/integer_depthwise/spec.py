"""What the kernel of depthwise convolutions of 8-bit integers is, and how its weights are packed; without LLVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.emit.arguments import Size, computed
from jitonnx.kernels.integer.spec import IntegerBuffers
from jitonnx.kernels.parts.layouts import WindowProduct
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning
from jitonnx.target.products import INTEGERS, IntegerProducts

if TYPE_CHECKING:
    from jitonnx.target.machine import Target

_PIXELS = 8


class DepthwiseIntegerSizes(WindowProduct):
    task_rows: Size = computed()
    band_width: Size = computed()
    """Pixels of a row of the band, with its padding."""


@dataclass(frozen=True)
class DepthwiseIntegerSpec(KernelSpec):
    """y[pixel, c] = epilogue(Σ over taps of (x - zero) * w[c, tap]), channels-last, in int32; one channel each.

    x holds int8 (`signed`) or uint8; w is what `pack` made of int8, `sums` the sum of each channel's taps. Pixels
    outside of the image count as `zero`. The epilogue's row is the output pixel of all images, its batch 0.

    A task does some output rows of an image: it copies the input rows that these need into scratch memory, as uint8,
    with their padding around them, and goes through them vector of channels by vector, tile of `pixels` by tile. In a
    tile the rows of the kernel that lie over each other are joined, `group` of them in the 32 bits of a channel, which
    all outputs that read this column multiply with their weights. The last vector of a pixel overlaps the one before.
    """

    multiply: IntegerProducts
    """Not by tiles."""
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pixels: int = _PIXELS
    signed: bool = False
    shifted: bool = True
    """x has a zero point; otherwise it is 0, and `zero` goes unread."""
    result: str = "int32"
    begun: bool = False
    """Whether sums begin with those of a buffer, as in `IntegerSpec`."""

    BUFFERS = IntegerBuffers
    SIZES = DepthwiseIntegerSizes
    PRESCHEDULED = True

    def gathered(self, zero: int) -> int:
        """A zero point of x as it is among the bytes that are multiplied."""
        return zero + 128 if self.signed else zero

    @property
    def group(self) -> int:
        return INTEGERS[self.multiply].group

    @property
    def words(self) -> int:
        """Groups of kernel rows."""
        return -(-self.kernel[0] // self.group)

    def reach(self, outputs: Any, axis: int) -> Any:
        """Inputs along an axis from the first to the last that so many outputs read."""
        return (outputs - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def complete(self, sizes: WindowProduct) -> DepthwiseIntegerSizes:
        row = sizes.out_width * sizes.channels * self.kernel[0] * self.kernel[1]
        tasks = larger(smaller(sizes.out_height * row // tuning.INTEGER_DEPTHWISE_TASK_PRODUCTS, tuning.TASKS), 1)
        width = self.reach(larger(-(-sizes.out_width // self.pixels) * self.pixels, 1), 1)
        fitting = larger(tuning.INTEGER_DEPTHWISE_BAND_BYTES // larger(width * sizes.channels * self.strides[0], 1), 1)
        rows = larger(smaller(-(-sizes.out_height // tasks), fitting), 1)
        return DepthwiseIntegerSizes.following(sizes, task_rows=rows, band_width=width)

    def tasks(self, sizes: DepthwiseIntegerSizes) -> int:
        return sizes.images * -(-sizes.out_height // sizes.task_rows) if sizes.channels and sizes.out_width else 0

    def scratch_bytes(self, sizes: DepthwiseIntegerSizes) -> int:
        """The task's input rows, and a vector behind them, which a vector of fewer channels reads."""
        return self.reach(sizes.task_rows, 0) * sizes.band_width * sizes.channels + 128

    def work(self, sizes: DepthwiseIntegerSizes) -> Work:
        outputs = sizes.images * sizes.out_height * sizes.out_width * sizes.channels
        read = sizes.images * sizes.height * sizes.width * sizes.channels
        return Work(2 * outputs * self.kernel[0] * self.kernel[1], read + outputs * np.dtype(self.result).itemsize)

    def pack(self, w: np.ndarray) -> np.ndarray:
        """w int8 [channels, kernel rows * columns] -> [columns][words][channels][group] of 32 / group bits each."""
        height, width = self.kernel
        grouped = np.zeros((len(w), self.words * self.group, width), {4: np.int8, 2: np.int16, 1: np.int32}[self.group])
        grouped[:, :height] = w.reshape(len(w), height, width)
        packed = grouped.reshape(len(w), self.words, self.group, width).transpose(3, 1, 0, 2)
        return np.ascontiguousarray(packed).reshape(-1).view(np.int8)

    def column_sums(self, w: np.ndarray) -> np.ndarray:
        """Σ over the taps of w int8 [channels, taps], as int32."""
        return w.sum(1, dtype=np.int64).astype(np.int32)


def choose_depthwise(
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    target: Target,
    *,
    signed: bool,
    shifted: bool,
    result: str,
) -> DepthwiseIntegerSpec:
    """The kernel for these windows, all of whose taps are spelled out, on a CPU."""
    others: dict[IntegerProducts, IntegerProducts] = {"tiles": "dot", "signed dot": "words", "signed matrices": "words"}
    multiply = others.get(target.integer_products, target.integer_products)
    return DepthwiseIntegerSpec(multiply, kernel, strides, dilations, _PIXELS, signed, shifted, result)
