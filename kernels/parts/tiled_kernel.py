"""The kernel of products and convolutions in AMX's tile registers, whatever their operands are, or by what else sums
tiles. A task:

its rows copied to scratch memory, unless they are read in place        second-level cache
for each group of rows                                                  a block while the task's panels stay near
    for each panel of w
        for each block of 2 x 2 tiles of the group                      sums in tile registers
            and meanwhile, of the block before: epilogue, y             vectors have nothing else to do

Tiles are multiplied by a unit of its own, which instructions reach in their order: a piece of the epilogue stands
behind each step of the next block.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, NamedTuple, TypeVar

from jitonnx.kernels.language import types
from jitonnx.kernels.language.code import Code, Pointer, Variable, larger, remainder, smaller
from jitonnx.kernels.language.epilogue import Epilogue
from jitonnx.kernels.language.trace import Traced, one_if, select
from jitonnx.kernels.parts.amx import begin_with, clear, configured, multiply, store
from jitonnx.kernels.parts.layouts import LINE, TILE
from jitonnx.kernels.parts.tile import emit_finish, emit_prefetch
from jitonnx.kernels.parts.tiled_products import (
    HEAD_BYTES,
    SLACK_ROWS,
    SUMS_BYTES,
    TiledSizes,
    TiledSpec,
    band_rows,
    padded_width,
)
from jitonnx.kernels.parts.tiled_rows import Copying

_PIECE = 8
"""What pieces of the epilogue are multiples of, in rows."""
_FETCHED_BYTES = 64 << 10
"""What is asked for of the first panel before rows are copied."""
_AHEAD = 24
"""Steps ahead of their use that weights are asked for which are used once."""


_Value = TypeVar("_Value")


class Block(NamedTuple, Generic[_Value]):
    """Sums in memory: of which output pixels and columns they are."""

    pixel: _Value
    """The task's first."""
    row: _Value
    """Number of the first row of the task."""
    live: _Value
    """Rows that count."""
    column: _Value
    sums: _Value
    """They lie there, in bytes from the beginning of scratch memory on."""


