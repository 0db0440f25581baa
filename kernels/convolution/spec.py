"""What the convolution kernels are, without compiling them: which kernel for which layer, its arguments, packed weights.

Activations are float32 in NHWC: element (n, h, w, c) of x lies at n * x_image + h * x_row + w * x_pixel + c * x_channel,
and y's likewise with y_channel = 1. Convolutions over one axis have height 1. Weights come as ONNX has them.

Three kinds of kernel: `DirectSpec` for ONNX's Conv, any of it; `TransposedSpec` for ConvTranspose; `DepthwiseSpec` for a
Conv with as many groups as input and output channels. `choose_convolution` and `choose_transposed` pick one. An algorithm
that joins (Winograd) is another KernelSpec that `choose_convolution` returns where it costs less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

import numpy as np

from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.target import Target

CHANNEL_BLOCK = 16
"""Input channels that lie side by side in a direct convolution's scratch memory: one cache line."""


class Problem(NamedTuple):
    """The sizes of a direct or transposed convolution that the planner gives. Channels are those of all groups."""

    images: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    groups: int
    kernel_height: int
    kernel_width: int
    stride_height: int
    stride_width: int
    dilation_height: int
    dilation_width: int
    pad_top: int
    pad_left: int
    x_image: int
    x_row: int
    x_pixel: int
    x_channel: int
    y_image: int
    y_row: int
    y_pixel: int


class Blocking(NamedTuple):
    """How a direct convolution is cut up, whatever the phase."""

    groups: int
    """Groups after merging; the channels and outputs that follow are one group's."""
    channels: int
    outputs: int
    channel_blocks: int
    """Blocks of a copied row: of channels if "blocked", single channels if "planar", 1 if "interleaved"."""
    depth: int
    """Products that the tile sums in one go: CHANNEL_BLOCK, kernel_width, or kernel_width * channels."""
    total_depth: int
    """The sum of the depths of all blocks: the last one may be shorter."""
    output_blocks: int
    chunk: int
    """Output blocks of a task."""
    chunks: int
    tasks: int
    scratch_bytes: int


class Phase(NamedTuple):
    """An ordinary convolution on part of the output: all of it for Conv, every stride-th row and column for ConvTranspose.

    Output row t of the phase is row `out_row_first + t * out_row_step` of y; its tap k reads input row `row_first +
    t * row_stride + k * row_dilation`. Columns alike, but in strands: tap k of output column t reads number
    floor((first + k * dilation) / stride) + t of the strand of that residue modulo the stride. The kernel goes from tap to
    tap by adding: column_first and column_residue are tap 0's, column_step and column_step_residue what is added.
    """

    first_task: int
    weights: int
    """Where its packed weights start."""
    out_rows: int
    out_columns: int
    out_row_first: int
    out_row_step: int
    out_column_first: int
    out_column_step: int
    row_taps: int
    row_first: int
    row_stride: int
    row_dilation: int
    column_taps: int
    column_first: int
    column_residue: int
    column_step: int
    column_step_residue: int
    strands: int
    strand_first: int
    """Place 0 of a strand holds its element of this number (negative: padding)."""
    strand_columns: int
    """Places of a strand."""
    strand_valid: int
    """Elements of the longest strand: a tap that lies behind them, or before 0, in all of a tile is left out."""
    block_pitch: int
    row_pitch: int
    row_block: int
    """Output rows of a task."""
    row_blocks: int


@dataclass(frozen=True)
class _Taps:
    """Taps along one axis: output t reads input `first + t * stride + tap * dilation`; it is output `out_first + t * out_step`."""

    taps: int
    first: int
    stride: int
    dilation: int
    outputs: int
    out_first: int = 0
    out_step: int = 1

    @property
    def lowest(self) -> int:
        """The smallest input index of output 0."""
        return self.first + min(0, (self.taps - 1) * self.dilation)

    @property
    def reach(self) -> int:
        """Input indices from the smallest to the largest that one output reads, both counted."""
        return max(self.taps - 1, 0) * abs(self.dilation) + 1

    def span(self, outputs: int) -> int:
        """Input indices from the first to the last that `outputs` neighbouring outputs read."""
        return max(outputs - 1, 0) * self.stride + self.reach


