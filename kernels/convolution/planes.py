"""The depthwise convolution of planes of pixels: see `spec.DepthwisePlanesSpec`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, Variable, larger, shuffled, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.ssa import SSAValue, fma
from jitonnx.kernels.convolution.problem import ConvolutionBuffers
from jitonnx.kernels.convolution.spec import DepthwisePlanesSizes, DepthwisePlanesSpec
from jitonnx.kernels.parts.microkernel import TileResult, emit_finish, first_lanes
from jitonnx.kernels.parts.planes import each_block_of_rows

_MOVED = 3
"""A tap is made of another one by fewer moves."""
_Weights = Pointer | list[list[SSAValue]]
_MaskAt = Callable[[SSAValue], Mask | None]
"""The mask of a piece of a row that begins so many elements behind the tile's first input; None: all of it is there."""


def build(spec: DepthwisePlanesSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    return lambda code, begin, end: _emit(code, spec, lanes, Epilogue(code, epilogue, types.float32, lanes), begin, end)


def _emit(
    code: KernelBuilder, spec: DepthwisePlanesSpec, lanes: int, epilogue: Epilogue, begin: SSAValue, end: SSAValue
) -> None:
    size = code.sizes(DepthwisePlanesSizes)
    width = size.out_width
    whole = _Tile(code, spec, size, epilogue, lanes, spec.holds_weights(code.target.vector_registers))
    # Where many taps make it worthwhile, and the CPU takes half of the time for it, half a vector ends a row.
    half = None if whole.holds_weights or not spec.halves(lanes) else replace(whole, lanes=lanes // 2)
    with each_block_of_rows(code, begin, end, size.out_height, size.row_block, size.channels) as rows:
        place = (rows.image, rows.channel)
        x, weights, y = code.buffers(ConvolutionBuffers, types.float32)
        x = x.at(rows.image * size.x_image + rows.channel * size.x_channel)
        y = y.at(rows.image * size.y_image + rows.channel * size.y_channel)
        weights = whole.weights(weights.at(rows.channel * (spec.kernel[0] * spec.kernel[1])))
        with code.loop(rows.stop, rows.start, spec.rows) as row, code.loop(width, step=lanes) as column:
            operands = (x, weights, y, (row, rows.stop), column, place)
            if half is None:
                whole.emit(*operands)
            else:
                with code.if_else(width - column <= half.lanes) as (short, long):
                    with short:
                        half.emit(*operands)
                    with long:
                        whole.emit(*operands)


@dataclass
class _Tile:
    """Emits a tile: `spec.rows` rows of one vector of pixels."""

    code: KernelBuilder
    spec: DepthwisePlanesSpec
    size: DepthwisePlanesSizes
    epilogue: Epilogue
    lanes: int
    """Pixels of the tile, those of the epilogue's vectors or half as many."""
    holds_weights: bool
    """Whether all weights are loaded before the first tile of a plane, else a column of taps in each tile."""

    @property
    def users(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """The input rows of a tile, each with the outputs and the row taps that read it."""
        users: dict[int, list[tuple[int, int]]] = {}
        for output in range(self.spec.rows):
            for tap in range(self.spec.kernel[0]):
                row = output * self.spec.strides[0] + tap * self.spec.dilations[0]
                users.setdefault(row, []).append((output, tap))
        return sorted(users.items())

    def weights(self, w: Pointer) -> _Weights:
        """What all tiles of a plane keep of its weights."""
        if not self.holds_weights:
            return w
        height, width = self.spec.kernel
        return [[self.code.splat(w.load(i * width + j), self.lanes) for j in range(width)] for i in range(height)]

    def emit(
        self,
        x: Pointer,
        weights: _Weights,
        y: Pointer,
        rows: tuple[SSAValue, SSAValue],
        start_column: SSAValue,
        plane: tuple[SSAValue, SSAValue],
    ) -> None:
        """Output rows from rows[0] on, those below rows[1], from start_column on; plane: image and channel."""
        column = larger(smaller(start_column, self.size.out_width - self.lanes), 0)
        self._finish(y, self._sums(x, weights, rows[0], column), rows, column, plane)

    def _sums(self, x: Pointer, weights: _Weights, row: SSAValue, column: SSAValue) -> list[Variable]:
        """The sums of a tile; loads that may leave the image have masks, the others none."""
        code, size, spec = self.code, self.size, self.spec
        sums = [code.variable(code.number(types.float32, 0, self.lanes)) for _ in range(spec.rows)]
        top, left = row * spec.strides[0] - size.pad_top, column * spec.strides[1] - size.pad_left
        x = x.at(top * size.x_row + left)

        def add(mask_at: _MaskAt) -> None:
            if isinstance(weights, Pointer):
                self._add_columns(sums, x, weights, top, mask_at)
            else:
                self._add_rows(sums, x, weights, top, mask_at)

        if self.lanes < self.epilogue.lanes:  # at the end of a row: code without masks would seldom run
            add(lambda at: self._mask(left + at))
            return sums
        inside = (left >= 0) & (left + spec.reach(self.lanes) <= size.width)
        with code.if_else(inside) as (whole, edge):
            with whole:
                add(lambda at: None)
            with edge:
                add(lambda at: self._mask(left + at))
        return sums

    def _mask(self, first: SSAValue) -> Mask:
        """Which elements of a piece lie in the image."""
        count = self.lanes * self.spec.strides[1]
        places = self.code.iota(count) + self.code.splat(first, count)
        width = self.code.splat(self.size.width, count)
        return Mask(((places >= 0) & (places < width)).value)

    def _add_rows(
        self, sums: list[Variable], x: Pointer, weights: list[list[SSAValue]], top: SSAValue, mask_at: _MaskAt
    ) -> None:
        """The products of the input rows in the image: of each with the outputs and the taps that use it.

        Pieces of a row are loaded: a piece holds the inputs of a tap, with a stride of 2 those of an even place and of
        the odd one behind it. Without masks, a tap that lies a stride behind another is that one moved by a lane.
        """
        step, dilation = self.spec.strides[1], self.spec.dilations[1]
        places = [tap * dilation for tap in range(self.spec.kernel[1])]
        pieces = sorted({at // step * step for at in places})
        masks = {at: mask_at(self.code.integer(at)) for at in pieces}
        if step > 1 and masks[0] is None and places[-1] < _MOVED * step:
            pieces = [0]
        for row, users in self.users:
            with self._row(x, top, row) as x_row:
                loaded = {at: x_row.load(at, self.lanes * step, masks[at]) for at in pieces}
                for column_tap, at in enumerate(places):
                    piece, phase = min(at // step * step, pieces[-1]), at % step
                    value = self._picked(loaded[piece], phase)
                    for behind in range(piece + step * self.lanes + phase, at + step * self.lanes, step):
                        following = self.code.splat(x_row.load(behind), self.lanes)
                        value = shuffled(value, following, range(1, self.lanes + 1))
                    for output, tap in users:
                        sums[output].set(fma(value, weights[tap][column_tap], sums[output].get()))

    def _add_columns(self, sums: list[Variable], x: Pointer, weights: Pointer, top: SSAValue, mask_at: _MaskAt) -> None:
        """The same, a column of taps after the other: their weights stay in registers, and rows are loaded anew."""
        (height, width), step = self.spec.kernel, self.spec.strides[1]
        with self.code.loop(width) as column_tap:
            at = column_tap * self.spec.dilations[1]
            mask = mask_at(at)
            spread = [self.code.splat(weights.load(column_tap + tap * width), self.lanes) for tap in range(height)]
            for row, users in self.users:
                with self._row(x, top, row) as x_row:
                    value = self._picked(x_row.load(at, self.lanes * step, mask), 0)
                    for output, tap in users:
                        sums[output].set(fma(value, spread[tap], sums[output].get()))

    @contextmanager
    def _row(self, x: Pointer, top: SSAValue, row: int) -> Iterator[Pointer]:
        """Input row `row` of the tile, if that is in the image."""
        with self.code.if_then((top + row >= 0) & (top + row < self.size.height)):
            yield x.at(self.size.x_row * row)

    def _picked(self, piece: SSAValue, first: int) -> SSAValue:
        """What the outputs of a tile read of a piece, from its element `first` on, a stride apart."""
        step = self.spec.strides[1]
        return piece if step == 1 else shuffled(piece, piece, range(first, step * self.lanes, step))

    def _finish(
        self,
        y: Pointer,
        sums: list[Variable],
        rows: tuple[SSAValue, SSAValue],
        column: SSAValue,
        plane: tuple[SSAValue, SSAValue],
    ) -> None:
        """Store the tile: rows from rows[0] on, those below rows[1]."""
        code, size, (image, channel) = self.code, self.size, plane
        active, vector = size.out_width - column, self.epilogue.lanes
        if self.lanes < vector:
            active = smaller(active, self.lanes)
        for number, value in enumerate(sums):
            row = rows[0] + number
            with code.if_then(row < rows[1]):
                target = y.at(row * size.y_row + column)
                total = first_lanes(code.builder, value.get().value, vector)
                emit_finish(
                    *(code, self.epilogue, (1, 1), [total]),
                    TileResult(target.value, code.integer(0).value, (image, channel, row * size.out_width + column)),
                    active.value,
                )
