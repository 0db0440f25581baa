"""The GEMM kernel: driver loops, copies of operands that lie otherwise than tiles read them, and tiles; all LLVM IR.

The loops of a task, outermost first:

    for each part of k (spec.depth; or all of it)      the task's rows of a stay in the second-level cache
        for each panel of b (widths[0] columns)        the panel, [k][width], stays in the second-level cache
            for each tile of rows                      its rows of a stay in the first-level cache
                for each chain of k                    tuning.SUM_STEPS, so that errors stay small
                    for p in the chain                 rows x vectors sums in registers

Between chains sums lie on the stack, or with parts of k in scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, Variable, each_vector, larger, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.half import widen
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.gemm.blas import BlasSpec, build_blas
from jitonnx.kernels.gemm.copy import emit_copy
from jitonnx.kernels.gemm.scale import build_scale
from jitonnx.kernels.gemm.spec import LONGEST_VECTOR, GemmBuffers, GemmSizes, GemmSpec, ScaleSpec
from jitonnx.kernels.parts.microkernel import (
    Panel,
    Rows,
    TileResult,
    emit_accumulate,
    emit_finish,
    emit_prefetch_result,
    first_lanes,
    in_chains,
    room_for,
    row_offsets,
)
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning

_I64 = llvm_ir.IntType(64)
_LINE_BYTES = 64  # of the cache


def build(spec: GemmSpec | ScaleSpec | BlasSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements (of spec.element).

    epilogue(x, buffers, sizes, batch, row, column, live) finds its own operands behind BUFFERS and SIZES.
    """
    if isinstance(spec, BlasSpec):
        return build_blas(spec)
    if isinstance(spec, ScaleSpec):
        return build_scale(spec, lanes)
    part = lanes // 2 if spec.b_packed else lanes
    if any(width % part for width in spec.widths):
        raise ValueError(f"Bug: tiles {spec.widths} wide are not made of vectors of {part}")
    element = getattr(types, spec.element)
    return lambda code, begin, end: _Gemm(code, spec, element, lanes, Epilogue(code, epilogue, element, lanes)).emit(
        begin, end
    )


class _Product(NamedTuple):
    """Some rows of a times a panel of b, and where the result goes."""

    a: Pointer
    a_row: SSAValue
    b: Pointer
    b_row: SSAValue
    k: SSAValue
    c: Pointer
    c_row: SSAValue
    active: SSAValue
    """Columns to write, from c on."""
    batch: SSAValue
    row: SSAValue
    column: SSAValue
    next_b: Pointer
    """What to ask for meanwhile, a cache line in each step of k."""
    later: Pointer
    """What tiles are to ask for on behalf of a later kernel."""
    later_end: SSAValue
    """How many elements of it."""
    pace: SSAValue
    """How many elements of the next panel a tile asks for in each step of k."""
    kept: Pointer
    """Sums lie there between parts of k."""
    kept_row: SSAValue
    done: SSAValue
    """Steps of k that the sums have behind them, in other parts."""
    left: SSAValue
    """Steps of k that are left to later parts."""

    def below(self, r: SSAValue, height: int, width: int, *, paced_prefetch: bool) -> _Product:
        """The rows from r on, for tiles of so many rows: the first tiles each ask for a part of the next panel. The
        others ask for parts of what is read later; if `paced_prefetch`, all do, in the place of their rows of a."""
        tile, line, pace = r / height, _line(self.b.element), self.pace
        place = self._replace(a=self.a.at(r * self.a_row), c=self.c.at(r * self.c_row), row=self.row + r)
        place = place._replace(kept=self.kept.at(r * self.kept_row))
        first = (pace + (width - 1)) / pace
        next_b = self.next_b.at(select(tile < first, tile * self.k * pace, 0))
        if paced_prefetch:
            part = tile * self.k * line
            return place._replace(next_b=next_b, later=self.later.at(part), later_end=self.later_end - part)
        part = (tile - first) * self.k * line
        for_later = (tile >= first) & (part < self.later_end)
        return place._replace(next_b=next_b.unless(for_later, self.later.at(part)))


