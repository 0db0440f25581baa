"""Reduction kernels: along rows with several vectors of partial results, or across rows with one result a lane."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.core import types

from jitonnx.kernels import simd, vecmath
from jitonnx.kernels.code import Code, Mask, Pointer, convert, emitted, remainder, smaller
from jitonnx.kernels.reduction.spec import COLUMNS, ReductionSpec
from jitonnx.kernels.rows import VECTORS, Vectors, unit_range
from jitonnx.kernels.trace import Traced, absolute, isnan, select, sqrt, to_float

Slice = Callable[[Traced, "Traced | None"], Traced]


def build(spec: ReductionSpec, lanes: int, epilogue: Any = None, prologue: Any = None) -> Callable[..., None]:
    """The kernel of `spec` for vectors of `lanes` elements (of spec.element). arg_max and arg_min take no epilogue."""
    if spec.is_index and epilogue is not None:
        raise ValueError(f"{spec} takes no epilogue")
    element = getattr(types, spec.element)

    def body(code: Code, begin: Traced, end: Traced) -> None:
        vectors = Vectors(code, element, lanes, prologue, epilogue)
        x, y = code.buffer(0, element), code.buffer(1, types.int64 if spec.is_index else element)
        emit = (_Indices if spec.is_index else _Values)(spec, vectors)
        outer, length, inner, x_outer, x_step, y_outer, _ = (code.size(i) for i in range(len(spec.SIZES)))
        each = (length + (spec.parts - 1)) / spec.parts

        def part(slices: Traced) -> tuple[Traced, Pointer, Pointer, Traced]:
            """Of a part's number: its slice's number, where it begins, where its result goes, its length."""
            if spec.parts == 1:
                return slices, x.at(slices * x_outer), y.at(slices * y_outer), length
            number, piece = slices / spec.parts, remainder(slices, code.integer(spec.parts))
            start = smaller(piece * each, length)
            source = x.at(number * x_outer + start * x_step)
            return number, source, y.at(number * y_outer + piece * inner), smaller(each, length - start)

        if spec.last:
            first, stop = unit_range(code, begin, end, outer * spec.parts, each)
            with code.loop(stop, first) as row:
                number, source, target, here = part(row)
                emit.row(source, target, number, here)
            return
        blocks = (inner + (COLUMNS - 1)) / COLUMNS
        first, stop = unit_range(code, begin, end, outer * spec.parts * blocks, each * COLUMNS)
        with code.loop(stop, first) as unit:
            batch, source, target, here = part(unit / blocks)
            start = remainder(unit, blocks) * COLUMNS
            done, end_column = start, smaller(start + COLUMNS, inner)
            for several in emit.blocks:
                block = several * lanes
                whole = end_column - remainder(end_column - done, code.integer(block))
                with code.loop(whole, done, block) as column:
                    emit.columns(source, target, batch, (column, None), several, x_step, here)
                done = whole
            with code.loop(end_column, done, lanes) as column:
                emit.columns(source, target, batch, (column, end_column - column), 1, x_step, here)

    return emitted(body)


# ---------------------------------------------------------------- what the kinds do


class _Kind(NamedTuple):
    """result = finish(combine over change(x)), lane by lane, then `across` the lanes."""

    change: Callable[[Traced], Traced]
    combine: Callable[[Traced, Traced], Traced]
    across: Any
    initial: float


def _same(x: Traced) -> Traced:
    return x


def _magnitude(x: Traced) -> Traced:
    return absolute(x) if x.is_float else select(x < 0, -x, x)


def _maximum(a: Traced, b: Traced) -> Traced:
    larger = select(a > b, a, b)
    return select(isnan(a), a, larger) if a.is_float else larger


def _minimum(a: Traced, b: Traced) -> Traced:
    less = select(a < b, a, b)
    return select(isnan(a), a, less) if a.is_float else less


def _kind(kind: str, element: str) -> _Kind:
    if kind in ("max", "min"):
        limits = (-np.inf, np.inf) if element.startswith("float") else (np.iinfo(element).min, np.iinfo(element).max)
        if kind == "max":
            return _Kind(_same, _maximum, simd.reduce_max, limits[0])
        return _Kind(_same, _minimum, simd.reduce_min, limits[1])
    if kind == "prod":
        return _Kind(_same, lambda a, b: a * b, simd.reduce_mul, 1)
    change = {"l1": _magnitude, "l2": lambda x: x * x, "sum_square": lambda x: x * x}.get(kind, _same)
    return _Kind(change, lambda a, b: a + b, simd.reduce_add, 0)


class _Values:
    """Emits reductions to values."""

    def __init__(self, spec: ReductionSpec, vectors: Vectors) -> None:
        self.spec, self.vectors, self.code = spec, vectors, vectors.code
        self.kind = _kind(spec.kind, spec.element)
        short = spec.kind != "log_sum_exp" and vectors.vectors == VECTORS  # neither exponentials nor stages
        self.blocks = (8, 2) if short else (vectors.vectors,)
        """How many vectors of columns are reduced at once, and what remains of them."""

    def row(self, x: Pointer, y: Pointer, row: Traced, length: Traced) -> None:
        vectors, code, lanes = self.vectors, self.code, self.vectors.lanes
        zero = code.integer(0)

        def value(column: Traced, live: Traced | None) -> Traced:
            return vectors.prologue(x.load(column, lanes, live), zero, row, column, live)

        def total(kind: _Kind, change: Callable[[Traced], Traced]) -> Traced:
            folded = vectors.fold(length, kind.initial, kind.combine, lambda column, live: change(value(column, live)))
            return code.call(kind.across, folded)

        shift = None
        if self.spec.kind == "log_sum_exp":
            shift = _finite(total(_kind("max", self.spec.element), _same))
            spread = code.spread(shift, lanes)
            result = total(self.kind, lambda x: code.call(vecmath.exp, x - spread))
        else:
            result = total(self.kind, self.kind.change)
        result = code.spread(self._finish(result, shift), lanes)
        result = vectors.epilogue(result, zero, zero, row, code.integer(1))
        y.store(0, result, code.integer(1))

    def columns(
        self,
        x: Pointer,
        y: Pointer,
        batch: Traced,
        place: tuple[Traced, Traced | None],
        several: int,
        x_step: Traced,
        length: Traced,
    ) -> None:
        vectors, code, lanes = self.vectors, self.code, self.vectors.lanes
        first, live = place
        mask = None if live is None else code.live(live, lanes)
        columns = [first + v * lanes for v in range(several)]

        rows = self.blocks[0] // several  # at once, for as many independent sums as there are with several columns

        def total(kind: _Kind, change: Callable[[Traced, int], Traced]) -> list[Traced]:
            initial = code.number(vectors.element, kind.initial, lanes)
            totals = [[code.variable(initial) for _ in range(rows)] for _ in columns]

            def add(k: Traced, row: int) -> None:
                for v, column in enumerate(columns):
                    loaded = vectors.prologue(x.load(k * x_step + column, lanes, mask), batch, k, column, live)
                    totals[v][row].set(kind.combine(totals[v][row].get(), change(loaded, v)))

            whole = length - remainder(length, code.integer(rows))
            with code.loop(whole, step=rows) as k:
                for row in range(rows):
                    add(k + row, row)
            if rows > 1:
                with code.loop(length, whole) as k:
                    add(k, 0)
            return [functools.reduce(kind.combine, [t.get() for t in column]) for column in totals]

        shifts: list[Traced | None] = [None] * several
        if self.spec.kind == "log_sum_exp":
            found = [_finite(largest) for largest in total(_kind("max", self.spec.element), lambda x, v: x)]
            results = total(self.kind, lambda x, v: code.call(vecmath.exp, x - found[v]))
            shifts = list(found)
        else:
            results = total(self.kind, lambda x, v: self.kind.change(x))
        for column, result, shift in zip(columns, results, shifts, strict=True):
            finished = self._finish(result, shift)
            y.store(column, vectors.epilogue(finished, batch, code.integer(0), column, live), mask)

    def _finish(self, total: Traced, shift: Traced | None) -> Traced:
        """The result from a combined value: a scalar, or a vector of results."""
        kind, code, element = self.spec.kind, self.code, self.vectors.element
        if kind == "mean":
            whole = code.size(self.spec.SIZES.index("count"))
            count = convert(to_float(whole), element) if total.is_float else convert(whole, element)
            if _is_vector(total):
                count = code.spread(count, self.vectors.lanes)
            # An integer mean of nothing is 0 here; dividing by 0 would stop the process.
            return total / (count if total.is_float else select(count.equals(0), count.constant(1), count))
        if kind == "l2":
            return sqrt(total)
        if kind in ("log_sum", "log_sum_exp"):
            logarithm = code.call(vecmath.log, total)
            return logarithm if shift is None else logarithm + shift
        return total


def _is_vector(x: Traced) -> bool:
    return hasattr(x.value.type, "count")


def _finite(x: Traced) -> Traced:
    """x, but 0 for an infinity, which can't be subtracted from itself."""
    return select(absolute(x).equals(np.inf), 0.0, x)


