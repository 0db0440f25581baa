"""The Winograd convolution: see `transforms.WinogradSpec` and the equations in its module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba.core import cgutils, types

from jitonnx.kernels.code import Code, Pointer, emitted, remainder, smaller
from jitonnx.kernels.convolution.problem import CHANNEL_BLOCK
from jitonnx.kernels.convolution.sizes import WinogradSizes
from jitonnx.kernels.convolution.transforms import POINTS, WinogradSpec
from jitonnx.kernels.simd import Vector
from jitonnx.kernels.tile import Epilogue, emit_accumulate, emit_finish
from jitonnx.kernels.trace import Traced, fma, select

_I64 = ir.IntType(64)


def build(spec: WinogradSpec, epilogue: Callable[..., Any] | None = None) -> Callable[..., None]:
    """The kernel of `spec`."""

    def body(code: Code, begin: Traced, end: Traced) -> None:
        _Winograd(code, spec, Epilogue(epilogue, Vector(types.float32, spec.lanes))).emit(begin, end)

    return emitted(body)


class _Memory:
    """The parts of scratch memory."""

    def __init__(self, code: Code, spec: WinogradSpec) -> None:
        sizes = WinogradSizes(code)
        self.zeros = code.scratch(types.float32)
        self.inputs = self.zeros.at(sizes.channels)
        self.products = self.inputs.at(sizes.input_plane * spec.points**2)


class _Winograd:
    """Emits the kernel; each of the three steps is a function of its own."""

    def __init__(self, code: Code, spec: WinogradSpec, epilogue: Epilogue) -> None:
        self.code, self.spec, self.epilogue, self.sizes = code, spec, epilogue, WinogradSizes(code)

    def emit(self, begin: Traced, end: Traced) -> None:
        code, sizes, spec = self.code, self.sizes, self.spec
        zero = code.number(types.float32, 0, spec.lanes)
        with code.loop(sizes.channels, step=spec.lanes) as channel:
            _Memory(code, spec).zeros.store(channel, zero)
        held = code.variable(code.integer(-1))
        with code.loop(end, begin) as task:
            tile_block, strip = task / sizes.chunks, remainder(task, sizes.chunks)
            first = tile_block * sizes.task_tiles
            count = smaller(sizes.task_tiles, sizes.tiles - first)
            with code.when(~tile_block.equals(held.get())):
                held.set(tile_block)
                with code.loop(count) as tile:
                    code.subroutine("transform_input", [first + tile, tile], self._transform_input, inline=False)
            start = strip * sizes.chunk
            stop = smaller(start + sizes.chunk, sizes.output_blocks)
            rows = code.loop(count, step=spec.rows)
            with code.loop(spec.points**2) as position, code.loop(stop, start) as block, rows as row:
                arguments = [position, block, block - start, row]
                code.subroutine("multiply", arguments, self._multiply, inline=False)
            with code.loop(stop, start) as block, code.loop(count) as tile:
                arguments = [block, block - start, first + tile, tile]
                code.subroutine("transform_output", arguments, self._transform_output, inline=False)

    # ------------------------------------------------------------ steps

    def _transform_input(self, code: Code, number: Traced, place: Traced) -> None:
        """B^T d B of tile `number` for all channels, to place `place` of the task's tiles."""
        sizes, spec, n = WinogradSizes(code), self.spec, self.spec.points
        pixels = self._pixels(code, number)
        with code.loop(sizes.channels, step=spec.lanes) as channel:
            columns = [
                _transform([pixels(i, j).load(channel, spec.lanes) for i in range(n)], POINTS[spec.outputs])
                for j in range(n)
            ]
            block, within = channel / CHANNEL_BLOCK, remainder(channel, code.integer(CHANNEL_BLOCK))
            target = _Memory(code, spec).inputs.at((block * sizes.task_tiles + place) * CHANNEL_BLOCK + within)
            for i in range(n):
                row = _transform([column[i] for column in columns], POINTS[spec.outputs])
                for j, value in enumerate(row):
                    target.store(sizes.input_plane * (i * n + j), value)

    def _pixels(self, code: Code, number: Traced) -> Callable[[int, int], Pointer]:
        """Pointers to the n * n input pixels of a tile; to the zeros for those outside the image."""
        sizes, spec, n = WinogradSizes(code), self.spec, self.spec.points
        image, tile_row, tile_column = _tile_place(code, number)
        top = tile_row * spec.outputs - sizes.pad_top
        left = tile_column * spec.outputs - sizes.pad_left
        zeros, x = _Memory(code, spec).zeros, code.buffer(0, types.float32).at(image * sizes.x_image)
        table = cgutils.alloca_once(code.builder, x.value.type, size=n * n)
        inside_columns = [(left + j >= 0) & (left + j < sizes.width) for j in range(n)]
        for i in range(n):
            inside_row = (top + i >= 0) & (top + i < sizes.height)
            for j in range(n):
                pixel = x.at((top + i) * sizes.x_row + (left + j) * sizes.x_pixel)
                chosen = code.builder.select((inside_row & inside_columns[j]).value, pixel.value, zeros.value)
                code.builder.store(chosen, code.builder.gep(table, [_I64(i * n + j)]))
        return lambda i, j: Pointer(code, types.float32, code.builder.load(code.builder.gep(table, [_I64(i * n + j)])))

    def _multiply(self, code: Code, position: Traced, block: Traced, number: Traced, row: Traced) -> None:
        """`rows` tiles from `row` on times output block `block` (the task's `number`-th), at one position."""
        sizes, spec, memory = WinogradSizes(code), self.spec, _Memory(code, self.spec)
        sums = [code.variable(code.number(types.float32, 0, spec.lanes)) for _ in range(spec.rows * spec.vectors)]
        a = memory.inputs.at(position * sizes.input_plane + row * CHANNEL_BLOCK)
        b = code.buffer(1, types.float32).at((position * sizes.output_blocks + block) * sizes.channels * spec.block)
        # The next weights in memory most often are those of the next block.
        ahead = b.at(
            sizes.channels * select(sizes.ahead > 0, row / code.integer(spec.rows) * sizes.ahead + spec.block, 0)
        )
        offsets = [_I64(r * CHANNEL_BLOCK) for r in range(spec.rows)]
        with code.loop(sizes.channels, step=CHANNEL_BLOCK) as channel:
            values = [variable.get() for variable in sums]
            added = emit_accumulate(
                *(code.builder, types.float32, [value.value for value in values]),
                *(a.at(channel * sizes.task_tiles).value, offsets, _I64(1)),
                *(b.at(channel * spec.block).value, _I64(spec.block), _I64(CHANNEL_BLOCK)),
                (ahead.at(channel * sizes.ahead).value, sizes.ahead.value),
            )
            for variable, value, new in zip(sums, values, added, strict=True):
                variable.set(value.like(new))
        plane = number * spec.points**2 + position
        target = memory.products.at(plane * sizes.product_plane + row * spec.block)
        for index, variable in enumerate(sums):
            target.store(index * spec.lanes, variable.get())

    def _transform_output(self, code: Code, block: Traced, number: Traced, tile: Traced, place: Traced) -> None:
        """A^T m A of one tile for the channels of a block, through the epilogue to y."""
        sizes, spec, n, m = WinogradSizes(code), self.spec, self.spec.points, self.spec.outputs
        image, tile_row, tile_column = _tile_place(code, tile)
        out_row, out_column = tile_row * m, tile_column * m
        plane = number * n**2 * sizes.product_plane + place * spec.block
        y = code.buffer(2, types.float32).at(
            image * sizes.y_image + out_row * sizes.y_row + out_column * sizes.y_pixel + block * spec.block
        )
        live = sizes.out_channels - block * spec.block
        with code.loop(smaller(live, spec.block), step=spec.lanes) as start:
            source = _Memory(code, spec).products.at(plane + start)
            columns = [
                _transform_back(
                    [source.load(sizes.product_plane * (i * n + j), spec.lanes) for i in range(n)], POINTS[m]
                )
                for j in range(n)
            ]
            for i in range(m):
                values = _transform_back([column[i] for column in columns], POINTS[m])
                with code.when(out_row + i < sizes.out_height):
                    pixel = (out_row + i) * sizes.out_width + out_column
                    emit_finish(
                        *(code.context, code.builder, self.epilogue, (m, 1), [value.value for value in values]),
                        *(y.at(sizes.y_row * i + start).value, sizes.y_pixel.value, (live - start).value),
                        code.place(image, pixel, block * spec.block + start),
                        (sizes.out_width - out_column).value,
                    )


