"""The direct and the transposed convolution, as `spec.DirectSpec` describes them.

The loops, outermost first:

    for each task                              a block of output rows of an image, a chunk of output channels
        copy the input rows, unless the last task did
        for each block of output channels      its weights stay in the second-level cache
            for each tile of the rows          a function of its own
                for each block of input channels, row tap, column tap, channel of the block: sums in registers
                or, of few channels, for each of a list of inputs
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, Variable, larger, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.instructions import reordered
from jitonnx.emit.ssa import SSAValue, fma, select
from jitonnx.kernels.convolution import depthwise, narrow, planes, winograd
from jitonnx.kernels.convolution.copy import emit_copy_rows
from jitonnx.kernels.convolution.narrow_spec import NarrowSpec
from jitonnx.kernels.convolution.problem import CHANNEL_BLOCK, ConvolutionBuffers, Problem
from jitonnx.kernels.convolution.sizes import Direct
from jitonnx.kernels.convolution.spec import DepthwisePlanesSpec, DepthwiseSpec, DirectSpec, GroupedSpec, WinogradSpec
from jitonnx.kernels.parts.microkernel import (
    Panel,
    Rows,
    TileResult,
    emit_accumulate,
    emit_finish,
    emit_prefetch,
    emit_prefetch_result,
    in_chains,
    room_for,
)
from jitonnx.kernels.spec import KernelSpec
from jitonnx.kernels.transpose.tiles import copy_transposed, evenly
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning

_I32, _I64 = llvm_ir.IntType(32), llvm_ir.IntType(64)
_LINE = 16
"""Elements of a cache line."""
_Range = tuple[SSAValue, SSAValue]
"""First and end."""


def build(spec: KernelSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of any spec of this family, for vectors of `lanes` float32."""
    if isinstance(spec, DepthwiseSpec):
        return depthwise.build(spec, lanes, epilogue)
    if isinstance(spec, DepthwisePlanesSpec):
        return planes.build(spec, lanes, epilogue)
    if isinstance(spec, NarrowSpec):
        return narrow.build(spec, lanes, epilogue)
    if isinstance(spec, WinogradSpec) and spec.lanes == lanes:
        return winograd.build(spec, epilogue)
    if not isinstance(spec, DirectSpec) or spec.lanes != lanes:
        raise ValueError(f"Bug: {spec} has no convolution kernel with {lanes} lanes")
    return lambda code, begin, end: _Direct(code, spec, Epilogue(code, epilogue, types.float32, lanes)).emit(begin, end)