# ---------------------------------------------------------------- where the extreme is


class _Indices:
    """Emits arg_max and arg_min. Indices are integers as wide as the elements until they are stored."""

    def __init__(self, spec: ReductionSpec, vectors: Vectors) -> None:
        self.spec, self.vectors, self.code = spec, vectors, vectors.code
        self.integer = types.int32 if vectors.element.bitwidth == 32 else types.int64
        self.largest = spec.kind == "arg_max"
        self.blocks = (vectors.vectors,)

    def _better(self, x: Traced, best: Traced) -> Traced:
        """Whether x takes the place of an earlier best; a NaN beats all numbers."""
        if self.spec.select_last_index:
            better = x >= best if self.largest else x <= best
            return better | isnan(x) if x.is_float else better
        better = x > best if self.largest else x < best
        return better | (isnan(x) & ~isnan(best)) if x.is_float else better

    def row(self, x: Pointer, y: Pointer, row: Traced, length: Traced) -> None:
        vectors, code, lanes = self.vectors, self.code, self.vectors.lanes
        zero = code.integer(0)

        def load(column: Traced, live: Traced | None) -> Traced:
            return vectors.prologue(x.load(column, lanes, live), zero, row, column, live)

        best, where = code.variable(self._first(load, lanes)), code.variable(self._spread(zero))

        def body(slot: int, column: Traced, live: Traced | None) -> None:
            value, index = load(column, live), self._indices(column)
            better = self._better(value, best.get())
            if live is not None:
                better = better & Traced(code.builder, types.boolean, code.live(live, lanes).value)
            best.set(select(better, value, best.get()))
            where.set(select(better, index, where.get()))

        vectors.each(length, body)
        y.store(0, convert(self._across(best.get(), where.get()), types.int64))

    def columns(
        self,
        x: Pointer,
        y: Pointer,
        batch: Traced,
        place: tuple[Traced, Traced | None],
        several: int,
        x_step: Traced,
        length: Traced,
    ) -> None:
        code, lanes = self.code, self.vectors.lanes
        first, live = place
        mask = None if live is None else code.live(live, lanes)
        for v in range(several):
            self._column_vector(x, y, (batch, first + v * lanes, live, mask), x_step, length)

    def _column_vector(
        self,
        x: Pointer,
        y: Pointer,
        place: tuple[Traced, Traced, Traced | None, Mask | None],
        x_step: Traced,
        length: Traced,
    ) -> None:
        vectors, code, lanes = self.vectors, self.code, self.vectors.lanes
        batch, column, live, mask = place

        def load(k: Traced) -> Traced:
            return vectors.prologue(x.load(k * x_step + column, lanes, mask), batch, k, column, live)

        zero = code.integer(0)
        best, where = code.variable(load(zero)), code.variable(self._spread(zero))
        with code.loop(length, 1) as k:
            value = load(k)
            better = self._better(value, best.get())
            best.set(select(better, value, best.get()))
            where.set(select(better, self._spread(k), where.get()))
        y.store(column, convert(where.get(), types.int64), mask)

    def _first(self, load: Slice, lanes: int) -> Traced:
        """The slice's first element in all lanes."""
        vector = load(self.code.integer(0), self.code.integer(1))
        first = self.code.builder.extract_element(vector.value, self.code.integer(0).value)
        return self.code.spread(vector.like(first), lanes)

    def _spread(self, index: Traced) -> Traced:
        return self.code.spread(convert(index, self.integer), self.vectors.lanes)

    def _indices(self, column: Traced) -> Traced:
        """column, column + 1, …"""
        return self._spread(column) + convert(self.code.iota(self.vectors.lanes), self.integer)

    def _across(self, best: Traced, where: Traced) -> Traced:
        """The index of the best lane; of equal ones the first or last."""
        code, lanes = self.code, self.vectors.lanes
        extreme = code.spread(code.call(simd.reduce_max if self.largest else simd.reduce_min, best), lanes)
        chosen = best.equals(extreme)
        if best.is_float:
            chosen = chosen | isnan(best)  # then the extreme is NaN, and nothing equals it
        limits = np.iinfo(str(self.integer))
        if self.spec.select_last_index:
            return code.call(simd.reduce_max, select(chosen, where, limits.min))
        return code.call(simd.reduce_min, select(chosen, where, limits.max))
