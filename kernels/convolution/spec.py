"""What the convolution kernels are, without compiling them: their arguments, tasks and packed weights.

Activations are float32 in NHWC: element (n, h, w, c) of x lies at n * x_image + h * x_row + w * x_pixel +
c * x_channel, and y's likewise with y_channel = 1; a direct convolution can also read and write planes, whose pixel
strides are 1. Convolutions over one axis have height 1. Weights come as ONNX has them.

Seven kinds of kernel: `DirectSpec` for ONNX's Conv, any of it; `GroupedSpec` for groups of a few channels;
`WinogradSpec` for stride 1, dilated or not, with 2 to 5 taps on both axes or up to 7 on one; `DepthwiseSpec` for as
many groups as input and output channels, `DepthwisePlanesSpec` for the same where images lie in NCHW; `TransposedSpec`
for ConvTranspose; `NarrowSpec` for both to few output channels. They take the same sizes (`Problem`), except that the
depthwise and narrow ones have their own. `choose.py`
picks one for a layer.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Literal, TypeAlias

import numpy as np

from jitonnx.emit.arguments import Arguments, Size, Sizes, by_name, computed, rest
from jitonnx.kernels.convolution.narrow_spec import NarrowSpec as NarrowSpec  # saved plans look for specs here
from jitonnx.kernels.convolution.problem import CHANNEL_BLOCK, ConvolutionBuffers, Problem
from jitonnx.kernels.convolution.taps import Taps, joined, phase_taps, readers, transposed_taps
from jitonnx.kernels.convolution.transforms import WinogradSpec as WinogradSpec  # as above
from jitonnx.kernels.parts.layouts import Pixels, PlanesToPlanes
from jitonnx.kernels.parts.packing import zeros
from jitonnx.kernels.parts.sizes import below, larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

Layout: TypeAlias = Literal["blocked", "interleaved", "planar"]


class Phase(Arguments):
    """An ordinary convolution on part of y: all of it for Conv, every stride-th row and column for ConvTranspose.

    Output row t of the phase is row `out_row_first + t * out_row_step` of y; its tap k reads input row `row_first +
    t * row_stride + k * row_dilation`. Columns alike, but in strands: tap k of output column t reads number
    floor((first + k * dilation) / stride) + t of the strand of that residue modulo the stride. The kernel goes from
    tap to tap by adding: column_first and column_residue are tap 0's, column_step and column_step_residue what is
    added.
    """

    weights: Size
    """Its packed weights start there."""
    out_rows: Size
    out_columns: Size
    out_row_first: Size
    out_row_step: Size
    out_column_first: Size
    out_column_step: Size
    row_taps: Size
    row_first: Size
    row_stride: Size
    row_dilation: Size
    column_taps: Size
    column_first: Size
    column_residue: Size
    column_step: Size
    column_step_residue: Size


class DirectSizes(Problem):
    """What `DirectSpec` is called with: how a convolution is cut up, whatever the phase, and then a `Phase` for each
    phase, row by row."""

    group_count: Size = computed()
    """Groups after merging."""
    channels_in_group: Size = computed()
    outputs_in_group: Size = computed()
    channel_blocks: Size = computed()
    """Blocks of a copied row: of channels if "blocked", single channels if "planar", 1 if "interleaved"."""
    depth: Size = computed()
    """Products of a tap on a block of a copied row: CHANNEL_BLOCK. Of all taps of a row: kernel_width, or that times
    channels."""
    total_depth: Size = computed()
    """The sum of the depths of all blocks: the last one may be shorter."""
    chain: Size = computed()
    """Blocks whose products are added up in one chain."""
    output_blocks: Size = computed()
    parts: Size = computed()
    """The output blocks of each phase along the rows: a task does some of them for its rows."""
    strands: Size = computed()
    strand_first: Size = computed()
    """Place 0 of a strand holds its element of this number (negative: padding)."""
    strand_columns: Size = computed()
    """Places of a strand."""
    strand_valid: Size = computed()
    """Elements of the longest strand: a tap that lies behind them, or before 0, in all of a tile is left out."""
    block_pitch: Size = computed()
    row_pitch: Size = computed()
    rows_first: Size = computed()
    """The first input row that output row 0 of any phase reads."""
    rows_step: Size = computed()
    rows_reach: Size = computed()
    """Input rows that one output row of all phases reads, from the first to the last."""
    rows: Size = computed()
    """Output rows of the phase that has most."""
    row_block: Size = computed()
    """Output rows of a task, of each phase."""
    row_blocks: Size = computed()
    chunk: Size = computed()
    """Parts of a task."""
    chunks: Size = computed()
    staged_rows: Size = computed()
    """Output rows and columns of each phase that go by way of scratch memory together, to be written as planes."""
    staged_columns: Size = computed()
    stage: Size = computed()
    """They lie there in scratch memory."""
    places: Size = computed()
    """The places of a pixel's inputs lie there in scratch memory, int64, from its first on: of all, or if "blocked" of
    so many blocks of channels as `listed` says, phase by phase."""
    listed: Size = computed()
    """0 if a tap may read places that scratch memory does not have, or the spec does not list blocks."""
    listed_inputs: Size = computed()
    """Places that each phase has a list for."""
    ahead: Size = computed()
    """Elements of the next output block's weights that a tile asks for with each product of its own; 0: none."""
    tasks: Size = computed()
    scratch_bytes: Size = computed()
    phases: Sizes = rest()


