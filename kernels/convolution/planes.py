"""The depthwise convolution of planes of pixels: see `spec.DepthwisePlanesSpec`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from jitonnx.kernels.code import Code, Mask, Pointer, Variable, emitted, larger, shuffled, smaller
from jitonnx.kernels.convolution.spec import DepthwisePlanesSpec
from jitonnx.kernels.planes import each_block_of_rows
from jitonnx.kernels.simd import Vector
from jitonnx.kernels.tile import Epilogue, emit_finish
from jitonnx.kernels.trace import Traced, fma


def build(spec: DepthwisePlanesSpec, lanes: int, epilogue: Callable[..., Any] | None = None) -> Callable[..., None]:
    """The kernel of `spec` for vectors of `lanes` float32."""

    def body(code: Code, begin: Traced, end: Traced) -> None:
        _Planes(code, spec, lanes, Epilogue(epilogue, Vector(types.float32, lanes))).emit(begin, end)

    return emitted(body)


class _Planes:
    """Emits the kernel."""

    def __init__(self, code: Code, spec: DepthwisePlanesSpec, lanes: int, epilogue: Epilogue) -> None:
        self.code, self.spec, self.lanes, self.epilogue = code, spec, lanes, epilogue
        self.size = {name: code.size(number) for number, name in enumerate((*spec.SIZES, "row_block"))}

    def emit(self, begin: Traced, end: Traced) -> None:
        code, size, (height, width) = self.code, self.size, self.spec.kernel
        with each_block_of_rows(code, begin, end, size["out_height"], size["row_block"], size["channels"]) as rows:
            image, channel = rows.image, rows.channel
            x, y = (
                code.buffer(number, types.float32).at(image * size[f"{name}_image"] + channel * size[f"{name}_channel"])
                for number, name in ((0, "x"), (2, "y"))
            )
            w = code.buffer(1, types.float32).at(channel * (height * width))
            weights = [[code.spread(w.load(i * width + j), self.lanes) for j in range(width)] for i in range(height)]
            with (
                code.loop(rows.stop, rows.start, self.spec.rows) as row,
                code.loop(size["out_width"], step=self.lanes) as start_column,
            ):
                column = larger(smaller(start_column, size["out_width"] - self.lanes), 0)
                sums = self._sums(x, weights, row, column)
                self._finish(y, sums, (row, rows.stop), column, (image, channel))

    def _sums(self, x: Pointer, weights: list[list[Traced]], row: Traced, column: Traced) -> list[Variable]:
        """The sums of a tile; loads that may leave the image have masks, the others none."""
        code, size, spec = self.code, self.size, self.spec
        sums = [code.variable(code.number(types.float32, 0, self.lanes)) for _ in range(spec.rows)]
        top, left = row * spec.strides[0] - size["pad_top"], column * spec.strides[1] - size["pad_left"]
        x = x.at(top * size["x_row"] + left)
        inside = (left >= 0) & (left + spec.reach(self.lanes) <= size["width"])
        with code.either(inside) as (whole, edge):
            with whole:
                self._add_rows(sums, x, weights, top, {at: None for at in self._pieces()})
            with edge:
                self._add_rows(sums, x, weights, top, {at: self._mask(left + at) for at in self._pieces()})
        return sums

    def _pieces(self) -> list[int]:
        """Where a row is loaded from, in elements from the tile's first input on: a piece holds the inputs of a tap,
        with a stride of 2 those of an even place and of the odd one behind it."""
        step = self.spec.strides[1]
        return sorted({tap * self.spec.dilations[1] // step * step for tap in range(self.spec.kernel[1])})

    def _mask(self, first: Traced) -> Mask:
        """Which elements of a piece lie in the image."""
        count = self.lanes * self.spec.strides[1]
        places = self.code.iota(count) + self.code.spread(first, count)
        width = self.code.spread(self.size["width"], count)
        return Mask(((places >= 0) & (places < width)).value)

    def _add_rows(
        self,
        sums: list[Variable],
        x: Pointer,
        weights: list[list[Traced]],
        top: Traced,
        pieces: dict[int, Mask | None],
    ) -> None:
        """The products of the input rows in the image: of each with the outputs and the taps that use it."""
        code, size, spec = self.code, self.size, self.spec
        users: dict[int, list[tuple[int, int]]] = {}
        for output in range(spec.rows):
            for tap in range(spec.kernel[0]):
                users.setdefault(output * spec.strides[0] + tap * spec.dilations[0], []).append((output, tap))
        for row, outputs in sorted(users.items()):
            with code.when((top + row >= 0) & (top + row < size["height"])):
                loaded = {
                    at: x.load(size["x_row"] * row + at, self.lanes * spec.strides[1], mask)
                    for at, mask in pieces.items()
                }
                for column_tap in range(spec.kernel[1]):
                    value = self._inputs(loaded, column_tap * spec.dilations[1])
                    for output, tap in outputs:
                        sums[output].set(fma(value, weights[tap][column_tap], sums[output].get()))

    def _inputs(self, loaded: dict[int, Traced], at: int) -> Traced:
        """What the outputs of a tile read at a tap, the elements at, at + stride, … of a row."""
        step = self.spec.strides[1]
        piece = loaded[at // step * step]
        if step == 1:
            return piece
        return shuffled(piece, piece, range(at % 2, 2 * self.lanes, 2))

    def _finish(
        self,
        y: Pointer,
        sums: list[Variable],
        rows: tuple[Traced, Traced],
        column: Traced,
        plane: tuple[Traced, Traced],
    ) -> None:
        """Store the tile: rows from rows[0] on, those below rows[1]."""
        code, size, (image, channel) = self.code, self.size, plane
        live = size["out_width"] - column
        for number, value in enumerate(sums):
            row = rows[0] + number
            with code.when(row < rows[1]):
                target = y.at(row * size["y_row"] + column)
                emit_finish(
                    *(code.context, code.builder, self.epilogue, (1, 1), [value.get().value]),
                    *(target.value, code.integer(0).value, live.value),
                    code.place(image, channel, row * size["out_width"] + column),
                )
