"""The depthwise convolution: see `spec.DepthwiseSpec`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from jitonnx.kernels import tile
from jitonnx.kernels.convolution.spec import DepthwiseSpec
from jitonnx.kernels.jit import device
from jitonnx.kernels.simd import Vector, advance, live_mask, llvm_intrinsic, masked_load, pointer

_I64 = ir.IntType(64)
_POINTER = types.CPointer(types.float32)


def build(spec: DepthwiseSpec, lanes: int, epilogue: Callable[..., Any] | None = None) -> Callable[..., None]:
    """The kernel of `spec` for vectors of `lanes` float32."""
    (row_taps, column_taps), (row_stride, _), (row_dilation, _) = spec.kernel, spec.strides, spec.dilations
    row_of_tiles = _row_of_tiles(spec, lanes, epilogue)

    def kernel(buffers, sizes, begin, end, scratch):
        x, w = pointer(buffers, 0, types.float32), pointer(buffers, 1, types.float32)
        y = pointer(buffers, 2, types.float32)
        height, channels, out_height = sizes[1], sizes[3], sizes[4]
        pad_top, x_image, x_row, y_image, y_row, row_block = sizes[6], sizes[8], sizes[9], sizes[11], sizes[12], sizes[14]
        blocks = (out_height + row_block - 1) // row_block
        for task in range(begin, end):
            image, block = task // blocks, task % blocks
            for out_row in range(block * row_block, min((block + 1) * row_block, out_height)):
                top = out_row * row_stride - pad_top
                first = max(0, (row_dilation - 1 - top) // row_dilation)
                last = min(row_taps, (height - top + row_dilation - 1) // row_dilation)
                row = advance(x, image * x_image + (top + first * row_dilation) * x_row)
                out = advance(y, image * y_image + out_row * y_row)
                taps = advance(w, first * column_taps * channels)
                for start in range(0, channels, lanes):
                    channel = max(min(start, channels - lanes), 0)
                    row_of_tiles(advance(row, channel), advance(taps, channel), last - first, advance(out, channel),
                                 buffers, sizes, image, out_row, channel)  # fmt: skip

    return kernel


def _row_of_tiles(spec: DepthwiseSpec, lanes: int, epilogue: Callable[..., Any] | None) -> Any:
    """A device function that makes one output row of one vector of channels."""
    pixels, column_taps, stride, row_dilation = spec.pixels, spec.kernel[1], spec.strides[1], spec.dilations[0]
    reach = (pixels - 1) * stride + (column_taps - 1) * spec.dilations[1] + 1
    clear, finish = tile.zeros(pixels, 1, lanes), tile.finish_rows(pixels, 1, lanes, epilogue)
    add_inside, add_at_edge = _add_taps(spec, lanes, at_edge=False), _add_taps(spec, lanes, at_edge=True)

    @device
    def row_of_tiles(x, w, rows, y, buffers, sizes, image, out_row, channel):
        width, channels, out_width, pad_left = sizes[2], sizes[3], sizes[5], sizes[7]
        x_row, x_pixel, y_pixel, live = sizes[9], sizes[10], sizes[13], channels - channel
        for start in range(0, out_width, pixels):
            left = max(min(start, out_width - pixels), 0)
            column = left * stride - pad_left
            row, taps, sums = advance(x, column * x_pixel), w, clear()
            if column >= 0 and column + reach <= width and live >= lanes:
                for _ in range(rows):
                    sums = add_inside(sums, row, x_pixel, taps, channels, 0, 0, 0)
                    row, taps = advance(row, row_dilation * x_row), advance(taps, column_taps * channels)
            else:
                for _ in range(rows):
                    sums = add_at_edge(sums, row, x_pixel, taps, channels, column, width, live)
                    row, taps = advance(row, row_dilation * x_row), advance(taps, column_taps * channels)
            finish(sums, advance(y, left * y_pixel), y_pixel, live, out_width - left, 1,
                   buffers, sizes, image, out_row * out_width + left, channel)  # fmt: skip

    return row_of_tiles


def _add_taps(spec: DepthwiseSpec, lanes: int, at_edge: bool) -> Any:
    """An intrinsic `add(sums, x, x_pixel, w, w_tap, column, width, live) -> sums`: one row of the kernel.

        sums[p] += Σ_k x[(p * stride + k * dilation) * x_pixel :] * w[k * w_tap :]

    Every input column is loaded once. At the edge, `column` is that of x within an image `width` wide: columns outside
    are left out; and of the vectors only the first `live` lanes are read.
    """
    pixels, taps, stride, dilation = spec.pixels, spec.kernel[1], spec.strides[1], spec.dilations[1]
    sums_type = types.UniTuple(Vector(types.float32, lanes), pixels)
    vector = ir.VectorType(ir.FloatType(), lanes)
    users: dict[int, list[tuple[int, int]]] = {}
    for p in range(pixels):
        for k in range(taps):
            users.setdefault(p * stride + k * dilation, []).append((p, k))

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        tuple_value, x, x_pixel, w, w_tap, column, width, live = args
        mask = live_mask(builder, live, lanes) if at_edge else None
        sums = cgutils.unpack_tuple(builder, tuple_value)
        weights = [_load(builder, w, builder.mul(w_tap, _I64(k)), vector, mask) for k in range(taps)]

        def add_column(offset: int) -> None:
            value = _load(builder, x, builder.mul(x_pixel, _I64(offset)), vector, mask)
            for p, k in users[offset]:
                sums[p] = llvm_intrinsic(builder, "fma", vector, [value, weights[k], sums[p]], vector)

        for offset in sorted(users):
            if not at_edge:
                add_column(offset)
                continue
            before, origin = list(sums), builder.block
            with builder.if_then(builder.icmp_unsigned("<", builder.add(column, _I64(offset)), width)):
                add_column(offset)
                inside = builder.block
            for p, _ in users[offset]:
                joined = builder.phi(vector)
                joined.add_incoming(before[p], origin)
                joined.add_incoming(sums[p], inside)
                sums[p] = joined
        return context.make_tuple(builder, sums_type, sums)

    @intrinsic
    def add(typingctx, sums, x, x_pixel, w, w_tap, column, width, live):
        integer = types.intp
        return sums_type(sums_type, _POINTER, integer, _POINTER, integer, integer, integer, integer), generate

    return add


def _load(
    builder: ir.IRBuilder, p: ir.Value, index: ir.Value, vector: ir.VectorType, mask: ir.Value | None
) -> ir.Value:
    where = builder.bitcast(builder.gep(p, [index]), vector.as_pointer())
    if mask is not None:
        return masked_load(builder, where, vector, mask, 4)
    loaded = builder.load(where)
    loaded.align = 4
    return loaded
