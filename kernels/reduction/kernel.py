"""Reduction kernels: along rows with several vectors of partial results, or across rows with one result a lane."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import numpy as np

from jitonnx.emit import llvm_ir, simd, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, Variable, remainder, smaller
from jitonnx.emit.epilogue import Stage
from jitonnx.emit.mathematics import vecmath
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, absolute, bits, isnan, select, sqrt, to_float, unordered
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.parts.rows import VECTORS, Parts, Vectors, across_packed, across_rows, unit_range
from jitonnx.kernels.parts.widened import Widened
from jitonnx.kernels.reduction.spec import COLUMNS, ReductionSizes, ReductionSpec
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning

Slice = Callable[[SSAValue, "SSAValue | None"], SSAValue]
Part = Callable[[SSAValue], tuple[SSAValue, Pointer, Pointer, SSAValue]]
"""What a unit's number stands for: its slice's number, where it begins, where its result goes, its length."""


def build(spec: ReductionSpec, lanes: int, epilogue: Stage | None = None, prologue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements (of spec.element). arg_max and arg_min take no epilogue,
    packed slices no prologue."""
    if (spec.is_index and epilogue is not None) or (spec.packed and prologue is not None):
        raise ValueError(f"{spec} takes no {'prologue' if spec.packed else 'epilogue'}")
    element = getattr(types, spec.element)

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        vectors = Vectors(code, element, lanes, prologue, epilogue)
        y = code.buffers(UnaryBuffers, types.int64 if spec.is_index else element).y
        x = _source(code, spec)
        emit: _Indices | _Values = (_Indices if spec.is_index else _Values)(spec, vectors)
        outer, length, inner, x_outer, x_step, y_outer, _ = code.sizes(ReductionSizes)
        each = (length + (spec.parts - 1)) / spec.parts

        def part(slices: SSAValue) -> tuple[SSAValue, Pointer, Pointer, SSAValue]:
            if spec.parts == 1:
                return slices, x.at(slices * x_outer), y.at(slices * y_outer), length
            number, piece = slices / spec.parts, remainder(slices, code.integer(spec.parts))
            start = smaller(piece * each, length)
            source = x.at(number * x_outer + start * x_step)
            return number, source, y.at(number * y_outer + piece * inner), smaller(each, length - start)

        if spec.packed:
            _emit_packed(spec, vectors, emit, part, *unit_range(code, begin, end, outer, length))
            return
        if spec.last:
            emit.rows(part, *unit_range(code, begin, end, outer * spec.parts, each))
            return
        blocks = (inner + (COLUMNS - 1)) / COLUMNS
        first, stop = unit_range(code, begin, end, outer * spec.parts * blocks, each * COLUMNS)
        done = code.variable(first)
        with code.loop_while(lambda: done.get() < stop):
            unit = done.get()
            batch, source, target, here = part(unit / blocks)
            rows = _Rows(source, target, batch, x_step, here)
            block = remainder(unit, blocks)
            start = block * COLUMNS
            if isinstance(emit, _Values) and emit.most_together > 1:
                neighbours = smaller(smaller(stop - unit, blocks - block), emit.most_together)
                together = select(here >= tuning.REDUCTION_LONG_COLUMNS, neighbours, 1)
                stop_column = smaller((block + together) * COLUMNS, inner)
                with code.if_else(together > 1) as (many, one):
                    with many:
                        emit.many_columns(rows, start, stop_column)
                    with one:
                        _emit_columns(emit, rows, start, stop_column)
                done.set(unit + together)
            else:
                _emit_columns(emit, rows, start, smaller(start + COLUMNS, inner))
                done.set(unit + 1)

    return body


def _source(code: KernelBuilder, spec: ReductionSpec) -> Pointer:
    """x, whose elements are read as those that are computed with."""
    element = getattr(types, spec.element)
    if not spec.stored:
        return code.buffers(UnaryBuffers, element).x
    return Widened(code.buffers(UnaryBuffers, getattr(types, spec.stored)).x, element)


class _Rows(NamedTuple):
    """A slice's rows, `step` elements apart, which are reduced column by column."""

    x: Pointer
    y: Pointer
    batch: SSAValue
    step: SSAValue
    length: SSAValue
    """How many there are."""


