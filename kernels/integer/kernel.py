"""The kernel of convolutions and products of 8-bit integers. A task:

    its rows' taps side by side, or its rows of the image     scratch, second-level cache
    for each panel of w
        for each tile of rows                                 Σ x w in registers
            - zero * column sums, epilogue, y

Gathering costs a byte read and written for each left operand, which serves a whole row of products: it buys rows that
have their padding in them, whatever the window, the strides and the dilations are. Where windows overlap from row to
row it is rows of the image that are copied, each byte once, and tiles read all their taps there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.integer.gather import emit_gather, emit_padded_rows, zero_point
from jitonnx.kernels.integer.products import Ahead, Factors, Runs, emit_products, evenly_apart
from jitonnx.kernels.integer.spec import IntegerBuffers, IntegerSizes, IntegerSpec
from jitonnx.kernels.parts.microkernel import TileResult, emit_finish
from jitonnx.support.records import NamedTuple


def build(spec: IntegerSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` int32."""
    if spec.multiply == "tiles":
        raise ValueError("Bug: products in tile registers have a kernel of their own")
    if spec.width % lanes:
        raise ValueError(f"Bug: tiles {spec.width} wide are not made of vectors of {lanes}")
    result = getattr(types, spec.result)
    return lambda code, begin, end: _Integer(
        code, spec, lanes, Epilogue(code, epilogue, types.int32, lanes, result)
    ).emit(begin, end)


class _Tile(NamedTuple):
    """Rows times a panel of columns."""

    row: SSAValue
    """The first."""
    x: Pointer
    """Its bytes."""
    row_bytes: SSAValue
    """The distance of rows of x, in bytes; 0 where `places` say where they are."""
    rows_live: SSAValue
    """Rows that count."""
    column: SSAValue
    w: Pointer
    """The panel."""
    places: Pointer
    """The beginning of each row, in bytes from x."""


