"""What the kernel of products and convolutions in bfloat16 is, and how constant weights are packed; without LLVM.

Both operands are rounded to bfloat16, to the nearest, ties to even; products are exact in float32 and summed there.
Denormal numbers count as zero on the way.
"""

from __future__ import annotations

import numpy as np

from jitonnx.kernels.arguments import Arguments, Buffer, result
from jitonnx.kernels.parts.bfloat16 import TILE_FEATURES, rounded
from jitonnx.kernels.parts.tiled_products import TiledSizes, TiledSpec, chosen
from jitonnx.records import dataclass

STEP = 32
"""Elements of a row in a cache line."""


class BfloatBuffers(Arguments):
    x: Buffer
    w: Buffer
    y: Buffer = result()


@dataclass(frozen=True)
class BfloatSpec(TiledSpec):
    """Operands rounded to bfloat16, sums in float32. Pixels outside of the image count as 0."""

    x_type: str = "float32"
    """float32 or bfloat16 (its bits)."""
    result: str = "float32"
    """float32 or bfloat16, which the epilogue gives then, as its bits."""

    BUFFERS = BfloatBuffers
    SIZES = TiledSizes
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


def choose(way: str, columns: int, depth: int, rows: int | None, x_type: str, result: str) -> BfloatSpec:
    """The kernel for this many columns, products of each sum, and rows (None: known only at run time)."""
    return BfloatSpec(way, x_type=x_type, result=result, **chosen(columns, depth * columns * 2, rows))