def _emit_columns(
    emit: _Values | _Indices,
    rows: _Rows,
    start: SSAValue,
    stop: SSAValue,
) -> None:
    """Columns [start, stop) of a slice, with totals in registers."""
    code, lanes = emit.code, emit.vectors.lanes
    done = start
    for several in emit.blocks:
        block = several * lanes
        whole = stop - remainder(stop - done, code.integer(block))
        with code.loop(whole, done, block) as column:
            emit.columns(rows, (column, None), several)
        done = whole
    with code.loop(stop, done, lanes) as column:
        emit.columns(rows, (column, stop - column), 1)


def _store_rows(
    code: KernelBuilder, part: Part, start: SSAValue, here: SSAValue, result: SSAValue, spec: ReductionSpec
) -> None:
    """The results of units start, …, start + here - 1, at most as many as there are lanes, to where each belongs."""
    y, step = part(start)[2], code.sizes(ReductionSizes).y_outer
    with code.if_else(step.equals(1)) as (dense, apart):
        with dense:
            y.store(0, result, here)
        with apart:
            lanes = result.value.type.count
            results = code.memory(result.element, lanes)
            results.store(0, result)
            with code.loop(here) as i:
                part(start + i)[2].store(0, results.load(i))


def _emit_packed(
    spec: ReductionSpec, vectors: Vectors, emit: _Values | _Indices, part: Part, first: SSAValue, stop: SSAValue
) -> None:
    """Slices [first, stop), as many as a vector has lanes at a time, from as many vectors as a slice has elements."""
    code, lanes, length = vectors.code, vectors.lanes, spec.packed
    x, zero = _source(code, spec), code.integer(0)

    def some(start: SSAValue, active: SSAValue | None) -> None:
        """Slices start, start + 1, …: as many as there are lanes, or the live ones."""
        loaded = []
        for v in range(length):
            rest = None if active is None else active * length - v * lanes
            value = x.load(start * length + v * lanes, lanes, rest)
            loaded.append(value)
        result = emit.packed(loaded, length)
        if not spec.is_index:
            result = vectors.epilogue(result, zero, zero, start, active)
        _store_rows(code, part, start, code.integer(lanes) if active is None else active, result, spec)

    whole = stop - remainder(stop - first, code.integer(lanes))
    with code.loop(whole, first, lanes) as start:
        some(start, None)
    with code.if_then(whole < stop):
        some(whole, stop - whole)


# ---------------------------------------------------------------- what the kinds do


_MANY_COLUMNS = 1024
"""The most columns whose totals are in memory, in the first-level cache, together."""


class _Kind(NamedTuple):
    """result = finish(combine over change(x)), lane by lane, then across the lanes."""

    change: Callable[[SSAValue], SSAValue]
    combine: Callable[[SSAValue, SSAValue], SSAValue]
    initial: float
    add: Callable[[SSAValue, SSAValue], SSAValue]
    """combine(total, x) where no NaN need come through: those of x are noted aside if `notes_nan`. One instruction
    where the extreme with NaN takes four, and masks, which are slow to combine."""
    notes_nan: bool = False


def _same(x: SSAValue) -> SSAValue:
    return x


def _magnitude(x: SSAValue) -> SSAValue:
    return absolute(x) if x.is_float else select(x < 0, -x, x)


def _maximum(a: SSAValue, b: SSAValue) -> SSAValue:
    larger = select(a > b, a, b)
    return select(isnan(a), a, larger) if a.is_float else larger


def _minimum(a: SSAValue, b: SSAValue) -> SSAValue:
    less = select(a < b, a, b)
    return select(isnan(a), a, less) if a.is_float else less


def _kind(kind: str, element: str) -> _Kind:
    if kind in ("max", "min"):
        is_float, largest = element.startswith("float"), kind == "max"
        limits = (-np.inf, np.inf) if is_float else (np.iinfo(element).min, np.iinfo(element).max)
        if largest:
            return _Kind(_same, _maximum, limits[0], lambda total, x: select(x > total, x, total), is_float)
        return _Kind(_same, _minimum, limits[1], lambda total, x: select(x < total, x, total), is_float)
    if kind == "prod":
        return _Kind(_same, operator.mul, 1, operator.mul)
    change = {"l1": _magnitude, "l2": lambda x: x * x, "sum_square": lambda x: x * x}.get(kind, _same)
    return _Kind(change, operator.add, 0, operator.add)


class _InMemory(NamedTuple):
    """A vector that lies in memory, used as a variable is."""

    pointer: Pointer
    place: SSAValue
    lanes: int

    def get(self) -> SSAValue:
        return self.pointer.load(self.place, self.lanes)

    def set(self, value: SSAValue) -> None:
        self.pointer.store(self.place, value)


