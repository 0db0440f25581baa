"""What the kernel of products and convolutions in bfloat16 is, and how constant weights are packed; without LLVM.

Both operands are rounded to bfloat16, to the nearest, ties to even; products are exact in float32 and summed there
(by bfmmla, what is cut off a sum sets its last bit). Denormal numbers count as zero on the way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, result
from jitonnx.kernels.parts.amx_products import AmxSizes, AmxSpec, RowsWay, chosen, written_out
from jitonnx.kernels.parts.bfloat16 import rounded
from jitonnx.support.records import dataclass
from jitonnx.target import tuning
from jitonnx.target.products import BFLOAT16, Bfloat16Products

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
    features = BFLOAT16["tiles"].features

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

    GFLOPS, FIGURES = tuning.SMALL_MATRIX_PRODUCTS.gflops, tuning.SMALL_MATRIX_PRODUCTS
    features = BFLOAT16["matrices"].features

    @property
    def packing(self) -> tuple[str, bool, int]:
        return f"{self.family} matrices", self.by_taps, self.width

    def layout(self, depth: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """[strip][fours][pair][2 columns][4]: strips of 8 columns one after the other, each with the matrices of four
        elements of its pairs of columns."""
        return (self.width // STRIP, STRIP // 2, 2, depth // 4, 4), (0, 3, 1, 2, 4)


@dataclass(frozen=True)
class DotsSpec(Bfloat16Spec):
    """Sums by dot products of pairs of numbers, in vector registers through to the epilogue. The way is not "padded".

    Of weights that do not stay in the second-level cache the next panel is asked for at an even pace.
    """

    heights: tuple[int, ...] = (6,)
    """Rows of a tile: the usual, and what does for those that are left."""

    GFLOPS, FIGURES = tuning.PAIR_PRODUCTS.gflops, tuning.PAIR_PRODUCTS
    ACROSS = True
    features = BFLOAT16["dots"].features

    @property
    def unit_rows(self) -> int:
        return _UNIT_ROWS

    @property
    def near_rows(self) -> int:
        return _UNIT_ROWS

    @property
    def packing(self) -> tuple[str, bool, int]:
        return f"{self.family} dots", self.by_taps, self.width

    def layout(self, depth: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """[pair][column][2]: what an element of a row is multiplied with, and the next one, lies side by side."""
        return (self.width, depth // 2, 2), (1, 0, 2)


_UNIT_ROWS = 48
"""A multiple of all usual heights of tiles."""
_TILES_OF_DOTS = {64: 6, 48: 8, 32: 12, 16: 16}
"""Columns of a panel, and the rows of a tile: 24 sums of 32 registers, or 16."""


def choose_dots(columns: int, weight_bytes: int, rows: int | None) -> dict[str, Any]:
    """The widest panel that pads columns least, and tiles of the height that leaves the rows least."""
    width = min(_TILES_OF_DOTS, key=lambda width: -(-columns // width) * width)
    most = _TILES_OF_DOTS[width]
    if rows is None:
        heights: tuple[int, ...] = (most, 2)
    elif rows <= most:
        heights = (max(rows, 1),)
    else:
        heights = (most, rows % most) if rows % most else (most,)
    return {"width": width, "heights": heights, "prefetch_distance": weight_bytes < tuning.PAIR_PRODUCTS.near_bytes}


def choose(
    products: Bfloat16Products,
    way: RowsWay,
    columns: int,
    taps: Sequence[int],
    rows: int | None,
    x_type: str,
    result: str,
) -> Bfloat16Spec:
    """The kernel for this many columns, taps (height, width, and channels, or fewer sizes), and rows that all columns
    are multiplied with at once (None: known only at run time).

    """
    weight_bytes = math.prod(taps) * columns * 2
    if products == "dots":
        blocks = choose_dots(columns, weight_bytes, rows)
        return DotsSpec(way, x_type=x_type, result=result, window=written_out(way, taps, STEP), **blocks)
    blocks = chosen(way, columns, weight_bytes, rows if products == "tiles" else None)
    if products == "tiles":
        return Bfloat16Spec(way, x_type=x_type, result=result, window=written_out(way, taps, STEP), **blocks)
    blocks = {name: blocks[name] for name in blocks if name in ("width", "prefetch_distance")}
    return BfmmlaSpec(way, x_type=x_type, result=result, **blocks)