class TiledKernel:
    """Emits one kernel; subclasses say what the operands are."""

    PRODUCT: str
    """The instruction."""
    TOGETHER = 4
    """Rows of a block of sums in memory that go through the epilogue at a time."""
    begins = False
    """Whether sums begin with what `begin_panel` gives, and not with 0."""

    def __init__(self, code: Code, spec: TiledSpec, x: Pointer, w: Pointer, y: Pointer, epilogue: Epilogue) -> None:
        """The epilogue's lanes divide the width of a panel; it takes sums as they are."""
        self.code, self.spec, self.x, self.w, self.y, self.epilogue = code, spec, x, w.as_bytes(), y, epilogue
        self.size = size = code.sizes(TiledSizes)
        taps = size.kernel_height * size.kernel_width
        self.elements = size.channels * (1 if spec.by_taps else taps)
        self.tap_steps = (self.elements + (spec.step - 1)) / spec.step
        self.steps = self.tap_steps * taps if spec.by_taps else self.tap_steps
        self.across = padded_width(size) if spec.by_taps else size.out_width
        """Rows of the product for a row of output pixels."""
        self.sums = code.scratch(types.uint8)
        self.first = code.scratch(types.uint8).at(2 * SUMS_BYTES)
        """A row that sums may begin with."""
        self.rows = code.scratch(types.uint8).at(HEAD_BYTES)
        piece = (self.steps + (2 * TILE - 1)) / larger(self.steps, 1)
        self.piece = (piece + (_PIECE - 1)) / _PIECE * _PIECE
        """Rows of the block before that go through the epilogue behind a step."""

    def inner(self, code: Code) -> TiledKernel:
        """The same in another function of the module."""
        raise NotImplementedError

    def copying(self) -> Copying:
        """What copies rows to scratch memory."""
        raise NotImplementedError

    def working(self) -> AbstractContextManager[None]:
        """The context of all products."""
        return configured(self.code)

    def begin_panel(self, column: Traced) -> None:
        """Puts what sums of a panel begin with where `first` points."""

    def emit(self, begin: Traced, end: Traced) -> None:
        code, size = self.code, self.size
        column_tasks = (size.out_channels + (size.task_columns - 1)) / size.task_columns
        before = Block(*(code.variable(code.integer(0)) for _ in Block._fields))
        with self.working():
            with code.loop(end, begin) as task:
                first_call = task.equals(begin)
                first_column = remainder(task, column_tasks) * size.task_columns
                end_column = smaller(first_column + size.task_columns, size.out_channels)
                with code.when(first_call):
                    self._fetch(first_column)
                pixel, count = self._prepare(task / column_tasks)
                with code.loop(count, 0, size.group_rows) as first:
                    last = smaller(first + size.group_rows, count)
                    fetches = one_if(first_call & first.equals(0))
                    self._unfold(first, last)
                    with code.loop(end_column, first_column, self.spec.width) as column:
                        self._emit_panel(before, pixel, first, last, count, column, fetches)
            self._finish_rest(Block(*(variable.get() for variable in before)), code.variable(code.integer(0)))

    def _fetch(self, column: Traced) -> None:
        """Asks for the beginning of a panel, while rows are copied."""
        panel = self.steps * (self.spec.width * LINE)
        first = self.w.at(column / self.spec.width * panel)
        with self.code.loop(smaller(panel, _FETCHED_BYTES), step=LINE) as at:
            emit_prefetch(self.code.builder, first.at(at).value)

    def _prepare(self, number: Traced) -> tuple[Traced, Traced]:
        """Copies what the task with a number of rows needs; its first output pixel, and how many rows it has."""
        code, size, spec = self.code, self.size, self.spec
        copying = self.copying()
        if spec.by_bands:
            bands = (size.out_height + (size.task_rows - 1)) / size.task_rows
            image, first = number / bands, remainder(number, bands) * size.task_rows
            rows = smaller(size.task_rows, size.out_height - first)
            above, needed = first * size.stride_height - size.pad_top, band_rows(size, rows)
            if spec.by_taps:
                copying.padded(self.rows, self.across * size.row_bytes, size.row_bytes, image, above, needed)
            else:
                copying.padded(self._lines(), size.line_bytes, size.channels * spec.ITEM_BYTES, image, above, needed)
            return (image * size.out_height + first) * size.out_width, (rows - 1) * self.across + size.out_width
        first = number * size.task_rows
        count = smaller(size.task_rows, size.images * size.out_height * size.out_width - first)
        if spec.way == "copied":
            copying.rows(self.rows, first, count, self.elements)
        elif spec.way == "gathered":
            copying.gathered(self.rows, first, count, self.elements)
        else:  # those that do not fill a tile
            rest = remainder(count, code.integer(TILE))
            copying.rows(self.rows, first + (count - rest), rest, self.elements)
        return first, count

    def _lines(self) -> Pointer:
        """The rows of an image with their padding, of which "unfolded" takes the taps, behind those of a group."""
        return self.rows.at((self.size.group_rows + SLACK_ROWS) * self.size.row_bytes)

    def _unfold(self, first: Traced, last: Traced) -> None:
        """Copies the taps of a group of the task's output pixels, if that is the way: few, which stay in the
        first-level cache."""
        code, spec, width = self.code, self.spec, self.size.out_width
        if spec.way != "unfolded":
            return
        copying, lines, at = self.copying(), self._lines(), code.variable(first)
        with code.loop_while(lambda: at.get() < last):
            row = at.get() / width
            column = at.get() - row * width
            count = smaller(width - column, last - at.get())
            target = self.rows.at((at.get() - first) * self.size.row_bytes)
            if any(spec.window):
                copying.unfolded_by_pieces(target, lines, row, column, count, spec.window)
            else:
                copying.unfolded(target, lines, row, column, count, self.elements)
            at.set(at.get() + count)

    def _emit_panel(
        self,
        before: Block[Variable],
        pixel: Traced,
        first: Traced,
        last: Traced,
        count: Traced,
        column: Traced,
        fetches: Traced,
    ) -> None:
        """Rows first, …, last - 1 of the task times one panel: blocks of two tiles, then of one where that does. The
        next panel is asked for if `fetches` is not 0, or w does not stay in the cache."""
        code, whole = self.code, last - TILE
        self.begin_panel(column)
        with code.loop(whole, first, 2 * TILE) as r:
            self._emit_block(2, before, pixel, r, count, column, fetches)
        rest = remainder(last - first, code.integer(2 * TILE))
        with code.when((rest > 0) & (rest <= TILE)):
            self._emit_block(1, before, pixel, last - rest, count, column, fetches)

    def _emit_block(
        self,
        tiles: int,
        before: Block[Variable],
        pixel: Traced,
        r: Traced,
        count: Traced,
        column: Traced,
        fetches: Traced,
    ) -> None:
        """Sums of a block, which comes in the place of the one before; that one is finished."""
        old, piece = Block(*(variable.get() for variable in before)), self.piece
        new = Block(pixel, r, smaller(count - r, tiles * TILE), column, SUMS_BYTES - old.sums)

        def write(code: Code, *arguments: Traced) -> None:
            split = len(Block._fields)
            old, new = Block(*arguments[:split]), Block(*arguments[split : 2 * split])
            self.inner(code)._write_block(tiles, old, new, *arguments[2 * split :])

        self.code.subroutine(f"block.{tiles}", [*old, *new, count, fetches, piece], write, inline=False)
        for variable, value in zip(before, new, strict=True):
            variable.set(value)

    def _write_block(
        self, tiles: int, old: Block[Traced], new: Block[Traced], count: Traced, fetches: Traced, piece: Traced
    ) -> None:
        finished = self.sum_block(tiles, old, new, count, fetches, piece)
        self._finish_rest(old, finished)

    def sum_block(
        self, tiles: int, old: Block[Traced], new: Block[Traced], count: Traced, fetches: Traced, piece: Traced
    ) -> Variable:
        """Puts the sums of a block of so many tiles of rows in memory; how many rows of the one before are finished."""
        code, spec = self.code, self.spec
        columns, r, column = spec.width // TILE, new.row, new.column
        panel_step = spec.width * LINE
        w = self.w.at(column / spec.width * (self.steps * panel_step))
        ahead = code.integer(_AHEAD * panel_step) if spec.once else self.steps * panel_step
        following = w.at(ahead + r / (2 * TILE) * (self.steps * (spec.fetched * LINE)))
        x = [self.tile(new.pixel, r + i * TILE, count) for i in range(tiles)]
        finished = code.variable(code.integer(0))
        if self.begins:
            begin_with(code, tiles, columns, self.first.to(types.int32))
        else:
            clear(code, tiles, columns)
        done = code.variable(code.integer(0))

        def steps(offset: Traced) -> None:
            with code.loop(self.tap_steps) as step:
                at = done.get()
                with code.when(fetches > 0) if spec.near else nullcontext():
                    for line in range(spec.fetched):
                        emit_prefetch(code.builder, following.at(at * (spec.fetched * LINE) + line * LINE).value)
                places = [(place.at(offset + step * LINE), pitch) for place, pitch in x]
                multiply(code, self.PRODUCT, places, w.at(at * panel_step), columns, streams_w=spec.near)
                done.set(at + 1)
                with code.when(finished.get() < old.live):
                    self._finish_piece(old, finished, piece)

        self.each_tap(steps)
        store(code, tiles, columns, self.sums.at(new.sums))
        return finished

    def each_tap(self, steps: Callable[[Traced], None]) -> None:
        """Has the steps of each tap emitted, which are told how many bytes behind a row of x its elements lie."""
        code, size = self.code, self.size
        if not self.spec.by_taps:
            steps(code.integer(0))
            return
        with code.loop(size.kernel_height) as i, code.loop(size.kernel_width) as j:
            pixels = i * size.dilation_height * self.across + j * size.dilation_width
            steps(pixels * size.row_bytes)

    def tile(self, pixel: Traced, r: Traced, count: Traced) -> tuple[Pointer, Traced]:
        """Tell where the tile of x from the task's row r on lies, and how many bytes its rows are apart."""
        size = self.size
        if self.spec.way == "unfolded":
            return self.rows.at(remainder(r, size.group_rows) * size.row_bytes), size.row_bytes
        if self.spec.way != "in place":
            return self.rows.at(r * size.row_bytes), size.row_bytes
        x = self.x.at((pixel + r) * size.x_pixel).as_bytes()
        part = r + TILE > count
        return x.unless(part, self.rows), select(part, size.row_bytes, size.x_pixel * self.spec.ITEM_BYTES)

    def _finish_rest(self, block: Block[Traced], finished: Variable) -> None:
        """The epilogue on the rows of a block from number `finished` on."""
        with self.code.loop_while(lambda: finished.get() < block.live):
            self._finish_piece(block, finished, self.code.integer(2 * TILE))

    def _finish_piece(self, block: Block[Traced], finished: Variable, most: Traced) -> None:
        """The epilogue on some rows of a block from number `finished` on, and into y. Fewer than are done together are
        done once more with those before them where these belong to the same row of pixels."""
        code, size, at = self.code, self.size, finished.get()
        row, place, left = code.integer(0), block.row + at, block.live - at
        if self.spec.by_taps:
            row = place / self.across
            place = place - row * self.across
            left = smaller(size.out_width - place, left)
        run = smaller(left, most)
        missing = larger(self.TOGETHER - run, 0)
        again = select((place >= missing) & (at >= missing), missing, 0)
        with code.when(run > 0):
            pixel = block.pixel + row * size.out_width + place - again
            self._finish(block.sums + (at - again) * (4 * self.spec.width), run + again, pixel, block.column)
        if self.spec.by_taps:
            finished.set(select(run > 0, at + run, at + (self.across - place)))
        else:
            finished.set(at + run)

    def _finish(self, first: Traced, count: Traced, row: Traced, column: Traced) -> None:
        """`count` rows of sums from byte `first` on become rows of y from `row` on."""

        def write(code: Code, first: Traced, count: Traced, row: Traced, column: Traced) -> None:
            self.inner(code)._write_finish(first, count, row, column)

        self.code.subroutine("finish", [first, count, row, column], write, inline=False)

    def _write_finish(self, first: Traced, count: Traced, row: Traced, column: Traced) -> None:
        code, size, width = self.code, self.size, self.spec.width
        lanes, sums = self.epilogue.lanes, self.sums.at(first).to(self.epilogue.element)
        vectors, last = width // lanes, larger(count - self.TOGETHER, 0)
        with code.loop(count, 0, self.TOGETHER) as start:
            i = smaller(start, last)  # the last ones are done twice rather than apart
            places = [(i + j) * width + v * lanes for j in range(self.TOGETHER) for v in range(vectors)]
            emit_finish(
                code,
                self.epilogue,
                shape=(self.TOGETHER, vectors),
                sums=[sums.load(place, lanes).value for place in places],
                c=self.y.at((row + i) * size.y_pixel + column).value,
                ldc=size.y_pixel.value,
                live=(size.out_channels - column).value,
                place=(code.integer(0), row + i, column),
                rows_live=(count - i).value,
            )
