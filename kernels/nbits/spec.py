"""What the kernels of products with matrices of 2, 4 or 8 bits are, and how these are packed; without LLVM.

A column of such a matrix has blocks of 16 to 256 numbers q, each with a scale s and a zero point z: its elements are
(q - z) s. A product of one row is bound by reading them, so they stay packed, and are widened in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.bfloat16.spec import STEP
from jitonnx.kernels.parts.amx_products import SUMS_BYTES
from jitonnx.kernels.parts.layouts import TILE
from jitonnx.kernels.parts.packing import blocks, copy_columns, for_each, zeros
from jitonnx.kernels.parts.sizes import below, larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning
from jitonnx.target.products import BFLOAT16, ByteDots

if TYPE_CHECKING:
    from jitonnx.target.machine import Target

Multiply: TypeAlias = ByteDots | Literal["byte pairs", "float"]
"""How few rows, or all of one digit, are multiplied."""
BITS = (2, 4, 8)
BLOCKS = (16, 32, 64, 128, 256)
CHUNK = 16
"""Elements of a row that are quantised at a time: they take whole words, however few bits the matrix has."""
DIGITS = 3
"""Bytes of a quantised element of a row that is as exact as float32."""
LEAST_MAGNITUDE = 2.0**-100
"""Blocks of a row whose elements all are smaller count as zeros."""
GROUP_ROWS = 48
"""Rows of int8 that are multiplied with a part of a panel before its next one: their sums take 12 KB with AVX-512."""
VECTORS = 4
"""Vectors of a packed panel: so many independent sums hide the latency of adding to one."""
TILE_VECTORS = 2
"""Vectors of a tile of many rows: the panel of 8192 rows takes 1 MB of the second-level cache with AVX-512."""


class RowsBuffers(Arguments):
    a: Buffer
    left: Buffer = result()
    factors: Buffer = result()


class RowsSizes(Arguments):
    m: Size
    k: Size
    a_row: Size


@dataclass(frozen=True)
class RowsSpec(KernelSpec):
    """Rows of a product as `NBitsSpec` reads them: block by block, padded with zeros to whole blocks.

    With `digits`, each block is quantised to integers A within ±`greatest`, a = factor * A. Three make it as exact as
    float32 for its largest element, A = d0 * 65536 + d1 * 256 + d2 with digits of int8. left [m][words][digit][4
    bytes]: of a word of the matrix, 4 * 8 / bits numbers, those that lie at the same bits of its 4 bytes are 4 bytes of
    each digit, one place in its bytes after the other. Without, left [m][elements] is float32, as they are. factors
    [m][blocks][2]: factor (1 without digits) and sum of each block. A block with NaN or infinities has the factor NaN
    or infinity, and digits of 0, so that results are NaN.

    More rows than `tuning.NBITS_FEW_ROWS` are there only with one digit, or if `rounded`: left [m][elements] is
    bfloat16 then, and factors go unwritten. With one digit the sum is its negative, as int32.

    Task: a row.
    """

    bits: int
    block: int
    digits: int
    """Bytes of a quantised element; 0: elements are float32."""
    rounded: bool = False

    BUFFERS = RowsBuffers
    SIZES = RowsSizes
    PRESCHEDULED = True

    @property
    def itemsize(self) -> int:
        """Bytes of an element of `left`."""
        return self.digits or 4

    @property
    def greatest(self) -> int:
        """What the largest magnitude of a quantised block becomes: so many signed digits to the base 256 hold all up to
        it."""
        return 127 << 8 * (self.digits - 1)

    @property
    def most_rows(self) -> int | None:
        """How many rows are quantised, and have factors; None: all."""
        return None if self.digits == 1 else tuning.NBITS_FEW_ROWS

    @property
    def features(self) -> tuple[str, ...]:
        return BFLOAT16["tiles"].features if self.rounded else ()

    def left_bytes(self, m: Any, few: Any, elements: Any) -> Any:
        """Room for `left`, of m rows of so many elements in whole blocks. few: those of them that have factors.

        Tiles reach beyond the last row, by more than few rows take.
        """
        return elements * ((m + 2 * TILE) * 2 if self.rounded else few * self.itemsize)

    def tasks(self, sizes: RowsSizes) -> int:
        return sizes.m if self.rounded or self.digits == 1 else sizes.m * below(sizes.m, tuning.NBITS_FEW_ROWS + 1)

    def work(self, sizes: RowsSizes) -> Work:
        elements = self.tasks(sizes) * sizes.k
        return Work(10 * elements, (4 + self.itemsize) * elements)


class NBitsBuffers(Arguments):
    a: Buffer
    left: Buffer
    factors: Buffer
    w: Buffer
    scales: Buffer
    zeros: Buffer
    y: Buffer = result()


class NBitsSizes(Arguments):
    """Extents, and strides in elements."""

    m: Size
    n: Size
    k: Size
    a_row: Size
    y_row: Size
    task_rows: Size = computed()


@dataclass(frozen=True)
class NBitsSpec(KernelSpec):
    """y[m, n] = epilogue(Σ over k of a[m, k] (q[n, k] - z[n, block]) s[n, block]), in float32.

    w, scales and zeros are what the `pack` functions make: panels of `width` columns, each [word][column] of 32 bits,
    and [block][column]. zero points are bytes or float32, or 2 ** (bits - 1) everywhere (`zeros` is ""). scales lie as
    float32, or, where all of them are numbers of a 16-bit type (`stored_scales`), as the bits of these, which are
    widened as they are read: of blocks of 32 numbers of 4 bits a tenth of the bytes less, with the same results.

    Few rows, or all with one digit: of each block Σ q A is summed, by `multiply`: "dot" and "signed dot" are dot
    products of bytes, exact integers, one sum for each digit of A; "byte pairs" sums pairs of products in 16 bits, of
    32 numbers of 4 bits at most, then in 32; "float" sums float32. Then (Σ q A - z Σ A) * factor * s is added to y.
    `left` and `factors` are what `RowsSpec` gave. With one digit, GROUP_ROWS at a time are multiplied with a part of a
    panel, by tiles of rows[0] rows, then of rows[1]. Many rows else: TILE_VECTORS vectors of columns are widened into
    scratch memory, as (q - z) s, and multiplied by tiles of `rows` heights, decreasing, the last 1; `left` goes unread.
    With `rounded` they are bfloat16 there, and multiplied with `left` in AMX's tile registers, whose blocks have `rows`
    heights.

    Task: a panel of columns, for all rows if these are few, else for task_rows of them.
    """

    bits: int
    block: int
    multiply: Multiply
    width: int
    rows: tuple[int, ...]
    zeros: str = ""
    """"", "uint8" or "float32"."""
    rounded: bool = False
    """Whether many rows are multiplied in bfloat16."""
    digits: int = 0
    """Those of `RowsSpec`: 1, 3, or, for "float", 0."""
    scales: str = "float32"
    """"float32", "float16" or "bfloat16"."""

    BUFFERS = NBitsBuffers
    SIZES = NBitsSizes
    PRESCHEDULED = True

    def __post_init__(self) -> None:
        if self.bits not in BITS or self.block not in BLOCKS:
            raise ValueError(f"products of {self.bits} bits in blocks of {self.block} have no kernel")
        if self.rounded and self.block < STEP:
            raise ValueError(f"Bug: blocks of {self.block} do not fill a tile")

    @property
    def features(self) -> tuple[str, ...]:
        return BFLOAT16["tiles"].features if self.rounded else ()

    @property
    def word(self) -> int:
        """Numbers of a word of 32 bits."""
        return 32 // self.bits

    @property
    def flipped(self) -> int:
        """What is subtracted from all numbers when they are packed: signed dot products want those of 8 bits signed."""
        return 128 if self.bits == 8 and self.multiply == "signed dot" else 0

    @property
    def scale_bytes(self) -> int:
        """Bytes of a scale."""
        return 4 if self.scales == "float32" else 2

    @property
    def rows_spec(self) -> RowsSpec:
        """What prepares few rows."""
        return RowsSpec(self.bits, self.block, self.digits, self.rounded)

    @property
    def few_rows(self) -> int:
        """Products of so many rows are those of few; one digit makes all of them so (0: it is not asked)."""
        return 0 if self.digits == 1 else tuning.NBITS_FEW_ROWS

    def padded(self, k: Any) -> Any:
        """k in whole blocks."""
        return -(-k // self.block) * self.block

    def complete(self, sizes: NBitsSizes) -> NBitsSizes:
        panels = -(-sizes.n // self.width)
        least_rows = tuning.NBITS_LEAST_ROUNDED_ROWS if self.rounded else tuning.NBITS_LEAST_ROWS
        parts = larger(1, smaller(-(-tuning.TASKS // panels), sizes.m // least_rows))
        few = below(sizes.m, self.few_rows + 1)
        least = -(-sizes.m // parts)
        rows = -(-least // self.rows[0]) * self.rows[0]
        return NBitsSizes.following(sizes, task_rows=larger(1, few * sizes.m + (1 - few) * rows))

    def tasks(self, sizes: NBitsSizes) -> int:
        return -(-sizes.n // self.width) * -(-sizes.m // sizes.task_rows)

    def scratch_bytes(self, sizes: NBitsSizes) -> int:
        """A panel as float32 or bfloat16, where there are many rows, and the sums of a block in front of it; with one
        digit the sums of a group of rows."""
        panel = self.padded(sizes.k) * self.width // VECTORS * TILE_VECTORS
        if self.digits == 1:
            return 4 * self.width * (smaller(GROUP_ROWS, sizes.task_rows) + self.rows[1] - 1)
        return (1 - below(sizes.m, tuning.NBITS_FEW_ROWS + 1)) * (SUMS_BYTES + 2 * panel if self.rounded else 4 * panel)

    def work(self, sizes: NBitsSizes) -> Work:
        elements = sizes.n * self.padded(sizes.k)
        each = self.scale_bytes + {"": 0, "uint8": 1, "float32": 4}[self.zeros]
        others = 4 * sizes.m * (sizes.n + sizes.k)
        return Work(2 * sizes.m * sizes.n * sizes.k, elements * self.bits // 8 + elements // self.block * each + others)

    def pack_numbers(self, q: np.ndarray) -> np.ndarray:
        """q uint8 [n, blocks, block * bits / 8] -> uint32 panels [width columns]: [word][column]; 0 behind n."""
        n = len(q)
        words = np.ascontiguousarray(q).reshape(n, -1).view(np.uint32)
        panels = blocks(n, self.width)
        packed = zeros(len(panels) * self.width * words.shape[1], np.uint32)
        target = packed.reshape(len(panels), words.shape[1], self.width)

        def pack(panel: int) -> None:
            part = words[panels[panel]]
            copy_columns(part.T, target[panel][:, : len(part)])
            if self.flipped:
                target[panel] ^= 0x80808080

        for_each(pack, len(panels), packed.nbytes)
        return packed

    def pack_scales(self, values: np.ndarray) -> np.ndarray:
        """Scales [n, blocks], float32 -> panels as `pack_blocks` makes them, uint16 where they lie in 16 bits."""
        packed = self.pack_blocks(values)
        if self.scales == "float16":
            return packed.astype(np.float16).view(np.uint16)
        return packed if self.scales == "float32" else (packed.view(np.uint32) >> 16).astype(np.uint16)

    def pack_blocks(self, values: np.ndarray) -> np.ndarray:
        """Scales or zero points [n, blocks] -> panels: [block][column], 0 behind n."""
        n, count = values.shape
        panels = -(-n // self.width)
        packed = zeros(panels * self.width * count, values.dtype)
        padded = np.zeros((panels * self.width, count), values.dtype)
        padded[:n] = values
        packed.reshape(panels, count, self.width)[...] = padded.reshape(panels, self.width, count).transpose(0, 2, 1)
        return packed


def choose(
    bits: int,
    block: int,
    zeros: str,
    target: Target,
    *,
    rounded: bool = False,
    quantised: bool = False,
    scales: str = "float32",
) -> NBitsSpec:
    """The kernel for a CPU. rounded: operands of many rows may be rounded to bfloat16; quantised: those of all rows to
    int8, by blocks, which is done where these are not rounded; scales: how these lie, as `stored_scales` answers.

    Tiles of many rows are 12 x 2 vectors with 32 registers (24 sums, 2 of the panel, a factor), 6 x 2 with 16; of rows
    of int8 4 x 4 and 2 x 4, with 16 registers 4 x 2 or, of pairs, 4 x 1.
    """
    rounded = rounded and target.has_bfloat16_tiles and block >= STEP
    multiply: Multiply = target.byte_dots or "float"
    digits = DIGITS if target.byte_dots else 0
    if quantised and not rounded:
        if not target.byte_dots and bits < 8 and not target.on_arm and target.vector_bytes >= 32:
            multiply = "byte pairs"
        digits = 0 if multiply == "float" else 1
    rows = (2 * TILE, TILE) if rounded else (12, 4, 1) if target.vector_registers >= 32 else (6, 2, 1)
    if digits == 1:
        rows = (4, 2, 1)
    return NBitsSpec(bits, block, multiply, VECTORS * target.lanes(4), rows, zeros, rounded, digits, scales)


def stored_scales(scales: np.ndarray, target: Target) -> str:
    """The type in which scales of float32 lie for a CPU: float16 or bfloat16 if all are such numbers, as those of
    models whose weights were of that type before they were quantised, and the CPU widens it by an instruction or two;
    else float32."""
    if target.converts_halves:
        with np.errstate(over="ignore"):
            if (scales.astype(np.float16) == scales).all():
                return "float16"
    return "float32" if (scales.view(np.uint32) & 0xFFFF).any() else "bfloat16"
