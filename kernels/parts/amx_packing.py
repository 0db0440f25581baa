"""Packing a computed matrix for products in AMX's tile registers, as `AmxSpec.packed` does it with constant weights:
tiles of 16 columns and a step of 32 bfloat16 or 64 bytes, those of 32 bits along the sums side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Mask, Pointer, remainder, shuffled, smaller
from jitonnx.emit.half import narrow_for_products
from jitonnx.emit.intrinsics import declared, live_bytes
from jitonnx.emit.ssa import SSAValue, one_if
from jitonnx.kernels.parts.layouts import LINE, TILE
from jitonnx.kernels.transpose.tiles import transposed


def rounded_step(source: Pointer, at: SSAValue | int, active: SSAValue | None = None) -> SSAValue:
    """A step of elements as bfloat16, those from `active` on 0 and not read."""
    if source.element is types.uint16:
        return source.load(at, 2 * TILE, active)
    first = source.load(at, TILE, active)
    second = source.load(at + TILE, TILE, None if active is None else active - TILE)
    return narrow_for_products(first, second)


def step_of_bytes(source: Pointer, at: SSAValue | int, active: SSAValue | None = None) -> SSAValue:
    """A step of bytes, those from `active` < 64 on 0 and not read."""
    if active is None:
        return source.load(at, LINE)
    return source.load(at, LINE, Mask(live_bytes(active.builder, active.value)))


def tile_of_columns(
    tile: Pointer, column: Callable[[int], Pointer], active: SSAValue | None, pitch: int = LINE
) -> None:
    """A tile of 16 columns whose elements lie side by side, of which `active` are there. column: where a column's are;
    pitch: bytes from one word of all columns to the next."""
    target = tile.to(types.int32)
    places = [column(n) for n in range(TILE)]
    of_bytes = group_of(places[0].element) == 4
    words = [_words(place.load(0, LINE, active) if of_bytes else rounded_step(place, 0, active)) for place in places]
    for n, vector in enumerate(transposed(words)):
        target.store(n * (pitch // 4), vector)


def tile_of_rows(tile: Pointer, row: Callable[[int], tuple[Pointer, SSAValue | None]], pitch: int = LINE) -> None:
    """A tile of 16 columns of a step of rows. row: where a row's elements are, and how many are there (None: all);
    pitch: as `tile_of_columns` has it."""
    group = group_of(row(0)[0].element)
    for word in range(TILE):
        _join(tile.at(word * pitch), [row(group * word + i) for i in range(group)])


def _join(words: Pointer, rows: Sequence[tuple[Pointer, SSAValue | None]]) -> None:
    """16 words, each of elements of as many rows as it holds."""
    group, lanes = len(rows), len(rows) * TILE
    order = [place * TILE + n for n in range(TILE) for place in range(group)]
    parts = [source.load(0, TILE, active) for source, active in rows]
    if parts[0].element is types.float32:
        both = narrow_for_products(parts[0], parts[1])
        joined = shuffled(both, both, order)
    elif group == 2:
        joined = shuffled(parts[0], parts[1], order)
    else:
        low, high = (shuffled(parts[at], parts[at + 1], range(2 * TILE)) for at in (0, 2))
        joined = _bytes_in_order(shuffled(low, high, range(lanes)), order)
    words.to(joined.element).store(0, joined)


def _bytes_in_order(x: SSAValue, order: list[int]) -> SSAValue:
    """Bytes of a vector in any order, by one instruction, for which LLVM takes eleven if it is to choose."""
    typ = llvm_ir.VectorType(llvm_ir.IntType(8), LINE)
    function = declared(x.builder, "llvm.x86.avx512.permvar.qi.512", typ, [typ, typ])
    return x.like(x.builder.call_pure(function, [x.value, llvm_ir.Constant(typ, order)]))


class Packing:
    """Emits the packing of matrices of k rows and n columns to panels of `width` columns.

    Elements are float32 or the bits of bfloat16, which are packed as that, or bytes. They lie side by side in each
    column of a matrix if `by_column`, else in each row.
    """

    def __init__(
        self,
        code: KernelBuilder,
        *,
        by_column: bool,
        width: int,
        extents: tuple[SSAValue, SSAValue],
        apart: SSAValue,
        across: bool = False,
    ) -> None:
        """extents: k and n. apart: how many elements columns are apart, or rows. across: as `AmxSpec.ACROSS`."""
        self._pitch, self._beside = (width * 4, LINE) if across else (LINE, TILE * LINE)
        self._code, self._by_column, self._width, self._apart = code, by_column, width, apart
        self._k, self._n = extents

    def panel_bytes(self, element: types.ElementType) -> SSAValue:
        """Bytes of a panel of such elements."""
        step = step_of(element)
        return (self._k + (step - 1)) / step * (self._width * LINE)

    def panels(self, b: Pointer, target: Pointer, first: SSAValue, end: SSAValue) -> None:
        """Packs columns first, …, end - 1, which begin with a panel, into `target`, where the first of all panels
        begins."""
        code, n, step, panel_bytes = self._code, self._n, step_of(b.element), self.panel_bytes(b.element)
        stop = smaller(end, n)
        outer, inner = (stop, self._k) if self._by_column else (self._k, stop)
        starts = (first, 0) if self._by_column else (0, first)
        steps = (TILE, step) if self._by_column else (step, TILE)
        with code.loop(outer, starts[0], steps[0]) as i, code.loop(inner, starts[1], steps[1]) as j:
            column, at = (i, j) if self._by_column else (j, i)
            within = remainder(column, code.integer(self._width)) / TILE * self._beside
            place = column / self._width * panel_bytes + at / step * (self._width * LINE) + within
            with code.if_else((column + TILE <= n) & (at + step <= self._k)) as (whole, part):
                with whole:
                    self._tile("pack_whole", b, target.at(place), column, at)
                with part:
                    self._tile("pack_part", b, target.at(place), column, at)

    def _tile(self, name: str, b: Pointer, target: Pointer, column: SSAValue, at: SSAValue) -> None:
        arguments: list[SSAValue | Pointer] = [target, b, column, at, self._k, self._n, self._apart]

        def write(code: KernelBuilder, target: Pointer, b: Pointer, *numbers: SSAValue) -> None:
            whole, (column, at, k, n, apart) = name == "pack_whole", numbers

            first = b.at(column * apart + at if self._by_column else at * apart + column)

            def one_column(i: int) -> Pointer:
                return first.at(apart * i) if whole else b.at(smaller(column + i, n - 1) * apart + at)

            if self._by_column:
                tile_of_columns(target, one_column, None if whole else k - at, self._pitch)
            elif whole:
                tile_of_rows(target, lambda i: (first.at(apart * i), None), self._pitch)
            else:
                self._part_of_rows(code, target, first, apart, smaller(k - at, step_of(b.element)), n - column)

        self._code.subroutine(name, arguments, write, inline=False)

    def _part_of_rows(
        self, code: KernelBuilder, tile: Pointer, first: Pointer, apart: SSAValue, rows: SSAValue, columns: SSAValue
    ) -> None:
        """A tile of so many rows, one at least, and columns: zeros are behind the last row."""
        group = group_of(first.element)
        words = (rows + (group - 1)) / group
        with code.loop(words) as word:
            places = [(word * group + i, columns) for i in range(group)]
            there = [(smaller(place, rows - 1), active * one_if(place < rows)) for place, active in places]
            _join(tile.at(word * self._pitch), [(first.at(place * apart), active) for place, active in there])
        with code.loop(TILE, words) as word:
            tile.at(word * self._pitch).store(0, code.number(types.uint8, 0, LINE))


def group_of(element: types.ElementType) -> int:
    """Elements in a word of a packed matrix: of bytes, or of bfloat16, as which all else is packed."""
    return 4 if element in (types.int8, types.uint8) else 2


def step_of(element: types.ElementType) -> int:
    """Elements of a column that are multiplied at a time."""
    return group_of(element) * TILE


def _words(parts: SSAValue) -> SSAValue:
    """The elements that a word holds, as words."""
    value = parts.builder.bitcast(parts.value, llvm_ir.VectorType(llvm_ir.IntType(32), TILE))
    return SSAValue(parts.builder, types.int32, value)