class _Total:
    """A vector that values are combined into, in registers or in memory."""

    def __init__(self, kind: _Kind, total: Variable | _InMemory, nan: Variable | _InMemory | None) -> None:
        self._kind, self._total, self._nan = kind, total, nan

    @staticmethod
    def of(code: KernelBuilder, kind: _Kind, element: types.ElementType, lanes: int) -> _Total:
        """A total of nothing, in registers."""
        initial, nan = _nothing(code, kind, element, lanes)
        return _Total(kind, code.variable(initial), code.variable(nan) if kind.notes_nan else None)

    def add(self, *values: SSAValue) -> None:
        """Add as many values as a power of two: those of pairs with each other, and so on, and what is left with the
        total. So operations wait for each other less, and rounding errors are smaller."""
        combined = values
        while len(combined) > 1:
            combined = tuple(map(self._kind.add, combined[::2], combined[1::2]))
        self._total.set(self._kind.add(self._total.get(), *combined))
        if self._nan is not None:
            nan = self._nan.get()
            for x in values:
                nan = select(isnan(x), -1, nan)
            self._nan.set(nan)

    def get(self) -> SSAValue:
        """The total; NaN in the lanes where one was added."""
        total = self._total.get()
        return total if self._nan is None else select(self._nan.get().equals(0), total, np.nan)


def _nothing(code: KernelBuilder, kind: _Kind, element: types.ElementType, lanes: int) -> tuple[SSAValue, SSAValue]:
    """What a total begins with, and the lanes in which a NaN was met: none."""
    initial = code.number(element, kind.initial, lanes)
    return initial, bits(initial) ^ bits(initial)