def _line(element: types.ElementType) -> int:
    """Elements in a cache line."""
    return _LINE_BYTES // (element.bitwidth // 8)


class _Gemm:
    """Emits one kernel."""

    def __init__(
        self, code: KernelBuilder, spec: GemmSpec, element: types.ElementType, lanes: int, epilogue: Epilogue
    ) -> None:
        self.code, self.spec, self.element, self.lanes, self.epilogue = code, spec, element, lanes, epilogue
        self.size = code.sizes(GemmSizes)
        self.a, self.b, self.c = code.buffers(GemmBuffers, element, b=types.uint16 if spec.b_stored else element)
        self.scratch = code.scratch(element)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """Tasks in order: matrix after matrix, within one first the blocks that share a part of the larger operand."""
        size = self.size
        row_blocks = (size.m + size.task_rows - 1) / size.task_rows
        column_blocks = (size.n + size.task_columns - 1) / size.task_columns
        blocks = row_blocks * column_blocks
        b_is_larger = size.n > size.m
        fast = select(b_is_larger, row_blocks, column_blocks)
        wanted = self.code.buffer(self.spec.wanted, types.int64).load(0) if self.spec.wanted else None
        with self.code.loop(end, begin) as task:
            batch, block = task / blocks, remainder(task, blocks)
            slow_number, fast_number = block / fast, remainder(block, fast)
            first_row = select(b_is_larger, fast_number, slow_number) * size.task_rows
            first_column = select(b_is_larger, slow_number, fast_number) * size.task_columns
            rows = smaller(size.task_rows, size.m - first_row)
            if wanted is not None:  # in whole tiles, since there are heights for what remains of m alone
                height = self.spec.rows[0]
                left = larger(wanted - batch * size.m - first_row, 0)
                rows = smaller(rows, (left + (height - 1)) / height * height)
            with self.code.if_then(rows > 0) if self.spec.wanted else nullcontext():
                self._emit_task(batch, first_row, rows, first_column)

    def _emit_task(self, batch: SSAValue, first_row: SSAValue, rows: SSAValue, first_column: SSAValue) -> None:
        size = self.size
        o, i = batch / size.inner, remainder(batch, size.inner)
        a, b, c = (
            matrix.at(o * getattr(size, f"{name}_outer") + i * getattr(size, f"{name}_inner"))
            for name, matrix in (("a", self.a), ("b", self.b), ("c", self.c))
        )
        end = smaller(first_column + size.task_columns, size.n)
        a, a_row = self._rows_of_a(a.at(first_row * size.a_row), rows)
        c = c.at(first_row * size.c_row)
        with self._parts_of_k() as (done, steps), self.code.loop(end, first_column, self.spec.widths[0]) as column:
            active = end - column
            for condition, width in self._width_cases(active):
                with self.code.if_then(condition):
                    panel, b_row = self._panel_of_b(b, column, active, rows, width)
                    next_panel = self._next_panel(panel, width, first_row, rows)
                    if self.spec.depth:
                        panel = panel.at(done * width)
                        next_piece = self._next_piece(b, panel, width, (first_column, column, end), done + steps)
                        next_panel = panel.unless(rows > self.spec.rows[0], next_piece)
                    here = (c.at(column), size.c_row, active, batch, first_row, column)
                    later = self._later(panel, first_row, column, rows, done)
                    asked = (next_panel, *later, self._pace(width, rows))
                    kept = (self._kept().at(column - first_column), size.task_columns + self.lanes)
                    parts = (*kept, done, size.k - done - steps)
                    product = _Product(a.at(done), a_row, panel, b_row, steps, *here, *asked, *parts)
                    if not self.spec.b_widened:
                        self._emit_strip(width, product, rows)
                        continue
                    with self.code.if_else(rows > tuning.GEMM_WIDENED_ROWS) as (many, few):
                        with many:
                            self._emit_strip(width, self._widened(product, width, rows), rows)
                        with few:
                            self._emit_strip(width, product, rows)

    @contextmanager
    def _parts_of_k(self) -> Iterator[tuple[SSAValue, SSAValue]]:
        """The block for each part of k: the steps before it, and how many it has. At least one part, if of none."""
        k, depth = self.size.k, self.spec.depth
        if not depth:
            yield self.code.integer(0), k
            return
        with self.code.loop(larger(k, 1), 0, depth) as done:
            yield done, smaller(k - done, depth)

    def _kept(self) -> Pointer:
        """Scratch memory for the sums of a task between parts of k."""
        panel = (self.size.k + LONGEST_VECTOR) * self.spec.widths[0] if self.spec.copies_b else 0
        return self.scratch.at(panel)

    def _next_piece(
        self, b: Pointer, piece: Pointer, width: int, columns: tuple[SSAValue, SSAValue, SSAValue], done: SSAValue
    ) -> Pointer:
        """What a task reads behind a piece of a panel, the part of k at hand: that piece of the next panel, or the next
        part of the first one; in the end the next task's first panel.

        columns: those of the task's first panel, of this one, and the end. done: steps of k up to the end of the piece.
        """
        k, (first, column, end) = self.size.k, columns
        next_part = b.at(first * k + done * self.spec.widths[0])
        behind_panels = next_part.unless(done >= k, b.at(end * k))
        return piece.at(k * width).unless(column + width >= end, behind_panels)

    def _width_cases(self, active: SSAValue) -> list[tuple[SSAValue, int]]:
        """For each tile width, whether it is the narrowest that suffices for `active` columns (or the widest at
        all)."""
        widths = self.spec.widths
        cases = [(active > below, width) for width, below in zip(widths, (*widths[1:], 0), strict=True)]
        return [cases[0], *((condition & (active <= width), width) for condition, width in cases[1:])]

    def _next_panel(self, panel: Pointer, width: int, first_row: SSAValue, rows: SSAValue) -> Pointer:
        """The panel behind this one, if this one is used no more after these rows; else itself, which is near anyway.
        Where a single tile uses it, memory has no time left to be asked for more."""
        last = (first_row + rows >= self.size.m) & (rows > self.spec.rows[0])
        return panel.at(select(last, self.size.k * width, 0))

    def _widened(self, product: _Product, width: int, rows: SSAValue) -> _Product:
        """The same with its panel of stored b widened, in scratch memory; what is asked for lies as it did."""

        def write(code: KernelBuilder, stored: Pointer, count: SSAValue) -> None:
            def piece(first: SSAValue, lanes: int, mask: Mask | None, active: SSAValue) -> None:
                bits = stored.load(first, lanes, mask)
                code.scratch(self.element).store(first, widen(bits, self.spec.b_stored), mask)

            each_vector(code, count, self.lanes, piece)

        self.code.subroutine("widen", [product.b, product.k * width], write, inline=False)
        ratio = self.element.bitwidth // self.b.element.bitwidth
        return product._replace(
            b=self.scratch,
            next_b=product.next_b.to(self.element),
            later=product.later.to(self.element),
            later_end=product.later_end / ratio,
            pace=self._pace(width, rows, self.element),
        )

    def _pace(self, width: int, rows: SSAValue, element: types.ElementType | None = None) -> SSAValue:
        """How many elements of the next panel a tile asks for in each step of k: a cache line; or, at an even pace, a
        part such that all tiles of the strip together ask for all of it, some lines several times. element: those of
        the panel that tiles read, if not b's."""
        line = self.code.integer(_line(element or self.b.element))
        if not self.spec.paced_prefetch:
            return line
        tiles = larger(rows / self.spec.rows[0], 1)
        return smaller((tiles + (width - 1)) / tiles, line)

    def _later(
        self, panel: Pointer, first_row: SSAValue, column: SSAValue, rows: SSAValue, done: SSAValue
    ) -> tuple[Pointer, SSAValue]:
        """What a strip of tiles asks for on behalf of a later kernel with so many steps of k behind it, and how many
        elements of it."""
        code, size, width = self.code, self.size, self.code.integer(self.spec.widths[0])
        if not self.spec.later:
            return panel, code.integer(0)
        pointer, share, begin = panel, code.integer(0), code.integer(0)
        strips = (size.n + (width - 1)) / width
        strip = first_row / size.task_rows * strips + column / width
        for buffer, number in zip(self.spec.later[::2], self.spec.later[1::2], strict=True):
            end, each = code.size(number), code.size(number + 1)
            here = (strip >= begin) & (strip < end)
            pointer = pointer.unless(here, code.buffer(buffer, panel.element).at((strip - begin) * each))
            share, begin = select(here, each, share), end
        asked = rows / self.spec.rows[0] * done * _line(panel.element)  # by the strip's earlier parts of k
        return pointer.at(asked), share - asked

    def _rows_of_a(self, a: Pointer, rows: SSAValue) -> tuple[Pointer, SSAValue]:
        """The task's rows with unit column stride, and their row stride."""
        size = self.size
        if self.spec.a_in_place:
            return a, size.a_row
        padded = (size.k + (self.lanes - 1)) & -self.lanes
        behind_panel = (size.k + LONGEST_VECTOR) * self.spec.widths[0] if self.spec.copies_b else 0
        copy = self.scratch.at(behind_panel)
        emit_copy(self.code, a, (size.a_row, size.a_column), (rows, size.k), copy, padded, self.lanes)
        return copy, padded

    def _panel_of_b(
        self, b: Pointer, column: SSAValue, active: SSAValue, rows: SSAValue, width: int
    ) -> tuple[Pointer, SSAValue]:
        """`width` columns from `column` on with unit column stride, and their row stride."""
        size, code = self.size, self.code
        if self.spec.b_packed:
            return b.at(column * size.k), code.integer(width)
        source = b.at(column * size.b_column)
        # A copy costs more than it saves for few rows, or while b as a whole stays near; then whole vectors are read
        # where they are.
        prefetch_distance = size.k * size.b_row <= self.spec.near_bytes // self.spec.itemsize
        few_rows = (rows <= 2 * self.spec.rows[0]) | ((rows <= self.spec.few_rows) & (size.k <= tuning.GEMM_NEAR_DEPTH))
        in_place = size.b_column.equals(1) & (active >= width) & (prefetch_distance | few_rows)
        with code.if_then(~in_place):
            shape, strides = (size.k, smaller(active, width)), (size.b_row, size.b_column)
            emit_copy(code, source, strides, shape, self.scratch, code.integer(width), self.lanes)
        return self.scratch.unless(in_place, source), select(in_place, size.b_row, width)

    def _emit_strip(self, width: int, product: _Product, rows: SSAValue) -> None:
        """All rows of the task times one panel."""

        def write(code: KernelBuilder, rows: SSAValue, *product: Any) -> None:
            self._write_strip(code, width, rows, _Product(*product))

        self.code.subroutine(f"strip.{self._named(width, product)}", [rows, *product], write)

    def _named(self, width: int, product: _Product) -> str:
        """A width, and whether stored b has been widened."""
        return f"{width}.wide" if self.spec.b_widened and product.b.element is self.element else f"{width}"

    def _write_strip(self, code: KernelBuilder, width: int, rows: SSAValue, product: _Product) -> None:
        """Tiles of each height as long as they fit. They are functions of their own: LLVM would otherwise search all
        these loops for what it can move out of them, which takes longer than anything else it does here."""
        done = code.integer(0)
        for height in self.spec.rows:

            def write(code: KernelBuilder, *product: Any, height: int = height) -> None:
                self._write_tile(code, height, width, _Product(*product))

            end = done + (rows - done) / height * height
            with code.loop(end, done, height) as r:
                arguments = product.below(r, height, width, paced_prefetch=self.spec.paced_prefetch)
                name = f"tile.{height}.{self._named(width, product)}"
                code.subroutine(name, arguments, write, inline=False)
            done = end

    def _write_tile(self, code: KernelBuilder, height: int, width: int, product: _Product) -> None:
        """One tile. Meanwhile the rows of a for the tile below are asked for, taken to lie densely: read first from
        memory or the third-level cache, they would otherwise keep the FMAs waiting (80 against 110 GFLOP/s at
        12544 x 64 x 147). So is a part of the next panel (16 x 1024 x 1024: 13 % less time, 128 x 768 x 3072: 3 %).

        Measured on cores that meet a fast third-level cache (Zen 4): all tiles asking for a smaller part each, and for
        lines several times, took 3 % more. On cores that wait for it (Intel's servers), a line a step fills all buffers
        and holds up the tile's own loads: an even pace and b asked for into the first-level cache took the share of the
        FMA limit from 0.78 to 0.90 at 128 x 768 x 3072, from 0.70 to 0.84 at 49 x 2048 x 512. With AVX2, whose tiles do
        12 multiply-adds in a step, they do not ask for rows of a besides: 0.87 instead of 0.83 at 197 x 768 x 2304, and
        0.89 of the time at 196 x 256 x 1024.
        """
        rows, dense, step = product.a.at(product.a_row * height), product.a_row < product.k * 2, code.integer(0)
        if self.spec.depth:  # the CPU's own prefetchers see each row's part as a stream
            dense = dense & product.left.equals(0) & product.done.equals(0)
        if self.spec.paced_prefetch:  # the tiles of later panels find the rows of a in the second-level cache
            dense = dense & product.column.equals(0)
        if self.spec.paced_prefetch and self.spec.later:
            step = select(product.later_end > 0, code.integer(_line(product.a.element)), 0)
            rows = product.later.to(product.a.element).unless(dense, rows)
        ahead = (rows, select(dense, code.integer(height), step))
        only_panels = not self.spec.later and (not self.spec.prefetches_rows or bool(self.spec.depth))
        next_panel = (product.next_b, product.pace)
        prefetches = [*([] if only_panels else [ahead]), *([next_panel] if self.spec.b_packed else [])]
        if self.spec.prefetch_distance and self.spec.rows == (1,):
            prefetches = []  # beside b nothing is worth a place in the queue of loads
        stored = "" if product.b.element is self.element else self.spec.b_stored
        starts = range(0, width, self.lanes)
        zeros = [code.number(self.element, 0, min(self.lanes, width - start)) for start in starts]
        sums = [code.variable(zero) for _ in range(height) for zero in zeros]
        with code.if_then(product.left.equals(0)) if self.spec.depth else nullcontext():
            emit_prefetch_result(code.builder, product.c.value, product.c_row.value, (height, width))
        kept = self._waiting(code, product, sums, height) if self.spec.chained else None
        offsets = row_offsets(product.a_row, height)
        others = (product.done, product.left) if self.spec.depth else None
        joins = self.spec.joins_halves and height > 1
        with in_chains(code, sums, kept, (product.k, 0, tuning.SUM_STEPS), others) as (first, end):
            b = product.b.at(first * product.b_row)
            added = emit_accumulate(
                code.builder,
                self.element,
                sums=[variable.get().value for variable in sums],
                rows=Rows(product.a.at(first).value, offsets),
                panel=Panel(b.value, product.b_row.value, stored, self.spec.prefetch_distance, joins),
                k=(end - first).value,
                prefetches=[(place.at(first * pace).value, pace.value) for place, pace in prefetches],
            )
            for variable, value in zip(sums, added, strict=True):
                variable.set(variable.get().like(value))
        self._finish(code, product, (height, width), [variable.get().value for variable in sums])

    def _waiting(self, code: KernelBuilder, product: _Product, sums: list[Variable], height: int) -> list[Pointer]:
        """Where a tile's sums wait between chains: in scratch memory if they do so between parts of k, too."""
        if not self.spec.depth:
            return room_for(code, sums)
        return [
            product.kept.at(product.kept_row * row + vector * self.lanes)
            for row in range(height)
            for vector in range(len(sums) // height)
        ]

    def _finish(
        self, code: KernelBuilder, product: _Product, shape: tuple[int, int], sums: list[llvm_ir.Value]
    ) -> None:
        """Put a tile of so many rows and columns through the epilogue and store it."""
        height, width = shape
        emit_finish(
            code,
            self.epilogue,
            shape=(height, len(sums) // height),
            sums=[first_lanes(code.builder, value, self.lanes) for value in sums],
            result=TileResult(product.c.value, product.c_row.value, (product.batch, product.row, product.column)),
            active=(smaller(product.active, width) if width % self.lanes else product.active).value,
        )
