"""The kernel of convolutions and products of 8-bit integers. A task:

    its rows' taps gathered side by side                      scratch, second-level cache
    for each panel of w
        for each tile of rows                                 Σ x w in registers, or in tile registers
            - zero * column sums, epilogue, y

Gathering costs a byte read and written for each left operand, which serves a whole row of products: it buys rows that
are aligned and have their padding in them, whatever the window, the strides and the dilations are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from jitonnx.kernels.integer.depthwise import build_depthwise
from jitonnx.kernels.integer.depthwise_spec import DepthwiseIntegerSpec
from jitonnx.kernels.integer.gather import emit_gather, zero_point
from jitonnx.kernels.integer.products import emit_products
from jitonnx.kernels.integer.spec import IntegerBuffers, IntegerSizes, IntegerSpec
from jitonnx.kernels.integer.tiles import configured, emit_tile_products
from jitonnx.kernels.language import types
from jitonnx.kernels.language.code import Code, Kernel, remainder, smaller
from jitonnx.kernels.language.epilogue import Epilogue, Stage
from jitonnx.kernels.language.simd import convert
from jitonnx.kernels.language.trace import Traced
from jitonnx.kernels.parts.tile import emit_finish

_TOGETHER = 4
"""Rows of a tile of sums in memory that go through the epilogue at a time."""


def build(spec: IntegerSpec | DepthwiseIntegerSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` int32."""
    if isinstance(spec, DepthwiseIntegerSpec):
        return build_depthwise(spec, lanes, epilogue)
    if spec.width % lanes and spec.multiply != "tiles":
        raise ValueError(f"Bug: tiles {spec.width} wide are not made of vectors of {lanes}")
    result = getattr(types, spec.result)
    if epilogue is None and result is not types.int32:
        raise ValueError(f"Bug: sums are int32, not {result}, without an epilogue")

    def body(code: Code, begin: Traced, end: Traced) -> None:
        _Integer(code, spec, lanes, Epilogue(code, epilogue, types.int32, lanes, result)).emit(begin, end)

    return body


class _Integer:
    """Emits one kernel."""

    def __init__(self, code: Code, spec: IntegerSpec, lanes: int, epilogue: Epilogue) -> None:
        self.code, self.spec, self.lanes, self.epilogue = code, spec, lanes, epilogue
        self.size = code.sizes(IntegerSizes)
        self.element = types.int8 if spec.signed else types.uint8
        _, _, self.w, self.sums, self.y = code.buffers(
            IntegerBuffers, types.int8, sums=types.int32, y=getattr(types, spec.result)
        )
        size = self.size
        self.depth = size.channels * size.kernel_height * size.kernel_width
        self.panel = (self.depth + (spec.step - 1)) / spec.step * (spec.step * spec.width)

    def emit(self, begin: Traced, end: Traced) -> None:
        code, size, spec = self.code, self.size, self.spec
        rows = size.images * size.out_height * size.out_width
        column_tasks = (size.out_channels + (size.task_columns - 1)) / size.task_columns
        with configured(code) if spec.multiply == "tiles" else nullcontext(), code.loop(end, begin) as task:
            first_row = task / column_tasks * size.task_rows
            first_column = remainder(task, column_tasks) * size.task_columns
            count = smaller(size.task_rows, rows - first_row)
            emit_gather(code, spec, self.size, first_row, count, self.depth)
            end_column = smaller(first_column + size.task_columns, size.out_channels)
            with code.loop(end_column, first_column, spec.width) as column:
                self._emit_panel(first_row, count, column)

    def _emit_panel(self, first_row: Traced, count: Traced, column: Traced) -> None:
        """All rows of the task times one panel: the highest tiles, then the least that does for what remains."""
        code, done = self.code, self.code.integer(0)
        for number, height in enumerate(self.spec.rows):
            last = number == len(self.spec.rows) - 1
            end = count if last else done + (count - done + (height - 1) - self.spec.rows[-1]) / height * height
            with code.loop(end, done, height) as r:
                self._emit_tile(height, first_row, r, count - r, column)
            done = end

    def _emit_tile(self, height: int, first_row: Traced, r: Traced, rows_live: Traced, column: Traced) -> None:
        arguments = [first_row + r, r, rows_live, column]

        def write(code: Code, row: Traced, r: Traced, rows_live: Traced, column: Traced) -> None:
            _Integer(code, self.spec, self.lanes, self.epilogue)._write_tile(height, row, r, rows_live, column)

        code = self.code
        code.subroutine(f"tile.{height}", arguments, write, inline=False)

    def _write_tile(self, height: int, row: Traced, r: Traced, rows_live: Traced, column: Traced) -> None:
        code, size, spec, vectors = self.code, self.size, self.spec, self.spec.width // self.lanes
        corrections = [self._correction(column + vector * self.lanes) for vector in range(vectors)]
        x = code.scratch(types.uint8).at(r * size.row_bytes)
        w = self.w.at(column / spec.width * self.panel)
        if spec.multiply == "tiles":
            steps = (self.depth + (spec.step - 1)) / spec.step
            tile = code.scratch(types.uint8).at(size.task_rows * size.row_bytes).to(types.int32)
            emit_tile_products(code, spec, height, x, size.row_bytes, w, steps, tile)
            with code.loop(smaller(rows_live, height), step=_TOGETHER) as i:
                places = [
                    tile.at((i + j) * spec.width + v * self.lanes) for j in range(_TOGETHER) for v in range(vectors)
                ]
                sums = [place.load(0, self.lanes) + corrections[n % vectors] for n, place in enumerate(places)]
                self._finish(_TOGETHER, sums, row + i, column, rows_live - i)
            return
        steps = (self.depth + (spec.group - 1)) / spec.group
        sums = emit_products(code, spec, height, corrections, x, size.row_bytes, w, steps, self.lanes)
        self._finish(height, sums, row, column, rows_live)

    def _finish(self, height: int, sums: Sequence[Traced], row: Traced, column: Traced, rows_live: Traced) -> None:
        """The epilogue on a tile of sums, and into y."""
        code, size = self.code, self.size
        emit_finish(
            code,
            self.epilogue,
            shape=(height, len(sums) // height),
            sums=[vector.value for vector in sums],
            c=self.y.at(row * size.y_pixel + column).value,
            ldc=size.y_pixel.value,
            live=(size.out_channels - column).value,
            place=(code.integer(0), row, column),
            rows_live=rows_live.value,
        )

    def _correction(self, column: Traced) -> Traced:
        """What sums begin with: - zero * column sums."""
        if not (self.spec.shifted or self.spec.flipped):
            return self.code.number(types.int32, 0, self.lanes)
        zero = convert(zero_point(self.code, self.spec), types.int32)
        return self.sums.load(column, self.lanes) * (-zero).spread(self.lanes)
