"""The depthwise convolution: see `spec.DepthwiseSpec`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from jitonnx.kernels.code import Code, Mask, Pointer, Variable, emitted, larger, remainder, smaller
from jitonnx.kernels.convolution.spec import DepthwiseSpec
from jitonnx.kernels.simd import Vector
from jitonnx.kernels.tile import Epilogue, emit_finish, emit_prefetch, emit_prefetch_result
from jitonnx.kernels.trace import Traced, fma

_BLOCK_VECTORS = 8
"""Vectors of channels done tile by tile: pieces of 512 bytes of each pixel are read one after the other, which a CPU
foresees, and the block's weights stay in the first-level cache."""
_NEAR_ELEMENTS = 1 << 17
"""An image of so many elements stays in the second-level cache."""


def build(spec: DepthwiseSpec, lanes: int, epilogue: Callable[..., Any] | None = None) -> Callable[..., None]:
    """The kernel of `spec` for vectors of `lanes` float32."""

    def body(code: Code, begin: Traced, end: Traced) -> None:
        _Depthwise(code, spec, lanes, Epilogue(epilogue, Vector(types.float32, lanes))).emit(begin, end)

    return emitted(body)


class _Depthwise:
    """Emits the kernel."""

    def __init__(self, code: Code, spec: DepthwiseSpec, lanes: int, epilogue: Epilogue) -> None:
        self.code, self.spec, self.lanes, self.epilogue = code, spec, lanes, epilogue
        self.size = {name: code.size(number) for number, name in enumerate((*spec.SIZES, "row_block"))}
        # For each input column of a tile: the pixels and the taps of a kernel row that use it.
        self.users: dict[int, list[tuple[int, int]]] = {}
        for pixel in range(spec.pixels):
            for tap in range(spec.kernel[1]):
                self.users.setdefault(pixel * spec.strides[1] + tap * spec.dilations[1], []).append((pixel, tap))

    def emit(self, begin: Traced, end: Traced) -> None:
        code, size = self.code, self.size
        blocks = (size["out_height"] + size["row_block"] - 1) / size["row_block"]
        with code.loop(end, begin) as task:
            image, start = task / blocks, remainder(task, blocks) * size["row_block"]
            x = code.buffer(0, types.float32).at(image * size["x_image"])
            y = code.buffer(2, types.float32).at(image * size["y_image"])
            with code.loop(smaller(start + size["row_block"], size["out_height"]), start) as out_row:
                self._row(x, y.at(out_row * size["y_row"]), image, out_row)

    def _row(self, x: Pointer, y: Pointer, image: Traced, out_row: Traced) -> None:
        """One output row: for each block of channels all tiles."""
        code, size, (dilation, _) = self.code, self.size, self.spec.dilations
        top = out_row * self.spec.strides[0] - size["pad_top"]
        first = larger(dilation - 1 - top, 0) / dilation
        last = smaller(larger(size["height"] - top + (dilation - 1), 0) / dilation, self.spec.kernel[0])
        row = x.at((top + first * dilation) * size["x_row"])
        weights = code.buffer(1, types.float32).at(first * self.spec.kernel[1] * size["channels"])
        block = _BLOCK_VECTORS * self.lanes
        with code.loop(size["channels"], step=block) as first_channel:
            end = smaller(first_channel + block, size["channels"])
            with code.loop(size["out_width"], step=self.spec.pixels) as start_column:
                out_column = larger(smaller(start_column, size["out_width"] - self.spec.pixels), 0)
                with code.loop(end, first_channel, self.lanes) as start:
                    channel = larger(smaller(start, size["channels"] - self.lanes), 0)
                    pointers = (row.at(channel), weights.at(channel), y.at(channel))
                    self._tile(pointers, last - first, (image, out_row, out_column, channel))

    def _tile(
        self, pointers: tuple[Pointer, Pointer, Pointer], rows: Traced, place: tuple[Traced, Traced, Traced, Traced]
    ) -> None:
        code, size, spec = self.code, self.size, self.spec
        x, w, y = pointers
        image, out_row, out_column, channel = place
        live = size["channels"] - channel
        column = out_column * spec.strides[1] - size["pad_left"]
        sums = [code.variable(code.number(types.float32, 0, self.lanes)) for _ in range(spec.pixels)]
        inside = (column >= 0) & (column + max(self.users) < size["width"]) & (live >= self.lanes)
        row_step, tap_step = size["x_row"] * spec.dilations[0], size["channels"] * spec.kernel[1]
        live_lanes = code.live(live, self.lanes)
        y = y.at(out_column * size["y_pixel"])
        emit_prefetch_result(code.builder, y.value, size["y_pixel"].value, (spec.pixels, self.lanes))
        self._prefetch_below(x.at(column * size["x_pixel"] + rows * row_step))
        with code.either(inside) as (whole, edge):
            for branch, mask in ((whole, None), (edge, live_lanes)):
                with branch, code.loop(rows) as tap:
                    row = x.at(column * size["x_pixel"] + tap * row_step)
                    self._add_row(sums, row, w.at(tap * tap_step), column, mask)
        emit_finish(
            *(code.context, code.builder, self.epilogue, (spec.pixels, 1), [value.get().value for value in sums]),
            *(y.value, size["y_pixel"].value, live.value),
            code.place(image, out_row * size["out_width"] + out_column, channel),
            (size["out_width"] - out_column).value,
        )

    def _prefetch_below(self, x: Pointer) -> None:
        """Ask for what the tile below will read and this one does not: `x` points to the row below its last.

        Measured at 3x3, strides of 2, 112 x 112 x 96, whose input comes from the third-level cache: half of the time.
        Where all is near it would cost 5 %.
        """
        size, (row_stride, column_stride) = self.size, self.spec.strides
        with self.code.when(size["height"] * size["x_row"] > _NEAR_ELEMENTS):
            for row in range(row_stride):
                for column in range(self.spec.pixels * column_stride):
                    where = x.at(size["x_row"] * row + size["x_pixel"] * column)
                    emit_prefetch(self.code.builder, where.value)

    def _add_row(self, sums: list[Variable], x: Pointer, w: Pointer, column: Traced, mask: Mask | None) -> None:
        """Add the products of one kernel row; every input column is loaded once, by all pixels and taps that use it.

        With a mask, columns that lie outside the image are left out; `column` is that of x.
        """
        taps = range(self.spec.kernel[1])
        weights = [w.load(self.size["channels"] * tap, self.lanes, mask) for tap in taps]
        for offset in sorted(self.users):
            if mask is None:
                self._add_column(sums, x, weights, offset, mask)
                continue
            with self.code.when((column + offset >= 0) & (column + offset < self.size["width"])):
                self._add_column(sums, x, weights, offset, mask)

    def _add_column(
        self, sums: list[Variable], x: Pointer, weights: list[Traced], offset: int, mask: Mask | None
    ) -> None:
        value = x.load(self.size["x_pixel"] * offset, self.lanes, mask)
        for pixel, tap in self.users[offset]:
            sums[pixel].set(fma(value, weights[tap], sums[pixel].get()))
