"""Packing a computed matrix for products of bfloat16 in AMX's tile registers, as `TiledSpec.packed` does it with
constant weights: tiles of 16 columns and a step of 32 elements, whose pairs along the sums lie side by side."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.kernels.language import ir, types
from jitonnx.kernels.language.code import Code, Pointer, remainder, shuffled, smaller
from jitonnx.kernels.language.half import narrow_for_products
from jitonnx.kernels.language.trace import Traced, one_if
from jitonnx.kernels.parts.layouts import LINE, TILE
from jitonnx.kernels.transpose.tiles import transposed

_STEP = 2 * TILE
"""Elements of a column that are multiplied at a time."""
_TILE_BYTES = TILE * LINE


def rounded_step(source: Pointer, at: Traced | int, live: Traced | None = None) -> Traced:
    """A step of elements as bfloat16, those from `live` on 0 and not read."""
    if source.element is types.uint16:
        return source.load(at, _STEP, live)
    first = source.load(at, TILE, live)
    second = source.load(at + TILE, TILE, None if live is None else live - TILE)
    return narrow_for_products(first, second)


def tile_of_columns(tile: Pointer, column: Callable[[int], Pointer], live: Traced | None) -> None:
    """A tile of 16 columns whose elements lie side by side, of which `live` are there. column: where a column's are."""
    target = tile.to(types.int32)
    words = [_words(rounded_step(column(n), 0, live)) for n in range(TILE)]
    for n, vector in enumerate(transposed(words)):
        target.store(n * TILE, vector)


def tile_of_rows(tile: Pointer, row: Callable[[int], tuple[Pointer, Traced | None]]) -> None:
    """A tile of 16 columns of 32 rows. row: where a row's elements are, and how many are there (None: all)."""
    target = tile.to(types.uint16)
    order = [side * TILE + n for n in range(TILE) for side in range(2)]
    for pair in range(TILE):
        first, second = (source.load(0, TILE, live) for source, live in map(row, (2 * pair, 2 * pair + 1)))
        if first.element is types.uint16:
            target.store(pair * _STEP, shuffled(first, second, order))
        else:
            both = narrow_for_products(first, second)
            target.store(pair * _STEP, shuffled(both, both, order))


class Packing:
    """Emits the packing of matrices of k rows and n columns to panels of `width` columns.

    row, column: from an element to the next one of its column, and of its row; one of them is 1, the first if
    `by_column`. Elements are float32 or the bits of bfloat16.
    """

    def __init__(self, code: Code, by_column: bool, width: int, extents: tuple[Traced, Traced], step: Traced) -> None:
        """step: the one of row and column that need not be 1."""
        self._code, self._by_column, self._width, self._step = code, by_column, width, step
        self._k, self._n = extents
        self.steps = (self._k + (_STEP - 1)) / _STEP
        self.panel_bytes = self.steps * (width * LINE)

    def panels(self, b: Pointer, target: Pointer, first: Traced, end: Traced) -> None:
        """Packs columns first, …, end - 1, of whole panels, into these in `target`, where the first panel of all begins
        there."""
        code, n = self._code, self._n
        stop = smaller(end, n)
        outer, inner = (stop, self._k) if self._by_column else (self._k, stop)
        starts = (first, 0) if self._by_column else (0, first)
        steps = (TILE, _STEP) if self._by_column else (_STEP, TILE)
        with code.loop(outer, starts[0], steps[0]) as i, code.loop(inner, starts[1], steps[1]) as j:
            column, at = (i, j) if self._by_column else (j, i)
            within = remainder(column, code.integer(self._width)) / TILE * _TILE_BYTES
            place = column / self._width * self.panel_bytes + at / _STEP * (self._width * LINE) + within
            with code.either((column + TILE <= n) & (at + _STEP <= self._k)) as (whole, part):
                with whole:
                    self._tile("pack_whole", b, target.at(place), column, at)
                with part:
                    self._tile("pack_part", b, target.at(place), column, at)

    def _tile(self, name: str, b: Pointer, target: Pointer, column: Traced, at: Traced) -> None:
        arguments: list[Traced | Pointer] = [target, b, column, at, self._k, self._n, self._step]

        def write(
            code: Code, target: Pointer, b: Pointer, column: Traced, at: Traced, k: Traced, n: Traced, step: Traced
        ) -> None:
            whole = name == "pack_whole"

            def one_column(i: int) -> Pointer:
                return b.at((column + i if whole else smaller(column + i, n - 1)) * step + at)

            def one_row(i: int) -> tuple[Pointer, Traced | None]:
                if whole:
                    return b.at((at + i) * step + column), None
                return b.at(smaller(at + i, k - 1) * step + column), (n - column) * one_if(at + i < k)

            if self._by_column:
                tile_of_columns(target, one_column, None if whole else k - at)
            else:
                tile_of_rows(target, one_row)

        self._code.subroutine(name, arguments, write, inline=False)


def _words(halves: Traced) -> Traced:
    """Pairs of 16 bits as words."""
    value = halves.builder.bitcast(halves.value, ir.VectorType(ir.IntType(32), TILE))
    return Traced(halves.builder, types.int32, value)
