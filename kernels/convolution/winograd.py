"""The Winograd convolution: see `transforms.WinogradSpec` and the equations in its module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.intrinsics import alloca
from jitonnx.emit.ssa import SSAValue, fma, select
from jitonnx.kernels.convolution.problem import CHANNEL_BLOCK, ConvolutionBuffers
from jitonnx.kernels.convolution.sizes import Winograd
from jitonnx.kernels.convolution.transforms import POINTS, WinogradSpec
from jitonnx.kernels.parts.microkernel import (
    Panel,
    Rows,
    TileResult,
    emit_accumulate,
    emit_finish,
    emit_prefetch,
    in_chains,
)
from jitonnx.target import tuning

_I64 = llvm_ir.IntType(64)


def build(spec: WinogradSpec, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec`."""
    return lambda code, begin, end: _Winograd(code, spec, Epilogue(code, epilogue, types.float32, spec.lanes)).emit(
        begin, end
    )


class _Memory:
    """The parts of scratch memory."""

    def __init__(self, code: KernelBuilder, spec: WinogradSpec) -> None:
        sizes = Winograd(code)
        self.zeros = code.scratch(types.float32)
        self.inputs = self.zeros.at(sizes.padded_channels)
        self.products = self.inputs.at(sizes.input_plane * spec.positions)