@dataclass(frozen=True)
class DirectSpec(KernelSpec):
    """Convolution as a GEMM over shifted rows of pixels, for every kernel size, stride, dilation, padding and group.

    A task makes a block of output rows of one image (and group) for one block of output channels. The input rows it
    needs are first copied to scratch memory in a form in which neighbouring output pixels are `step` elements apart, a
    constant, with zeros for the padding; tasks that follow each other on a thread share the copy. Then the innermost
    tile (tile_rows * pixels output pixels by vectors * lanes channels, all sums in registers) runs over the taps. The
    copy reads and writes each input element once for about 2 * taps * out_channels operations on it: 1 to 2 % of the
    time from 64 output channels on.

    Where dilation is wide and most taps of a pixel read padding (`far_taps`), tiles end where a tap begins or ceases to
    read the image, so that every tile does its own taps only: 3x3 of dilation 12 on 16x16 pixels is 2.25 taps a pixel.

    Kernel size, strides, dilations and pads are sizes, not constants: the copy splits the columns by their residue
    modulo the stride ("strands"). So they cost nothing in the tile, and one compiled kernel serves all layers of a
    model but the first. `w` is what `pack_weights` makes. For tile_rows > 1 without `far_taps`, out_width must be
    `pixels` and, unless `y_planes`, y_row out_width * y_pixel. To the epilogue, batch is the image and row out_row *
    out_width + out_column.
    """

    lanes: int
    pixels: int
    """Neighbouring output pixels of a row in a tile."""
    vectors: int
    """Vectors of output channels in a tile."""
    tile_rows: int = 1
    """Output rows in a tile, each of `pixels` pixels: small images need several to fill the registers."""
    layout: Layout = "blocked"
    """How scratch memory holds a row: "blocked" by CHANNEL_BLOCK channels (x_channel = 1, or x_planes); for few input
    channels "interleaved" as NHWC (x_channel = 1, column dilation 1) or "planar" as NCHW (any strides). These two sum
    all products of a tile in one loop, by a list of where inputs lie: with loops of 3 taps, 3x3 took 1.02 (strides of
    2) to 1.4 times as long."""
    step: int = CHANNEL_BLOCK
    """Elements of scratch memory between neighbouring output pixels: CHANNEL_BLOCK; interleaved: column stride *
    channels; planar: column stride."""
    tap_step: int = 1
    """Elements between taps that are summed in one go; planar: the column dilation, else 1."""
    far_taps: bool = False
    """Blocked only: tiles are cut as said above, and sum over all channels of a tap before the next tap. Else all taps
    of a block of channels come first, and find their pixels in L1; but where many taps are left out, weights are read
    in pieces."""
    merged_groups: int = 1
    """Groups that run as one with weights between them zero, for groups narrower than a vector."""
    l2_bytes: int = 1 << 20
    x_planes: bool = False
    """Blocked only: whether x lies in planes of pixels (x_pixel = 1), which the copy transposes."""
    y_planes: bool = False
    """Whether y lies in planes of pixels (y_pixel = 1): tiles are then collected in scratch memory, and from there
    transposed while they are in the first-level cache. Else y_channel is 1."""
    prefetch_distance: int = 0
    """How many steps ahead of their use weights are asked for, into the first-level cache; 0: not at all."""
    paced_prefetch: bool = False
    """If it `lists_blocks`: the tiles of a small image ask for the next block's weights at an even pace, in each step
    of their sums. The first of them would otherwise wait for all: 3x3 with strides of 2, 256 to 512 channels on 14 x 14
    pixels, takes 0.92 of the time so."""
    chained: bool = True
    """Whether a sum may have more than `tuning.SUM_STEPS` products: `_sums`."""
    rest: int = 0
    """Pixels of the narrower tiles that make the end of a row where two of them suffice; 0: there are none."""

    BUFFERS = ConvolutionBuffers
    SIZES = DirectSizes
    PRESCHEDULED = True

    @property
    def block(self) -> int:
        """Output channels of a tile."""
        return self.vectors * self.lanes

    @property
    def phases(self) -> tuple[int, int]:
        """Phases along rows and columns."""
        return 1, 1

    @property
    def lists_blocks(self) -> bool:
        """Whether the places of inputs in whole blocks of channels are listed, for one loop that sums their products.

        A loop of the 16 products of a tap takes 96 cycles with AVX2, and what stands around it 10 to 30: 3x3 with
        strides of 2 takes 0.74 to 0.9 of the time by a list. With AVX-512 it takes 224, and lists 0.97 to 1.16 times as
        long.
        """
        return self.layout == "blocked" and not self.far_taps and self.lanes < 16

    @property
    def spans_rows(self) -> bool:
        """Whether one tile may hold rows of different taps: rows of padding are then copied too, as zeros."""
        return self.tile_rows > 1 and not self.far_taps

    @property
    def asks_ahead(self) -> bool:
        """Whether tiles may ask for weights ahead of use: a block of 16 channels takes 448 cycles with 14 x 2 vectors
        of AVX-512, but 80 with 5 x 2 of AVX2, of which addresses for asking took 10, were anything asked or not."""
        return self.lanes >= 16

    # ------------------------------------------------------------ sizes

    def complete(self, sizes: Problem) -> DirectSizes:
        row_taps, column_taps = self._axes(sizes)
        taps = max(rows.taps for rows in row_taps) * max(columns.taps for columns in column_taps)
        groups = -(-sizes.groups // self.merged_groups)
        channels, outputs = (
            count // sizes.groups * self.merged_groups for count in (sizes.channels, sizes.out_channels)
        )
        output_blocks = -(-outputs // self.block)
        phases: list[int] = []
        weights, packed = 0, groups * output_blocks * self.block * channels
        for rows in row_taps:
            for columns in column_taps:
                phases += self._phase(rows, columns, weights)
                weights += packed * rows.taps * columns.taps
        return DirectSizes.following(
            sizes,
            group_count=groups,
            channels_in_group=channels,
            outputs_in_group=outputs,
            output_blocks=output_blocks,
            phases=phases,
            **self._blocking(sizes, joined(row_taps), joined(column_taps), taps, groups, channels, output_blocks),
        )

    def _axes(self, problem: Problem) -> tuple[list[Taps], list[Taps]]:
        """The phases along rows and along columns."""
        p = problem
        rows = Taps(p.kernel_height, -p.pad_top, p.stride_height, p.dilation_height, p.out_height)
        columns = Taps(p.kernel_width, -p.pad_left, p.stride_width, p.dilation_width, p.out_width)
        return [rows], [columns]

    def _blocking(
        self, problem: Problem, rows: Taps, columns: Taps, taps: int, groups: int, channels: int, output_blocks: int
    ) -> dict[str, int]:
        """How the convolution is cut up, by the names of `DirectSizes`.

        `rows` and `columns`: what all phases read; taps: of a phase, at most. groups, channels, output_blocks: groups
        after merging, the channels of one, and the blocks of its outputs.
        """
        blocks, depth, total = self._depths(problem, channels)
        strands = self._strands(problem, columns)
        block_pitch = (
            strands[0] * strands[2] * {"blocked": CHANNEL_BLOCK, "planar": 1, "interleaved": channels}[self.layout]
        )
        row_pitch, parts = block_pitch * blocks, self.phases[0] * output_blocks
        row_block = self._row_block(problem, problem.images * groups * parts, rows, row_pitch)
        row_blocks = -(-rows.outputs // row_block) if columns.outputs else 0
        asks = row_blocks == 1 or (self.prefetch_distance > 0 and not self.paced_prefetch and row_blocks > 1)
        chunk = self._chunk(problem, parts, row_block, channels)
        chunks = -(-parts // chunk)
        stage = -(-self._slots(problem, rows, row_block) * row_pitch // CHANNEL_BLOCK) * CHANNEL_BLOCK
        staged = self._staged(columns.outputs) if self.y_planes else (0, 0)
        places = stage + staged[0] * staged[1] * self.phases[1] * self.block
        listed = self._listed(columns, channels, taps, strands)
        listed_inputs = listed * taps * CHANNEL_BLOCK
        inputs = prod(self.phases) * listed_inputs if self.layout == "blocked" else problem.kernel_height * total
        return {
            "channel_blocks": blocks,
            "depth": depth,
            "total_depth": total,
            "chain": -(-tuning.SUM_STEPS // larger(taps * depth, 1)),
            "parts": parts,
            "strands": strands[0],
            "strand_first": strands[1],
            "strand_columns": strands[2],
            "strand_valid": strands[3],
            "block_pitch": block_pitch,
            "row_pitch": row_pitch,
            "rows_first": rows.lowest,
            "rows_step": rows.stride,
            "rows_reach": rows.reach,
            "rows": rows.outputs,
            "row_block": row_block,
            "row_blocks": row_blocks,
            "chunk": chunk,
            "chunks": chunks,
            "staged_rows": staged[0],
            "staged_columns": staged[1],
            "stage": stage,
            "places": places,
            "listed": listed,
            "listed_inputs": listed_inputs,
            "ahead": self._ahead(row_block, columns.outputs) if asks else 0,
            "tasks": problem.images * groups * row_blocks * chunks,
            "scratch_bytes": 4 * places + 8 * inputs,
        }

    def _depths(self, problem: Problem, channels: int) -> tuple[int, int, int]:
        """(channel_blocks, depth, total_depth) for a group of `channels`, merged ones counted together."""
        return {
            "blocked": (-(-channels // CHANNEL_BLOCK), CHANNEL_BLOCK, channels),
            "planar": (channels, problem.kernel_width, problem.kernel_width * channels),
            "interleaved": (1, problem.kernel_width * channels, problem.kernel_width * channels),
        }[self.layout]

    def _listed(self, columns: Taps, channels: int, taps: int, strands: tuple[int, int, int, int]) -> int:
        """`DirectSizes.listed`."""
        if not self.lists_blocks:
            return 0
        highest = self._highest(columns)
        inside = below(-(columns.lowest // columns.stride), self.pixels) * below(highest - strands[1] - strands[2], 0)
        return (
            smaller(channels // CHANNEL_BLOCK, larger(tuning.DIRECT_LISTED // (larger(taps, 1) * CHANNEL_BLOCK), 1))
            * inside
        )

    def _highest(self, columns: Taps) -> int:
        """The last place of a strand that a tile may read."""
        return (columns.lowest + columns.reach - 1) // columns.stride + columns.outputs + self.pixels - 2

    def _ahead(self, rows: int, columns: int) -> int:
        """`DirectSizes.ahead`: the few tiles of a small image, or of a task's rows where cores wait for their
        third-level cache, share out the next weights among them. A model's weights seldom stay in a near cache from run
        to run, and a CPU foresees what is read within a page of 4 KiB only."""
        tiles = -(-rows // self.tile_rows) * -(-columns // self.pixels)
        if self.paced_prefetch:
            return -(-self.block // larger(tiles, 1))
        most = 2 * tuning.DIRECT_SHARING_TILES if self.prefetch_distance else tuning.DIRECT_SHARING_TILES
        return self.block // tiles if self.asks_ahead and tiles <= most else 0

    def _staged(self, width: int) -> tuple[int, int]:
        """(rows, columns) of each phase that are collected before they are written as planes: whole tiles, in half of a
        first-level cache of 32 KiB, and if possible a multiple of 16 pixels, which are transposed as whole tiles."""
        across = self.phases[1]
        most = larger(tuning.DIRECT_STAGED_BYTES // 4 // self.block // across, self.pixels)
        if width > most:
            counts = range(self.pixels, most + 1, self.pixels)
            return 1, max(counts, key=lambda count: (count * across % 16 == 0, count))
        width = larger(width, 1)
        rows = range(self.tile_rows, larger(most // width, self.tile_rows) + 1, self.tile_rows)
        return max(rows, key=lambda count: (count * width % 16 == 0, count)), width

    def _phase(self, rows: Taps, columns: Taps, weights: int) -> Phase:
        taps = (columns.taps, *divmod(columns.first, columns.stride), *divmod(columns.dilation, columns.stride))
        return Phase(
            weights=weights,
            out_rows=rows.outputs,
            out_columns=columns.outputs,
            out_row_first=rows.out_first,
            out_row_step=rows.out_step,
            out_column_first=columns.out_first,
            out_column_step=columns.out_step,
            row_taps=rows.taps,
            row_first=rows.first,
            row_stride=rows.stride,
            row_dilation=rows.dilation,
            **by_name(
                "column_taps column_first column_residue column_step column_step_residue",
                taps if self.layout == "blocked" else (1, columns.lowest, 0, 0, 0),
            ),
        )

    def _strands(self, problem: Problem, columns: Taps) -> tuple[int, int, int, int]:
        """(strands, strand_first, strand_columns, strand_valid); without blocks of channels, columns are one strand.

        Tiles are `pixels` wide, the last one too. A tap that reads nothing valid in a tile is left out of it, so that
        no tile reads further than pixels - 1 away from what is valid: dilations as large as the image cost no memory.
        """
        if self.layout != "blocked":
            places = columns.span(-(-columns.outputs // self.pixels) * self.pixels)
            return 1, columns.lowest, places, places
        valid = -(-problem.width // columns.stride)
        first = larger(columns.lowest // columns.stride, 1 - self.pixels)
        count = smaller(self._highest(columns), valid + 2 * self.pixels - 2) - first + 1
        return columns.stride, first, larger(count, self.pixels), valid

    def _row_block(self, problem: Problem, others: int, rows: Taps, row_pitch: int) -> int:
        """Output rows of a task: their copy fills at most half of L2 (the weights of a block take the rest), and there
        are about 16 tasks (each for one of `others`), unless so few rows were left that most are copied twice.

        With far taps the copy may fill twice L2: the weights of all taps do not fit anyway, and a tile reads few bytes
        of the copy a multiply-add.
        """
        fitting = (self.l2_bytes // 2 // larger(4 * row_pitch, 1) - rows.reach) // rows.stride + 1
        if self.far_taps:
            copied = 2 * self.l2_bytes // larger(4 * row_pitch, 1)
            fitting = rows.outputs if copied >= problem.height else copied // larger(problem.kernel_height, 1)
        wanted = larger(-(-rows.outputs // -(-16 // larger(others, 1))), smaller(rows.reach, 4))
        block = larger(1, smaller(fitting, wanted, rows.outputs))
        if self.tile_rows > 1:
            return -(-block // self.tile_rows) * self.tile_rows
        return -(-rows.outputs // -(-rows.outputs // block)) if rows.outputs else 1

    def _chunk(self, problem: Problem, parts: int, rows: int, channels: int) -> int:
        """Parts of a task: one, or as many as make 1 MFLOP (about 10 µs)."""
        pixels = rows * problem.out_width
        taps = problem.kernel_height * problem.kernel_width * channels // (self.phases[0] * self.phases[1])
        return larger(1, smaller(parts, 1_000_000 // larger(2 * pixels * self.block * taps, 1)))

    def _slots(self, problem: Problem, rows: Taps, row_block: int) -> int:
        """Input rows that a task copies, at most."""
        span = rows.span(row_block)
        return span if self.spans_rows else smaller(span, problem.height)

    @property
    def size_count(self) -> int:
        return DirectSizes.WIDTH + prod(self.phases) * Phase.WIDTH

    def tasks(self, sizes: DirectSizes) -> int:
        return sizes.tasks

    def scratch_bytes(self, sizes: DirectSizes) -> int:
        return sizes.scratch_bytes

    def work(self, sizes: DirectSizes) -> Work:
        return _work(sizes, transposed=False)

    # ------------------------------------------------------------ weights

    def pack_weights(self, weights: np.ndarray, groups: int = 1) -> np.ndarray:
        """Weights [M, C / groups, kH, kW] as the kernel streams them, float32.

        [group][block of M][taps and channels in the order of the sums][M in block], zeros behind the last M of a group.
        """
        matrix = _merge_groups(np.asarray(weights, np.float32), groups, self.merged_groups)
        return self._pack_taps(matrix).reshape(-1)

    def _pack_taps(self, weights: np.ndarray) -> np.ndarray:
        """[groups, M, C, kH, kW] to [groups, blocks of M, sums, M in block]."""
        groups, outputs, channels, height, width = weights.shape
        taps, blocks = height * width, -(-outputs // self.block)
        packed = zeros(groups * blocks * taps * channels * self.block, np.float32)
        packed = packed.reshape(groups, blocks, taps * channels, self.block)
        deep = CHANNEL_BLOCK if self.layout == "blocked" and not self.far_taps else max(channels, 1)
        order = (0, 3, 2, 4, 1) if self.layout == "planar" else (0, 3, 4, 2, 1)
        for first in range(0, channels, deep):
            part = weights[:, :, first : first + deep].transpose(order)
            part = part.reshape(groups, taps * min(deep, channels - first), outputs)
            for b in range(blocks):
                columns = part[:, :, b * self.block : (b + 1) * self.block]
                packed[:, b, taps * first : taps * first + part.shape[1], : columns.shape[2]] = columns
        return packed


def _work(problem: Problem, *, transposed: bool) -> Work:
    p = problem
    x, y = p.images * p.height * p.width * p.channels, p.images * p.out_height * p.out_width * p.out_channels
    taps = p.kernel_height * p.kernel_width
    flops = 2 * taps * (x * p.out_channels if transposed else y * p.channels) // larger(p.groups, 1)
    return Work(flops, 4 * (x + y + taps * p.channels * p.out_channels // larger(p.groups, 1)))


def _merge_groups(weights: np.ndarray, groups: int, merged: int) -> np.ndarray:
    """[M, C / groups, kH, kW] to [groups / merged, M', C', kH, kW], block-diagonal over the groups that are merged."""
    outputs, channels, *kernel = weights.shape
    outputs //= groups
    split = weights.reshape(groups // merged, merged, outputs, channels, *kernel)
    if merged == 1:
        return split[:, 0]
    whole = np.zeros((groups // merged, merged, outputs, merged, channels, *kernel), np.float32)
    for m in range(merged):
        whole[:, m, :, m] = split[:, m]
    return whole.reshape(groups // merged, merged * outputs, merged * channels, *kernel)


@dataclass(frozen=True)
class TransposedSpec(DirectSpec):
    """ConvTranspose as stride_height * stride_width ordinary convolutions ("phases") of stride 1, outputs interleaved.

    SIZES are those of `DirectSpec`, kernel, strides, dilations and pads those of the ConvTranspose; out_height and
    out_width say all about output_padding and output_shape. The strides are fields, since they fix the number of
    phases.
    """

    strides: tuple[int, int] = (1, 1)

    @property
    def phases(self) -> tuple[int, int]:
        return self.strides

    def _axes(self, problem: Problem) -> tuple[list[Taps], list[Taps]]:
        p, (down, across) = problem, self.strides
        rows = [
            transposed_taps(phase, p.kernel_height, down, p.dilation_height, p.pad_top, p.out_height)
            for phase in range(down)
        ]
        columns = [
            transposed_taps(phase, p.kernel_width, across, p.dilation_width, p.pad_left, p.out_width)
            for phase in range(across)
        ]
        return rows, columns

    def work(self, sizes: DirectSizes) -> Work:
        return _work(sizes, transposed=True)

    def pack_weights(self, weights: np.ndarray, groups: int = 1, dilations: tuple[int, int] = (1, 1)) -> np.ndarray:
        """Weights [C, M / groups, kH, kW] as the kernel streams them: phase after phase, each as in `DirectSpec`."""
        weights = np.asarray(weights, np.float32)
        channels, outputs, height, width = weights.shape
        swapped = weights.reshape(groups, channels // groups, outputs, height, width).transpose(0, 2, 1, 3, 4)
        merged = _merge_groups(swapped.reshape(-1, channels // groups, height, width), groups, self.merged_groups)
        parts = []
        for p in range(self.strides[0]):
            row_taps = phase_taps(p, height, self.strides[0], dilations[0])
            for q in range(self.strides[1]):
                column_taps = phase_taps(q, width, self.strides[1], dilations[1])
                parts.append(self._pack_taps(merged[:, :, :, row_taps][..., column_taps]).reshape(-1))
        return np.concatenate(parts)


@dataclass(frozen=True)
class GroupedSpec(DirectSpec):
    """Conv in groups of as many output as input channels, 2 or more: a divisor of a vector's lanes.

    Beside CHANNEL_BLOCK output channels lie the input channels of the same numbers, and no others are read for them:
    so these are one group of `DirectSpec` (`merged_groups` says how many groups they are; the last may be fewer). For
    each channel of a group in turn, an input vector is permuted so that every lane holds that channel of its own
    group, and multiplied with all taps of a kernel row that read it. With 3 taps and 14 pixels 42 multiply-adds stand
    beside 16 permutations, and no product is of a zero. Therefore the kernel's columns are constants here.
    """

    group_width: int = 2
    """Input, and output, channels of a group."""
    columns: tuple[int, int, int] = (1, 1, 1)
    """They are the kernel size, stride and dilation along the rows."""

    @property
    def lists_blocks(self) -> bool:
        return False

    @property
    def readers(self) -> dict[int, list[tuple[int, int]]]:
        """Input columns that a row of a tile reads, from its first on: the output pixels and taps that do."""
        taps, stride, dilation = self.columns
        return readers(self.pixels, stride, taps, dilation)

    def _depths(self, problem: Problem, channels: int) -> tuple[int, int, int]:
        return 1, self.group_width, self.group_width

    def _strands(self, problem: Problem, columns: Taps) -> tuple[int, int, int, int]:
        """All places that any tap of a tile reads: none is left out."""
        first = columns.lowest // columns.stride
        tiles = -(-columns.outputs // self.pixels) * self.pixels
        last = (columns.lowest + columns.reach - 1) // columns.stride + tiles
        return columns.stride, first, last - first, -(-problem.width // columns.stride)

    def pack_weights(self, weights: np.ndarray, groups: int = 1) -> np.ndarray:
        """Weights [M, C / groups, kH, kW] as [block of M][kernel row][channel of the group][column][M in block]."""
        outputs, _, height, width = weights.shape
        merged = -(-groups // self.merged_groups)
        padded = np.zeros((merged * CHANNEL_BLOCK, *weights.shape[1:]), np.float32)
        padded[:outputs] = weights
        packed = padded.reshape(-1, self.lanes, self.group_width, height, width).transpose(0, 3, 2, 4, 1)
        return np.ascontiguousarray(packed).reshape(-1)


class DepthwiseSizes(Pixels):
    out_height: Size
    out_width: Size
    pad_top: Size
    pad_left: Size
    row_block: Size = computed()
    """Output rows of a task, whole tiles, for 0.25 MFLOP (3 to 5 µs) or more, and at most 64 tasks."""
    parts: Size = computed()
    """Tasks cut the channels into so many parts where the second-level cache does not hold the input rows of an output
    row: a thread does the rows of a part one after the other."""


@dataclass(frozen=True)
class DepthwiseSpec(KernelSpec):
    """Depthwise convolution: each channel on its own, vectors of channels, `rows` times `pixels` sums in registers.

    A task makes a block of output rows of one image, or of a part of its channels. Bounds of the image are looked at
    once a tile: tiles that the padding touches have a mask or a branch a column, the others none; rows outside are left
    out. Outputs of a tile are neighbours, or with dilation `steps` apart, so that they share inputs. The last tile of a
    row of neighbours and the last vector of a pixel overlap the one before where they would stand out. Weights are [kH
    * kW, channels]. To the epilogue, batch is the image and row out_row * out_width + out_column; an element may be
    made twice, by one task.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pixels: int
    rows: int = 1
    """Output rows of a tile: several find the rows they share in registers, and have all taps spelled out, where one
    has a loop over the rows of the kernel."""
    result: str = "float32"
    """float32 or bfloat16, which the epilogue gives then, as its bits."""

    BUFFERS = ConvolutionBuffers
    SIZES = DepthwiseSizes

    @property
    def prescheduled(self) -> bool:
        """Not with dilation, whose branches for each pixel then took 1.2 times as long."""
        return self.dilations == (1, 1)

    @property
    def steps(self) -> tuple[int, int]:
        """How far apart the outputs of a tile are: the least distance at which two taps meet in one input."""
        steps = [d // gcd(s, d) for s, d in zip(self.strides, self.dilations, strict=True)]
        return (steps[0] if self.rows > 1 else 1, steps[1])

    def complete(self, sizes: DepthwiseSizes) -> DepthwiseSizes:
        row_flops = larger(2 * sizes.out_width * sizes.channels * self.kernel[0] * self.kernel[1], 1)
        tasks = smaller(64, larger(1, sizes.images * sizes.out_height * row_flops // 250_000))
        far = 4 * self.kernel[0] * sizes.width * sizes.channels > tuning.DEPTHWISE_NEAR_BYTES
        parts = larger(1, sizes.channels // tuning.DEPTHWISE_PART_CHANNELS) if far else 1
        blocks = larger(1, -(-tasks // larger(sizes.images * parts, 1)))
        whole = self.rows * self.steps[0]
        row_block = larger(1, -(-sizes.out_height // (blocks * whole))) * whole
        return DepthwiseSizes.following(sizes, row_block=row_block, parts=parts)

    def tasks(self, sizes: DepthwiseSizes) -> int:
        blocks = -(-sizes.out_height // sizes.row_block)
        return sizes.images * sizes.parts * blocks if sizes.channels and sizes.out_width else 0

    def work(self, sizes: DepthwiseSizes) -> Work:
        return _depthwise_work(sizes, self.kernel)

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """Weights [C, 1, kH, kW] as [kH * kW, C], float32."""
        return np.ascontiguousarray(np.asarray(weights, np.float32).reshape(len(weights), -1).T)


class DepthwisePlanesSizes(PlanesToPlanes):
    pad_top: Size
    pad_left: Size
    row_block: Size = computed()
    """Output rows of a task, whole tiles."""


@dataclass(frozen=True)
class DepthwisePlanesSpec(KernelSpec):
    """Depthwise convolution of an image that lies in planes of pixels into such: vectors of pixels of a row.

    A task makes a block of rows of one plane, in tiles of `rows` by one vector: their sums stay in registers, and an
    input is loaded once for all of the tile's rows; where there are more weights than registers, once for each column
    of taps, whose weights then stay there. With a column stride of 2, two vectors are loaded and the elements picked.
    The last vector of a row overlaps the one before where it would stand out, or is half a vector (`halves`). Weights
    are [channels, kH * kW].
    To the epilogue, batch is the image, row the channel and column out_row * out_width + out_column; an element may be
    made twice, by one task.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    rows: int

    BUFFERS = ConvolutionBuffers
    SIZES = DepthwisePlanesSizes
    PRESCHEDULED = True

    def holds_weights(self, registers: int) -> bool:
        """Whether sums and the weights of all taps fit into so many registers."""
        return self.rows + self.kernel[0] * self.kernel[1] <= registers

    @staticmethod
    def halves(lanes: int) -> bool:
        """Whether half a vector may end a row: CPUs that split vectors of 64 bytes do it in half of the time. It is for
        many taps, of weights that are not held."""
        return 4 * lanes >= 64

    def reach(self, lanes: int) -> int:
        """Elements of a row from a vector's first input to the last that is loaded for it."""
        return (self.kernel[1] - 1) * self.dilations[1] + lanes * self.strides[1]

    def complete(self, sizes: DepthwisePlanesSizes) -> DepthwisePlanesSizes:
        blocks = -(-16 // larger(sizes.images * sizes.channels, 1))
        row_block = larger(1, -(-sizes.out_height // (blocks * self.rows))) * self.rows
        return DepthwisePlanesSizes.following(sizes, row_block=row_block)

    def tasks(self, sizes: DepthwisePlanesSizes) -> int:
        planes = sizes.images * sizes.channels
        return planes * -(-sizes.out_height // sizes.row_block) if sizes.out_width else 0

    def work(self, sizes: DepthwisePlanesSizes) -> Work:
        return _depthwise_work(sizes, self.kernel)

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """Weights [C, 1, kH, kW] as [C, kH * kW], float32."""
        return np.ascontiguousarray(np.asarray(weights, np.float32).reshape(len(weights), -1))


def _depthwise_work(sizes: DepthwiseSizes | DepthwisePlanesSizes, kernel: tuple[int, int]) -> Work:
    planes, channels = sizes.images * sizes.channels, sizes.channels
    x, y = planes * sizes.height * sizes.width, planes * sizes.out_height * sizes.out_width
    taps = kernel[0] * kernel[1]
    return Work(2 * y * taps, 4 * (x + y + taps * channels))