class _Values:
    """Emits reductions to values."""

    def __init__(self, spec: ReductionSpec, vectors: Vectors) -> None:
        self.spec, self.vectors, self.code = spec, vectors, vectors.code
        self.kind = _kind(spec.kind, spec.element)
        self.short = spec.kind != "log_sum_exp" and vectors.vectors == VECTORS
        """Neither exponentials nor stages."""
        self.blocks = (8, 2) if self.short else (vectors.vectors,)
        """How many vectors of columns are reduced at once, and what remains of them."""
        self.together = 8 if self.short else 1
        """How many rows of columns. As many whatever the number of vectors: equal columns have equal results."""
        self.most_together = _MANY_COLUMNS // COLUMNS if self.short else 1
        """How many neighbouring units are done row by row, with totals in memory."""

    def rows(self, part: Part, first: SSAValue, stop: SSAValue) -> None:
        """Units [first, stop): each folded into one vector, then as many as it has lanes at once across the lanes."""
        code, lanes, element = self.code, self.vectors.lanes, self.vectors.element
        folded, shifts = code.memory(element, lanes * lanes), code.memory(element, lanes)
        zero, together = code.integer(0), self.spec.parts == 1 and self.short
        with code.loop(stop, first, lanes) as start:
            here = smaller(stop - start, lanes)
            if together:
                length = part(zero)[3]
                with code.if_else(length <= tuning.REDUCTION_SHORT * lanes) as (short, long):
                    with short:
                        self._short_rows(part, start, here, folded)
                    with long:
                        self._long_rows(part, start, here, folded, shifts)
            else:
                self._long_rows(part, start, here, folded, shifts)
            (total,) = across_rows([(folded.load(i * lanes, lanes),) for i in range(lanes)], self._combine)
            shift = shifts.load(0, lanes) if self.spec.kind == "log_sum_exp" else None
            result = self.vectors.epilogue(self._finish(total, shift), zero, zero, start, here)
            _store_rows(code, part, start, here, result, self.spec)

    def packed(self, vectors: list[SSAValue], length: int) -> SSAValue:
        """A vector of results, from as many slices' elements one after the other."""
        changed = [(self.kind.change(x),) for x in vectors]
        (total,) = across_packed(changed, length, self._combine)
        return self._finish(total, None)

    def _combine(self, a: Parts, b: Parts) -> Parts:
        return (self.kind.combine(*a, *b),)

    def _long_rows(self, part: Part, start: SSAValue, here: SSAValue, folded: Pointer, shifts: Pointer) -> None:
        """Units start, …, start + here - 1 as rows of `folded`, one after the other."""
        code, lanes = self.code, self.vectors.lanes
        with code.loop(here) as i:
            number, source, _, length = part(start + i)
            shift = None
            if self.spec.kind == "log_sum_exp":
                largest = self._folded(source, number, length, _kind("max", self.spec.element), _same)
                shift = _finite(simd.reduce_max(largest))
                shifts.store(i, shift)
            folded.store(i * lanes, self._row(source, number, length, shift))

    def _short_rows(self, part: Part, start: SSAValue, here: SSAValue, folded: Pointer) -> None:
        """The same, half as many as there are lanes at once: with few vectors a row, loops cost more than they do.

        Rows that are not there are done as the last one is.
        """
        code, lanes, kind = self.code, self.vectors.lanes, self.kind
        with code.loop(here, step=lanes // 2) as first:
            _, source, _, length = part(start + first)
            step, places = code.sizes(ReductionSizes).x_outer, [code.integer(0)]
            for i in range(1, lanes // 2):
                places.append(places[-1] + select(here - first > i, step, 0))
            rows = [source.at(place).pinned() for place in places]
            totals = [_Total.of(code, kind, self.vectors.element, lanes) for _ in rows]
            with code.loop(length, step=lanes) as column:
                active = length - column
                mask = code.active(active, lanes)
                for row, total in zip(rows, totals, strict=True):
                    loaded = kind.change(row.load(column, lanes, mask))
                    total.add(self.vectors.only_live(loaded, active, kind.initial))
            for i, total in enumerate(totals):
                folded.store((first + i) * lanes, total.get())

    def _row(self, x: Pointer, row: SSAValue, length: SSAValue, shift: SSAValue | None) -> SSAValue:
        if shift is None:
            return self._folded(x, row, length, self.kind, self.kind.change)
        spread = self.code.splat(shift, self.vectors.lanes)
        return self._folded(x, row, length, self.kind, lambda x: vecmath.exp(x - spread))

    def _folded(
        self, x: Pointer, row: SSAValue, length: SSAValue, kind: _Kind, change: Callable[[SSAValue], SSAValue]
    ) -> SSAValue:
        """change(x) combined over a row, as a vector."""
        vectors, code, lanes = self.vectors, self.code, self.vectors.lanes
        totals = [_Total.of(code, kind, vectors.element, lanes) for _ in range(vectors.slots())]

        def body(slot: int, column: SSAValue, active: SSAValue | None) -> None:
            loaded = vectors.prologue(x.load(column, lanes, active), code.integer(0), row, column, active)
            totals[slot].add(vectors.only_live(change(loaded), active, kind.initial))

        vectors.each(length, body)
        return functools.reduce(kind.combine, [total.get() for total in totals])

    def columns(self, rows: _Rows, place: tuple[SSAValue, SSAValue | None], several: int) -> None:
        vectors, code, lanes = self.vectors, self.code, self.vectors.lanes
        x, y, batch, x_step, length = rows
        first, active = place
        mask = None if active is None else code.active(active, lanes)
        columns = [first + v * lanes for v in range(several)]

        def total(kind: _Kind, change: Callable[[SSAValue, int], SSAValue]) -> list[SSAValue]:
            totals = [_Total.of(code, kind, vectors.element, lanes) for _ in columns]

            def add(k: SSAValue, rows: int) -> None:
                for v, column in enumerate(columns):
                    loaded = [x.load((k + row) * x_step + column, lanes, mask) for row in range(rows)]
                    given = [vectors.prologue(x, batch, k + row, column, active) for row, x in enumerate(loaded)]
                    totals[v].add(*(change(x, v) for x in given))

            whole = length - remainder(length, code.integer(self.together))
            with code.loop(whole, step=self.together) as k:
                add(k, self.together)
            if self.together > 1:
                with code.loop(length, whole) as k:
                    add(k, 1)
            return [total.get() for total in totals]

        shifts: list[SSAValue | None] = [None] * several
        if self.spec.kind == "log_sum_exp":
            found = [_finite(largest) for largest in total(_kind("max", self.spec.element), lambda x, v: x)]
            results = total(self.kind, lambda x, v: vecmath.exp(x - found[v]))
            shifts = list(found)
        else:
            results = total(self.kind, lambda x, v: self.kind.change(x))
        for column, result, shift in zip(columns, results, shifts, strict=True):
            finished = self._finish(result, shift)
            y.store(column, vectors.epilogue(finished, batch, code.integer(0), column, active), mask)

    def many_columns(self, rows: _Rows, start: SSAValue, stop: SSAValue) -> None:
        """Columns [start, stop), at most _MANY_COLUMNS, combined in the order in which `columns` does.

        Each row is read from the first of these columns to the last: what lies one behind the other in memory, where
        a block of columns on its own jumps from page to page.
        """
        code, lanes, element, kind = self.code, self.vectors.lanes, self.vectors.element, self.kind
        x, y, batch, x_step, length = rows
        totals = code.memory(element, _MANY_COLUMNS)
        initial, none = _nothing(code, kind, element, lanes)
        nans = code.memory(none.element, _MANY_COLUMNS) if kind.notes_nan else None

        def total(column: SSAValue) -> _Total:
            at = column - start
            return _Total(kind, _InMemory(totals, at, lanes), None if nans is None else _InMemory(nans, at, lanes))

        with code.loop(stop, start, lanes) as column:
            totals.store(column - start, initial)
            if nans is not None:
                nans.store(column - start, none)
        whole = length - remainder(length, code.integer(self.together))
        whole_columns = stop - remainder(stop - start, code.integer(lanes))
        with code.loop(whole, step=self.together) as k:
            several = [x.at((k + row) * x_step).pinned() for row in range(self.together)]
            with code.loop(whole_columns, start, lanes) as column:
                total(column).add(*(kind.change(row.load(column, lanes)) for row in several))
            with code.if_then(whole_columns < stop):
                mask = code.active(stop - whole_columns, lanes)
                total(whole_columns).add(*(kind.change(row.load(whole_columns, lanes, mask)) for row in several))
        with code.loop(stop, start, lanes) as column:
            active = stop - column
            mask = code.active(active, lanes)
            with code.loop(length, whole) as k:
                total(column).add(kind.change(x.load(k * x_step + column, lanes, mask)))
            finished = self._finish(total(column).get(), None)
            y.store(column, self.vectors.epilogue(finished, batch, code.integer(0), column, active), mask)

    def _finish(self, total: SSAValue, shift: SSAValue | None) -> SSAValue:
        """A vector of results from combined values."""
        kind, code, element = self.spec.kind, self.code, self.vectors.element
        if kind == "mean":
            whole = code.sizes(ReductionSizes).count
            count = convert(to_float(whole), element) if total.is_float else convert(whole, element)
            count = code.splat(count, self.vectors.lanes)
            # An integer mean of nothing is 0 here; dividing by 0 would stop the process.
            return total / (count if total.is_float else select(count.equals(0), count.constant(1), count))
        if kind == "l2":
            return sqrt(total)
        if kind in ("log_sum", "log_sum_exp"):
            logarithm = vecmath.log(total)
            return logarithm if shift is None else logarithm + shift
        return total


def _finite(x: SSAValue) -> SSAValue:
    """x, but 0 for an infinity, which can't be subtracted from itself."""
    return select(absolute(x).equals(np.inf), 0.0, x)


# ---------------------------------------------------------------- where the extreme is


class _Indices:
    """Emits arg_max and arg_min. Indices are integers as wide as the elements until they are stored."""

    def __init__(self, spec: ReductionSpec, vectors: Vectors) -> None:
        self.spec, self.vectors, self.code = spec, vectors, vectors.code
        self.integer = types.int32 if vectors.element.bitwidth == 32 else types.int64
        self.largest = spec.kind == "arg_max"
        many_registers = vectors.lanes * vectors.element.bitwidth >= 512
        self.blocks = (8, 2) if many_registers and not vectors.has_prologue else (vectors.vectors,)

    def _better(self, x: SSAValue, best: SSAValue) -> SSAValue:
        """Whether x takes the place of an earlier best; a NaN beats all numbers."""
        if self.spec.select_last_index:
            better = x >= best if self.largest else x <= best
            return better | isnan(x) if x.is_float else better
        if x.is_float:
            return unordered(">" if self.largest else "<", x, best) & ~isnan(best)
        return x > best if self.largest else x < best

    def rows(self, part: Part, first: SSAValue, stop: SSAValue) -> None:
        """Do what `_Values.rows` does: a row's lanes have bests of their own until as many rows as there are lanes are
        done."""
        code, lanes = self.code, self.vectors.lanes
        bests, places = code.memory(self.vectors.element, lanes * lanes), code.memory(self.integer, lanes * lanes)
        with code.loop(stop, first, lanes) as start:
            here = smaller(stop - start, lanes)
            with code.loop(here) as i:
                row, x, _, length = part(start + i)
                best, where = self._row(x, row, length)
                bests.store(i * lanes, best)
                places.store(i * lanes, where)
            rows = [(bests.load(i * lanes, lanes), places.load(i * lanes, lanes)) for i in range(lanes)]
            _, where = across_rows(rows, self._better_lanes)
            _store_rows(code, part, start, here, convert(where, types.int64), self.spec)

    def packed(self, vectors: list[SSAValue], length: int) -> SSAValue:
        """Do what `_Values.packed` does, of indices."""
        lanes = self.vectors.lanes
        columns = [[(v * lanes + lane) % length for lane in range(lanes)] for v in range(length)]
        pairs = [(x, self._constant(column)) for x, column in zip(vectors, columns, strict=True)]
        _, where = across_packed(pairs, length, self._better_lanes)
        return convert(where, types.int64)

    def _constant(self, indices: list[int]) -> SSAValue:
        typ = llvm_ir.VectorType(self.integer.llvm, len(indices))
        return SSAValue(self.code.builder, self.integer, llvm_ir.Constant(typ, indices))

    def _row(self, x: Pointer, row: SSAValue, length: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The best that each lane came by, and its index."""
        vectors, code, lanes = self.vectors, self.code, self.vectors.lanes
        zero = code.integer(0)

        def load(column: SSAValue, active: SSAValue | None) -> SSAValue:
            return vectors.prologue(x.load(column, lanes, active), zero, row, column, active)

        slots = range(vectors.slots())
        first = self._first(load, lanes)
        bests = [code.variable(first) for _ in slots]
        places = [code.variable(self._spread(zero)) for _ in slots]

        def body(slot: int, column: SSAValue, active: SSAValue | None) -> None:
            value, best = load(column, active), bests[slot].get()
            better = self._better(value, best)
            if active is not None:
                better = better & SSAValue(code.builder, types.boolean, code.active(active, lanes).value)
            bests[slot].set(select(better, value, best))
            places[slot].set(select(better, self._indices(column), places[slot].get()))

        vectors.each(length, body)
        lanes_best = list(zip((b.get() for b in bests), (p.get() for p in places), strict=True))
        return functools.reduce(self._better_lanes, lanes_best)

    def _better_lanes(self, a: Parts, b: Parts) -> tuple[SSAValue, SSAValue]:
        """The better of two bests in each lane and its index, of equal ones the first or the last."""
        (best, where), (other, elsewhere) = a, b
        equal = other.equals(best)
        if best.is_float:
            equal = equal | (isnan(other) & isnan(best))
        nearer = elsewhere > where if self.spec.select_last_index else elsewhere < where
        better = select(equal, nearer, self._better(other, best))
        return select(better, other, best), select(better, elsewhere, where)

    def columns(self, rows: _Rows, place: tuple[SSAValue, SSAValue | None], several: int) -> None:
        vectors, code, lanes = self.vectors, self.code, self.vectors.lanes
        x, y, batch, x_step, length = rows
        first, active = place
        mask = None if active is None else code.active(active, lanes)
        columns = [first + v * lanes for v in range(several)]

        def load(k: SSAValue, column: SSAValue) -> SSAValue:
            return vectors.prologue(x.load(k * x_step + column, lanes, mask), batch, k, column, active)

        zero = code.integer(0)
        bests = [code.variable(load(zero, column)) for column in columns]
        places = [code.variable(self._spread(zero)) for _ in columns]
        with code.loop(length, 1) as k:
            index = self._spread(k)
            for column, best, where in zip(columns, bests, places, strict=True):
                value = load(k, column)
                better = self._better(value, best.get())
                best.set(select(better, value, best.get()))
                where.set(select(better, index, where.get()))
        for column, where in zip(columns, places, strict=True):
            y.store(column, convert(where.get(), types.int64), mask)

    def _first(self, load: Slice, lanes: int) -> SSAValue:
        """The slice's first element in all lanes."""
        vector = load(self.code.integer(0), self.code.integer(1))
        first = self.code.builder.extract_element(vector.value, self.code.integer(0).value)
        return self.code.splat(vector.like(first), lanes)

    def _spread(self, index: SSAValue) -> SSAValue:
        return self.code.splat(convert(index, self.integer), self.vectors.lanes)

    def _indices(self, column: SSAValue) -> SSAValue:
        """column, column + 1, …"""
        return self._spread(column) + convert(self.code.iota(self.vectors.lanes), self.integer)
