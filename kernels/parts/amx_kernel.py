"""The kernel of products and convolutions in AMX's tile registers, whatever their operands are, or by what else sums
tiles. A task:

its rows copied to scratch memory, unless they are read in place        second-level cache
for each group of rows                                                  a block while the task's panels stay near
    for each panel of w
        for each block of 2 x 2 tiles of the group                      sums in tile registers
            and meanwhile, of the block before: sums, epilogue, y       vectors have nothing else to do

Tiles are multiplied by a unit of its own, which instructions reach in their order. So the sums of a block are stored
one by one in the first step of the next, each before the product that begins a new sum in its register, and pieces of
the epilogue stand behind later steps. At the end of their block, where nothing else is to be multiplied, to store them
took 60 to 80 cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Generic, NamedTuple, TypeVar

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer, Variable, larger, remainder, smaller
from jitonnx.emit.epilogue import Epilogue
from jitonnx.emit.ssa import SSAValue, one_if, select
from jitonnx.kernels.parts.amx import clear, configured, instruction, multiply, store, store_tile
from jitonnx.kernels.parts.amx_products import (
    HEAD_BYTES,
    SLACK_ROWS,
    SUMS_BYTES,
    AmxSizes,
    AmxSpec,
    band_rows,
)
from jitonnx.kernels.parts.amx_rows import Copying
from jitonnx.kernels.parts.layouts import LINE, TILE, padded_width
from jitonnx.kernels.parts.microkernel import TileResult, emit_finish, emit_finish_whole, emit_prefetch
from jitonnx.target import tuning

_FRACTIONS = 64
"""What shares of rows are counted in."""


_Value = TypeVar("_Value")


class Block(NamedTuple, Generic[_Value]):
    """A block of sums: of which output pixels and columns they are."""

    matrix: _Value
    """The number of the product, where there are several."""
    pixel: _Value
    """The task's first, of the product."""
    row: _Value
    """Number of the first row of the task."""
    active: _Value
    """Rows that count."""
    column: _Value


class Strip(NamedTuple):
    """A group of a task's rows times one panel."""

    matrix: SSAValue
    """The number of the product, where there are several."""
    pixel: SSAValue
    """The task's first output pixel, of the product."""
    first: SSAValue
    """The numbers of the group's first row in the task, and of the one behind its last."""
    last: SSAValue
    rows: SSAValue
    """Rows of the task."""
    column: SSAValue
    """The panel's first."""
    fetches: SSAValue
    """Whether the next panel is asked for."""
    pace: SSAValue
    """See `AmxKernel.pace`."""


