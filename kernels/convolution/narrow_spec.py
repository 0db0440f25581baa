"""What the convolution to few output channels is, without compiling it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitonnx.emit.arguments import Arguments, Size, Sizes, computed, rest
from jitonnx.kernels.convolution.problem import ConvolutionBuffers
from jitonnx.kernels.convolution.taps import Taps, joined, phase_taps, transposed_taps
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass

_LINE = 16
"""Elements of a cache line."""
_PAGE = 1024
"""Elements of 4 KiB: lines that far apart take the same place in a first-level cache."""
_TASK_FLOPS = 250_000
"""A task does 5 µs of work, where there is so much."""
_TASKS = 8


class RowPhase(Arguments):
    """An ordinary convolution on some rows of y: all of them for Conv, every stride-th one for ConvTranspose.

    Its row t is row `out_row_first + t * out_row_step` of y; tap k of it reads input row `row_first + t * row_stride +
    k * row_dilation`.
    """

    weights: Size
    """Its packed weights start there."""
    out_rows: Size
    out_row_first: Size
    out_row_step: Size
    row_taps: Size
    row_first: Size
    row_stride: Size
    row_dilation: Size


class NarrowSizes(Arguments):
    """Channels are those of a group."""

    images: Size
    groups: Size
    channels: Size
    output_blocks: Size
    """Blocks of output channels of a group."""
    height: Size
    width: Size
    x_image: Size
    x_row: Size
    x_pixel: Size
    x_channel: Size
    out_height: Size
    out_width: Size
    y_image: Size
    y_channel: Size
    y_row: Size
    kernel_height: Size
    stride_height: Size
    dilation_height: Size
    pad_top: Size
    pad_left: Size
    rows_first: Size = computed()
    """The first input row that row 0 of any phase reads."""
    rows_step: Size = computed()
    rows_reach: Size = computed()
    """Input rows that a row of all phases reads, from the first to the last."""
    rows: Size = computed()
    """Rows of the phase that has most."""
    columns: Size = computed()
    """Columns of a phase."""
    columns_first: Size = computed()
    """The first input column that column 0 reads."""
    row_block: Size = computed()
    """Rows of each phase in a task, whole tiles; and columns."""
    row_blocks: Size = computed()
    column_block: Size = computed()
    column_blocks: Size = computed()
    pitch: Size = computed()
    """Elements of scratch memory between channels of a row, and of a row."""
    row_pitch: Size = computed()
    scratch_elements: Size = computed()
    tasks: Size = computed()
    phases: Sizes = rest()


@dataclass(frozen=True)
class NarrowSpec(KernelSpec):
    """Conv with column stride 1, or ConvTranspose, to few output channels a group, with vectors of output pixels.

    Vectors of output channels would be mostly idle. A task makes a block of rows and columns of all outputs of one
    group of an image: it copies the input rows it needs to scratch memory as [row][channel][column], with zeros for
    padding, and for each block of `outputs` channels goes over them in tiles of `rows` rows and `vectors` vectors of
    columns, whose sums stay in registers. A column of a ConvTranspose is one of each of its stride_width phases, which
    read the same inputs; they are put in order when they are stored. Phases along the rows come one after the other.
    Taps along the columns are spelled out, so kernel width, stride and dilation are fields; along the rows they are
    sizes.

    x lies in planes (x_pixel = 1), or with channels side by side (x_channel = 1), which the copy transposes; y in
    planes. `w` is what `pack_weights` makes. To the epilogue, batch is the image, row the channel and column out_row *
    out_width + out_column.
    """

    lanes: int
    outputs: int
    """Output channels of a block."""
    columns: tuple[int, int, int]
    """The kernel size, stride and dilation along the columns."""
    transposed: bool
    phase: int
    """The pad in front of the columns modulo a ConvTranspose's stride; else 0."""
    row_phases: int
    """The stride of a ConvTranspose along the rows; else 1."""
    rows: int
    vectors: int
    planes: bool
    """Whether x lies in planes."""
    l2_bytes: int = 1 << 20

    BUFFERS = ConvolutionBuffers
    SIZES = NarrowSizes
    PRESCHEDULED = True

    @property
    def column_phases(self) -> int:
        """Output columns of y that a column of the kernel makes."""
        return self.columns[1] if self.transposed else 1

    @property
    def tile(self) -> int:
        """Columns of a tile."""
        return self.vectors * self.lanes

    @property
    def reads(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """The inputs of a column, as distances from the first of them: which taps of which phases read each."""
        taps, stride, dilation = self.columns
        readers: dict[int, list[tuple[int, int]]] = {}
        for tap in range(taps):
            if self.transposed:
                before = tap * dilation - self.phase
                readers.setdefault(-(before // stride), []).append((before % stride, tap))
            else:
                readers.setdefault(tap * dilation, []).append((0, tap))
        first = min(readers, default=0)
        return [(place - first, readers[place]) for place in sorted(readers)]

    @property
    def reach(self) -> int:
        """Input columns from the first to the last that a column reads."""
        return self.reads[-1][0] + 1 if self.reads else 1

    @property
    def tap_order(self) -> list[int]:
        """The kernel's columns in the order in which a step reads their weights."""
        return [tap for _, users in self.reads for _, tap in users]

    # ------------------------------------------------------------ sizes

    def complete(self, sizes: NarrowSizes) -> NarrowSizes:
        s, (taps, stride, dilation) = sizes, self.columns
        row_taps, weights = self._row_taps(s), 0
        phases: list[int] = []
        outputs = s.groups * s.output_blocks * self.outputs
        for of_phase in row_taps:
            phases += RowPhase(
                weights=weights,
                out_rows=of_phase.outputs,
                out_row_first=of_phase.out_first,
                out_row_step=of_phase.out_step,
                row_taps=of_phase.taps,
                row_first=of_phase.first,
                row_stride=of_phase.stride,
                row_dilation=of_phase.dilation,
            )
            weights += outputs * of_phase.taps * s.channels * taps
        rows = joined(row_taps)
        columns, first = s.out_width, -s.pad_left
        if self.transposed:
            columns = (s.out_width + (stride - 1)) // stride
            first = (s.pad_left - self.phase) // stride - max(
                ((tap * dilation - self.phase) // stride for tap in range(taps)), default=0
            )
        others = larger(s.images * s.groups, 1)
        room = self.l2_bytes // 8  # elements in half of it
        slots = (self.rows - 1) * rows.stride + rows.reach
        per_column = larger(s.channels, 1) * slots
        fitting = larger((room // per_column - self.reach) // self.tile, 1)
        wanted = larger(-(-columns // self.tile), 1)
        flops = 2 * s.out_height * s.out_width * s.channels * s.kernel_height * taps * outputs
        tasks = larger(smaller(_TASKS // others, s.images * flops // _TASK_FLOPS), 1)
        row_tiles = larger(-(-rows.outputs // self.rows), 1)
        parts = larger(-(-wanted // fitting), smaller(-(-tasks // row_tiles), wanted))
        column_block = -(-wanted // parts) * self.tile
        pitch = (column_block + self.reach - 1 + (_LINE - 1)) // _LINE * _LINE
        pitch = pitch + _LINE * (1 - smaller(pitch % (_PAGE // 4), 1))
        row_pitch = pitch * s.channels
        slots = room // larger(row_pitch, 1)
        high = larger(((slots - rows.reach) // rows.stride + 1) // self.rows, 1)
        row_block = smaller(larger(row_tiles // tasks, 1), high) * self.rows
        row_blocks = -(-rows.outputs // row_block)
        column_blocks = -(-columns // column_block)
        copied = (row_block - 1) * rows.stride + rows.reach
        return NarrowSizes.following(
            sizes,
            rows_first=rows.lowest,
            rows_step=rows.stride,
            rows_reach=rows.reach,
            rows=rows.outputs,
            columns=columns,
            columns_first=first,
            row_block=row_block,
            row_blocks=row_blocks,
            column_block=column_block,
            column_blocks=column_blocks,
            pitch=pitch,
            row_pitch=row_pitch,
            scratch_elements=copied * row_pitch,
            tasks=s.images * s.groups * row_blocks * column_blocks,
            phases=phases,
        )

    def _row_taps(self, s: NarrowSizes) -> list[Taps]:
        """The phases along the rows."""
        if not self.transposed:
            return [Taps(s.kernel_height, -s.pad_top, s.stride_height, s.dilation_height, s.out_height)]
        return [
            transposed_taps(phase, s.kernel_height, self.row_phases, s.dilation_height, s.pad_top, s.out_height)
            for phase in range(self.row_phases)
        ]

    @property
    def size_count(self) -> int:
        return NarrowSizes.WIDTH + self.row_phases * RowPhase.WIDTH

    def tasks(self, sizes: NarrowSizes) -> int:
        return sizes.tasks

    def scratch_bytes(self, sizes: NarrowSizes) -> int:
        return 4 * sizes.scratch_elements

    def work(self, sizes: NarrowSizes) -> Work:
        s, outputs = sizes, sizes.output_blocks * self.outputs
        x, y = s.images * s.groups * s.channels * s.height * s.width, s.images * s.groups * s.out_height * s.out_width
        taps = s.kernel_height * self.columns[0]
        products = outputs * (x if self.transposed else y * s.channels)
        return Work(2 * taps * products, 4 * (x + y * outputs + taps * s.channels * outputs * s.groups))

    # ------------------------------------------------------------ weights

    def pack_weights(self, weights: np.ndarray, groups: int = 1, row_dilation: int = 1) -> np.ndarray:
        """Weights as ONNX has them, [M, C / groups, kH, kW] or [C, M / groups, kH, kW], as the kernel streams them:
        [row phase][group][block of outputs][row tap][channel][column tap, as read][M of the block], float32."""
        weights = np.asarray(weights, np.float32)
        height, width = weights.shape[2:]
        if self.transposed:
            channels = weights.shape[0] // groups
            split = weights.reshape(groups, channels, -1, self.outputs, height, width).transpose(0, 2, 3, 1, 4, 5)
        else:
            split = weights.reshape(groups, -1, self.outputs, *weights.shape[1:])
        ordered = split.transpose(0, 1, 4, 3, 5, 2)[:, :, :, :, self.tap_order]
        return np.concatenate([ordered[:, :, taps].reshape(-1) for taps in self._taps_of_phases(height, row_dilation)])

    def _taps_of_phases(self, height: int, dilation: int) -> Sequence[list[int]]:
        if not self.transposed:
            return [list(range(height))]
        return [phase_taps(phase, height, self.row_phases, dilation) for phase in range(self.row_phases)]