class _Direct:
    """Emits the loop over tasks."""

    def __init__(self, code: KernelBuilder, spec: DirectSpec, epilogue: Epilogue) -> None:
        self.code, self.spec, self.epilogue = code, spec, epilogue
        self.x, self.w, self.y = code.buffers(ConvolutionBuffers, types.float32)
        self.scratch = code.scratch(types.float32)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        held, sizes = self.code.variable(self.code.integer(-1)), Direct(self.code, 0)
        if self.spec.layout != "blocked":
            self._list_places(sizes)
        elif self.spec.lists_blocks:
            with self.code.loop(self.spec.phases[0] * self.spec.phases[1]) as phase:
                self._list_places_of_blocks(Direct(self.code, phase))
        with self.code.loop(end, begin) as task:
            strip, place = remainder(task, sizes.chunks), task / sizes.chunks
            start = remainder(place, sizes.row_blocks) * sizes.row_block
            stop = smaller(start + sizes.row_block, sizes.rows)
            outer = place / sizes.row_blocks
            image, group = outer / sizes.group_count, remainder(outer, sizes.group_count)
            first, end_row = self._input_rows(sizes, start, stop)
            with self.code.if_then(~place.equals(held.get())):
                held.set(place)
                channel = group * sizes.channels_in_group
                source = self.x.at(image * sizes.x_image + channel * sizes.x_channel)
                own = smaller(sizes.channels_in_group, sizes.channels - channel)
                emit_copy_rows(sizes, self.spec, source, self.scratch, own, (first, end_row), (start, stop))
            self._task(sizes, strip, image, group, (first, start, stop))

    def _list_places(self, sizes: Direct) -> None:
        """List where the inputs of a pixel lie, in the order of the weights, from its first one on."""
        code, depth = self.code, sizes.depth
        places = _places_list(sizes)
        with code.loop(sizes.row_taps) as row_tap, code.loop(sizes.channel_blocks) as part, code.loop(depth) as i:
            place = row_tap * sizes.row_dilation * sizes.row_pitch + part * sizes.block_pitch + i * self.spec.tap_step
            places.store(row_tap * sizes.total_depth + part * depth + i, place)

    def _list_places_of_blocks(self, sizes: Direct) -> None:
        """List where the inputs of a pixel lie, of some whole blocks of channels, from number 0 of strand 0 on the row
        of its first tap on."""
        code, places, count = self.code, _places_list(sizes), self.code.variable(self.code.integer(0))
        with code.loop(sizes.listed) as part, code.loop(sizes.row_taps) as row_tap:
            row = part * sizes.block_pitch + row_tap * sizes.row_dilation * sizes.row_pitch
            with _column_taps(sizes) as (_, number, residue):
                first = row + (residue * sizes.strand_columns + number) * CHANNEL_BLOCK
                with code.loop(CHANNEL_BLOCK) as i:
                    places.store(count.get() + i, first + i)
                count.set(count.get() + CHANNEL_BLOCK)

    def _input_rows(self, sizes: Direct, start: SSAValue, stop: SSAValue) -> tuple[SSAValue, SSAValue]:
        """(first, end) of the input rows that outputs start … stop - 1 read: in the image, unless tiles span rows."""
        first = sizes.rows_first + start * sizes.rows_step
        end = sizes.rows_first + (stop - 1) * sizes.rows_step + sizes.rows_reach
        return (first, end) if self.spec.spans_rows else (larger(first, 0), smaller(end, sizes.height))

    def _task(
        self,
        sizes: Direct,
        strip: SSAValue,
        image: SSAValue,
        group: SSAValue,
        rows: tuple[SSAValue, SSAValue, SSAValue],
    ) -> None:
        first, start, stop = rows
        block, (_, across) = self.spec.block, self.spec.phases
        data = self.scratch.at(first * sizes.row_pitch * -1)
        begin = strip * sizes.chunk
        with self.code.loop(smaller(begin + sizes.chunk, sizes.parts), begin) as part:
            number, down = remainder(part, sizes.output_blocks), part / sizes.output_blocks
            column = group * sizes.outputs_in_group + number * block
            active = smaller(sizes.outputs_in_group - number * block, sizes.out_channels - column)
            # Outputs of narrow groups read the channels of their own number.
            source = data.at(number * block) if isinstance(self.spec, GroupedSpec) else data
            y = self.y.at(image * sizes.y_image + column * sizes.y_channel)
            place, panel = (image, column, active), group * sizes.output_blocks + number
            of_row = Direct(self.code, 0 if self.spec.phases == (1, 1) else down * across)
            row_range = (start, smaller(stop, of_row.out_rows))
            if self.spec.y_planes:
                self._planes(of_row, (source, panel, y), place, row_range)
            else:
                with self._columns(of_row) as phase:
                    pitches = (phase.out_row_step * phase.y_row, phase.out_column_step * phase.y_pixel)
                    target = y.at(phase.out_row_first * phase.y_row + phase.out_column_first * phase.y_pixel)
                    columns = (self.code.integer(0), phase.out_columns)
                    pointers = (source, self._panel(phase, panel), target, y)
                    self._tiles(phase, pointers, pitches, place, row_range, columns)

    @contextmanager
    def _columns(self, of_row: Direct) -> Iterator[Direct]:
        """The sizes of each phase along the columns, given those of the first one."""
        if self.spec.phases == (1, 1):
            yield of_row
            return
        with self.code.loop(self.spec.phases[1]) as across:
            yield Direct(self.code, of_row.phase + across)

    def _panel(self, phase: Direct, number: SSAValue) -> Pointer:
        """The packed weights of output block `number` of all groups."""
        products = phase.total_depth * phase.row_taps * phase.column_taps * self.spec.block
        return self.w.at(phase.weights + number * products)

    def _planes(
        self,
        of_row: Direct,
        operands: tuple[Pointer, SSAValue, Pointer],
        place: tuple[SSAValue, SSAValue, SSAValue],
        rows: _Range,
    ) -> None:
        """Output rows of one block of channels, by way of scratch memory to planes at y. Scratch memory holds the
        columns of all phases as y has them; rows of one phase lie apart in y."""
        data, panel, y = operands
        block, across, stage = self.spec.block, self.spec.phases[1], self.scratch.at(of_row.stage)
        with self._pieces(of_row, *rows) as (piece, columns):
            first, end = columns[0] * across, smaller(columns[1] * across, of_row.out_width)
            pitches = ((end - first) * block, self.code.integer(block * across))
            origin = stage.at((piece[0] * (end - first) + first) * -block)
            with self._columns(of_row) as phase:
                target = origin.at(phase.out_column_first * block) if across > 1 else origin
                here = (columns[0], smaller(columns[1], phase.out_columns))
                self._tiles(phase, (data, self._panel(phase, panel), target, y), pitches, place, piece, here)
            target = y.at(of_row.out_row_first * of_row.y_row + piece[0] * of_row.out_row_step * of_row.y_row + first)
            row_step = of_row.out_row_step * of_row.y_row
            self._write_planes(stage, target, place[2], (piece[1] - piece[0], end - first), row_step)

    @contextmanager
    def _pieces(self, sizes: Direct, start: SSAValue, stop: SSAValue) -> Iterator[tuple[_Range, _Range]]:
        """The rows start … stop - 1 and the columns of all phases in pieces that scratch memory has room for; the last
        columns may be more than there are."""
        code, across = self.code, self.spec.phases[1]
        with (
            code.loop(stop, start, sizes.staged_rows) as row,
            code.loop((sizes.out_width + across - 1) / code.integer(across), 0, sizes.staged_columns) as column,
        ):
            yield (row, smaller(row + sizes.staged_rows, stop)), (column, column + sizes.staged_columns)

    def _write_planes(
        self, stage: Pointer, y: Pointer, active: SSAValue, size: tuple[SSAValue, SSAValue], row_step: SSAValue
    ) -> None:
        """Output of a size (rows, columns) from scratch memory, where channels lie side by side, to planes of pixels,
        whose rows are row_step apart."""
        block = self.spec.block

        def body(
            code: KernelBuilder,
            stage: Pointer,
            y: Pointer,
            height: SSAValue,
            width: SSAValue,
            row_step: SSAValue,
            active: SSAValue,
        ) -> None:
            dense = row_step.equals(width)  # then all rows are one
            count, width = select(dense, code.integer(1), height), select(dense, height * width, width)
            channel_step = code.size(Problem.place("y_channel"))
            with code.loop(count) as row:
                copy_transposed(
                    code,
                    *(stage.at(row * width * block), code.integer(block), evenly(y.at(row * row_step), channel_step)),
                    *((width, smaller(active, block)), 4 * self.spec.lanes),
                )

        self.code.subroutine("write_planes", [stage, y, *size, row_step, active], body, inline=False)

    def _tiles(
        self,
        sizes: Direct,
        pointers: tuple[Pointer, Pointer, Pointer, Pointer],
        pitches: tuple[SSAValue, SSAValue],
        place: tuple[SSAValue, SSAValue, SSAValue],
        rows: _Range,
        columns: _Range,
    ) -> None:
        """Output rows and columns of one block of channels, which go to y + row * pitches[0] + column * pitches[1]."""
        axis = (sizes.row_taps, sizes.row_first, sizes.row_stride, sizes.row_dilation, sizes.height)
        with self._alike(*rows, axis) as (first, end):
            split = end - remainder(end - first, self.code.integer(self.spec.tile_rows))
            self._rows_of_tiles(sizes, self.spec.tile_rows, pointers, pitches, place, (first, split), columns)
            if self.spec.tile_rows > 1:
                self._rows_of_tiles(sizes, 1, pointers, pitches, place, (split, end), columns)

    @contextmanager
    def _alike(
        self, start: SSAValue, stop: SSAValue, axis: tuple[SSAValue, SSAValue, SSAValue, SSAValue, SSAValue]
    ) -> Iterator[tuple[SSAValue, SSAValue]]:
        """Outputs start … stop - 1 along an axis (taps, first, stride, dilation, size); with far taps one after another
        the parts of them that read the same taps. A part ends where a tap begins or ceases to read the image."""
        if not self.spec.far_taps:
            yield start, stop
            return
        code, (taps, first, stride, dilation, size) = self.code, axis
        reached = code.variable(start)
        with code.loop(taps * 2 + 1):
            begin, end = reached.get(), code.variable(stop)
            with code.loop(taps) as tap:
                outside = (first + tap * dilation) * -1
                for edge in (outside, outside + size):
                    bound = larger(edge + stride - 1, 0) / stride
                    with code.if_then((bound > begin) & (bound < end.get())):
                        end.set(bound)
            reached.set(end.get())
            yield begin, reached.get()

    def _rows_of_tiles(
        self,
        sizes: Direct,
        tile_rows: int,
        pointers: tuple[Pointer, Pointer, Pointer, Pointer],
        pitches: tuple[SSAValue, SSAValue],
        place: tuple[SSAValue, SSAValue, SSAValue],
        rows: _Range,
        columns: _Range,
    ) -> None:
        """Output rows (start, stop), tile_rows at a time, of one block of channels; place: image, column, live columns.

        The tile is a function of its own: its stores would otherwise stand in all these loops, which LLVM would search
        for what it can move out of them, for longer than everything else takes.
        """
        data, panel, y, planes = pointers
        constant_phase = isinstance(sizes.phase, int)

        def body(code: KernelBuilder, *values: Any, pixels: int) -> None:
            *of_place, phase = values
            tile_place = _Place(*of_place)
            phase_sizes = Direct(code, 0 if constant_phase else phase)
            if isinstance(self.spec, GroupedSpec):
                _GroupedTile(phase_sizes, self.spec, self.epilogue, tile_rows).emit(tile_place)
            else:
                _Tile(phase_sizes, replace(self.spec, pixels=pixels), self.epilogue, tile_rows).emit(tile_place)

        code, spec = self.code, self.spec
        axis = (sizes.kernel_width, sizes.pad_left * -1, sizes.stride_width, sizes.dilation_width, sizes.width)
        with self._alike(*columns, axis) as (first, end), code.loop(rows[1], rows[0], tile_rows) as t:
            begin, widths = first, [(end, spec.pixels)]
            if spec.rest:
                whole = larger(end - first - 2 * spec.rest + (spec.pixels - 1), 0) / spec.pixels * spec.pixels
                widths = [(smaller(first + whole, end), spec.pixels), (end, spec.rest)]
            for stop, pixels in widths:
                with code.loop(stop, begin, pixels) as left:
                    of_tile = _Place(data, panel, y, planes, *pitches, *place, t, left, end)
                    arguments: list[SSAValue | Pointer] = [*of_tile, code.integer(sizes.phase)]
                    tile = partial(body, pixels=pixels)
                    code.subroutine(f"tile.{tile_rows}.{pixels}", arguments, tile, inline=False)
                begin = stop


