"""The kernel of products of two computed matrices of 8-bit integers. A task:

its rows of a, and their sums                             scratch, second-level cache
for each panel of columns
    the panel packed, and its columns' sums               scratch
    for each tile of rows                                 sums of products in registers
        what the zero points take off, epilogue, c
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.simd import convert, reduce_add
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.integer.products import Factors, emit_products, evenly_apart
from jitonnx.kernels.integer_matrices.spec import IntegerMatricesSizes, IntegerMatricesSpec, MatricesBuffers
from jitonnx.kernels.parts.memory import copy_bytes
from jitonnx.kernels.parts.microkernel import TileResult, emit_finish
from jitonnx.support.records import NamedTuple

_FLIP = 0x80
_MASKED_BYTES = 64
"""Vectors of this size are loaded in part by masks of bytes (AVX-512); others byte by byte."""
_ELEMENTS = {1: types.int8, 2: types.int16, 4: types.int32}
_WORDS = {1: types.int8, 2: types.int16, 4: types.int32, 8: types.int64}
"""The products of one row and column that an instruction sums, side by side."""


def build(spec: IntegerMatricesSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` int32."""
    result = getattr(types, spec.product.result)
    return lambda code, begin, end: _Matrices(
        code, spec, lanes, Epilogue(code, epilogue, types.int32, lanes, result)
    ).emit(begin, end)


class _Tile(NamedTuple):
    """Rows of a product times its panel."""

    matrix: SSAValue
    """The number of the product."""
    first_row: SSAValue
    """The task's."""
    r: SSAValue
    """The number of the tile's first row in the task."""
    active: SSAValue
    """Rows that count."""
    column: SSAValue
    c: Pointer
    """The product's result."""