def _tile_place(code: Code, number: Traced) -> tuple[Traced, Traced, Traced]:
    """(image, row of tiles, column of tiles) of a tile."""
    sizes = WinogradSizes(code)
    row, column = number / sizes.tile_columns, remainder(number, sizes.tile_columns)
    return row / sizes.tile_rows, remainder(row, sizes.tile_rows), column


# ---------------------------------------------------------------- transforms of one axis


def _transform(d: Sequence[Traced], points: Sequence[float]) -> list[Traced]:
    """B^T d. With c the coefficients of Π (x^2 - q^2) over the points other than p, and C over all points:

    row 0:         Σ C_i d_2i
    rows ±p:       Σ c_i d_2i+2  ±  p Σ c_i d_2i+1
    row infinity:  Σ C_i d_2i+1
    """
    whole = _even_polynomial(points)
    rows = [_combine(d[0::2], whole)]
    for p in points:
        c = _even_polynomial([q for q in points if q != p])
        even, odd = _combine(d[2::2], c), _combine(d[1:-1:2], c)
        rows += [fma(odd, p, even), fma(odd, -p, even)] if p != 1 else [even + odd, even - odd]
    return [*rows, _combine(d[1::2], whole)]


def _transform_back(m: Sequence[Traced], points: Sequence[float]) -> list[Traced]:
    """A^T m: y_i = Σ p^i (m_+p + (-1)^i m_-p), with m_0 in y_0 and m_infinity in the last."""
    plus = [m[1 + 2 * k] + m[2 + 2 * k] for k in range(len(points))]
    minus = [m[1 + 2 * k] - m[2 + 2 * k] for k in range(len(points))]
    outputs = []
    for i in range(2 * len(points)):
        terms, coefficients = (minus if i % 2 else plus), [p**i for p in points]
        if i == 0:
            terms, coefficients = [m[0], *terms], [1.0, *coefficients]
        if i == 2 * len(points) - 1:
            terms, coefficients = [m[-1], *terms], [1.0, *coefficients]
        outputs.append(_combine(terms, coefficients))
    return outputs


def _even_polynomial(points: Sequence[float]) -> list[float]:
    """Coefficients of Π (x^2 - p^2): of 1, x^2, x^4, …"""
    return [float(c) for c in np.poly([p * p for p in points])[::-1]] if points else [1.0]


def _combine(terms: Sequence[Traced], coefficients: Sequence[float]) -> Traced:
    """Σ coefficient * term, starting from a term of coefficient 1 if there is one."""
    pairs = sorted(zip(coefficients, range(len(terms)), strict=True), key=lambda pair: pair[0] != 1)
    (first, index), *others = pairs
    total = terms[index] if first == 1 else terms[index] * first
    for coefficient, index in others:
        total = total + terms[index] if coefficient == 1 else fma(terms[index], coefficient, total)
    return total
