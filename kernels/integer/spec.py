"""What the kernel of convolutions and products of 8-bit integers is, and how constant weights are packed; without LLVM.

Integers are multiplied and summed exactly, in int32, whatever the CPU has for it: the same integers everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.parts.layouts import LINE, WindowProduct, padded_width
from jitonnx.kernels.parts.packing import zeros
from jitonnx.kernels.parts.sizes import below, larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning
from jitonnx.target.products import INTEGERS, IntegerProducts

if TYPE_CHECKING:
    from jitonnx.target.machine import Target

STEP = 64
"""Elements of a row of x in a cache line and in a row of a tile: scratch rows are multiples of it."""
TILE_BYTES = 2 * 16 * 2 * 16 * 4
"""Sums of 2 x 2 tiles of 16 x 16."""
PLACE_BYTES = 8
"""The bytes of a row's place in scratch memory."""


class IntegerBuffers(Arguments):
    x: Buffer
    zero: Buffer
    w: Buffer
    sums: Buffer
    y: Buffer = result()


class IntegerSizes(WindowProduct):
    task_rows: Size = computed()
    task_columns: Size = computed()
    row_bytes: Size = computed()
    lines_at: Size = computed()
    """Where rows of images with their padding begin in scratch memory, behind the places of windows; this and the
    following unread unless the spec is `padded`."""
    line_bytes: Size = computed()
    """The bytes from one of these rows to the next."""


