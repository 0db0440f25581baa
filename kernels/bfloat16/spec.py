"""What the kernel of products and convolutions in bfloat16 is, and how constant weights are packed; without LLVM.

Both operands are rounded to bfloat16, to the nearest, ties to even; products are exact in float32 and summed there
(by bfmmla, what is cut off a sum sets its last bit). Denormal numbers count as zero on the way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, result
from jitonnx.kernels.parts.amx_products import AmxSizes, AmxSpec, chosen, written_out
from jitonnx.kernels.parts.bfloat16 import TILE_FEATURES, rounded
from jitonnx.support.records import dataclass

PRODUCTS = ("tiles", "matrices")
"""How products are summed: of matrices in tile registers (AMX), or of 2 x 4 and 4 x 2 numbers (AArch64's bfmmla)."""
STEP = 32
"""Elements of a row in a cache line."""
STRIP = 8
"""Columns that products of small matrices sum at a time, and whose weights lie together then."""


class Bfloat16Buffers(Arguments):
    x: Buffer
    w: Buffer
    y: Buffer = result()


@dataclass(frozen=True)
class Bfloat16Spec(AmxSpec):
    """Operands rounded to bfloat16, sums in float32. Pixels outside of the image count as 0."""

    x_type: str = "float32"
    """float32 or bfloat16 (its bits)."""
    result: str = "float32"
    """float32 or bfloat16, which the epilogue gives then, as its bits."""

    BUFFERS = Bfloat16Buffers
    SIZES: ClassVar[type[Arguments]] = AmxSizes
    ITEM_BYTES = 2
    TASK_PRODUCTS = 1 << 22

    @property
    def features(self) -> tuple[str, ...]:
        return TILE_FEATURES

    @property
    def x_bytes(self) -> int:
        return _BYTES[self.x_type]

    @property
    def y_bytes(self) -> int:
        return _BYTES[self.result]

    def pack(self, w: np.ndarray) -> np.ndarray:
        """w float32 [out_channels, taps, channels] -> the bits of bfloat16, as `packed` has them."""
        return self.packed(w, np.uint16, rounded)


_BYTES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class BfmmlaSpec(Bfloat16Spec):
    """Sums by products of 2 x 4 and 4 x 2 numbers, in vector registers, a strip of columns of a few rows at a time.

    Nothing is asked for ahead: `fetched` is 0.
    """

    GFLOPS = 100
    TASK_PRODUCTS = 1 << 19
    ROWS_BYTES, ALL_ROWS_BYTES = 512 << 10, 1 << 20

    @property
    def features(self) -> tuple[str, ...]:
        return ("bf16",)

    @property
    def packing(self) -> tuple[str, bool, int]:
        return f"{self.family} matrices", self.by_taps, self.width

    def layout(self, depth: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """[strip][fours][pair][2 columns][4]: strips of 8 columns one after the other, each with the matrices of four
        elements of its pairs of columns."""
        return (self.width // STRIP, STRIP // 2, 2, depth // 4, 4), (0, 3, 1, 2, 4)


def choose(
    products: str, way: str, columns: int, taps: Sequence[int], rows: int | None, x_type: str, result: str
) -> Bfloat16Spec:
    """The kernel for this many columns, taps (height, width, and channels, or fewer sizes), and rows that all columns
    are multiplied with at once (None: known only at run time).

    products: one of PRODUCTS.
    """
    blocks = chosen(way, columns, math.prod(taps) * columns * 2, rows if products == "tiles" else None)
    if products == "tiles":
        return Bfloat16Spec(way, x_type=x_type, result=result, window=written_out(way, taps, STEP), **blocks)
    blocks = {name: blocks[name] for name in blocks if name in ("width", "prefetch_distance")}
    return BfmmlaSpec(way, x_type=x_type, result=result, **blocks)
