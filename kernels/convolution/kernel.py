"""The direct and the transposed convolution: `spec.DirectSpec` says how they go about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ir
from numba.core import types
from numba.extending import intrinsic

from jitonnx.kernels import tile
from jitonnx.kernels.convolution import copy, depthwise
from jitonnx.kernels.convolution.copy import PHASES, B, H, P
from jitonnx.kernels.convolution.spec import DepthwiseSpec, DirectSpec, Phase
from jitonnx.kernels.jit import device
from jitonnx.kernels.simd import advance, pointer, view
from jitonnx.kernels.spec import KernelSpec


def build(spec: KernelSpec, lanes: int, epilogue: Callable[..., Any] | None = None) -> Callable[..., None]:
    """The kernel of a `DirectSpec`, `TransposedSpec` or `DepthwiseSpec` for vectors of `lanes` float32."""
    if isinstance(spec, DepthwiseSpec):
        return depthwise.build(spec, lanes, epilogue)
    if not isinstance(spec, DirectSpec) or spec.lanes != lanes:
        raise TypeError(f"Bug: {spec} has no convolution kernel with {lanes} lanes")
    return _build_direct(spec, epilogue)


def _build_direct(spec: DirectSpec, epilogue: Callable[..., Any] | None) -> Callable[..., None]:
    tile_rows, block, phases, record = spec.tile_rows, spec.block, spec.phases, len(Phase._fields)
    copy_rows = copy.rows(spec, spec.lanes)
    many = _rows_of_tiles(spec, epilogue, tile_rows)
    single = _rows_of_tiles(spec, epilogue, 1) if tile_rows > 1 else many

    def kernel(buffers, sizes, begin, end, scratch):
        x, w = pointer(buffers, 0, types.float32), pointer(buffers, 1, types.float32)
        y, data = pointer(buffers, 2, types.float32), view(scratch, types.float32)
        chunks, number, held = sizes[B.chunks], 0, -1
        for task in range(begin, end):
            while number + 1 < phases and task >= sizes[PHASES + (number + 1) * record]:
                number += 1
            phase = advance(sizes, PHASES + number * record)
            strip = (task - phase[H.first_task]) % chunks
            place = (task - phase[H.first_task]) // chunks
            start = place % phase[H.row_blocks] * phase[H.row_block]
            stop = min(start + phase[H.row_block], phase[H.out_rows])
            place //= phase[H.row_blocks]
            image, group = place // sizes[B.groups], place % sizes[B.groups]
            origin = _first_row(sizes, phase, start, tile_rows)
            if held != task - strip:
                held = task - strip
                group_x = advance(x, image * sizes[P.x_image] + group * sizes[B.channels] * sizes[P.x_channel])
                copy_rows(group_x, data, sizes, phase, origin, _end_row(sizes, phase, stop, tile_rows), start, stop)
            products = sizes[B.total_depth] * phase[H.row_taps] * phase[H.column_taps] * block
            for part in range(strip * sizes[B.chunk], min((strip + 1) * sizes[B.chunk], sizes[B.output_blocks])):
                panel = advance(w, phase[H.weights] + (group * sizes[B.output_blocks] + part) * products)
                column, live = group * sizes[B.outputs] + part * block, sizes[B.outputs] - part * block
                target = advance(y, image * sizes[P.y_image] + column)
                split = stop - (stop - start) % tile_rows
                many(data, panel, target, buffers, sizes, phase, image, column, live, origin, start, split)
                if split < stop:
                    single(data, panel, target, buffers, sizes, phase, image, column, live, origin, split, stop)

    return kernel


@device
def _first_row(sizes, phase, start, tile_rows):
    """The first input row that output rows from `start` on read; within the image, unless tiles span rows."""
    row = phase[H.row_first] + start * phase[H.row_stride]
    row += min(0, (phase[H.row_taps] - 1) * phase[H.row_dilation])
    return row if tile_rows > 1 else max(row, 0)


@device
def _end_row(sizes, phase, stop, tile_rows):
    """The input row behind the last that output rows before `stop` read."""
    row = phase[H.row_first] + (stop - 1) * phase[H.row_stride] + 1
    row += max(0, (phase[H.row_taps] - 1) * phase[H.row_dilation])
    return row if tile_rows > 1 else min(row, sizes[P.height])


def _rows_of_tiles(spec: DirectSpec, epilogue: Callable[..., Any] | None, tile_rows: int) -> Any:
    """A device function that makes output rows [start, stop) of one block of channels, `tile_rows` at a time."""
    pixels, step, tap_step, block = spec.pixels, spec.step, spec.tap_step, spec.block
    blocked, shape = spec.layout == "blocked", (tile_rows * spec.pixels, spec.vectors, spec.lanes)
    clear, finish = tile.zeros(*shape), tile.finish_rows(*shape, epilogue)
    add = tile.accumulate(*shape) if tile_rows == 1 else tile.accumulate_at(*shape)
    row_places = _places(tile_rows, pixels, step)

    @device
    def sums_of_tile(data, panel, sizes, phase, top, left, places):
        """The sums of a tile whose first tap reads row `top` of scratch memory and whose first pixel is `left`."""
        sums, depth, total = clear(), sizes[B.depth], sizes[B.total_depth]
        row_taps, column_taps, height = phase[H.row_taps], phase[H.column_taps], sizes[P.height]
        for part in range(sizes[B.channel_blocks]):
            deep = min(depth, total - part * depth)
            block_data = advance(data, part * phase[H.block_pitch])
            for row_tap in range(row_taps):
                row = top + row_tap * phase[H.row_dilation]
                if row + (tile_rows - 1) * phase[H.row_stride] < 0 or row >= height:
                    continue
                at, residue = phase[H.column_first], phase[H.column_residue]
                for column_tap in range(column_taps):
                    if not blocked or (left + at > -pixels and left + at < phase[H.strand_valid]):
                        place = residue * phase[H.strand_columns] + at - phase[H.strand_first]
                        where = row * phase[H.row_pitch] + (place + left) * step
                        tap = (part * row_taps * depth + row_tap * deep) * column_taps + column_tap * deep
                        sums = add(sums, advance(block_data, where), places, tap_step, advance(panel, tap * block), block, deep)
                    at, residue = at + phase[H.column_step], residue + phase[H.column_step_residue]
                    if residue >= phase[H.strands]:
                        at, residue = at + 1, residue - phase[H.strands]
        return sums

    @device
    def run(data, panel, y, buffers, sizes, phase, image, column, live, origin, start, stop):
        out_columns, out_step = phase[H.out_columns], phase[H.out_column_step]
        rows_data = advance(data, -origin * phase[H.row_pitch])
        places = row_places(phase[H.row_stride] * phase[H.row_pitch])
        for t in range(start, stop, tile_rows):
            top = phase[H.row_first] + t * phase[H.row_stride]
            out_row = phase[H.out_row_first] + t * phase[H.out_row_step]
            for left in range(0, out_columns, pixels):
                sums = sums_of_tile(rows_data, panel, sizes, phase, top, left, places)
                out_column = phase[H.out_column_first] + left * out_step
                target = advance(y, out_row * sizes[P.y_row] + out_column * sizes[P.y_pixel])
                pixel = out_row * sizes[P.out_width] + out_column
                rows_live = out_columns - left if tile_rows == 1 else tile_rows * pixels
                finish(sums, target, sizes[P.y_pixel] * out_step, live, rows_live, out_step,
                       buffers, sizes, image, pixel, column)  # fmt: skip

    return run


def _places(tile_rows: int, pixels: int, step: int) -> Any:
    """An intrinsic `places(row_pitch)`: where the tile reads its rows, the stride of a tile of one row or all offsets."""
    result = types.intp if tile_rows == 1 else types.UniTuple(types.intp, tile_rows * pixels)

    @intrinsic
    def places(typingctx, row_pitch):
        def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
            constant = ir.IntType(64)
            if tile_rows == 1:
                return constant(step)
            offsets = [
                builder.add(builder.mul(args[0], constant(row)), constant(pixel * step))
                for row in range(tile_rows)
                for pixel in range(pixels)
            ]
            return context.make_tuple(builder, result, offsets)

        return result(types.intp), generate

    return places
