"""The resampling kernel that writes planes, as `spec.ResizePlanesSpec` describes it."""

from __future__ import annotations

from typing import Any

from numba import types

from jitonnx.kernels.code import Code, Mask, Pointer, convert, each_vector, remainder, smaller
from jitonnx.kernels.resize.spec import ResizePlanesSpec
from jitonnx.kernels.simd import Vector
from jitonnx.kernels.tile import Epilogue
from jitonnx.kernels.trace import Traced, fma, select


class Planes:
    """Emits the kernel: input rows widened into scratch memory, of which two make each output row."""

    def __init__(self, code: Code, spec: ResizePlanesSpec, lanes: int, epilogue: Any) -> None:
        self.code, self.lanes = code, lanes
        self.epilogue = Epilogue(epilogue, Vector(types.float32, lanes))
        self.size = {name: code.size(index) for index, name in enumerate((*spec.SIZES, "row_block", "pitch"))}
        elements = {"rows": types.int32, "runs": types.int32}
        self.buffer = {
            name: code.buffer(index, elements.get(name, types.float32)) for index, name in enumerate(spec.BUFFERS)
        }

    def emit(self, begin: Traced, end: Traced) -> None:
        """The tasks."""
        code, size = self.code, self.size
        blocks = (size["out_height"] + size["row_block"] - 1) / size["row_block"]
        with code.loop(end, begin) as task:
            plane, start = task / blocks, remainder(task, blocks) * size["row_block"]
            image, channel = plane / size["channels"], remainder(plane, size["channels"])
            x = self.buffer["x"].at(image * size["x_image"] + channel * size["x_channel"])
            y = self.buffer["y"].at(image * size["y_image"] + channel * size["y_channel"])
            held = [code.variable(code.integer(-1)) for _ in range(2)]
            with code.loop(smaller(start + size["row_block"], size["out_height"]), start) as row:
                positions = [convert(self.buffer["rows"].load(row * 2 + tap), types.int64) for tap in range(2)]
                widened = [self._widened(x, position, held) for position in positions]
                weights = [self.buffer["row_weights"].load(row * 2 + tap) for tap in range(2)]
                self._blend(y.at(row * size["y_row"]), widened, weights, (image, channel, row * size["out_width"]))

    def _widened(self, x: Pointer, row: Traced, held: list[Any]) -> Pointer:
        """Where row `row` of a plane lies with out_width columns; `held`: the rows that lie in the two places.

        A row has the place of its parity: the two that an output row needs are neighbours.
        """
        odd = remainder(row, self.code.integer(2)).equals(1)
        target = self.code.scratch(types.float32).at(select(odd, self.size["pitch"], 0))
        with self.code.when(~select(odd, held[1].get(), held[0].get()).equals(row)):
            for place, number in enumerate(held):
                number.set(select(odd if place else ~odd, row, number.get()))
            self._widen(x.at(row * self.size["x_row"]), target)
        return target

    def _widen(self, x: Pointer, target: Pointer) -> None:
        """Runs of outputs that read the same two columns; vectors may run into the next run, which is made later."""
        code, runs, weights = self.code, self.buffer["runs"], self.buffer["column_weights"]
        with code.loop(self.size["runs"]) as run:
            first, second, start, stop = (convert(runs.load(run * 3 + i), types.int64) for i in (0, 1, 2, 5))
            left, right = (code.spread(x.load(column * self.size["x_pixel"]), self.lanes) for column in (first, second))
            with code.loop(stop, start, self.lanes) as column:
                product = left * weights.load(column, self.lanes)
                target.store(column, fma(right, weights.load(self.size["pitch"] + column, self.lanes), product))

    def _blend(
        self, y: Pointer, rows: list[Pointer], weights: list[Traced], place: tuple[Traced, Traced, Traced]
    ) -> None:
        """An output row from two widened rows; place: image, channel, number of the first pixel."""
        code, lanes, (image, channel, pixel) = self.code, self.lanes, place

        def piece(first: Traced, width: int, mask: Mask | None, live: Traced) -> None:
            above, below = (row.load(first, width) for row in rows)
            total = fma(below, code.spread(weights[1], width), above * code.spread(weights[0], width))
            for start in range(0, width, lanes):
                rest = None if mask is None else live - start
                here = code.integer(lanes) if rest is None else rest
                value = code.part(total, start, lanes)
                value = code.epilogue(self.epilogue, value, image, channel, pixel + first + start, here)
                y.store(first + start, value, rest)

        each_vector(code, self.size["out_width"], lanes, piece)