class AmxKernel:
    """Emits one kernel; subclasses say what the operands are."""

    PRODUCT: str
    """The instruction."""
    TILES = True
    """Rows are taken as tiles: where they are copied, they are copied as such, for what streams from the second-level
    cache comes faster if it lies in the order of its use."""
    adds = False
    """Whether a row that `begin_epilogue` makes is added to the sums."""
    adds_to_rows = False
    """Whether a number for each row is added, too; of blocks of two tiles of rows."""
    TOGETHER = 4
    """Rows of a block of sums in memory that go through the epilogue at a time."""

    def __init__(
        self, code: KernelBuilder, spec: AmxSpec, x: Pointer, w: Pointer, y: Pointer, epilogue: Epilogue
    ) -> None:
        """The epilogue's lanes divide the width of a panel; it takes sums as they are."""
        self.code, self.spec, self.x, self.w, self.y, self.epilogue = code, spec, x, w.as_bytes(), y, epilogue
        self.size: AmxSizes = code.sizes(spec.SIZES)
        size = self.size
        taps = size.kernel_height * size.kernel_width
        self.elements = size.channels * (1 if spec.by_taps else taps)
        self.tap_steps = (self.elements + (spec.step - 1)) / spec.step
        self.together = TILE
        """Rows that are read together, in place or, where fewer are left, as a copy."""
        self.in_tiles = self.TILES and spec.way == "copied"
        self.step_bytes = TILE * LINE if self.in_tiles else LINE
        """A step of a row of x and the next lie so far apart."""
        self.alone = size.task_columns >= size.out_channels
        """Whether a task multiplies its rows with all columns, so that each group's are copied when it comes to them:
        they stay in the first-level cache."""
        self.steps = self.tap_steps * taps if spec.by_taps else self.tap_steps
        self.across = padded_width(size) if spec.by_taps else size.out_width
        """Rows of the product for a row of output pixels."""
        self.sums = code.scratch(types.uint8)
        self.row = code.scratch(self.epilogue.element).at(SUMS_BYTES // 4)
        """What is added to each row of the block before, if `adds`."""
        self.of_rows = self.row.at(2 * TILE)
        """What is added to all sums of each row, if `adds_to_rows`."""
        self.rows = code.scratch(types.uint8).at(HEAD_BYTES)

    def inner(self, code: KernelBuilder) -> AmxKernel:
        """The same in another function of the module."""
        raise NotImplementedError

    def copying(self, matrix: SSAValue) -> Copying:
        """What copies rows to scratch memory."""
        raise NotImplementedError

    def part(self, number: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The product that a task with a number of rows is of, and its number there."""
        return self.code.integer(0), number

    def left(self, matrix: SSAValue) -> Pointer:
        """The rows of a product."""
        return self.x

    def right(self, matrix: SSAValue) -> Pointer:
        """The panels of a product."""
        return self.w

    def result(self, matrix: SSAValue) -> Pointer:
        """The rows that a product gives."""
        return self.y

    def pace(self) -> SSAValue:
        """How many rows of the block before go through the epilogue with each step, in 1 / _FRACTIONS, if steps share
        the work alike."""
        steps = larger(self.steps, 1)
        return (steps + (self.spec.high * TILE * _FRACTIONS - 1)) / steps

    def working(self) -> AbstractContextManager[None]:
        """The context of all products."""
        return configured(self.code)

    def begin_epilogue(self, block: Block[SSAValue]) -> None:
        """Puts what is added to the sums of a block where `row` and `of_rows` point."""

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size = self.code, self.size
        column_tasks = (size.out_channels + (size.task_columns - 1)) / size.task_columns
        before, pace = Block(*(code.variable(code.integer(0)) for _ in Block._fields)), self.pace()
        with self.working():
            with code.loop(end, begin) as task:
                first_call = task.equals(begin)
                first_column = remainder(task, column_tasks) * size.task_columns
                end_column = smaller(first_column + size.task_columns, size.out_channels)
                number = task / column_tasks
                matrix, number = self.part(number)
                with code.if_then(first_call):
                    self.fetch(matrix, first_column)
                with code.if_then(first_call | first_column.equals(0)):
                    self.prepare(matrix, number, first_call)
                pixel, count = self._rows_of(number)
                with code.loop(count, 0, size.group_rows) as first:
                    last = smaller(first + size.group_rows, count)
                    fetches = one_if(first_call & first.equals(0))
                    self._prepare_group(matrix, pixel, first, last)
                    with code.loop(end_column, first_column, self.spec.width) as column:
                        self.emit_panel(before, Strip(matrix, pixel, first, last, count, column, fetches, pace))
            self.finish_last(before)

    def finish_last(self, before: Block[Variable]) -> None:
        """Finishes the last block of a call."""
        self.put_sums()
        last_block = Block(*(variable.get() for variable in before))
        self.begin_epilogue(last_block)
        self.finish_rest(last_block, self.code.variable(self.code.integer(0)))

    def fetch(self, matrix: SSAValue, column: SSAValue) -> None:
        """Asks for the beginning of a panel, while rows are copied."""
        panel = self.steps * (self.spec.width * LINE)
        first = self.right(matrix).at(column / self.spec.width * panel)
        with self.code.loop(smaller(panel, tuning.AMX_FETCHED_BYTES), step=LINE) as at:
            emit_prefetch(self.code.builder, first.at(at).value)

    def _band_of(self, number: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
        """The image of the task with a number of rows, its first row of output pixels, and how many it has."""
        size = self.size
        bands = (size.out_height + (size.task_rows - 1)) / size.task_rows
        image, first = number / bands, remainder(number, bands) * size.task_rows
        return image, first, smaller(size.task_rows, size.out_height - first)

    def _rows_of(self, number: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The first output pixel of the task with a number of rows, and how many rows it has."""
        size = self.size
        if self.spec.by_bands:
            image, first, rows = self._band_of(number)
            return (image * size.out_height + first) * size.out_width, (rows - 1) * self.across + size.out_width
        first = number * size.task_rows
        return first, smaller(size.task_rows, self.spec.product_rows(size) - first)

    def prepare(self, matrix: SSAValue, number: SSAValue, first_call: SSAValue) -> None:
        """Copies what the task with a number of rows needs. first_call: whether it is the first of this call."""
        code, size, spec = self.code, self.size, self.spec
        copying = self.copying(matrix)
        if spec.by_bands:
            image, first, rows = self._band_of(number)
            above, needed = first * size.stride_height - size.pad_top, band_rows(size, rows)
            if spec.by_taps:
                copying.padded(self.rows, self.across * size.row_bytes, size.row_bytes, image, above, needed)
            else:
                copying.padded(self._lines(), size.line_bytes, size.channels * spec.ITEM_BYTES, image, above, needed)
            return
        first, count = self._rows_of(number)
        if spec.way == "in place":  # those that do not fill a tile
            rest = remainder(count, code.integer(self.together))
            copying.rows(self.rows, first + (count - rest), rest, self.elements)
            return
        with code.if_then(size.task_columns < size.out_channels):
            self.copy(matrix, first, count)

    def _prepare_group(self, matrix: SSAValue, pixel: SSAValue, first: SSAValue, last: SSAValue) -> None:
        """Copies what rows first, …, last - 1 of a task need, which `prepare` did not."""
        if self.spec.way == "im2col":
            self._unfold(matrix, first, last)
        elif self.spec.way in ("copied", "gathered"):
            with self.code.if_then(self.alone):
                self.copy(matrix, pixel + first, last - first)

    def copy(self, matrix: SSAValue, first: SSAValue, count: SSAValue) -> None:
        """Copies rows from number `first` on."""
        copying = self.copying(matrix)
        if self.spec.way == "gathered":
            copying.gathered(self.rows, first, count, self.elements)
        else:
            copy = copying.tiles if self.in_tiles else copying.rows
            copy(self.rows, first, count, self.elements)

    def _lines(self) -> Pointer:
        """The rows of an image with their padding, of which "im2col" takes the taps, behind those of a group."""
        return self.rows.at((self.size.group_rows + SLACK_ROWS) * self.size.row_bytes)

    def _unfold(self, matrix: SSAValue, first: SSAValue, last: SSAValue) -> None:
        """Copies the taps of a group of the task's output pixels: few, which stay in the first-level cache."""
        code, spec, width = self.code, self.spec, self.size.out_width
        copying, lines, at = self.copying(matrix), self._lines(), code.variable(first)
        with code.loop_while(lambda: at.get() < last):
            row = at.get() / width
            column = at.get() - row * width
            count = smaller(width - column, last - at.get())
            target = self.rows.at((at.get() - first) * self.size.row_bytes)
            if any(spec.window):
                copying.im2col_by_pieces(target, lines, row, column, count, spec.window)
            else:
                copying.im2col(target, lines, row, column, count, self.elements)
            at.set(at.get() + count)

    def emit_panel(self, before: Block[Variable], strip: Strip) -> None:
        """Blocks of two tiles, then of one where that does. The next panel is asked for if `fetches` is not 0, or w
        does not stay in the cache."""
        code, first, last = self.code, strip.first, strip.last
        whole = last - TILE
        if self.spec.high > 2:
            with code.loop(last, first, self.spec.high * TILE) as r:
                self._emit_block(self.spec.high, before, strip, r)
            return
        with code.loop(whole, first, 2 * TILE) as r:
            self._emit_block(2, before, strip, r)
        rest = remainder(last - first, code.integer(2 * TILE))
        with code.if_then((rest > 0) & (rest <= TILE)):
            self._emit_block(1, before, strip, last - rest)

    def _emit_block(self, tiles: int, before: Block[Variable], strip: Strip, r: SSAValue) -> None:
        """Sums of a block from row r on, which comes in the place of the one before; that one is finished."""
        old = Block(*(variable.get() for variable in before))
        new = Block(strip.matrix, strip.pixel, r, smaller(strip.rows - r, tiles * TILE), strip.column)

        def write(code: KernelBuilder, *arguments: SSAValue) -> None:
            split = len(Block._fields)
            old, new = Block(*arguments[:split]), Block(*arguments[split : 2 * split])
            inner = self.inner(code)
            inner.finish_rest(old, inner.sum_block(tiles, old, new, *arguments[2 * split :]))

        rest = [strip.rows, strip.fetches, strip.pace]
        self.code.subroutine(f"block.{tiles}", [*old, *new, *rest], write, inline=False)
        for variable, value in zip(before, new, strict=True):
            variable.set(value)

    def sum_block(
        self,
        tiles: int,
        old: Block[SSAValue],
        new: Block[SSAValue],
        count: SSAValue,
        fetches: SSAValue,
        pace: SSAValue,
    ) -> Variable:
        """Sums up a block of so many tiles of rows, and puts the sums of the one before in memory; how many rows of
        that one are finished."""
        code, spec = self.code, self.spec
        columns, r, column = spec.width // TILE, new.row, new.column
        panel_step = spec.width * LINE
        w = self.right(new.matrix).at(column / spec.width * (self.steps * panel_step))
        ahead = code.integer(tuning.AMX_STEPS * panel_step) if spec.once else self.steps * panel_step
        following = w.at(ahead + r / (spec.high * TILE) * (self.steps * (spec.fetched * LINE)))
        x = [self.tile(new.matrix, new.pixel, r + i * TILE, count) for i in range(tiles)]
        finished = code.variable(code.integer(0))
        plain, streams_w = self._plain(old), spec.prefetch_distance or spec.by_taps
        self.begin_epilogue(old)
        done, due = code.variable(code.integer(0)), code.variable(code.integer(0))

        def begin(number: int) -> None:
            """The sum of the block before goes to memory, and the new one begins."""
            store_tile(code, number, columns, self.sums)
            instruction(code, "tilezero", number)

        def rest() -> None:
            """What of the block before is in tiles that the new one does not use."""
            with code.if_then(old.active > TILE):
                for number in range(tiles * columns, spec.high * columns):
                    store_tile(code, number, columns, self.sums)

        with self.each_step() as offset:
            at = done.get()
            with code.if_then(fetches > 0) if spec.prefetch_distance else nullcontext():
                for line in range(spec.fetched):
                    emit_prefetch(code.builder, following.at(at * (spec.fetched * LINE) + line * LINE).value)
            places = [(place.at(offset), pitch) for place, pitch in x]
            of_step = (self.PRODUCT, places, w.at(at * panel_step), columns)
            with code.if_else(at > 0) as (later, first):
                with later:
                    multiply(code, *of_step, streams_w=streams_w)
                with first:
                    multiply(code, *of_step, streams_w=streams_w, before=begin)
                    rest()
            due.set(due.get() + pace)
            ready = smaller(due.get() / (_FRACTIONS * self.TOGETHER) * self.TOGETHER, old.active)
            with code.if_then(finished.get() < ready), code.if_else(plain) as (quick, other):
                with quick:
                    self._finish_plain(old, finished.get(), ready)
                    finished.set(ready)
                with other:
                    self._finish_piece(old, finished, ready - finished.get())
            done.set(at + 1)
        with code.if_then(self.steps.equals(0)):
            store(code, spec.high, columns, self.sums)
            clear(code, tiles, columns)
        return finished

    def put_sums(self) -> None:
        """Puts the sums of the last block in memory."""
        store(self.code, self.spec.high, self.spec.width // TILE, self.sums)

    @contextmanager
    def each_step(self) -> Iterator[SSAValue]:
        """Loops over the steps: how many bytes behind a row of x its elements lie. All taps of a step of channels
        follow each other: the lines of x that they share stay in the first-level cache."""
        code, size = self.code, self.size
        with code.loop(self.tap_steps) as step:
            if not self.spec.by_taps:
                yield step * self.step_bytes
                return
            with code.loop(size.kernel_height) as i, code.loop(size.kernel_width) as j:
                pixels = i * size.dilation_height * self.across + j * size.dilation_width
                yield pixels * size.row_bytes + step * LINE

    def within_group(self, r: SSAValue) -> SSAValue:
        """The number of the task's row r in its group."""
        return r & (self.spec.near_rows - 1)

    def tile(self, matrix: SSAValue, pixel: SSAValue, r: SSAValue, count: SSAValue) -> tuple[Pointer, SSAValue]:
        """The address of the tile of x from the task's row r on, and how many bytes its rows are apart."""
        code, size, spec = self.code, self.size, self.spec
        within = self.within_group(r) if spec.prefetch_distance else r
        if spec.way == "im2col":
            return self.rows.at(within * size.row_bytes), size.row_bytes
        if spec.way in ("copied", "gathered"):
            copied = select(self.alone, within, r)
            if self.in_tiles:
                return self.rows.at(copied * (self.steps * LINE)), code.integer(LINE)
            return self.rows.at(copied * size.row_bytes), size.row_bytes
        if spec.way == "padded":
            return self.rows.at(r * size.row_bytes), size.row_bytes
        x = self.left(matrix).at((pixel + r) * size.x_pixel).as_bytes()
        part = r + self.together > count
        return x.unless(part, self.rows), select(part, size.row_bytes, size.x_pixel * self.spec.ITEM_BYTES)

    def finish_rest(self, block: Block[SSAValue], finished: Variable) -> None:
        """The epilogue on the rows of a block from number `finished` on."""
        with self.code.loop_while(lambda: finished.get() < block.active):
            self._finish_piece(block, finished, self.code.integer(self.spec.high * TILE))

    def _finish_piece(self, block: Block[SSAValue], finished: Variable, most: SSAValue) -> None:
        """The epilogue on some rows of a block from number `finished` on, and into y. Fewer than are done together are
        done once more with those before them where these belong to the same row of pixels."""
        code, size, at = self.code, self.size, finished.get()
        row, place, left = code.integer(0), block.row + at, block.active - at
        if self.spec.by_taps:
            row = place / self.across
            place = place - row * self.across
            left = smaller(size.out_width - place, left)
        run = smaller(left, most)
        missing = larger(self.TOGETHER - run, 0)
        again = select((place >= missing) & (at >= missing), missing, 0)
        with code.if_then(run > 0):
            pixel = block.pixel + row * size.out_width + place - again
            self._finish(block.matrix, at - again, run + again, pixel, block.column)
        if self.spec.by_taps:
            finished.set(select(run > 0, at + run, at + (self.across - place)))
        else:
            finished.set(at + run)

    def _plain(self, block: Block[SSAValue]) -> SSAValue:
        """Whether a block is as many rows as go through the epilogue at a time, or several times as many, which follow
        each other in y, and a whole panel."""
        whole = self.code.integer(int(not self.spec.by_taps)).equals(1)
        whole &= block.column + self.spec.width <= self.size.out_channels
        return whole & remainder(block.active, self.code.integer(self.TOGETHER)).equals(0)

    def _finish_plain(self, block: Block[SSAValue], first: SSAValue, end: SSAValue) -> None:
        """The epilogue on rows number first, …, end - 1 of such a block, and into y: in place, as a function would have
        to be told much."""
        code, size, lanes = self.code, self.size, self.epilogue.lanes
        vectors, row, column = self.spec.width // lanes, block.pixel + block.row, block.column
        y = self.result(block.matrix)
        rows = self.TOGETHER if self.epilogue.unrolls else 1
        with code.loop(end, first, rows) as i:
            emit_finish_whole(
                code,
                self.epilogue,
                (rows, vectors),
                self._sums(i, rows),
                TileResult(
                    *(y.at((row + i) * size.y_pixel + column).value, size.y_pixel.value),
                    place=(block.matrix, row + i, column),
                ),
            )

    def _sums(self, first: SSAValue, rows: int) -> list[llvm_ir.Value]:
        """Vectors of rows of the block in memory, with what is added."""
        lanes, width = self.epilogue.lanes, self.spec.width
        sums, places = self.sums.to(self.epilogue.element).at(first * width), range(0, width, lanes)
        totals = [[sums.load(j * width + at, lanes) for at in places] for j in range(rows)]
        if self.adds:
            row = [self.row.load(at, lanes) for at in places]
            totals = [[total + more for total, more in zip(of_row, row, strict=True)] for of_row in totals]
        if self.adds_to_rows:
            more = [self.of_rows.load(first + j).splat(lanes) for j in range(rows)]
            totals = [[total + more[j] for total in of_row] for j, of_row in enumerate(totals)]
        return [total.value for of_row in totals for total in of_row]

    def _finish(self, matrix: SSAValue, first: SSAValue, count: SSAValue, row: SSAValue, column: SSAValue) -> None:
        """`count` rows of sums from number `first` on become rows of y from `row` on."""

        def write(
            code: KernelBuilder, matrix: SSAValue, first: SSAValue, count: SSAValue, row: SSAValue, column: SSAValue
        ) -> None:
            self.inner(code)._write_finish(matrix, first, count, row, column)

        self.code.subroutine("finish", [matrix, first, count, row, column], write, inline=False)

    def _write_finish(
        self, matrix: SSAValue, first: SSAValue, count: SSAValue, row: SSAValue, column: SSAValue
    ) -> None:
        code, size, width = self.code, self.size, self.spec.width
        vectors, last = width // self.epilogue.lanes, larger(count - self.TOGETHER, 0)
        with code.loop(count, 0, self.TOGETHER) as start:
            i = smaller(start, last)  # the last ones are done twice rather than apart
            emit_finish(
                code,
                self.epilogue,
                shape=(self.TOGETHER, vectors),
                sums=self._sums(first + i, self.TOGETHER),
                result=TileResult(
                    self.result(matrix).at((row + i) * size.y_pixel + column).value,
                    size.y_pixel.value,
                    (matrix, row + i, column),
                ),
                active=(size.out_channels - column).value,
                rows_live=(count - i).value,
            )