def _places_list(sizes: Direct) -> Pointer:
    """The list of a pixel's inputs, of the phase."""
    return sizes.code.scratch(types.float32).at(sizes.places).to(types.int64).at(sizes.listed_inputs * sizes.phase)


@contextmanager
def _column_taps(sizes: Direct) -> Iterator[tuple[SSAValue, SSAValue, SSAValue]]:
    """Go through the taps of a row: each has its number, and the number and the strand of the element that output
    column 0 reads."""
    code = sizes.code
    number, residue = code.variable(sizes.column_first), code.variable(sizes.column_residue)
    with code.loop(sizes.column_taps) as tap:
        yield tap, number.get(), residue.get()
        following = residue.get() + sizes.column_step_residue
        carry = following >= sizes.strands
        number.set(number.get() + sizes.column_step + select(carry, code.integer(1), 0))
        residue.set(select(carry, following - sizes.strands, following))


class _Weights(NamedTuple):
    """The place of a tile's weights, and what it asks for of those that follow in memory."""

    panel: Pointer
    following: Pointer
    block: int
    ahead: SSAValue

    def at(self, products: SSAValue) -> _Weights:
        """Those behind so many products."""
        panel, following = self.panel.at(products * self.block), self.following.at(products * self.ahead)
        return self._replace(panel=panel, following=following)

    def ask(self, code: KernelBuilder, products: SSAValue) -> None:
        """Ask for as much of those that follow as is this tile's share beside so many products."""
        with code.loop(products * self.ahead, step=_LINE) as place:
            emit_prefetch(code.builder, self.following.at(place).value)


