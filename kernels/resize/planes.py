"""The resampling kernel that writes planes, as `spec.ResizePlanesSpec` describes it."""

from __future__ import annotations

from typing import Any

from numba import types

from jitonnx.kernels.code import Code, Mask, Pointer, convert, each_vector, remainder
from jitonnx.kernels.planes import each_block_of_rows
from jitonnx.kernels.resize.spec import ResizePlanesSpec
from jitonnx.kernels.simd import Vector
from jitonnx.kernels.tile import Epilogue
from jitonnx.kernels.trace import Traced, fma, permuted, select


class Planes:
    """Emits the kernel: input rows of out_width in scratch memory, of which one or two make each output row."""

    def __init__(self, code: Code, spec: ResizePlanesSpec, lanes: int, epilogue: Any) -> None:
        self.code, self.taps, self.lanes = code, spec.taps, lanes
        self.epilogue = Epilogue(epilogue, Vector(types.float32, lanes))
        self.size = {name: code.size(index) for index, name in enumerate((*spec.SIZES, "row_block", "pitch"))}
        elements = {"rows": types.int32, "starts": types.int32, "columns": types.int32}
        self.buffer = {
            name: code.buffer(index, elements.get(name, types.float32)) for index, name in enumerate(spec.BUFFERS)
        }

    def emit(self, begin: Traced, end: Traced) -> None:
        """The tasks."""
        code, size, taps = self.code, self.size, self.taps
        with each_block_of_rows(code, begin, end, size["out_height"], size["row_block"], size["channels"]) as rows:
            image, channel = rows.image, rows.channel
            x = self.buffer["x"].at(image * size["x_image"] + channel * size["x_channel"])
            y = self.buffer["y"].at(image * size["y_image"] + channel * size["y_channel"])
            held = [code.variable(code.integer(-1)) for _ in range(taps)]
            with code.loop(rows.stop, rows.start) as row:
                positions = [convert(self.buffer["rows"].load(row * taps + tap), types.int64) for tap in range(taps)]
                widened = [self._widened(x, position, held) for position in positions]
                weights = [self.buffer["row_weights"].load(row * taps + tap) for tap in range(taps)]
                self._blend(y.at(row * size["y_row"]), widened, weights, (image, channel, row * size["out_width"]))

    def _widened(self, x: Pointer, row: Traced, held: list[Any]) -> Pointer:
        """Where row `row` of a plane lies with out_width columns; `held`: the rows that lie in the places for them.

        Of two places a row has that of its parity: the two rows that an output row needs are neighbours.
        """
        odd = remainder(row, self.code.integer(len(held))).equals(1)
        target = self.code.scratch(types.float32).at(select(odd, self.size["pitch"], 0))
        with self.code.when(~select(odd, held[-1].get(), held[0].get()).equals(row)):
            for place, number in enumerate(held):
                number.set(select(odd if place else ~odd, row, number.get()))
            self._widen(x.at(row * self.size["x_row"]), target)
        return target

    def _widen(self, x: Pointer, target: Pointer) -> None:
        """A row with out_width columns; rows shorter than a window are read by parts of vectors."""
        code, size, lanes = self.code, self.size, self.lanes

        def vectors(masked: bool) -> None:
            with code.loop((size["out_width"] + (lanes - 1)) / code.integer(lanes)) as number:
                start = convert(self.buffer["starts"].load(number), types.int64)
                live = [size["width"] - start - part * lanes if masked else None for part in range(2)]
                window = [x.load(start + part * lanes, lanes, live[part]) for part in range(2)]
                target.store(number * lanes, self._outputs(window, number * lanes))

        with code.either(size["width"] >= 2 * lanes) as (long, short):
            with long:
                vectors(masked=False)
            with short:
                vectors(masked=True)

    def _outputs(self, window: list[Traced], column: Traced) -> Traced:
        """The outputs from `column` on, which read this window."""
        lanes, columns, weights = self.lanes, self.buffer["columns"], self.buffer["column_weights"]
        padded = (self.size["out_width"] + (lanes - 1)) / self.code.integer(lanes) * lanes
        places = [column + tap * padded for tap in range(self.taps)]
        taps = [permuted(window[0], window[1], columns.load(place, lanes)) for place in places]
        if self.taps == 1:
            return taps[0]
        return fma(taps[1], weights.load(places[1], lanes), taps[0] * weights.load(places[0], lanes))

    def _blend(
        self, y: Pointer, rows: list[Pointer], weights: list[Traced], place: tuple[Traced, Traced, Traced]
    ) -> None:
        """An output row from one or two widened rows; place: image, channel, number of the first pixel."""
        code, lanes, (image, channel, pixel) = self.code, self.lanes, place

        def piece(first: Traced, width: int, mask: Mask | None, live: Traced) -> None:
            above, below = rows[0].load(first, width), rows[-1].load(first, width)
            if self.taps == 2:
                above = fma(below, code.spread(weights[1], width), above * code.spread(weights[0], width))
            for start in range(0, width, lanes):
                rest = None if mask is None else live - start
                here = code.integer(lanes) if rest is None else rest
                value = code.part(above, start, lanes)
                value = code.epilogue(self.epilogue, value, image, channel, pixel + first + start, here)
                y.store(first + start, value, rest)

        each_vector(code, self.size["out_width"], lanes, piece)