class _Matrices:
    """Emits one kernel."""

    def __init__(self, code: KernelBuilder, spec: IntegerMatricesSpec, lanes: int, epilogue: Epilogue) -> None:
        self.code, self.spec, self.product, self.lanes, self.epilogue = code, spec, spec.product, lanes, epilogue
        self.size = code.sizes(IntegerMatricesSizes)
        of_a = types.int8 if spec.product.signed else types.uint8
        of_b = types.int8 if spec.b_signed else types.uint8
        self.buffers = code.buffers(
            MatricesBuffers,
            of_a,
            b=of_b,
            b_zero=of_b,
            c=getattr(types, spec.product.result),
        )
        size, scratch = self.size, code.scratch(types.uint8)
        columns = size.task_rows * size.row_bytes
        ones = columns + 4 * self.product.width
        self.column_terms, self.row_terms = (
            scratch.at(part).to(types.int32) for part in (columns, ones + size.row_bytes)
        )
        self.ones, self.panel = scratch.at(ones), scratch.at(size.panel_at).to(types.int8)
        steps = (size.k + (self.product.step - 1)) / self.product.step
        self.groups = steps * (self.product.step // self.product.group)
        """They are those of packed rows, padding included."""

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size, spec = self.code, self.size, self.spec
        parts = (size.m + (size.task_rows - 1)) / size.task_rows
        self._fill_ones()
        with code.loop(end, begin) as task:
            matrix, first_row = task / parts, remainder(task, parts) * size.task_rows
            outer, inner = matrix / size.inner, remainder(matrix, size.inner)
            count = smaller(size.task_rows, size.m - first_row)
            a = self.buffers.a.at(outer * size.a_outer + inner * size.a_inner + first_row * size.a_row)
            b = self.buffers.b.at(outer * size.b_outer + inner * size.b_inner)
            c = self.buffers.c.at(outer * size.c_outer + inner * size.c_inner)
            self._gather(a, count)
            with code.loop(size.n, step=self.product.width) as column:
                active = smaller(size.n - column, self.product.width)
                if spec.by_column:
                    self._pack_columns(b.at(column * size.b_column), active)
                else:
                    self._pack_rows(b.at(column), active)
                self._sum_columns()
                self._multiply(matrix, first_row, count, column, c)

    # ------------------------------------------------------------ a

    def _a_zero(self) -> SSAValue:
        """a's zero point as rows are gathered, an int32."""
        flipped = (_FLIP if self.product.signed else -_FLIP) if self.product.flipped else 0
        zero = self.code.number(types.int32, 0)
        if self.product.shifted:
            zero = convert(self.buffers.a_zero.load(0), types.int32)
        return zero + flipped

    def _b_zero(self) -> SSAValue:
        """b's zero point as panels are packed, an int32."""
        zero = self.code.number(types.int32, 0)
        if self.spec.b_shifted:
            zero = convert(self.buffers.b_zero.load(0), types.int32)
        return zero if self.spec.b_signed else zero - _FLIP

    def _gather(self, a: Pointer, count: SSAValue) -> None:
        """The rows of the task side by side, and what b's zero point takes off of each row's products."""
        code, size, spec = self.code, self.size, self.spec
        scratch, element = code.scratch(types.uint8), _ELEMENTS[self.product.row_itemsize]
        lanes = code.target.vector_bytes // self.product.row_itemsize
        masked = lanes == _MASKED_BYTES
        if spec.sums_rows:
            negative = self.code.number(types.int32, 0) - self._b_zero()
            zeros = convert(size.k, types.int32) * self._a_zero()
            flipped = (_FLIP if self.product.signed else -_FLIP) if self.product.flipped else 0
            shift = convert(size.k, types.int32) * flipped - zeros
        with code.loop(count) as row:
            source, target = a.at(row * size.a_row), scratch.at(row * size.row_bytes).to(element)
            if masked:
                with code.loop(size.k, step=lanes) as at:
                    target.store(at, self._changed(source.load(at, lanes, size.k - at), element))
            else:
                copy_bytes(code, target, source, size.k, lanes, change=lambda part: self._changed(part, element))
            if spec.sums_rows:
                self.row_terms.store(row, (self._sum(source, size.k) + shift) * negative)

    def _changed(self, part: SSAValue, element: types.ElementType) -> SSAValue:
        return part ^ -_FLIP if self.product.flipped else convert(part, element)

    def _sum(self, source: Pointer, count: SSAValue) -> SSAValue:
        """The sum of `count` bytes, an int32."""
        code, lanes = self.code, self.lanes
        total = code.variable(code.number(types.int32, 0, lanes))
        whole = count - remainder(count, code.integer(lanes))
        with code.loop(whole, step=lanes) as at:
            total.set(total.get() + convert(source.load(at, lanes), types.int32))
        rest = code.variable(reduce_add(total.get()))
        with code.loop(count, whole) as at:
            rest.set(rest.get() + convert(source.load(at), types.int32))
        return rest.get()

    # ------------------------------------------------------------ b

    def _pack_columns(self, b: Pointer, active: SSAValue) -> None:
        """A panel of columns whose elements lie side by side: word by word. Columns that are not there are left out:
        what they give is not stored."""
        code, size, group, width = self.code, self.size, self.product.group, self.product.width
        words, element = self.panel.to(_WORDS[group]), _WORDS[group]
        whole, rest = size.k / group, remainder(size.k, code.integer(group))

        def word(source: Pointer, at: SSAValue) -> SSAValue:
            loaded = self._flipped(source.load(at, group))
            return SSAValue(code.builder, element, code.builder.bitcast(loaded.value, element.llvm))

        with code.loop(active) as column:
            source, target = b.at(column * size.b_column), words.at(column)
            with code.loop(whole) as step:
                target.store(step * width, word(source, step * group))
            with code.loop(self.groups, whole) as step:
                target.store(step * width, code.number(element, 0))
            if group > 1:
                last = self.panel.at((whole * width + column) * group)
                with code.loop(rest) as place:
                    last.store(place, self._flipped(source.load(whole * group + place)))

    def _pack_rows(self, b: Pointer, active: SSAValue) -> None:
        """A panel of rows: of as many as a word holds, vectors of their elements are joined."""
        code, size, group, width = self.code, self.size, self.product.group, self.product.width
        words, whole = self.panel.to(_WORDS[group]), size.k / group
        with code.loop(whole) as step:
            self._pack_group(b.at(step * group * size.b_row), words.at(step * width), active, code.integer(group))
        rest = remainder(size.k, code.integer(group))
        with code.if_then(rest > 0):
            self._pack_group(b.at(whole * group * size.b_row), words.at(whole * width), active, rest)
        zeros = code.number(words.element, 0, self.lanes)
        with code.loop(self.groups * width, (size.k + (group - 1)) / group * width, self.lanes) as place:
            words.store(place, zeros)

    def _pack_group(self, b: Pointer, words: Pointer, active: SSAValue, rows: SSAValue) -> None:
        """Pack as many rows as a word holds, of which `rows` are there, into the words of a panel."""

        def write(code: KernelBuilder, b: Pointer, words: Pointer, active: SSAValue, rows: SSAValue) -> None:
            inner = _Matrices(code, self.spec, self.lanes, self.epilogue)
            inner._write_group(b, words, active, rows)

        self.code.subroutine("pack_group", [b, words, active, rows], write, inline=False)

    def _write_group(self, b: Pointer, words: Pointer, active: SSAValue, rows: SSAValue) -> None:
        code, size, group, width = self.code, self.size, self.product.group, self.product.width
        lanes, element = self.lanes, _WORDS[group]

        def joined(column: int, part: SSAValue | None) -> SSAValue:
            total = code.number(element, 0, lanes)
            for place in range(group):
                there = code.integer(place) < rows
                source = b.at(size.b_row * place).unless(~there, b).at(column)
                loaded = self._flipped(source.load(0, lanes, part))
                unsigned = SSAValue(code.builder, types.uint8, loaded.value)
                wide = convert(unsigned, element) if group > 1 else loaded
                wide = select(there.splat(lanes), wide, wide.constant(0))
                total = total | (wide << (8 * place)) if place else wide
            return total

        if code.target.vector_bytes == _MASKED_BYTES:
            for column in range(0, width, lanes):
                words.store(column, joined(column, active - column))
            return
        for column in range(0, width, lanes):
            with code.if_else(active >= column + lanes) as (whole, part):
                with whole:
                    words.store(column, joined(column, None))
                with part, code.loop(active - column) as at, code.loop(group) as place:
                    byte = words.to(types.int8).at((at + column) * group)
                    with code.if_else(place < rows) as (there, padded):
                        with there:
                            byte.store(place, self._flipped(b.load(place * size.b_row + column + at)))
                        with padded:
                            byte.store(place, code.number(types.int8, 0))

    def _flipped(self, part: SSAValue) -> SSAValue:
        """Bytes of b as int8."""
        signed = SSAValue(self.code.builder, types.int8, part.value)
        return signed if self.spec.b_signed else signed ^ -_FLIP

    def _fill_ones(self) -> None:
        """A row of ones, as a row of a is gathered."""
        element = _ELEMENTS[self.product.row_itemsize]
        lanes = self.code.target.vector_bytes // self.product.row_itemsize
        with self.code.loop(self.size.k, step=lanes) as at:
            self.ones.to(element).store(at, self.code.number(element, 1, lanes))

    def _sum_columns(self) -> None:
        """What a's zero point takes off of each column's products, by the panel's products with ones."""
        code, width, lanes = self.code, self.product.width, self.lanes
        zeros = [code.number(types.int32, 0, lanes)] * (width // lanes)
        if not (self.product.shifted or self.product.flipped):
            for number, zero in enumerate(zeros):
                self.column_terms.store(number * lanes, zero)
            return
        factor = (code.number(types.int32, 0) - self._a_zero()).splat(lanes)
        factors = Factors([self.ones], self.panel, self.groups)
        found = emit_products(code, self.product, 1, zeros, factors)
        for number, total in enumerate(found):
            self.column_terms.store(number * lanes, total * factor)

    # ------------------------------------------------------------ products

    def _multiply(self, matrix: SSAValue, first_row: SSAValue, count: SSAValue, column: SSAValue, c: Pointer) -> None:
        """All rows of the task times the panel: the highest tiles, then the least that does for what remains."""
        code, heights, done = self.code, self.product.rows, self.code.integer(0)
        for number, height in enumerate(heights):
            last = number == len(heights) - 1
            end = count if last else done + (count - done + (height - 1) - heights[-1]) / height * height
            with code.loop(end, done, height) as r:
                self._tile(height, _Tile(matrix, first_row, r, count - r, column, c))
            done = end

    def _tile(self, height: int, tile: _Tile) -> None:
        def write(code: KernelBuilder, *arguments: Any) -> None:
            _Matrices(code, self.spec, self.lanes, self.epilogue)._write_tile(height, _Tile(*arguments))

        self.code.subroutine(f"tile.{height}", tile, write, inline=False)

    def _write_tile(self, height: int, tile: _Tile) -> None:
        code, size, product = self.code, self.size, self.product
        x, vectors = code.scratch(types.uint8).at(tile.r * size.row_bytes), product.width // self.lanes
        first = [self.column_terms.load(vector * self.lanes, self.lanes) for vector in range(vectors)]
        rows = evenly_apart(x, size.row_bytes, height)
        sums = emit_products(code, product, height, first, Factors(rows, self.panel, self.groups))
        self._finish(height, sums, tile)

    def _finish(self, height: int, sums: Sequence[SSAValue], tile: _Tile) -> None:
        """What b's zero point takes off, the epilogue, and into c."""
        code, size, vectors = self.code, self.size, len(sums) // height
        matrix, first_row, r, active, column, c = tile
        if self.spec.sums_rows:
            terms = [self.row_terms.load(r + i).splat(self.lanes) for i in range(height)]
            sums = [total + terms[number // vectors] for number, total in enumerate(sums)]
        row = first_row + r
        emit_finish(
            code,
            self.epilogue,
            shape=(height, vectors),
            sums=[vector.value for vector in sums],
            result=TileResult(c.at(row * size.c_row + column).value, size.c_row.value, (matrix, row, column)),
            active=(size.n - column).value,
            rows_live=active.value,
        )
