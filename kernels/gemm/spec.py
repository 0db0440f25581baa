"""What the GEMM kernels are, which tile serves which problem, and how constant matrices are packed; without LLVM."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.parts.packing import blocks, copy_columns, for_each, zeros
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.mapped_files import release_pages
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

ELEMENTS = ("float32", "float64", "int32", "int64", "uint32", "uint64")

LONGEST_VECTOR = 16
"""Elements of the longest vector of any target; scratch is padded by as much."""


class GemmBuffers(Arguments):
    a: Buffer
    b: Buffer
    c: Buffer = result()


class GemmGiven(Arguments):
    """Extents, and strides in elements. For packed b, b_row and b_column go unused."""

    m: Size
    n: Size
    k: Size
    outer: Size
    inner: Size
    a_row: Size
    a_column: Size
    b_row: Size
    b_column: Size
    c_row: Size
    a_outer: Size
    a_inner: Size
    b_outer: Size
    b_inner: Size
    c_outer: Size
    c_inner: Size


class GemmSizes(GemmGiven):
    task_rows: Size = computed()
    task_columns: Size = computed()


@dataclass(frozen=True)
class GemmSpec(KernelSpec):
    """c[batch, m, n] = epilogue(a[batch, m, k] @ b[batch, k, n]).

    Matrices are numbered (o, i), o < outer, i < inner. Element (o, i, row, column) of a lies at
    o * a_outer + i * a_inner + row * a_row + column * a_column; so for b and c, whose column stride is 1. A stride of 0
    shares a matrix. To the epilogue, batch is o * inner + i. Sums run over k in order, floats with fused multiply-add,
    in chains of `tuning.SUM_STEPS` that are added up one after the other; integers wrap around. With k = 0 the epilogue
    is applied to zeros.

    Task: a block of task_rows x task_columns of one matrix. Tiles of rows[0] x widths[0] cover a block; rows[1:] are
    the heights for what remains below, each used as long as it fits, so that the last is 1 unless m is known;
    widths[1:] the widths for what remains on the right: the narrowest that suffices, its last vector masked.
    """

    rows: tuple[int, ...]
    """Tile heights, decreasing."""
    widths: tuple[int, ...]
    """Tile widths in elements, decreasing, multiples of the vector length (of half of it where b is packed); widths[0]
    is that of b's packed panels."""
    element: str = "float32"
    """Element type of a, b and c, as NumPy names it."""
    a_in_place: bool = True
    """a_column is 1 and a is read where it is. Otherwise a task copies its rows to scratch, whatever the strides."""
    b_packed: bool = True
    """b is what `pack_b` made. Otherwise a task copies each panel to scratch, whatever the strides, unless it is better
    read where it is."""
    b_stored: str = ""
    """float16 or bfloat16: packed b lies in 16 bits and is widened to float32 as it is read; else it lies as `element`.
    For float32 b whose elements are all such numbers (`stored_type`), so that results stay the same."""
    b_widened: bool = False
    """Tasks of more than `tuning.GEMM_WIDENED_ROWS` rows widen each panel of stored b once, into scratch memory that
    all their tiles read; tiles of those with fewer rows widen it as they read it. For row numbers that only a run
    tells."""
    near_bytes: int = tuning.GEMM_NEAR_BYTES
    """A run-time b of up to so many bytes is read in place; a larger one by few rows alone."""
    few_rows: int = tuning.GEMM_NEAR_ROWS
    """So many rows at most are few, if k is `tuning.GEMM_NEAR_DEPTH` at most; two tiles are, whatever k is."""
    prefetch_distance: int = 0
    """How many steps of k ahead of its use packed b is asked for, into the first-level cache; 0: not at all."""
    paced_prefetch: bool = False
    """All tiles of a strip ask for the next panel of b, at an even pace, and those of a task's first panel alone for
    their rows of a. Otherwise the first tiles ask for the panel, a cache line in each step of k, and all for rows."""
    prefetches_rows: bool = True
    """A tile asks for the rows of a that the one below it reads."""
    depth: int = 0
    """Steps of k that a task takes for all of its columns before the next ones; 0: all. So its rows of a stay in the
    second-level cache where they would not as a whole. Sums wait in scratch memory meanwhile. A multiple of
    `tuning.SUM_STEPS`, for then results are the same bits. For packed b, and a in place."""
    chained: bool = True
    """Whether k may be more than `tuning.SUM_STEPS`."""
    joins_halves: bool = False
    """Tiles whose rows end in half a vector sum those of two rows in one: 24 columns of two rows take 3 multiply-adds
    instead of 4, and a blend, on cores that do blends beside them. There 3136 x 24 x 144 takes 0.80 of the time, 784 x
    40 x 240 0.85, 3136 x 72 x 24 0.95 (Zen 5)."""
    later: tuple[int, ...] = ()
    """The kernel finds there what it asks for on behalf of later kernels: pairs of a buffer's number and of a size's.
    The size is the number of the strip of tiles (one panel of b in one task) at which those that ask for the buffer
    end, where those for the next one begin; the size behind it, how many elements of it each of them asks for. For
    packed b and a single matrix."""
    wanted: int = 0
    """The number of the buffer that says, in an int64, how many rows of c are wanted, counted through all matrices:
    those behind them may be left as they are. 0: all are wanted."""

    BUFFERS = GemmBuffers
    SIZES = GemmSizes
    PRESCHEDULED = True

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.element).itemsize

    def complete(self, sizes: GemmGiven) -> GemmSizes:
        rows, columns = self.blocks(sizes.m, sizes.n, sizes.k, sizes.outer * sizes.inner)
        return GemmSizes.following(sizes, task_rows=rows, task_columns=columns)

    def blocks(self, m: int, n: int, k: int, batch: int) -> tuple[int, int]:
        """Rows and columns of a task, in whole tiles.

        A tile of 8 x 48 reads 8 bytes of b and 1.3 of a in the cycle of an FMA: b has to come from the second-level
        cache (a panel of 48 columns and k = 3072 has 590 KB), while a may come from the third. So the more rows use a
        panel the better: a task gets up to 1 MB of a, 4 MB where it first copies the panel. Up to that a product is cut
        by columns, a panel a task, and by rows only until there are 16 tasks. Where k is taken in parts, a part of the
        rows is what stays near, for two to four panels. A task is not made smaller than 2**18
        multiplications, about 5 microseconds; than 2**16 for a single row, which takes as long to read as many weights.

        Where all of b is near, tasks make whole rows of many: a panel's columns of all rows are pieces of lines, page
        after page, of c and of what the epilogue reads, while whole rows lie side by side. On a Xeon that took 0.83 to
        0.96 of the time with AVX2, and 0.92 to 0.99 with AVX-512 (3136 x 64 x 256, 784 x 128 x 512 and 12544 x 16 x 96,
        with a residual and without).
        """
        if 0 in (m, n, batch):
            return 1, 1
        height, width, steps = self.rows[0], self.widths[0], larger(1, k)
        at_once = smaller(steps, self.depth) if self.depth else steps
        tiles, panels = -(-m // height), -(-n // width)
        b_bytes = steps * n * self.itemsize
        if self.b_packed and n > width and b_bytes <= tuning.GEMM_NEAR_B_BYTES and m >= 4 * tuning.GEMM_ROWS_OF_NEAR_B:
            rows = (
                tuning.GEMM_ROWS_OF_NEAREST_B if b_bytes <= tuning.GEMM_NEAREST_B_BYTES else tuning.GEMM_ROWS_OF_NEAR_B
            )
            row_blocks = -(-m // rows)
            column_blocks = smaller(panels, -(-tuning.TASKS // (row_blocks * batch)))
            return -(-tiles // row_blocks) * height, -(-panels // column_blocks) * width
        a_bytes = tuning.GEMM_A_BYTES if self.b_packed else tuning.GEMM_A_BYTES_COPYING
        tiles_in_cache = larger(1, a_bytes // (at_once * height * self.itemsize))
        wanted = smaller(tuning.TASKS, m * n * steps * batch // tuning.GEMM_TASK_PRODUCTS) // (panels * batch)
        tiles_each = -(-tiles // smaller(tiles, larger(1, wanted, -(-tiles // tiles_in_cache))))
        least = tuning.GEMM_TASK_PRODUCTS * smaller(m, 4) // 4
        panels_each = larger(1, least // (tiles_each * height * steps * width))
        if self.depth:  # each task reads all parts of its rows anew
            panels_each = larger(
                panels_each, smaller(tuning.GEMM_PANELS_OF_PARTS, panels * batch // tuning.GEMM_TASKS_OF_PARTS)
            )
        column_blocks = -(-panels // smaller(panels, panels_each))
        return tiles_each * height, -(-panels // column_blocks) * width

    def tasks(self, sizes: GemmSizes) -> int:
        if 0 in (sizes.m, sizes.n, sizes.outer, sizes.inner):
            return 0
        self._check_rows(sizes.m)
        blocks = -(-sizes.m // sizes.task_rows) * -(-sizes.n // sizes.task_columns)
        return blocks * sizes.outer * sizes.inner

    def _check_rows(self, m: int) -> None:
        rest = m
        for height in self.rows:
            rest %= height
        if rest:
            raise ValueError(f"Bug: a GEMM with tiles of {self.rows} rows leaves {rest} of {m} rows undone")

    def scratch_bytes(self, sizes: GemmSizes) -> int:
        """Room for one panel of b and for the task's rows of a."""
        k, task_rows = sizes.k, sizes.task_rows
        elements = self.panel_elements(k) if self.copies_b else 0
        if self.depth:
            elements += task_rows * (sizes.task_columns + LONGEST_VECTOR)
        if not self.a_in_place:
            elements += (task_rows + LONGEST_VECTOR) * (k + LONGEST_VECTOR)
        return elements * self.itemsize

    @property
    def copies_b(self) -> bool:
        """Whether panels of b come to lie in scratch memory."""
        return self.b_widened or not self.b_packed

    def panel_elements(self, k: int) -> int:
        """Elements of scratch for a panel of b; more than k rows, since copying writes whole blocks."""
        return (k + LONGEST_VECTOR) * self.widths[0]

    def work(self, sizes: GemmSizes) -> Work:
        m, n, k, outer, inner = sizes.m, sizes.n, sizes.k, sizes.outer, sizes.inner
        a = m * k * (outer if sizes.a_outer else 1) * (inner if sizes.a_inner else 1)
        b = k * n * (outer if sizes.b_outer else 1) * (inner if sizes.b_inner else 1)
        elements = a + m * n * outer * inner
        return Work(
            2 * m * n * k * outer * inner, elements * self.itemsize + b * (2 if self.b_stored else self.itemsize)
        )

    def last_width(self, n: int) -> int:
        """The width of the last panel of n columns: that of the narrowest tile that suffices."""
        rest = n % self.widths[0] or smaller(n, self.widths[0])
        return min(width for width in self.widths if width >= rest)

    def panels(self, n: int) -> tuple[int, int]:
        """How many full panels n columns have before the last one, and the width of that."""
        return larger(0, -(-n // self.widths[0]) - 1), self.last_width(n) if n else 0

    def packed_elements(self, n: int, k: int) -> int:
        """Elements of a packed k x n matrix: the stride from one to the next."""
        full, last = self.panels(n)
        return (full * self.widths[0] + last) * k

    def pack_b(self, b: np.ndarray) -> np.ndarray:
        """b [..., k, n] -> [..., packed_elements(n, k)]: panels of widths[0] columns, each [k][width].

        The last panel is as wide as the tile that is used for it, and padded with zeros.
        """
        *batch, k, n = b.shape
        matrices = b.reshape(prod(batch), k, n)
        elements = self.packed_elements(n, k)
        dtype = np.uint16 if self.b_stored else self.element
        packed = zeros(len(matrices) * elements, dtype).reshape(len(matrices), elements)
        panels = blocks(n, self.widths[0])

        def pack(part: int) -> None:
            matrix, columns = part // len(panels), panels[part % len(panels)]
            width = self.widths[0] if columns.stop < n else self.last_width(n)
            target = packed[matrix, columns.start * k : (columns.start + width) * k].reshape(k, width)
            panel = matrices[matrix, :, columns]
            copy_columns(_bits(panel, self.b_stored), target[:, : panel.shape[1]])
            if panel.strides[0] < panel.strides[1]:  # column-major: these pages hold nothing of other panels
                release_pages(panel)

        for_each(pack, len(matrices) * len(panels), packed.nbytes)
        return packed.reshape(*batch, elements)

    def arguments(self, *, m: int, n: int, k: int, outer: int = 1, inner: int = 1, **strides: int) -> GemmSizes:
        """The sizes; strides left out are those of dense matrices in row-major order, none of them shared."""
        b_elements = self.packed_elements(n, k) if self.b_packed else k * n
        dense: dict[str, Any] = {"a_row": k, "a_column": 1, "b_row": n, "b_column": 1, "c_row": n}
        dense |= {"a_outer": inner * m * k, "a_inner": m * k, "b_outer": inner * b_elements, "b_inner": b_elements}
        dense |= {"c_outer": inner * m * n, "c_inner": m * n}
        return self.complete(GemmGiven(m=m, n=n, k=k, outer=outer, inner=inner, **(dense | strides)))


def _bits(b: np.ndarray, stored: str) -> np.ndarray:
    """Float32 numbers that are all numbers of a 16-bit type, as the bits of that; with stored "" as they are."""
    if stored == "float16":
        return b.astype(np.float16).view(np.uint16)
    return (b.view(np.uint32) >> 16).astype(np.uint16) if stored else b


class ScaleBuffers(Arguments):
    packed: Buffer
    factors: Buffer
    scaled: Buffer = result()


class ScaleSizes(Arguments):
    images: Size
    k: Size
    full: Size
    width: Size
    last: Size
    factor_image: Size
    factor_step: Size


@dataclass(frozen=True)
class ScaleSpec(KernelSpec):
    """scaled[image] = diag(factors[image]) @ b, for packed b [k, n]: a @ scaled is (a * factors) @ b.

    Packed as `GemmSpec.pack_b` does it: `full` panels of `width` columns and one of `last`, each [k][its width]. The
    factor of (image, row) lies at image * factor_image + row * factor_step. Task: a panel of an image.
    """

    element: str = "float32"

    BUFFERS = ScaleBuffers
    SIZES = ScaleSizes

    def tasks(self, sizes: ScaleSizes) -> int:
        return sizes.images * (sizes.full + 1)

    def work(self, sizes: ScaleSizes) -> Work:
        elements = sizes.k * (sizes.full * sizes.width + sizes.last)
        return Work(sizes.images * elements, (1 + sizes.images) * elements * np.dtype(self.element).itemsize)
