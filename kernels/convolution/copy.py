"""The copy of input rows that a direct convolution works from: padded with zeros, in the layout that its spec names.

A row of scratch memory is `row_pitch` elements: for every block of channels (`block_pitch` elements) the strands one
after another, each of `strand_columns` places, of which place 0 is number `strand_first`. See `spec.DirectSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jitonnx.emit import types
from jitonnx.emit.builder import Pointer, larger, remainder, smaller
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.convolution.problem import CHANNEL_BLOCK
from jitonnx.kernels.convolution.sizes import Direct
from jitonnx.kernels.convolution.spec import DirectSpec
from jitonnx.kernels.transpose.tiles import copy_transposed


def emit_copy_rows(
    sizes: Direct,
    spec: DirectSpec,
    x: Pointer,
    rows: Pointer,
    channels: SSAValue,
    inputs: tuple[SSAValue, SSAValue],
    outputs: tuple[SSAValue, SSAValue],
) -> None:
    """Copy the input rows `inputs` (first, end) as far as output rows `outputs` (first, end) read them.

    `x` points at the first of `channels` channels of an image's group. Row i goes to rows[(i - first) * row_pitch];
    rows outside the image become zeros if the spec's tiles span rows, else their places are left as they are.
    """
    phase = sizes.code.integer(sizes.phase)
    sizes.code.subroutine(
        "copy_rows",
        [x, rows, channels, *inputs, *outputs, phase],
        lambda code, x, rows, channels, first, end, start, stop, phase: _Copy(Direct(code, phase), spec, channels).emit(
            x, rows, (first, end), (start, stop)
        ),
        inline=False,
    )


class _Copy:
    """Emits the copy in a function of its own."""

    def __init__(self, sizes: Direct, spec: DirectSpec, channels: SSAValue) -> None:
        self.sizes, self.code, self.spec, self.channels = sizes, sizes.code, spec, channels

    def emit(
        self, x: Pointer, rows: Pointer, inputs: tuple[SSAValue, SSAValue], outputs: tuple[SSAValue, SSAValue]
    ) -> None:
        code, sizes = self.code, self.sizes
        if not self.spec.x_planes:
            copy = {"blocked": self._blocked, "planar": self._planar, "interleaved": self._interleaved}
            self._rows(x, rows, inputs, outputs, sizes.row_pitch, copy[self.spec.layout])
            return
        # All rows of some planes, which follow each other in memory, before the next planes.
        with code.loop(sizes.channel_blocks) as block:
            active = smaller(self.channels - block * CHANNEL_BLOCK, CHANNEL_BLOCK)
            self._rows(
                *(x.at(block * CHANNEL_BLOCK * sizes.x_channel), rows.at(block * sizes.block_pitch), inputs, outputs),
                sizes.block_pitch,
                lambda source, target: self._block_of_planes(source, target, active),
            )

    def _rows(
        self,
        x: Pointer,
        rows: Pointer,
        inputs: tuple[SSAValue, SSAValue],
        outputs: tuple[SSAValue, SSAValue],
        size: SSAValue,
        copy: Callable[[Pointer, Pointer], None],
    ) -> None:
        """Each row by `copy`; those outside the image become `size` zeros, or stay as they are."""
        code, sizes = self.code, self.sizes
        with code.loop(inputs[1], inputs[0]) as row:
            target = rows.at((row - inputs[0]) * sizes.row_pitch)
            with code.if_else((row >= 0) & (row < sizes.height)) as (inside, outside):
                with inside, code.if_then(self._is_read(row, outputs)):
                    copy(x.at(row * sizes.x_row), target)
                with outside:
                    if self.spec.spans_rows:
                        self._fill(target, size)

    def _is_read(self, row: SSAValue, outputs: tuple[SSAValue, SSAValue]) -> SSAValue:
        """Whether one of the output rows has a tap on this input row; those of several phases read all."""
        if self.spec.phases != (1, 1):
            return self.code.integer(0) < 1
        code, sizes, found = self.code, self.sizes, self.code.variable(self.code.integer(0))
        span = (outputs[1] - outputs[0]) * sizes.row_stride
        with code.loop(sizes.row_taps) as tap:
            distance = row - sizes.row_first - tap * sizes.row_dilation - outputs[0] * sizes.row_stride
            with (
                code.if_then((distance >= 0) & (distance < span)),
                code.if_then(remainder(distance, sizes.row_stride).equals(0)),
            ):
                found.set(code.integer(1))
        return found.get().equals(1)

    def _strand_is_read(self, strand: SSAValue) -> SSAValue:
        """Whether a tap reads columns of this residue modulo the stride; phases have a single strand."""
        if self.spec.phases != (1, 1):
            return self.code.integer(0) < 1
        code, sizes, found = self.code, self.sizes, self.code.variable(self.code.integer(0))
        with code.loop(sizes.column_taps) as tap:
            residue = remainder(sizes.column_residue + tap * sizes.column_step_residue, sizes.strands)
            with code.if_then(residue.equals(strand)):
                found.set(code.integer(1))
        return found.get().equals(1)

    # ------------------------------------------------------------ layouts

    def _blocked(self, source: Pointer, target: Pointer) -> None:
        """[block of channels][strand][place][CHANNEL_BLOCK]: whole cache lines."""
        code, sizes = self.code, self.sizes
        places, strands = sizes.strand_columns, sizes.strands
        with code.loop(strands) as strand, code.if_then(self._strand_is_read(strand)):
            begin, end = self._valid_places((sizes.width - strand + strands - 1) / strands)
            pixel = strands * sizes.x_pixel
            column = source.at((sizes.strand_first + begin) * pixel + strand * sizes.x_pixel)
            with code.loop(sizes.channel_blocks) as block:
                channel = block * CHANNEL_BLOCK
                active = self.channels - channel
                block_target = target.at(block * sizes.block_pitch + strand * places * CHANNEL_BLOCK)
                pixels = (column.at(channel), block_target.at(begin * CHANNEL_BLOCK), pixel, end - begin)
                self._fill(block_target, begin * CHANNEL_BLOCK)
                with code.if_else(active >= CHANNEL_BLOCK) as (whole, part):
                    with whole:
                        self._copy_pixels(*pixels, None)
                    with part:
                        self._copy_pixels(*pixels, active)
                self._fill(block_target.at(end * CHANNEL_BLOCK), (places - end) * CHANNEL_BLOCK)

    def _block_of_planes(self, source: Pointer, target: Pointer, active: SSAValue) -> None:
        """One block of `active` channels from planes: the padding of each strand, then pixels as they come, whichever
        strand is theirs."""
        code, sizes = self.code, self.sizes
        places, strands, first = sizes.strand_columns, sizes.strands, sizes.strand_first
        start = larger(first, 0) * strands
        pixels = smaller(sizes.width, (first + places) * strands) - start
        with code.loop(strands) as strand:
            begin, end = self._valid_places((sizes.width - strand + strands - 1) / strands)
            strand_target = target.at(strand * places * CHANNEL_BLOCK)
            self._fill(strand_target, begin * CHANNEL_BLOCK)
            self._fill(strand_target.at(end * CHANNEL_BLOCK), (places - end) * CHANNEL_BLOCK)

        def targets(pixel: SSAValue) -> Iterator[Pointer]:
            place, strand = (pixel + start) / strands - first, remainder(pixel + start, strands)
            while True:
                yield target.at((strand * places + place) * CHANNEL_BLOCK)
                last = (strand + 1).equals(strands)
                place, strand = place + select(last, code.integer(1), 0), select(last, code.integer(0), strand + 1)

        copy_transposed(code, source.at(start), sizes.x_channel, targets, (active, pixels), 4 * self.spec.lanes)

    def _copy_pixels(
        self, source: Pointer, target: Pointer, step: SSAValue, count: SSAValue, active: SSAValue | None
    ) -> None:
        mask = None if active is None else self.code.active(active, CHANNEL_BLOCK)
        with self.code.loop(count) as i:
            target.store(i * CHANNEL_BLOCK, source.load(i * step, CHANNEL_BLOCK, mask))

    def _planar(self, source: Pointer, target: Pointer) -> None:
        """[channel][place]; any strides of x, fast where pixels lie side by side."""
        code, sizes = self.code, self.sizes
        begin, end = self._valid_places(sizes.width)
        with code.loop(self.channels) as channel:
            row = source.at(channel * sizes.x_channel + (sizes.strand_first + begin) * sizes.x_pixel)
            row_target = target.at(channel * sizes.block_pitch)
            self._fill(row_target, begin)
            with code.if_else(sizes.x_pixel.equals(1)) as (together, apart):
                with together:
                    self._run(row, row_target.at(begin), end - begin)
                with apart, code.loop(end - begin) as i:
                    row_target.store(begin + i, row.load(i * sizes.x_pixel))
            self._fill(row_target.at(end), sizes.strand_columns - end)

    def _interleaved(self, source: Pointer, target: Pointer) -> None:
        """[place][channel]: a row as it is."""
        code, sizes, channels = self.code, self.sizes, self.channels
        begin, end = self._valid_places(sizes.width)
        row, row_target = source.at((sizes.strand_first + begin) * sizes.x_pixel), target.at(begin * channels)
        self._fill(target, begin * channels)
        with code.if_else(sizes.x_pixel.equals(channels)) as (together, apart):
            with together:
                self._run(row, row_target, (end - begin) * channels)
            with apart, code.loop(end - begin) as i, code.loop(channels) as channel:
                row_target.store(i * channels + channel, row.load(i * sizes.x_pixel + channel))
        self._fill(target.at(end * channels), (sizes.strand_columns - end) * channels)

    # ------------------------------------------------------------ parts of a row

    def _valid_places(self, count: SSAValue) -> tuple[SSAValue, SSAValue]:
        """First and end of the places that hold elements 0 … count - 1 of a strand; the others are padding."""
        first, places = self.sizes.strand_first, self.sizes.strand_columns
        begin = smaller(larger(0 - first, 0), places)
        return begin, smaller(larger(count - first, begin), places)

    def _fill(self, target: Pointer, count: SSAValue) -> None:
        """target[:count] = 0."""
        lanes = self.spec.lanes
        zero = self.code.number(types.float32, 0, lanes)
        with self.code.loop(count, step=lanes) as i:
            target.store(i, zero, count - i)

    def _run(self, source: Pointer, target: Pointer, count: SSAValue) -> None:
        """target[:count] = source[:count]."""
        lanes = self.spec.lanes
        with self.code.loop(count, step=lanes) as i:
            target.store(i, source.load(i, lanes, count - i), count - i)