class _Place(NamedTuple):
    """A tile's place, and its operands."""

    data: Pointer
    """The address that input row 0 would have."""
    panel: Pointer
    y: Pointer
    planes: Pointer
    """The first pixel of the first channel's plane, if the result goes to such."""
    row_pitch: SSAValue
    pixel_pitch: SSAValue
    image: SSAValue
    column: SSAValue
    active: SSAValue
    """Columns that count."""
    t: SSAValue
    """The phase's row."""
    left: SSAValue
    """The number of the first pixel."""
    end: SSAValue
    """The first pixel that is not stored."""


class _Tile:
    """Emits one tile: `tile_rows` output rows of `pixels` pixels by one block of channels."""

    def __init__(self, sizes: Direct, spec: DirectSpec, epilogue: Epilogue, tile_rows: int) -> None:
        self.sizes, self.code, self.spec, self.epilogue, self.tile_rows = sizes, sizes.code, spec, epilogue, tile_rows

    def emit(self, place: _Place) -> None:
        data, panel, y, planes, row_pitch, pixel_pitch, image, column, active, t, left, end = place
        spec, sizes = self.spec, self.sizes
        # Pixels that lie evenly apart: with far taps those of one row, else all of the tile.
        rows = self.tile_rows if spec.far_taps else 1
        shape = (self.tile_rows * spec.pixels // rows, spec.vectors)
        out_row = sizes.out_row_first + t * sizes.out_row_step
        out_column = sizes.out_column_first + left * sizes.out_column_step
        target, pixel = y.at(t * row_pitch + left * pixel_pitch), out_row * sizes.out_width + out_column
        if spec.y_planes:
            self._prefetch_planes(planes.at(out_row * sizes.y_row + left * sizes.out_column_step))
        else:
            for row in range(rows):
                emit_prefetch_result(
                    self.code.builder, target.at(row_pitch * row).value, pixel_pitch.value, (shape[0], spec.block)
                )
        sums = self._sums(data, self._weights(panel, t, left), sizes.row_first + t * sizes.row_stride, left)
        count = shape[0] * shape[1]
        for row in range(rows):
            emit_finish(
                *(self.code, self.epilogue, shape, sums[row * count : (row + 1) * count]),
                TileResult(
                    *(target.at(row_pitch * row).value, pixel_pitch.value),
                    place=(image, pixel + sizes.out_width * row, column),
                    row_step=sizes.out_column_step.value,
                ),
                active.value,
                (self.code.integer(shape[0]) if spec.spans_rows and self.tile_rows > 1 else end - left).value,
            )

    def _prefetch_planes(self, y: Pointer) -> None:
        """Ask for the lines of all channels that the tile's results will be written to, y being the place of its first
        pixel. Phases of a row, whose pixels lie between each other, ask for one line after the other."""
        y = y.at(self.sizes.out_column_first * _LINE)
        for number in range(self.spec.block):
            for pixel in range(0, self.tile_rows * self.spec.pixels, _LINE):
                emit_prefetch(self.code.builder, y.at(self.sizes.y_channel * number + pixel).value, write=True)

    def _weights(self, panel: Pointer, t: SSAValue, left: SSAValue) -> _Weights:
        """The weights of a tile, and its share of those that follow."""
        sizes, spec, code = self.sizes, self.spec, self.code
        tiles_across = (sizes.out_columns + (spec.pixels - 1)) / code.integer(spec.pixels)
        row = (
            remainder(t, sizes.row_block) if spec.prefetch_distance and not spec.paced_prefetch else t
        )  # else there is one block of rows
        tile = row / code.integer(spec.tile_rows) * tiles_across + left / code.integer(spec.pixels)
        products = sizes.total_depth * sizes.row_taps * sizes.column_taps
        return _Weights(panel, panel.at(products * (spec.block + tile * sizes.ahead)), spec.block, sizes.ahead)

    def _sums(self, data: Pointer, weights: _Weights, top: SSAValue, left: SSAValue) -> list[llvm_ir.Value]:
        """The sums of a tile whose first tap is on input row `top` and whose first output pixel is `left`."""
        code, sizes, spec = self.code, self.sizes, self.spec
        zero = code.number(types.float32, 0, spec.lanes)
        sums = [code.variable(zero) for _ in range(self.tile_rows * spec.pixels * spec.vectors)]
        kept = room_for(code, sums) if spec.chained else None
        if spec.layout != "blocked":
            self._all_inputs(sums, kept, data.at(top * sizes.row_pitch + left * spec.step), weights, top)
        elif spec.far_taps:
            done = code.variable(code.integer(0))
            with code.loop(sizes.row_taps) as row_tap:
                self._tap_after_tap((sums, kept, done), data, weights, top, left, row_tap)
        else:
            with in_chains(code, sums, kept, (sizes.channel_blocks, 0, sizes.chain)) as blocks:
                begin = self._listed_blocks(sums, data, weights, top, left, blocks)
                with code.loop(blocks[1], begin) as part, code.loop(sizes.row_taps) as row_tap:
                    self._taps_of_block(sums, data, weights, top, left, row_tap, part)
        return [variable.get().value for variable in sums]

    def _all_inputs(
        self, sums: list[Variable], kept: list[Pointer] | None, first: Pointer, weights: _Weights, top: SSAValue
    ) -> None:
        """All products, by the list of inputs; those of rows outside the image, at its ends, are left out."""
        code, sizes = self.code, self.sizes
        begin, end = code.variable(code.integer(0)), code.variable(sizes.row_taps)
        above, below = 0 - top - (self.tile_rows - 1) * sizes.row_stride, sizes.height - top
        with code.if_then((above > 0) | (below <= (sizes.row_taps - 1) * sizes.row_dilation)):
            dilation = sizes.row_dilation
            begin.set(larger(above + dilation - 1, 0) / dilation)
            end.set(smaller(larger(below + dilation - 1, 0) / dilation, sizes.row_taps))
        stop = end.get() * sizes.total_depth
        steps = (stop, begin.get() * sizes.total_depth, tuning.SUM_STEPS)
        with in_chains(code, sums, kept, steps) as (skipped, end_of_chain):
            places = _places_list(sizes).at(skipped)
            self._add(sums, first, weights.at(skipped), end_of_chain - skipped, places)

    def _listed_blocks(
        self,
        sums: list[Variable],
        data: Pointer,
        weights: _Weights,
        top: SSAValue,
        left: SSAValue,
        parts: _Range,
    ) -> SSAValue:
        """The products of whole blocks of channels among `parts` by the list of their inputs, where no tap is left
        out; gives the first block that it left."""
        code, sizes, spec = self.code, self.sizes, self.spec
        if not spec.lists_blocks:
            return parts[0]
        done, whole = code.variable(parts[0]), smaller(sizes.total_depth / code.integer(CHANNEL_BLOCK), parts[1])
        inside = sizes.listed > 0
        if not spec.spans_rows:
            reach = (sizes.row_taps - 1) * sizes.row_dilation
            highest = top + larger(reach, 0) + (self.tile_rows - 1) * sizes.row_stride
            inside = inside & (top + smaller(reach, 0) >= 0) & (highest < sizes.height)
        with code.if_then(inside):
            taps = sizes.row_taps * sizes.column_taps * CHANNEL_BLOCK
            a = data.at(top * sizes.row_pitch + (left - sizes.strand_first) * spec.step)
            with code.loop(whole, parts[0], sizes.listed) as part:
                deep = smaller(sizes.listed, whole - part) * taps
                self._add(sums, a.at(part * sizes.block_pitch), weights.at(part * taps), deep, _places_list(sizes))
            done.set(larger(whole, parts[0]))
        return done.get()

    def _taps_of_block(
        self,
        sums: list[Variable],
        data: Pointer,
        weights: _Weights,
        top: SSAValue,
        left: SSAValue,
        row_tap: SSAValue,
        part: SSAValue,
    ) -> None:
        """The taps of one kernel row on one block of channels."""
        sizes = self.sizes
        deep = smaller(sizes.depth, sizes.total_depth - part * sizes.depth)
        first = part * sizes.depth * sizes.row_taps * sizes.column_taps + row_tap * sizes.column_taps * deep
        with self._row(top, row_tap) as row:
            a = data.at(part * sizes.block_pitch + row * sizes.row_pitch)
            with self._column_taps(left) as (tap, place):
                self._add(sums, a.at(place * self.spec.step), weights.at(first + tap * deep), deep)

    def _tap_after_tap(
        self,
        total: tuple[list[Variable], list[Pointer] | None, Variable],
        data: Pointer,
        weights: _Weights,
        top: SSAValue,
        left: SSAValue,
        row_tap: SSAValue,
    ) -> None:
        """The taps of one kernel row, each on all blocks of channels. total: the sums, where they are kept, and how
        many taps they have behind them."""
        code, sizes, chain = self.code, self.sizes, tuning.SUM_STEPS // CHANNEL_BLOCK
        sums, kept, done = total
        with self._row(top, row_tap) as row, self._column_taps(left) as (tap, place):
            a = data.at(row * sizes.row_pitch + place * self.spec.step)
            b = weights.at((row_tap * sizes.column_taps + tap) * sizes.total_depth)
            others = (done.get(), code.integer(1))  # whether a later tap is left out is not known yet
            with (
                in_chains(code, sums, kept, (sizes.channel_blocks, 0, chain), others) as (first, end),
                code.loop(end, first) as part,
            ):
                deep = smaller(sizes.depth, sizes.total_depth - part * sizes.depth)
                self._add(sums, a.at(part * sizes.block_pitch), b.at(part * sizes.depth), deep)
            done.set(done.get() + 1)

    @contextmanager
    def _row(self, top: SSAValue, row_tap: SSAValue) -> Iterator[SSAValue]:
        """The input row of a tap, if the tile reads anything of the image there."""
        row = top + row_tap * self.sizes.row_dilation
        last = row + (self.tile_rows - 1) * self.sizes.row_stride
        with self.code.if_then((last >= 0) & (row < self.sizes.height)):
            yield row

    @contextmanager
    def _column_taps(self, left: SSAValue) -> Iterator[tuple[SSAValue, SSAValue]]:
        """Go through the taps of a row that read anything of the image: each has its number, and the place of the first
        pixel."""
        code, sizes, spec = self.code, self.sizes, self.spec
        with _column_taps(sizes) as (tap, number, residue):
            nearest = number + left
            # With far taps a tap is read by all live pixels of a tile or by none, so the first one tells.
            inside = (nearest > -spec.pixels) & (nearest < sizes.strand_valid)
            if spec.far_taps:
                inside = (nearest >= 0) & (nearest * sizes.strands + residue < sizes.width)
            with code.if_then(inside):
                yield tap, residue * sizes.strand_columns + nearest - sizes.strand_first

    def _add(
        self, sums: list[Variable], a: Pointer, b: _Weights, deep: SSAValue, places: Pointer | None = None
    ) -> None:
        spec, sizes = self.spec, self.sizes
        pitch = sizes.row_stride * sizes.row_pitch
        offsets = [
            ((pitch * row).value, _I64(pixel * spec.step))
            for row in range(self.tile_rows)
            for pixel in range(spec.pixels)
        ]
        if spec.asks_ahead:
            b.ask(self.code, deep)
        values = [variable.get() for variable in sums]
        added = emit_accumulate(
            *(self.code.builder, types.float32, [value.value for value in values]),
            Rows(a.value, offsets, _I64(spec.tap_step), None if places is None else places.value),
            Panel(b.panel.value, _I64(spec.block), prefetch_distance=spec.prefetch_distance),
            deep.value,
            [(b.following.value, b.ahead.value)] if places is not None and spec.paced_prefetch else (),
        )
        for variable, old, new in zip(sums, values, added, strict=True):
            variable.set(old.like(new))


class _GroupedTile(_Tile):
    """Emits one tile of a convolution in groups narrower than a vector."""

    spec: GroupedSpec

    def _taps_of_block(
        self,
        sums: list[Variable],
        data: Pointer,
        weights: _Weights,
        top: SSAValue,
        left: SSAValue,
        row_tap: SSAValue,
        part: SSAValue,
    ) -> None:
        """The taps of one kernel row. An input is loaded and spread within its group once for all taps that read it."""
        code, sizes, spec = self.code, self.sizes, self.spec
        lanes, width, taps = spec.lanes, spec.group_width, spec.columns[0]
        first_of_group = llvm_ir.Constant(
            llvm_ir.VectorType(_I32, lanes), [lane // width * width for lane in range(lanes)]
        )
        pitch = sizes.row_stride * sizes.row_pitch
        with self._row(top, row_tap) as row:
            rows = [data.at(row * sizes.row_pitch + pitch * number) for number in range(self.tile_rows)]
            places = self._places(left)
            if spec.asks_ahead:
                weights.at(row_tap * (width * taps)).ask(code, code.integer(width * taps))
            with code.loop(width) as channel:
                wanted = SSAValue(code.builder, types.int32, code.builder.trunc(channel.value, _I32))
                index = code.splat(wanted, lanes) + SSAValue(code.builder, types.int32, first_of_group)
                of_channel = weights.at((row_tap * width + channel) * taps)
                factors = [of_channel.panel.load(tap * lanes, lanes) for tap in range(taps)]
                for number, source in enumerate(rows):
                    strands = [source.at(place * spec.step).not_before(channel) for place in places]
                    for column, users in spec.readers.items():
                        above, residue = divmod(column, spec.columns[1])
                        spread = reordered(strands[residue].load(above * spec.step, lanes), index)
                        for pixel, tap in users:
                            total = sums[number * spec.pixels + pixel]
                            total.set(fma(spread, factors[tap], total.get()))

    def _places(self, left: SSAValue) -> list[SSAValue]:
        """The place in a copied row of each input column 0 … stride - 1 behind the first one of output pixel
        `left`."""
        sizes, stride = self.sizes, self.spec.columns[1]
        places = []
        for behind in range(stride):
            residue = sizes.column_residue + behind
            carry = select(residue >= stride, self.code.integer(1), 0)
            number = sizes.column_first + left + carry
            places.append((residue - carry * stride) * sizes.strand_columns + number - sizes.strand_first)
        return places