def _transposed_taps(phase: int, size: int, stride: int, dilation: int, pad: int, outputs: int) -> tuple[_Taps, list[int]]:
    """The outputs o of a transposed convolution with (o + pad) % stride == phase, as an ordinary convolution, and its taps.

    y[o] = Σ_k x[(o + pad - k * dilation) / stride] w[k] over the k that divide. With o = t' * stride + phase - pad and
    k * dilation = phase + stride * m this reads x[t' - m]: k runs in steps of stride / g, m in steps of dilation / g,
    g = gcd(stride, dilation).
    """
    common = gcd(stride, dilation)
    taps = [k for k in range(size) if k * dilation % stride == phase]
    start = -((phase - pad) // stride)  # the smallest t' with o >= 0
    first_output = start * stride + phase - pad
    count = max(0, -((first_output - outputs) // stride))
    shift = (taps[0] * dilation - phase) // stride if taps else 0
    return _Taps(len(taps), start - shift, 1, -(dilation // common), count, first_output, stride), taps


@dataclass(frozen=True)
class DirectSpec(KernelSpec):
    """Convolution as a GEMM over shifted rows of pixels, for every kernel size, stride, dilation, padding and group.

    A task makes a block of output rows of one image (and group) for one block of output channels. The input rows it needs
    are first copied to scratch memory in a form in which neighbouring output pixels are `step` elements apart, a constant,
    with zeros for the padding; tasks that follow each other on a thread share the copy. Then the innermost tile
    (`tile_rows` × `pixels` output pixels by `vectors` × `lanes` channels, all sums in registers) runs over the taps.
    The copy reads and writes each input element once for about 2 * taps * out_channels operations on it: 1 to 2 % of
    the time from 64 output channels on.

    Kernel size, strides, dilations and pads are sizes, not constants: the copy splits the columns by their residue modulo
    the stride ("strands"), so they cost nothing in the tile, and one compiled kernel serves all layers of a model but
    the first. BUFFERS are the kernel's, weights as `pack_weights` makes them. For tile_rows > 1, y_row must be
    out_width * y_pixel.
    """

    lanes: int
    pixels: int
    """Neighbouring output pixels of a row in a tile."""
    vectors: int
    """Vectors of output channels in a tile."""
    tile_rows: int = 1
    """Output rows in a tile, each of `pixels` pixels: small images need several to fill the registers."""
    layout: str = "blocked"
    """How scratch memory holds a row: "blocked" by CHANNEL_BLOCK channels (x_channel = 1); for few input channels
    "interleaved" as NHWC (x_channel = 1, column dilation 1) or "planar" as NCHW (any strides)."""
    step: int = CHANNEL_BLOCK
    """Elements of scratch memory between neighbouring output pixels: CHANNEL_BLOCK; interleaved: column stride *
    channels; planar: column stride."""
    tap_step: int = 1
    """Elements between taps that are summed in one go; planar: the column dilation, else 1."""
    merged_groups: int = 1
    """Groups that run as one with weights between them zero, for groups narrower than a vector."""
    l2_bytes: int = 1 << 20

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "w", "y")
    SIZES: ClassVar[tuple[str, ...]] = (
        *("images", "height", "width", "channels", "out_height", "out_width", "out_channels", "groups"),
        *("kernel_height", "kernel_width", "stride_height", "stride_width", "dilation_height", "dilation_width"),
        *("pad_top", "pad_left", "x_image", "x_row", "x_pixel", "x_channel", "y_image", "y_row", "y_pixel"),
    )
    DERIVED: ClassVar[tuple[str, ...]] = (
        *("group_count", "group_channels", "group_outputs", "blocks", "depth", "output_blocks", "chunk", "chunks", "tasks"),
        *("scratch_bytes",),
    )
    """What `complete` appends, followed by the PHASE record of each phase."""

    @property
    def block(self) -> int:
        """Output channels of a tile."""
        return self.vectors * self.lanes

    @property
    def phases(self) -> int:
        return 1

    # ------------------------------------------------------------ sizes

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """SIZES, then DERIVED, then the PHASE records: geometry of the copies, blocks and tasks."""
        size = dict(zip(self.SIZES, sizes, strict=True))
        groups = size["groups"] // self.merged_groups
        channels, outputs = size["channels"] // max(groups, 1), size["out_channels"] // max(groups, 1)
        blocks = {"blocked": -(-channels // CHANNEL_BLOCK), "planar": channels, "interleaved": 1}[self.layout]
        depth = {"blocked": CHANNEL_BLOCK, "planar": size["kernel_width"], "interleaved": channels * size["kernel_width"]}
        output_blocks = -(-outputs // self.block)
        geometry = [self._geometry(size, channels, blocks, rows, columns) for rows, columns, _ in self._phases(size)]
        shares = [self._row_share(size, groups * output_blocks, rows, columns, g[-2]) for (rows, columns, _), g in
                  zip(self._phases(size), geometry, strict=True)]  # fmt: skip
        chunk = self._chunk(size, channels, output_blocks, max((share for share in shares), default=1))
        chunks = -(-output_blocks // chunk)
        records, tasks, weights, scratch = [], 0, 0, 0
        for (rows, columns, _), shape, share in zip(self._phases(size), geometry, shares, strict=True):
            row_blocks = -(-rows.outputs // share) if columns.outputs else 0
            column_taps = columns.taps if self.layout == "blocked" else min(columns.taps, 1)
            first, residue = (columns.first // columns.stride, columns.first % columns.stride)
            step, step_residue = (columns.dilation // columns.stride, columns.dilation % columns.stride)
            if self.layout != "blocked":
                first = residue = step = step_residue = 0
            records += [
                *(tasks, weights, rows.outputs, columns.outputs),
                *(rows.out_first, rows.out_step, columns.out_first, columns.out_step),
                *(rows.taps, rows.first, rows.stride, rows.dilation),
                *(column_taps, first, residue, step, step_residue),
                *shape,
                *(share, row_blocks),
            ]
            tasks += row_blocks * size["images"] * groups * chunks if outputs else 0
            weights += rows.taps * columns.taps * channels * groups * output_blocks * self.block
            slots = rows.span(share) if self.tile_rows > 1 else min(rows.span(share), size["height"])
            scratch = max(scratch, 4 * slots * shape[-1])
        derived = (groups, channels, outputs, blocks, depth[self.layout], output_blocks, chunk, chunks, tasks, scratch)
        return [*sizes, *derived, *records]

    def _phases(self, size: dict[str, int]) -> Iterator[tuple[_Taps, _Taps, tuple[list[int], list[int]]]]:
        """Rows, columns, and the taps of the kernel they use, of each phase."""
        axes = [
            _Taps(size[f"kernel_{a}"], -size[f"pad_{p}"], size[f"stride_{a}"], size[f"dilation_{a}"], size[f"out_{a}"])
            for a, p in (("height", "top"), ("width", "left"))
        ]
        yield axes[0], axes[1], (list(range(axes[0].taps)), list(range(axes[1].taps)))

    def _geometry(self, size: dict[str, int], channels: int, blocks: int, rows: _Taps, columns: _Taps) -> tuple[int, ...]:
        """(strands, strand_first, strand_columns, strand_valid, block_pitch, row_pitch) of the copied rows.

        blocked: strand s holds columns s, s + stride, …; place 0 is number `strand_first` of them, and `strand_valid` is how
        many there are at most. A tile never reads a strand further than pixels - 1 from what is valid, since taps that
        lie outside altogether are skipped. Otherwise a row is one strand that starts at the first column read.
        """
        tiles = -(-columns.outputs // self.pixels) * self.pixels
        if self.layout != "blocked":
            width = columns.span(tiles) * (channels if self.layout == "interleaved" else 1)
            return 1, columns.lowest, columns.span(tiles), columns.span(tiles), width, width * blocks
        stride = columns.stride
        valid = -(-size["width"] // stride)
        first = max(columns.lowest // stride, 1 - self.pixels)
        last = min((columns.lowest + columns.reach - 1) // stride + tiles - 1, valid + self.pixels - 2)
        count = max(last - first + 1, self.pixels)
        pitch = stride * count * CHANNEL_BLOCK
        return stride, first, count, valid, pitch, pitch * blocks

    def _row_share(self, size: dict[str, int], parallel: int, rows: _Taps, columns: _Taps, block_pitch: int) -> int:
        """Output rows of a task: the copied rows fill at most half of L2 (the weights of a block take the rest), and there
        are about 16 tasks, as long as the rows copied twice at the blocks' borders stay few."""
        channels = size["channels"] // max(size["groups"] // self.merged_groups, 1)
        blocks = {"blocked": -(-channels // CHANNEL_BLOCK), "planar": channels, "interleaved": 1}[self.layout]
        row_bytes = max(4 * block_pitch * blocks, 1)
        fitting = (self.l2_bytes // 2 // row_bytes - rows.reach) // rows.stride + 1
        wanted_blocks = -(-16 // max(parallel * size["images"] * self.phases, 1))
        share = min(fitting, max(-(-rows.outputs // wanted_blocks), min(rows.reach, 4)))
        if self.tile_rows > 1:
            share = -(-share // self.tile_rows) * self.tile_rows
        share = max(min(share, rows.outputs), 1)
        return -(-rows.outputs // -(-rows.outputs // share)) if rows.outputs and self.tile_rows == 1 else share

    def _chunk(self, size: dict[str, int], channels: int, output_blocks: int, rows: int) -> int:
        """Blocks of output channels in a task: one, or as many as make 1 MFLOP (about 10 µs)."""
        flops = 2 * rows * size["out_width"] * self.block * channels * size["kernel_height"] * size["kernel_width"]
        return max(1, min(output_blocks, 1_000_000 * self.phases // max(flops, 1)))

    def _derived(self, sizes: Sequence[int], name: str) -> int:
        return sizes[len(self.SIZES) + self.DERIVED.index(name)]

    def tasks(self, sizes: Sequence[int]) -> int:
        return self._derived(sizes, "tasks")

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        return self._derived(sizes, "scratch_bytes")

    def work(self, sizes: Sequence[int]) -> Work:
        size = dict(zip(self.SIZES, sizes, strict=False))
        taps = size["kernel_height"] * size["kernel_width"] * size["channels"] // max(size["groups"], 1)
        y = size["images"] * size["out_height"] * size["out_width"] * size["out_channels"]
        x = size["images"] * size["height"] * size["width"] * size["channels"]
        return Work(2 * y * taps, 4 * (x + y + taps * size["out_channels"]))

    # ------------------------------------------------------------ weights

    def pack_weights(self, weights: np.ndarray, groups: int = 1) -> np.ndarray:
        """Weights [M, C / groups, kH, kW] as the kernel streams them, float32.

        [group][block of M][taps and channels, in the order of the sums][M in block], zeros behind the last M of a group.
        """
        matrix = _merge_groups(np.asarray(weights, np.float32), groups, self.merged_groups)
        return self._pack_taps(matrix).reshape(-1)

    def _pack_taps(self, weights: np.ndarray) -> np.ndarray:
        """[groups, M, C, kH, kW] to [groups, blocks of M, sums, M in block]."""
        groups, outputs, channels, height, width = weights.shape
        orders = {"planar": (0, 2, 3, 4, 1), "interleaved": (0, 3, 4, 2, 1)}
        if self.layout != "blocked":
            rows = weights.transpose(orders[self.layout]).reshape(groups, -1, outputs)
        else:
            cuts = [slice(c, c + CHANNEL_BLOCK) for c in range(0, channels, CHANNEL_BLOCK)]
            parts = [weights[:, :, cut].transpose(0, 3, 4, 2, 1).reshape(groups, -1, outputs) for cut in cuts]
            rows = np.concatenate(parts, axis=1) if parts else np.zeros((groups, 0, outputs), np.float32)
        blocks = -(-outputs // self.block)
        packed = np.zeros((groups, blocks, rows.shape[1], self.block), np.float32)
        for b in range(blocks):
            part = rows[:, :, b * self.block : (b + 1) * self.block]
            packed[:, b, :, : part.shape[2]] = part
        return packed


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
    """ConvTranspose as stride_height * stride_width ordinary convolutions ("phases") of stride 1 with interleaved outputs.

    SIZES are those of `DirectSpec`, kernel, strides, dilations and pads those of the ConvTranspose; out_height and out_width
    say all about output_padding and output_shape. The strides are fields, since they fix the number of phases.
    """

    strides: tuple[int, int] = (1, 1)

    @property
    def phases(self) -> int:
        return self.strides[0] * self.strides[1]

    def _phases(self, size: dict[str, int]) -> Iterator[tuple[_Taps, _Taps, tuple[list[int], list[int]]]]:
        for p in range(self.strides[0]):
            rows, row_taps = _transposed_taps(
                *(p, size["kernel_height"], self.strides[0], size["dilation_height"], size["pad_top"], size["out_height"])
            )
            for q in range(self.strides[1]):
                columns, column_taps = _transposed_taps(
                    *(q, size["kernel_width"], self.strides[1], size["dilation_width"], size["pad_left"], size["out_width"])
                )
                yield rows, columns, (row_taps, column_taps)

    def work(self, sizes: Sequence[int]) -> Work:
        size = dict(zip(self.SIZES, sizes, strict=False))
        taps = size["kernel_height"] * size["kernel_width"] * size["out_channels"] // max(size["groups"], 1)
        y = size["images"] * size["out_height"] * size["out_width"] * size["out_channels"]
        x = size["images"] * size["height"] * size["width"] * size["channels"]
        return Work(2 * x * taps, 4 * (x + y + taps * size["channels"]))

    def pack_weights(self, weights: np.ndarray, groups: int = 1, dilations: tuple[int, int] = (1, 1)) -> np.ndarray:
        """Weights [C, M / groups, kH, kW] as the kernel streams them: phase after phase, each as `DirectSpec` has it."""
        weights = np.asarray(weights, np.float32)
        channels, outputs, height, width = weights.shape
        swapped = weights.reshape(groups, channels // groups, outputs, height, width).transpose(0, 2, 1, 3, 4)
        merged = _merge_groups(swapped.reshape(-1, channels // groups, height, width), groups, self.merged_groups)
        parts = []
        for p in range(self.strides[0]):
            row_taps = [k for k in range(height) if k * dilations[0] % self.strides[0] == p]
            for q in range(self.strides[1]):
                column_taps = [k for k in range(width) if k * dilations[1] % self.strides[1] == q]
                parts.append(self._pack_taps(merged[:, :, :, row_taps][..., column_taps]).reshape(-1))
        return np.concatenate(parts)


@dataclass(frozen=True)
class DepthwiseSpec(KernelSpec):
    """Depthwise convolution: each channel on its own, vectors of channels, `pixels` neighbouring pixels in registers.

    A task makes a block of output rows of one image. Bounds of the image are looked at once a tile: tiles that the padding
    touches have a branch a column, the others none; rows outside are left out. The last tile of a row and the last vector
    of a pixel overlap the one before where they would stand out. Weights are [kH * kW, channels].
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pixels: int

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "w", "y")
    SIZES: ClassVar[tuple[str, ...]] = (
        *("images", "height", "width", "channels", "out_height", "out_width", "pad_top", "pad_left"),
        *("x_image", "x_row", "x_pixel", "y_image", "y_row", "y_pixel"),
    )
    DERIVED: ClassVar[tuple[str, ...]] = ("row_block",)

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """SIZES, then row_block: output rows of a task, for about 0.5 MFLOP (5 µs) or more, and at most 64 tasks."""
        images, _, _, channels, height, width, *_ = sizes
        row_flops = max(2 * width * channels * self.kernel[0] * self.kernel[1], 1)
        tasks = min(64, max(1, images * height * row_flops // 500_000))
        blocks = max(1, -(-tasks // max(images, 1)))
        return [*sizes, max(1, -(-height // blocks))]

    def tasks(self, sizes: Sequence[int]) -> int:
        images, _, _, channels, height, width, *_ = sizes
        return images * -(-height // sizes[len(self.SIZES)]) if channels and width else 0

    def work(self, sizes: Sequence[int]) -> Work:
        images, height, width, channels, out_height, out_width, *_ = sizes
        x, y = (images * h * w * channels for h, w in ((height, width), (out_height, out_width)))
        taps = self.kernel[0] * self.kernel[1]
        return Work(2 * y * taps, 4 * (x + y + taps * channels))

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """Weights [C, 1, kH, kW] as [kH * kW, C], float32."""
        return np.ascontiguousarray(np.asarray(weights, np.float32).reshape(len(weights), -1).T)