class _Integer:
    """Emits one kernel."""

    def __init__(self, code: KernelBuilder, spec: IntegerSpec, lanes: int, epilogue: Epilogue) -> None:
        self.code, self.spec, self.lanes, self.epilogue = code, spec, lanes, epilogue
        self.size = code.sizes(IntegerSizes)
        self.element = types.int8 if spec.signed else types.uint8
        _, _, self.w, self.sums, self.y = code.buffers(
            IntegerBuffers, types.int8, sums=types.int32, y=getattr(types, spec.result)
        )
        size = self.size
        self.runs: SSAValue | int = size.kernel_height if spec.padded else 1
        """Rows of taps that lie apart from each other."""
        self.depth = size.kernel_width * size.channels * (1 if spec.padded else size.kernel_height)
        """Elements of a run."""
        self.rows = size.images * size.out_height * size.out_width
        self.run_steps = (self.depth + (spec.group - 1)) / spec.group
        self.steps = self.run_steps * self.runs
        self.direct: SSAValue | None = None
        self.panel = self.steps * (spec.group * spec.width)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size, spec = self.code, self.size, self.spec
        rows = self.rows
        column_tasks = (size.out_channels + (size.task_columns - 1)) / size.task_columns
        self.direct = self._reads_in_place(rows)
        with code.loop(end, begin) as task:
            first_row = task / column_tasks * size.task_rows
            first_column = remainder(task, column_tasks) * size.task_columns
            count = smaller(size.task_rows, rows - first_row)
            with nullcontext() if self.direct is None else code.if_then(~self.direct):
                if spec.padded:
                    emit_padded_rows(code, spec, size, first_row, count)
                else:
                    emit_gather(code, spec, size, first_row, count, self.depth)
            end_column = smaller(first_column + size.task_columns, size.out_channels)
            with code.loop(end_column, first_column, spec.width) as column:
                self._emit_panel(first_row, count, column)

    def _emit_panel(self, first_row: SSAValue, count: SSAValue, column: SSAValue) -> None:
        """All rows of the task times one panel: the highest tiles, then the least that does for what remains."""
        code, done = self.code, self.code.integer(0)
        for number, height in enumerate(self.spec.rows):
            last = number == len(self.spec.rows) - 1
            end = count if last else done + (count - done + (height - 1) - self.spec.rows[-1]) / height * height
            with code.loop(end, done, height) as r:
                self._emit_tile(height, first_row, r, count, column)
            done = end

    def _reads_in_place(self, rows: SSAValue) -> SSAValue | None:
        """Whether the rows are multiplied where they lie: where vectors need no other form of them, and there are
        enough that the last tile can overlap the one before. None: they never are."""
        spec, code = self.spec, self.code
        if spec.windows or spec.flipped or spec.row_itemsize > 1:
            return None
        return remainder(self.depth, code.integer(spec.step)).equals(0) & (rows >= spec.rows[0])

    def _emit_tile(self, height: int, first_row: SSAValue, r: SSAValue, count: SSAValue, column: SSAValue) -> None:
        """`height` rows from `first_row + r` on, of the task's `count`, times one panel. Rows that are read in place
        end with the last of all, and begin before the first that is wanted if need be."""
        code, size, row, rows_live = self.code, self.size, first_row + r, count - r
        x, row_bytes = code.scratch(types.uint8).at(r * size.row_bytes), size.row_bytes
        places = code.scratch(types.int64)
        if self.spec.padded:
            x, row_bytes, places = code.scratch(types.uint8), code.integer(0), places.at(r)
        if self.direct is not None:
            start = select(self.direct, smaller(row, self.rows - height), row)
            there = code.buffers(IntegerBuffers, types.uint8).x.at(start * size.x_pixel)
            x, row_bytes = x.unless(self.direct, there), select(self.direct, size.x_pixel, row_bytes)
            row, rows_live = start, rows_live + (row - start)
        w = self.w.at(column / self.spec.width * self.panel)
        ahead = self._next_panel(w, r, count) if self.spec.paced_prefetch else ()
        tile = _Tile(row, x, row_bytes, rows_live, column, w, places)

        def write(code: KernelBuilder, *arguments: Any) -> None:
            tile, ahead = _Tile(*arguments[: len(_Tile._fields)]), arguments[len(_Tile._fields) :]
            inner = _Integer(code, self.spec, self.lanes, self.epilogue)
            inner._write_tile(height, tile, Ahead(*ahead) if ahead else None)

        code.subroutine(f"tile.{height}", [*tile, *ahead], write, inline=False)

    def _next_panel(self, w: Pointer, r: SSAValue, count: SSAValue) -> Ahead:
        """The part of the panel behind this one that the tile of rows from `r` on asks for: of each step's bytes, which
        all tiles share."""
        spec = self.spec
        each = (count - 1 + spec.group * spec.width * spec.rows[0]) / count
        return Ahead(w.at(self.panel + r / spec.rows[0] * self.steps * each), each)

    def _write_tile(self, height: int, tile: _Tile, ahead: Ahead | None) -> None:
        code, spec, vectors = self.code, self.spec, self.spec.width // self.lanes
        corrections = [self._correction(tile.column + vector * self.lanes) for vector in range(vectors)]
        if spec.padded:
            size = self.size
            rows = [tile.x.at(tile.places.load(r)) for r in range(height)]
            runs = Runs(size.kernel_height, self.run_steps, size.dilation_height * size.line_bytes)
            factors = Factors(rows, tile.w, self.steps, runs)
        else:
            factors = Factors(evenly_apart(tile.x, tile.row_bytes, height), tile.w, self.steps)
        sums = emit_products(code, spec, height, corrections, factors, ahead)
        self._finish(height, sums, tile.row, tile.column, tile.rows_live)

    def _finish(
        self, height: int, sums: Sequence[SSAValue], row: SSAValue, column: SSAValue, rows_live: SSAValue
    ) -> None:
        """The epilogue on a tile of sums, and into y."""
        code, size = self.code, self.size
        emit_finish(
            code,
            self.epilogue,
            shape=(height, len(sums) // height),
            sums=[vector.value for vector in sums],
            result=TileResult(
                self.y.at(row * size.y_pixel + column).value, size.y_pixel.value, (code.integer(0), row, column)
            ),
            active=(size.out_channels - column).value,
            rows_live=rows_live.value,
        )

    def _correction(self, column: SSAValue) -> SSAValue:
        """What sums begin with: - zero * column sums, and a bias."""
        if self.spec.begun:
            return self.sums.load(column, self.lanes)
        if not (self.spec.shifted or self.spec.flipped):
            return self.code.number(types.int32, 0, self.lanes)
        zero = convert(zero_point(self.code, self.spec), types.int32)
        return self.sums.load(column, self.lanes) * (-zero).splat(self.lanes)
