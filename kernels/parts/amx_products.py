"""What kernels of products and convolutions in AMX's tile registers have in common, whatever their operands are;
without LLVM.

Rows of left operands, of windows of images or as they lie, are multiplied by constant weights in blocks of 2 x 2 tiles.
Elements are counted as products take them, in 1 byte or 2: a step multiplies a cache line of each row and column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from jitonnx.emit.arguments import Size, computed
from jitonnx.kernels.parts.layouts import LINE, TILE, WindowProduct, padded_width
from jitonnx.kernels.parts.packing import for_each, zeros
from jitonnx.kernels.parts.sizes import below, larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

SUMS_BYTES = 2 * TILE * 2 * TILE * 4
"""Sums of 2 x 2 or 4 x 1 tiles."""
RowsWay: TypeAlias = Literal["in place", "copied", "gathered", "im2col", "padded"]

SLACK_ROWS = 64
"""Rows that tiles may read behind the last one, without an effect."""


class AmxSizes(WindowProduct):
    task_rows: Size = computed()
    task_columns: Size = computed()
    group_rows: Size = computed()
    row_bytes: Size = computed()
    line_bytes: Size = computed()
    """Bytes of a row of an image with its padding, of which "im2col" takes the taps."""


@dataclass(frozen=True)
class AmxSpec(KernelSpec):
    """y[pixel, n] = epilogue(Σ over taps and channels of x * w[n, channel, tap]), channels-last, sums of 32 bits.

    w is what `pack` made. The epilogue's row is the output pixel of all images, its batch 0. A task multiplies some
    rows with some panels of `width` columns, in blocks of 2 x 2 tiles.
    """

    way: RowsWay
    """How tiles read x. "in place": rows x_pixel apart, as products take them, whole steps of channels.
    "copied": rows x_pixel apart, which a task first copies to scratch memory, converted. "gathered": the taps of each
    output pixel side by side in scratch memory. "padded": the rows of the image that a task needs are copied with their
    padding, and each tap reads them from another place on; for strides of 1. Sums of what is between the rows of output
    pixels are computed, too, which nobody writes. "im2col": such rows are copied, and then the taps of each output
    pixel side by side, for few channels and without dilation. Tasks of these two have whole rows of output pixels."""
    width: int
    prefetch_distance: bool = True
    """The whole of w stays in the second-level cache: blocks of rows go through all panels, and not panels through all
    rows."""
    fetched: int = 0
    """Cache lines of the next panel of w that each step asks for; where w stays in the cache, for the first block of a
    call alone."""
    once: bool = False
    """There is one block of rows: what is asked for is what follows shortly."""
    planes: int = 0
    """"im2col": so many channels of x lie in planes of pixels, x_pixel apart; 0: x is channels-last."""
    high: int = 2
    """Tiles of rows in a block: 2, or 4 with panels of one tile of columns: "padded" where that makes one block of all
    rows, and w comes from beyond the second-level cache. It is then read into tiles once, as it comes."""
    window: tuple[int, int] = (0, 0)
    """"im2col": rows of taps and elements of each, where these are so few that the copy of each is written out; (0,
    0): a loop goes over them."""

    GFLOPS: ClassVar[int] = tuning.TILE_PRODUCTS.gflops
    FIGURES: ClassVar[tuning.WideProducts] = tuning.TILE_PRODUCTS
    ITEM_BYTES: ClassVar[int]
    """An element has so many bytes as products take it."""
    ACROSS: ClassVar[bool] = False
    """A word of the weights of all columns of a panel lies together, and not of each 16 columns (`layout`)."""
    PRESCHEDULED = True

    @property
    def unit_rows(self) -> int:
        """Rows that tasks have whole multiples of, but for the last ones."""
        return self.high * TILE

    @property
    def near_rows(self) -> int:
        """Rows that go through all panels together where w stays in the second-level cache."""
        return 2 * TILE

    @property
    def step(self) -> int:
        """Elements of a row in a cache line and in a row of a tile: what a step multiplies of each row and column."""
        return LINE // self.ITEM_BYTES

    @property
    def x_bytes(self) -> int:
        """Count the bytes of an element of x."""
        raise NotImplementedError

    @property
    def y_bytes(self) -> int:
        """Count the bytes of an element of y."""
        raise NotImplementedError

    @property
    def by_taps(self) -> bool:
        """Whether channels of each tap fill whole steps of their own."""
        return self.way == "padded"

    @property
    def by_bands(self) -> bool:
        """Whether tasks have whole rows of the pixels of an image."""
        return self.way in ("padded", "im2col")

    @property
    def packs(self) -> bool:
        """Whether a task packs all of its product's w itself."""
        return False

    def products(self, given: Any) -> Any:
        """How many products there are, each of rows and panels of its own."""
        return 1

    def product_rows(self, given: Any) -> Any:
        """Rows of each."""
        return rows_of(given)

    @property
    def packing(self) -> tuple[str, bool, int]:
        """All that the layout of packed weights depends on."""
        return self.family, self.by_taps, self.width

    def whole(self, elements: Any) -> Any:
        """So many elements in whole steps."""
        return whole(elements, self.step)

    def depth(self, given: Any) -> Any:
        """Elements of a row in whole steps, over all taps."""
        taps = given.kernel_height * given.kernel_width
        return self.whole(given.channels) * taps if self.by_taps else self.whole(given.channels * taps)

    def row_bytes(self, given: Any) -> Any:
        """Bytes from one row in scratch memory to the next: whole lines, but not a power of two of pages, whose rows
        would share places in the cache."""
        size = (self.whole(given.channels) if self.by_taps else self.depth(given)) * self.ITEM_BYTES
        return size + LINE * below(size % 1024, 1)

    def complete(self, sizes: WindowProduct) -> AmxSizes:
        depth, row_bytes, n = self.depth(sizes), self.row_bytes(sizes), sizes.out_channels
        figures = self.FIGURES
        line_bytes = whole(padded_width(sizes) * sizes.channels * self.ITEM_BYTES, LINE) + LINE
        if self.by_bands:
            unit, units = (padded_width(sizes) if self.by_taps else sizes.out_width), sizes.out_height
            halo = (sizes.kernel_height - 1) * sizes.dilation_height
            if self.by_taps:
                most = larger(tuning.AMX_BAND_BYTES // larger(unit * row_bytes, 1) - halo, 1)
            else:
                most = larger(tuning.AMX_BAND_BYTES // larger(sizes.stride_height * line_bytes, 1), 1)
            outer, least = sizes.images, 2 * halo
        else:
            unit, outer = self.unit_rows, self.products(sizes)
            units = -(-self.product_rows(sizes) // unit)
            all_fit = self.way == "in place" or below(units * unit * row_bytes, figures.all_rows_bytes + 1)
            each = figures.rows_bytes + all_fit * (figures.all_rows_bytes - figures.rows_bytes)
            most, least = larger(each // larger(unit * row_bytes, 1), 1), 1
        panels = -(-n // self.width)
        prefetch_distance = below(depth * n * self.ITEM_BYTES, figures.near_bytes)
        wanted = larger(
            smaller(units * unit * outer * depth * n // figures.task_products, tuning.TASKS) // larger(outer, 1), 1
        )
        row_tasks = larger(
            smaller(units // larger(least, 1), 1 + prefetch_distance * (wanted - 1)), -(-units // most), 1
        )
        taps = sizes.kernel_height * sizes.kernel_width if self.by_taps else 1
        columns_most = panels
        if self.packs:
            columns_most = 1
        elif self.way != "in place":
            columns_most = larger(
                n * taps // tuning.AMX_COPIED_COLUMNS, smaller(2 * n // tuning.AMX_COPIED_COLUMNS, 2), 1
            )
        column_tasks = larger(smaller(panels, columns_most, -(-wanted // row_tasks)), 1)
        units_each, columns_each = larger(-(-units // row_tasks), 1), larger(-(-panels // column_tasks), 1) * self.width
        task_rows = units_each if self.by_bands else units_each * unit
        group = self.near_rows if self.prefetch_distance else units_each * larger(unit, 1)
        return self.SIZES.following(
            sizes,
            task_rows=task_rows,
            task_columns=columns_each,
            group_rows=group,
            row_bytes=row_bytes,
            line_bytes=line_bytes,
        )

    def tasks(self, sizes: AmxSizes) -> int:
        columns = -(-sizes.out_channels // sizes.task_columns)
        if self.by_bands:
            return sizes.images * -(-sizes.out_height // sizes.task_rows) * below(0, sizes.out_width) * columns
        return self.products(sizes) * -(-self.product_rows(sizes) // sizes.task_rows) * columns

    def scratch_bytes(self, sizes: AmxSizes) -> int:
        """The sums of a block; the task's rows, and behind them what tiles and copies reach."""
        rows, lines = sizes.task_rows, 0
        if self.by_taps:
            rows = (rows + (sizes.kernel_height - 1) * sizes.dilation_height) * padded_width(sizes)
        elif self.by_bands:
            rows, lines = sizes.group_rows, band_rows(sizes, rows) * sizes.line_bytes
        elif self.way == "in place":
            rows = TILE
        return HEAD_BYTES + lines + (rows + SLACK_ROWS) * sizes.row_bytes + 4 * LINE

    def work(self, sizes: AmxSizes) -> Work:
        rows, columns = rows_of(sizes), sizes.out_channels
        depth = sizes.channels * sizes.kernel_height * sizes.kernel_width
        taken = self.way in ("in place", "copied")
        read = rows * sizes.channels if taken else sizes.images * sizes.height * sizes.width * sizes.channels
        bytes_moved = read * self.x_bytes + self.ITEM_BYTES * depth * columns + rows * columns * self.y_bytes
        return Work(2 * rows * depth * columns, bytes_moved)

    def layout(self, depth: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Into which parts the weights of a panel, [column][element], are split, and the order in which these lie:
        [step][tile][row][column][group], what a step multiplies, its tiles of 16 columns one after the other, each with
        16 rows of 32 bits a column."""
        return (self.width // TILE, TILE, depth // self.step, TILE, 4 // self.ITEM_BYTES), (2, 0, 3, 1, 4)

    def packed(
        self, w: np.ndarray, element: np.typing.DTypeLike, convert: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """w [out_channels, taps, channels] -> `element`s that `convert` makes, panel by panel as `layout` has them: for
        each step of channels all taps. Padded with zeros to whole panels and steps."""
        columns, taps, channels = w.shape
        if not self.by_taps:
            w, taps, channels = w.reshape(columns, 1, taps * channels), 1, taps * channels
        deep, panels = self.whole(channels), -(-columns // self.width)
        split, order = self.layout(taps * deep)
        result = zeros(panels * taps * deep * self.width, element)
        target = result.reshape(panels, *(split[axis] for axis in order))

        def pack(panel: int) -> None:
            part = convert(w[panel * self.width : (panel + 1) * self.width])
            padded = np.zeros((self.width, taps, deep), element)
            padded[: len(part), :, :channels] = part
            by_step = padded.reshape(self.width, taps, -1, self.step).swapaxes(1, 2)
            target[panel] = by_step.reshape(split).transpose(order)

        for_each(pack, panels, result.nbytes)
        return result


HEAD_BYTES = SUMS_BYTES + 4 * LINE
"""What precedes the rows in scratch memory: sums of a block, a row that is added to them, and a number for each row."""


def whole(elements: Any, step: int) -> Any:
    """So many elements in whole steps."""
    return -(-elements // step) * step


def rows_of(given: Any) -> Any:
    """Output pixels of all images."""
    return given.images * given.out_height * given.out_width


def band_rows(given: Any, rows: Any) -> Any:
    """Rows of an image that `rows` of output pixels read, padding included."""
    return (rows - 1) * given.stride_height + (given.kernel_height - 1) * given.dilation_height + 1


_WRITTEN_OUT = 48
"""Pieces of rows of taps up to which each is copied by an instruction of its own."""


def pieces(window: tuple[int, int], step: int) -> list[list[tuple[int, int]]]:
    """What lies in each step of the taps of a pixel side by side: numbers of rows of taps, and the place in the
    step where each begins, which is negative if it does so in a step before."""
    rows, run = window
    found = []
    for first in range(0, rows * run, step):
        found.append([(row, row * run - first) for row in range(first // run, min(-(-(first + step) // run), rows))])
    return found


def written_out(way: RowsWay, taps: Sequence[int], step: int) -> tuple[int, int]:
    """`AmxSpec.window` for taps (height, width, channels)."""
    if way != "im2col" or not math.prod(taps):
        return 0, 0
    window = taps[0], math.prod(taps[1:])
    return window if sum(map(len, pieces(window, step))) <= _WRITTEN_OUT else (0, 0)


def chosen(way: RowsWay, columns: int, weight_bytes: int, rows: int | None) -> dict[str, Any]:
    """width, near, fetched, once and high for so many columns, bytes of weights, and rows that all columns are
    multiplied with at once (None: known only at run time)."""
    width = TILE if columns <= TILE else 2 * TILE
    if weight_bytes < tuning.TILE_PRODUCTS.near_bytes:
        return {"width": width, "fetched": width}
    if way == "padded" and rows is not None and 3 * TILE < rows <= 4 * TILE:
        return {"width": TILE, "prefetch_distance": False, "fetched": TILE, "once": True, "high": 4}
    blocks = 4 if rows is None else max(-(-rows // (2 * TILE)), 1)
    fetched = next(lines for lines in (width, 16, 8, 4, 2, 1) if lines * blocks <= width or lines == 1)
    return {"width": width, "prefetch_distance": False, "fetched": fetched, "once": blocks == 1}
