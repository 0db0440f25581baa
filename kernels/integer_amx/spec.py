"""What the kernel of convolutions and products of 8-bit integers in tile registers is, and how constant weights are
packed; without LLVM. Its sums are those of `kernels.integer`: exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from jitonnx.kernels.integer.spec import IntegerBuffers
from jitonnx.kernels.parts.amx_products import AmxSizes, AmxSpec, RowsWay, chosen, written_out
from jitonnx.kernels.parts.layouts import LINE
from jitonnx.support.records import dataclass
from jitonnx.target.products import INTEGERS


@dataclass(frozen=True)
class IntegerAmxSpec(AmxSpec):
    """y[pixel, n] = epilogue(Σ over taps and channels of (x - zero) * w[n, channel, tap]), in int32.

    x holds int8 (`signed`) or uint8; w is what `pack` made of int8, `sums` what `column_sums` did. Pixels outside of
    the image count as `zero`.
    """

    signed: bool = False
    shifted: bool = True
    """x has a zero point; otherwise it is 0, and `zero` goes unread."""
    result: str = "int32"
    """Element type of y."""
    begun: bool = False
    """Whether sums begin with those of a buffer, as in `IntegerSpec`."""

    BUFFERS = IntegerBuffers
    SIZES = AmxSizes
    ITEM_BYTES = 1
    features = INTEGERS["tiles"].features

    @property
    def x_bytes(self) -> int:
        return 1

    def gathered(self, zero: int) -> int:
        """A zero point of x as it is among the bytes that are multiplied."""
        return zero

    @property
    def y_bytes(self) -> int:
        return np.dtype(self.result).itemsize

    def pack(self, w: np.ndarray) -> np.ndarray:
        """w int8 [out_channels, taps, channels], as `packed` has them."""
        return self.packed(w, np.int8, lambda part: part)

    def column_sums(self, w: np.ndarray) -> np.ndarray:
        """Σ over taps and channels of w int8 [out_channels, taps, channels], as int32, padded with zeros to whole
        panels."""
        sums = np.zeros(-(-len(w) // self.width) * self.width, np.int32)
        sums[: len(w)] = w.sum((1, 2), dtype=np.int64)
        return sums


def choose_tiles(
    way: RowsWay, columns: int, taps: Sequence[int], rows: int | None, *, signed: bool, shifted: bool, result: str
) -> IntegerAmxSpec:
    """The kernel for this many columns, taps (height, width, and channels, or fewer sizes), and rows that all columns
    are multiplied with at once (None: known only at run time)."""
    blocks = chosen(way, columns, math.prod(taps) * columns, rows)
    window = written_out(way, taps, LINE)
    return IntegerAmxSpec(way, signed=signed, shifted=shifted, result=result, window=window, **blocks)
