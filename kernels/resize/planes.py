"""The resampling kernel that writes planes, as `spec.ResizePlanesSpec` describes it."""

from __future__ import annotations

from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder, Mask, Pointer, each_vector, remainder, smaller
from jitonnx.emit.epilogue import Epilogue
from jitonnx.emit.instructions import permuted, reordered
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, fma
from jitonnx.kernels.parts.planes import each_block_of_rows
from jitonnx.kernels.resize.spec import ResizePlanesBuffers, ResizePlanesSizes, ResizePlanesSpec


class Planes:
    """Emits the kernel: input rows of out_width in scratch memory, of which `taps` make each output row."""

    def __init__(self, code: KernelBuilder, spec: ResizePlanesSpec, lanes: int, epilogue: Any) -> None:
        self.code, self.spec, self.taps, self.lanes = code, spec, spec.taps, lanes
        self.epilogue = Epilogue(code, epilogue, types.float32, lanes)
        self.size = code.sizes(ResizePlanesSizes)
        places = dict.fromkeys(("rows", "starts", "columns"), types.int32)
        self.buffer = code.buffers(ResizePlanesBuffers, types.float32, **places)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, size, taps = self.code, self.size, self.taps
        with each_block_of_rows(code, begin, end, size.out_height, size.row_block, size.channels) as rows:
            image, channel = rows.image, rows.channel
            x = self.buffer.x.at(image * size.x_image + channel * size.x_channel)
            y = self.buffer.y.at(image * size.y_image + channel * size.y_channel)
            held = code.memory(types.int64, self.spec.places)
            for place in range(self.spec.places):
                held.store(place, code.integer(-1))
            with code.loop(rows.stop, rows.start) as row:
                positions = [convert(self.buffer.rows.load(row * taps + tap), types.int64) for tap in range(taps)]
                widened = [self._widened(x, position, held) for position in positions]
                weights = [self.buffer.row_weights.load(row * taps + tap) for tap in range(taps)]
                self._blend(y.at(row * size.y_row), widened, weights, (image, channel, row * size.out_width))

    def _widened(self, x: Pointer, row: SSAValue, held: Pointer) -> Pointer:
        """The address of row `row` of a plane with out_width columns; `held`: which group of rows lies in each place.

        The rows that an output row needs are neighbours, so groups that lie `places` apart are not needed together.
        """
        code, size, together = self.code, self.size, self.spec.together
        group = row / together
        place = remainder(group, code.integer(self.spec.places))
        target = code.scratch(types.float32).at(place * (size.pitch * together))
        with code.if_then(~held.load(place).equals(group)):
            held.store(place, group)
            first = group * together
            numbers = [smaller(first + number, size.height - 1) if number else first for number in range(together)]
            self._widen([x.at(number * size.x_row) for number in numbers], target)
        return target.at((row - group * together) * size.pitch)

    def _widen(self, rows: list[Pointer], target: Pointer) -> None:
        """Rows with out_width columns, to memory `pitch` apart; rows shorter than a window are read by parts of
        vectors. Rows made together share the loads of columns and weights."""
        code, size, lanes, parts = self.code, self.size, self.lanes, self.spec.window

        def vectors(*, masked: bool) -> None:
            with code.loop((size.out_width + (lanes - 1)) / code.integer(lanes)) as number:
                start = convert(self.buffer.starts.load(number), types.int64)
                active = [size.width - start - part * lanes if masked else None for part in range(parts)]
                columns, weights = self._taps(number * lanes)
                for place, x in enumerate(rows):
                    window = [x.load(start + part * lanes, lanes, active[part]) for part in range(parts)]
                    inputs = [
                        reordered(window[0], column) if parts == 1 else permuted(window[0], window[1], column)
                        for column in columns
                    ]
                    target.store(size.pitch * place + number * lanes, _weighted(inputs, weights))

        with code.if_else(size.width >= parts * lanes) as (long, short):
            with long:
                vectors(masked=False)
            with short:
                vectors(masked=True)

    def _taps(self, column: SSAValue) -> tuple[list[SSAValue], list[SSAValue]]:
        """The columns within their window, and the weights, that outputs from `column` on have: of each tap a vector.
        A single tap has no weight."""
        padded = (self.size.out_width + (self.lanes - 1)) / self.code.integer(self.lanes) * self.lanes
        places = [column + tap * padded for tap in range(self.taps)]
        columns, weights = (
            [getattr(self.buffer, name).load(place, self.lanes) for place in places]
            for name in ("columns", "column_weights")
        )
        return columns, weights if self.taps > 1 else []

    def _blend(
        self, y: Pointer, rows: list[Pointer], weights: list[SSAValue], place: tuple[SSAValue, SSAValue, SSAValue]
    ) -> None:
        """An output row from widened rows; place: image, channel, number of the first pixel."""
        code, lanes, (image, channel, pixel) = self.code, self.lanes, place

        def piece(first: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
            factors = [code.splat(weight, width) for weight in weights] if self.taps > 1 else []
            blended = _weighted([row.load(first, width) for row in rows], factors)
            for start in range(0, width, lanes):
                rest = None if mask is None else active - start
                here = code.integer(lanes) if rest is None else rest
                value = code.part(blended, start, lanes)
                value = self.epilogue(code, value, image, channel, pixel + first + start, here)
                y.store(first + start, value, rest)

        each_vector(code, self.size.out_width, lanes, piece)


def _weighted(values: list[SSAValue], weights: list[SSAValue]) -> SSAValue:
    """Σ value * weight; without weights the value alone."""
    if not weights:
        return values[0]
    total = values[0] * weights[0]
    for value, weight in zip(values[1:], weights[1:], strict=True):
        total = fma(value, weight, total)
    return total