class _Winograd:
    """Emits the kernel; each of the three steps is a function of its own."""

    def __init__(self, code: KernelBuilder, spec: WinogradSpec, epilogue: Epilogue) -> None:
        self.code, self.spec, self.epilogue, self.sizes = code, spec, epilogue, Winograd(code)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, sizes, spec = self.code, self.sizes, self.spec
        zero = code.number(types.float32, 0, spec.lanes)
        with code.loop(sizes.channels, step=spec.lanes) as channel:
            _Memory(code, spec).zeros.store(channel, zero)
        held = code.variable(code.integer(-1))
        with code.loop(end, begin) as task:
            tile_block, strip = task / sizes.chunks, remainder(task, sizes.chunks)
            first = tile_block * sizes.tiles / sizes.tile_blocks
            count = (tile_block + 1) * sizes.tiles / sizes.tile_blocks - first
            start = strip * sizes.chunk
            stop = smaller(start + sizes.chunk, sizes.output_blocks)
            group, end_group = start / sizes.group_blocks, (stop - 1) / sizes.group_blocks + 1
            input_number = tile_block * sizes.groups + group
            with code.if_then(~input_number.equals(held.get())):
                held.set(input_number)
                channels = (group * sizes.group_channels, end_group * sizes.group_channels)
                with code.loop(count) as tile:
                    arguments = [first + tile, tile, *channels]
                    code.subroutine("transform_input", arguments, self._transform_input, inline=False)
            code.subroutine("multiply_all", [start, stop, count], self._multiply_all, inline=False)
            with code.loop(stop, start) as block, code.loop(count) as tile:
                arguments = [block, block - start, first + tile, tile]
                code.subroutine("transform_output", arguments, self._transform_output, inline=False)

    # ------------------------------------------------------------ steps

    def _transform_input(
        self, code: KernelBuilder, number: SSAValue, place: SSAValue, first: SSAValue, end: SSAValue
    ) -> None:
        """B^T d B of tile `number` for channels first … end - 1, to place `place` of the task's tiles.

        The pixels that are new in the next tile are asked for: of so many rows at once a CPU foresees nothing.
        """
        sizes, spec = Winograd(code), self.spec
        (rows, columns), (_, column_outputs) = spec.points, spec.outputs
        pixels = self._pixels(code, number)
        next_tile = sizes.x_pixel * sizes.dilation_width * column_outputs
        with code.loop(end, first, spec.lanes) as channel:
            active = code.active(end - channel, spec.lanes) if spec.part_block else None
            transformed = [
                _transform([pixels(i, j).load(channel, spec.lanes, active) for i in range(rows)])
                for j in range(columns)
            ]
            for i in range(rows):
                for j in range(columns - column_outputs, columns):
                    emit_prefetch(code.builder, pixels(i, j).at(channel + next_tile).value)
            block, within = (channel - first) / CHANNEL_BLOCK, remainder(channel - first, code.integer(CHANNEL_BLOCK))
            target = _Memory(code, spec).inputs.at((block * sizes.task_tiles + place) * CHANNEL_BLOCK + within)
            for i in range(rows):
                row = _transform([column[i] for column in transformed])
                for j, value in enumerate(row):
                    target.store(sizes.input_plane * (i * columns + j), value)

    def _pixels(self, code: KernelBuilder, number: SSAValue) -> Callable[[int, int], Pointer]:
        """Pointers to the input pixels of a tile; to the zeros for those outside the image."""
        sizes, spec = Winograd(code), self.spec
        rows, columns = spec.points
        image, out_row, out_column = self._place(code, number)
        top, left = out_row - sizes.pad_top, out_column - sizes.pad_left
        zeros, x = (
            _Memory(code, spec).zeros,
            code.buffers(ConvolutionBuffers, types.float32).x.at(image * sizes.x_image),
        )
        table = alloca(code.builder, x.value.type, rows * columns)
        at_columns = [left + sizes.dilation_width * j for j in range(columns)]
        inside_columns = [(column >= 0) & (column < sizes.width) for column in at_columns]
        for i in range(rows):
            row = top + sizes.dilation_height * i
            inside_row = (row >= 0) & (row < sizes.height)
            for j in range(columns):
                pixel = x.at(row * sizes.x_row + at_columns[j] * sizes.x_pixel)
                chosen = code.builder.select((inside_row & inside_columns[j]).value, pixel.value, zeros.value)
                code.builder.store(chosen, code.builder.gep(table, [_I64(i * columns + j)]))

        def pixel_at(i: int, j: int) -> Pointer:
            place = code.builder.gep(table, [_I64(i * columns + j)])
            return Pointer(code, types.float32, code.builder.load(place))

        return pixel_at

    def _multiply_all(self, code: KernelBuilder, start: SSAValue, stop: SSAValue, count: SSAValue) -> None:
        """The products of a task's tiles with output blocks start … stop - 1, at all positions.

        A product takes `rows` tiles as long as enough are left for the last one or two. Each asks for a part of the
        weights of the next block, or of the first at the next position.
        """
        sizes, spec, memory = Winograd(code), self.spec, _Memory(code, self.spec)
        most, fewer, least = spec.product_rows
        whole = (count - 3) / code.integer(most) * most  # 3 … most + 2 are left, unless there are fewer than 3 at all
        two_more = count - whole > most
        last = select(two_more, whole + fewer, whole)
        left = count - last
        group = code.variable(code.integer(0))
        with code.loop(spec.positions) as position, code.loop(stop, start) as block:
            group.set(select(block.equals(start), code.integer(0), group.get()))
            ends = block + 1 >= stop
            next_block, next_position = select(ends, start, block + 1), select(ends, position + 1, position)
            b, ahead = self._weights(code, block, position), self._weights(code, next_block, next_position)
            channel = group.get() * sizes.group_channels
            inputs = memory.inputs.at(position * sizes.input_plane + channel * sizes.task_tiles)
            products = memory.products.at(((block - start) * spec.positions + position) * sizes.product_plane)

            def multiply(rows: int, row: SSAValue) -> None:
                asked = ahead.at(row / code.integer(most) * sizes.ahead * sizes.group_channels)
                arguments = [inputs.at(row * CHANNEL_BLOCK), products.at(row * spec.block), b, asked]
                code.subroutine(f"multiply_{rows}", arguments, partial(self._multiply, rows), inline=False)

            with code.loop(whole, step=most) as row:
                multiply(most, row)
            with code.if_then(two_more):
                multiply(fewer, whole)
            with code.if_then(left > fewer):
                multiply(most, last)
            with code.if_then((left > least) & (left <= fewer)):
                multiply(fewer, last)
            with code.if_then((left > 0) & (left <= least)):
                multiply(least, last)
            following = group.get() + 1
            group.set(select(block + 1 - start >= following * sizes.group_blocks, following, group.get()))

    def _weights(self, code: KernelBuilder, block: SSAValue, position: SSAValue) -> Pointer:
        """The transformed weights of an output block at a position."""
        channels = Winograd(code).group_channels
        return code.buffers(ConvolutionBuffers, types.float32).w.at(
            (block * self.spec.positions + position) * channels * self.spec.block
        )

    def _multiply(
        self, rows: int, code: KernelBuilder, a: Pointer, target: Pointer, b: Pointer, ahead: Pointer
    ) -> None:
        """The transformed input a of `rows` tiles at one position times the weights b of an output block, to target."""
        sizes, spec = Winograd(code), self.spec
        sums = [code.variable(code.number(types.float32, 0, spec.lanes)) for _ in range(rows * spec.vectors)]
        offsets = [(_I64(0), _I64(r * CHANNEL_BLOCK)) for r in range(rows)]
        kept, chain = [target.at(index * spec.lanes) for index in range(len(sums))], tuning.WINOGRAD_SUM_STEPS
        to_the_end = (code.integer(0), code.integer(1))  # what is kept behind the last chain is the product
        with (
            in_chains(code, sums, kept, (sizes.group_channels, 0, chain), to_the_end) as (first, end),
            code.loop(end, first, CHANNEL_BLOCK) as channel,
        ):
            deep = code.integer(CHANNEL_BLOCK)
            if spec.part_block:
                deep = smaller(sizes.group_channels - channel, CHANNEL_BLOCK)
            values = [variable.get() for variable in sums]
            added = emit_accumulate(
                *(code.builder, types.float32, [value.value for value in values]),
                Rows(a.at(channel * sizes.task_tiles).value, offsets),
                Panel(b.at(channel * spec.block).value, _I64(spec.block), prefetch_distance=spec.prefetch_distance),
                deep.value,
                [(ahead.at(channel * sizes.ahead).value, sizes.ahead.value)],
            )
            for variable, value, new in zip(sums, values, added, strict=True):
                variable.set(value.like(new))

    def _transform_output(
        self, code: KernelBuilder, block: SSAValue, number: SSAValue, tile: SSAValue, place: SSAValue
    ) -> None:
        """A^T m A of one tile for the channels of a block, through the epilogue to y; the next tile's are asked for."""
        sizes, spec = Winograd(code), self.spec
        (rows, columns), (row_outputs, column_outputs) = spec.points, spec.outputs
        image, out_row, out_column = self._place(code, tile)
        row_step, column_step = sizes.dilation_height, sizes.dilation_width
        plane = number * spec.positions * sizes.product_plane + place * spec.block
        y = code.buffers(ConvolutionBuffers, types.float32).y.at(
            image * sizes.y_image + out_row * sizes.y_row + out_column * sizes.y_pixel + block * spec.block
        )
        active = sizes.out_channels - block * spec.block
        live_columns = (sizes.out_width - out_column + (column_step - 1)) / column_step
        with code.loop(smaller(active, spec.block), step=spec.lanes) as start:
            source = _Memory(code, spec).products.at(plane + start)
            transformed = [
                _transform_back(
                    [source.load(sizes.product_plane * (i * columns + j), spec.lanes) for i in range(rows)], row_outputs
                )
                for j in range(columns)
            ]
            for i in range(row_outputs):
                values = _transform_back([column[i] for column in transformed], column_outputs)
                row = out_row + row_step * i
                next_tile = y.at(sizes.y_row * row_step * i + sizes.y_pixel * column_step * column_outputs + start)
                for j in range(column_outputs):
                    emit_prefetch(code.builder, next_tile.at(sizes.y_pixel * column_step * j).value, write=True)
                with code.if_then((row < sizes.out_height) & (live_columns > 0)):
                    first, pitch = y.at(sizes.y_row * row_step * i + start), sizes.y_pixel * column_step
                    live = active - start
                    where = (image, row * sizes.out_width + out_column, block * spec.block + start)
                    emit_finish(
                        *(code, self.epilogue, (column_outputs, 1)),
                        [value.value for value in values],
                        TileResult(first.value, pitch.value, where, column_step.value),
                        *(live.value, live_columns.value),
                    )

    def _place(self, code: KernelBuilder, number: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
        """(image, row, column) of the first output of a tile; its others are the dilation apart.

        Of a dilated convolution every d-th row and column are an ordinary one, with tiles of its own.
        """
        sizes = Winograd(code)
        grid_columns = sizes.tile_columns * sizes.dilation_width
        above, column = number / grid_columns, remainder(number, grid_columns)
        grid_rows = sizes.tile_rows * sizes.dilation_height
        image, row = above / grid_rows, remainder(above, grid_rows)
        return (
            image,
            _first_output(row, sizes.tile_rows, sizes.dilation_height, self.spec.outputs[0]),
            _first_output(column, sizes.tile_columns, sizes.dilation_width, self.spec.outputs[1]),
        )


def _first_output(number: SSAValue, tiles: SSAValue, dilation: SSAValue, outputs: int) -> SSAValue:
    """The first output along one axis of tile `number` of the `tiles` of each phase."""
    return number / tiles + remainder(number, tiles) * dilation * outputs


# ---------------------------------------------------------------- transforms of one axis


def _transform(d: Sequence[SSAValue]) -> list[SSAValue]:
    """B^T d. With c the coefficients of Π (x^2 - q^2) over the points other than p, and C over all points:

    row 0:         Σ C_i d_2i
    rows ±p:       Σ c_i d_2i+2  ±  p Σ c_i d_2i+1
    row infinity:  Σ C_i d_2i+1
    """
    if len(d) == 1:
        return list(d)
    points = POINTS[len(d)]
    whole = _even_polynomial(points)
    rows = [_combine(d[0::2], whole)]
    for p in points:
        c = _even_polynomial([q for q in points if q != p])
        even, odd = _combine(d[2::2], c), _combine(d[1:-1:2], c)
        rows += [fma(odd, p, even), fma(odd, -p, even)] if p != 1 else [even + odd, even - odd]
    return [*rows, _combine(d[1::2], whole)]


def _transform_back(m: Sequence[SSAValue], count: int) -> list[SSAValue]:
    """A^T m: y_i = Σ p^i (m_+p + (-1)^i m_-p), with m_0 in y_0 and m_infinity in the last; `count` outputs."""
    if len(m) == 1:
        return list(m)
    points = POINTS[len(m)]
    plus = [m[1 + 2 * k] + m[2 + 2 * k] for k in range(len(points))]
    minus = [m[1 + 2 * k] - m[2 + 2 * k] for k in range(len(points))]
    outputs = []
    for i in range(count):
        terms, coefficients = (minus if i % 2 else plus), [p**i for p in points]
        if i == 0:
            terms, coefficients = [m[0], *terms], [1.0, *coefficients]
        if i == count - 1:
            terms, coefficients = [m[-1], *terms], [1.0, *coefficients]
        outputs.append(_combine(terms, coefficients))
    return outputs


def _even_polynomial(points: Sequence[float]) -> list[float]:
    """Coefficients of Π (x^2 - p^2): of 1, x^2, x^4, …"""
    return [float(c) for c in np.poly([p * p for p in points])[::-1]] if points else [1.0]


def _combine(terms: Sequence[SSAValue], coefficients: Sequence[float]) -> SSAValue:
    """Σ coefficient * term, starting from a term of coefficient 1 if there is one."""
    pairs = sorted(zip(coefficients, range(len(terms)), strict=True), key=lambda pair: pair[0] != 1)
    (first, index), *others = pairs
    total = terms[index] if first == 1 else terms[index] * first
    for coefficient, index in others:
        total = total + terms[index] if coefficient == 1 else fma(terms[index], coefficient, total)
    return total