@dataclass(frozen=True)
class IntegerSpec(KernelSpec):
    """y[pixel, n] = epilogue(Σ over taps and channels of (x - zero) * w[n, channel, tap]), channels-last, in int32.

    x holds int8 (`signed`) or uint8; w is what `pack` made of int8, `sums` what `column_sums` did. Pixels outside of
    the image count as `zero`. The epilogue's row is the output pixel of all images, its batch 0.

    A task does some rows and columns: it copies what the rows are made of into scratch memory, and multiplies panels of
    `width` columns with them, in tiles of rows[0] x width; what remains is done by the tile of the least height that
    suffices, or in several. Rows' taps are gathered, so that a row has all its products' left operands side by side; or
    (`padded`) the task has the rows of the image that it needs, with their padding, and tiles read the taps there.
    """

    multiply: IntegerProducts
    rows: tuple[int, ...]
    """Tile heights, decreasing."""
    width: int
    signed: bool = False
    shifted: bool = True
    """x has a zero point; otherwise it is 0, and `zero` goes unread."""
    windows: bool = True
    """Rows are made of taps. Otherwise there is one, rows are x_pixel apart, and no size of images is read."""
    padded: bool = False
    """Windows' taps are read from rows of the image with their padding. Those of a row lie side by side, a run of them
    that `by_runs` has filled up with zeros in w to whole groups; columns are not dilated."""
    result: str = "int32"
    """Element type of y."""
    prefetch_distance: int = 0
    """How many steps ahead of its use a panel is asked for, into the first-level cache; 0: not at all."""
    paced_prefetch: bool = False
    """Whether tiles ask for the next panel at an even pace, into the second-level cache."""
    begun: bool = False
    """`sums` are what the products are added to, the zero point's part and a bias, as `beginnings` makes them."""

    BUFFERS = IntegerBuffers
    SIZES = IntegerSizes
    PRESCHEDULED = True

    @property
    def flipped(self) -> bool:
        """Whether x is gathered with its sign bits flipped, as the other kind of bytes: dot products want the left
        unsigned, or signed."""
        return self.multiply in (("dot", "byte pairs") if self.signed else ("signed dot", "signed matrices"))

    def gathered(self, zero: int) -> int:
        """A zero point of x as it is among the bytes that are multiplied."""
        return zero if not self.flipped else zero + (128 if self.signed else -128)

    @property
    def group(self) -> int:
        return INTEGERS[self.multiply].group

    @property
    def features(self) -> tuple[str, ...]:
        return INTEGERS[self.multiply].features

    @property
    def step(self) -> int:
        """Packed panels have whole multiples of so many rows."""
        return STEP if self.multiply == "tiles" else self.group

    @property
    def row_itemsize(self) -> int:
        """Bytes of an element in scratch memory."""
        return max(4 // self.group, 1)

    def row_bytes(self, depth: Any) -> Any:
        """Bytes from one gathered row to the next: whole lines, but not a power of two of pages, whose rows would share
        places in the cache."""
        size = -(-depth // STEP) * STEP * self.row_itemsize
        return size + STEP * below(size % 1024, 1)

    def line_bytes(self, given: WindowProduct) -> Any:
        """Bytes from one row of an image with its padding to the next: whole lines."""
        return _in_lines(padded_width(given) * given.channels * self.row_itemsize)

    def complete(self, sizes: WindowProduct) -> IntegerSizes:
        rows, columns = self.blocks(sizes)
        return IntegerSizes.following(
            sizes,
            task_rows=rows,
            task_columns=columns,
            row_bytes=self.row_bytes(self.depth(sizes)),
            lines_at=_in_lines(PLACE_BYTES * (rows + self.rows[0])),  # a tile may end behind the last row
            line_bytes=self.line_bytes(sizes),
        )

    def blocks(self, given: WindowProduct) -> tuple[Any, Any]:
        """Rows and columns of a task, in whole tiles: few rows and all columns while the weights stay in the cache,
        else all rows that do, and some columns; up to 16 tasks of 5 microseconds at least."""
        rows, depth = _rows(given), self.depth(given)
        height, tiles, panels = self.rows[0], -(-rows // self.rows[0]), -(-given.out_channels // self.width)
        if self.padded:
            lines = tuning.INTEGER_ROWS_BYTES // larger(self.line_bytes(given), 1) - taps_high(given)
            most = larger(lines // larger(given.stride_height, 1) * given.out_width // height, 1)
        else:
            most = larger(tuning.INTEGER_ROWS_BYTES // (self.row_bytes(depth) * height), 1)
        wanted = larger(
            smaller(rows * depth * given.out_channels // tuning.INTEGER_TASK_PRODUCTS[self.multiply], tuning.TASKS), 1
        )
        prefetch_distance = below(depth * panels * self.width, tuning.INTEGER_NEAR_BYTES)
        row_tasks = larger(smaller(tiles, 1 + prefetch_distance * (wanted - 1)), larger(-(-tiles // most), 1))
        column_tasks = larger(smaller(panels, -(-wanted // row_tasks)), 1)
        rows_each, columns_each = -(-tiles // row_tasks) * height, -(-panels // column_tasks) * self.width
        return larger(rows_each, 1), larger(columns_each, 1)

    def tasks(self, sizes: IntegerSizes) -> int:
        return -(-_rows(sizes) // sizes.task_rows) * -(-sizes.out_channels // sizes.task_columns)

    def scratch_bytes(self, sizes: IntegerSizes) -> int:
        """What the task's rows are made of, whole tiles of them; a tile of sums, where runs write behind the last row
        before; a row of sums."""
        rows_bytes = sizes.task_rows * sizes.row_bytes
        if self.padded:
            below_first = (sizes.task_rows + sizes.out_width - 2) // larger(sizes.out_width, 1)
            images = smaller(-(-below_first // larger(sizes.out_height, 1)), larger(sizes.images - 1, 0))
            lines = below_first * sizes.stride_height + (images + 1) * taps_high(sizes)
            rows_bytes = sizes.lines_at + lines * sizes.line_bytes
        return rows_bytes + TILE_BYTES + 4 * self.width

    def work(self, sizes: IntegerSizes) -> Work:
        rows, columns = _rows(sizes), sizes.out_channels
        depth = sizes.channels * sizes.kernel_height * sizes.kernel_width
        read = sizes.images * sizes.height * sizes.width * sizes.channels if self.windows else rows * depth
        return Work(
            2 * rows * depth * columns, read + depth * columns + rows * columns * np.dtype(self.result).itemsize
        )

    def depth(self, given: WindowProduct) -> Any:
        """Elements of a row as they are multiplied: over all taps, each run of them in whole groups if it is one of
        several."""
        run = given.kernel_width * given.channels
        return given.kernel_height * (-(-run // self.group) * self.group if self.padded else run)

    def pack(self, w: np.ndarray) -> np.ndarray:
        """w int8 [out_channels, depth] -> panels [width columns][depth / group][column][group], padded with zeros to
        whole panels and steps."""
        columns, depth = w.shape
        steps, panels = self.panel_elements(depth) // (self.width * self.group), -(-columns // self.width)
        packed = zeros(panels * self.width * steps * self.group, np.int8)
        target = packed.reshape(panels, steps, self.width, self.group)
        for panel in range(panels):
            part = w[panel * self.width : (panel + 1) * self.width]
            padded = np.zeros((len(part), steps * self.group), np.int8)
            padded[:, :depth] = part
            target[panel, :, : len(part)] = padded.reshape(len(part), steps, self.group).transpose(1, 0, 2)
        return packed

    def column_sums(self, w: np.ndarray) -> np.ndarray:
        """Σ over the depth of w int8 [out_channels, depth], as int32, padded with zeros to whole panels."""
        sums = np.zeros(-(-len(w) // self.width) * self.width, np.int32)
        sums[: len(w)] = w.sum(1, dtype=np.int64)
        return sums

    def panel_elements(self, depth: int) -> int:
        """Elements of a packed panel."""
        return -(-depth // self.step) * self.step * self.width


def beginnings(column_sums: np.ndarray, zero: int, bias: np.ndarray) -> np.ndarray:
    """What sums begin with, int32, which wraps around as sums do: bias, one or one for each column, less `zero`, a zero
    point as it is `gathered`, times the sums of the columns."""
    sums = column_sums.astype(np.int64) * -zero
    sums[: len(bias) if len(bias) > 1 else len(sums)] += bias
    return sums.astype(np.int32)


def _rows(given: WindowProduct) -> int:
    return given.images * given.out_height * given.out_width


def _in_lines(size: Any) -> Any:
    """Bytes in whole cache lines."""
    return -(-size // LINE) * LINE


def taps_high(given: Any) -> Any:
    """Rows of an image from the first tap of a window to its last."""
    return (given.kernel_height - 1) * given.dilation_height + 1


def by_runs(w: np.ndarray, group: int) -> np.ndarray:
    """w int8 [out_channels, kernel_height, run of taps] -> [out_channels, depth], each run in whole groups."""
    missing = -w.shape[2] % group
    return np.pad(w, ((0, 0), (0, 0), (0, missing))).reshape(len(w), -1)


def fits_byte_pairs(w: np.ndarray) -> bool:
    """Whether 16 bits hold the sums of bytes times two neighbours along the depth, the first two and so on, of w int8
    [out_channels, depth]: quantisers see to that for CPUs without VNNI (onnxruntime's `reduce_range`)."""
    pairs = w[:, : w.shape[1] // 2 * 2].astype(np.int16).reshape(len(w), -1, 2)
    most = np.iinfo(np.int16).max // np.iinfo(np.uint8).max
    return all(bool((np.maximum(part, 0).sum(2) <= most).all()) for part in (pairs, -pairs))


def choose(  # noqa: PLR0913  (what decides, by name)
    columns: int,
    rows: int | None,
    target: Target,
    *,
    depth: int | None = None,
    in_byte_pairs: bool = False,
    signed: bool,
    shifted: bool,
    windows: bool,
    padded: bool = False,
    result: str,
    tiles: bool = True,
) -> IntegerSpec:
    """The kernel for this many output channels and rows (None: known only at run time) on a CPU. depth: products a
    sum of constant weights; in_byte_pairs: whether these `fits_byte_pairs`. padded: how windows' taps are read. tiles:
    whether it may be one for tile registers.

    Tiles of vectors are 6 x 4 with 32 registers (24 sums, 4 of w, one of x), 6 x 2 with 16; narrower where columns are
    few. The width is the largest that pads the columns least. One or two rows, which are bound by reading the weights,
    do not wait for tile registers where the CPU has dot products, too. Cores that wait for their third-level cache ask
    for panels that outgrow the first-level one, and for the next of weights that outgrow the second-level one: 0.90 to
    0.96 of the time with 128 and 256 channels of 3x3 taps, 0.85 with 512.
    """
    multiply = target.integer_products
    if multiply == "tiles" and (not tiles or (rows is not None and rows <= tuning.INTEGER_FEW_ROWS)):
        multiply = target.byte_dots or multiply
    if multiply == "pairs" and in_byte_pairs and target.vector_bytes >= 32:
        multiply = "byte pairs"
    if multiply == "tiles":
        width, heights = (16 if columns <= 16 else 32), ((32, 16) if rows is None or rows > 16 else (16,))
    else:
        lanes, most = target.lanes(4), 4 if target.vector_registers >= 32 else 2
        widths = [lanes * count for count in range(most, 0, -1)]
        width = min(widths, key=lambda width: -(-columns // width) * width)
        heights = (6, 1) if rows is None or (rows > 1 and rows % 6 == 1) else (min(rows, 6),)
    spec = IntegerSpec(multiply, heights, width, signed, shifted, windows, padded and multiply != "tiles", result)
    if multiply == "tiles" or depth is None:
        return spec
    far = target.waits_for_l3 and columns > width and depth * columns > target.l2_bytes // 2
    return replace(spec, prefetch_distance=target.steps_near(spec.panel_elements(depth)), paced_prefetch=far)
