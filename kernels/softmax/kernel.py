"""Softmax kernels: three passes over a slice that stays in the first-level cache: largest, exponentials, scaling."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, remainder, smaller
from jitonnx.emit.epilogue import Stage
from jitonnx.emit.mathematics import vecmath
from jitonnx.emit.mathematics.exponential import format_of
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.parts.layouts import KeptAxis, UnaryBuffers
from jitonnx.kernels.parts.microkernel import emit_prefetch
from jitonnx.kernels.parts.rows import Vectors, in_all_lanes, larger_lanes, unit_range
from jitonnx.kernels.softmax.spec import COLUMNS, SoftmaxSpec

_LOWEST = float("-inf")


def build(spec: SoftmaxSpec, lanes: int, epilogue: Stage | None = None, prologue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements (of spec.element)."""
    element, stored = getattr(types, spec.element), getattr(types, spec.result or spec.element)
    if spec.result and (epilogue is None or prologue is not None):
        raise ValueError(f"Bug: y is {spec.result}, and not what the prologue or the softmax gives")

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        vectors = Vectors(code, element, lanes, prologue, epilogue, stored)
        x, y = code.buffers(UnaryBuffers, element, y=stored)
        outer, length, inner, x_outer, x_step, y_outer, y_step = code.sizes(KeptAxis)
        least = _least(code.number(element, 0.0, lanes), length)
        if spec.last:
            first, stop = unit_range(code, begin, end, outer, length)
            together = min(spec.together, lanes)
            with code.loop(stop, first, together) as row:
                # Rows that are not there are done as the last one is, at the same time.
                rows = [row, *(smaller(row + place, stop - 1) for place in range(1, together))]
                places = [(x.at(r * x_outer).pinned(), y.at(r * y_outer).pinned()) for r in rows]
                kept = (
                    [code.scratch(element).at(length * number) for number in range(together)] if spec.result else None
                )
                _Rows(vectors, spec.kind, length, least, rows, places, kept).emit()
            return
        blocks = (inner + (COLUMNS - 1)) / COLUMNS
        first, stop = unit_range(code, begin, end, outer * blocks, length * COLUMNS)
        with code.loop(stop, first) as unit:
            batch, start = unit / blocks, remainder(unit, blocks) * COLUMNS
            columns = _Columns(vectors, spec.kind, length, least, x_step, y_step)
            with code.loop(smaller(start + COLUMNS, inner), start, lanes) as column:
                columns.emit(x.at(batch * x_outer), y.at(batch * y_outer), batch, column, inner - column)

    return body


def _least(x: SSAValue, length: SSAValue) -> SSAValue:
    """The least exponential that is scaled, in all lanes of a vector like x: its share of any total of `length` of
    them, each at most 1, is a normal number however it is rounded."""
    form = format_of(x)
    return convert(length, x.element).splat(x.lanes) * (form.least_normal * (1 + 2.0 ** (2 - form.mantissa)))


def _scaled(power: SSAValue, factor: SSAValue, least: SSAValue) -> SSAValue:
    """An exponential's share of the total, 0 where that might be denormal: products that are take a hundred cycles."""
    return select(power < least, 0.0, power) * factor


class _Rows:
    """Slices whose elements are neighbours, several at a time.

    Of each vector all rows are read before any is written: a row may be there twice.
    """

    def __init__(
        self,
        vectors: Vectors,
        kind: str,
        length: SSAValue,
        least: SSAValue,
        rows: list[SSAValue],
        places: list[tuple[Pointer, Pointer]],
        kept: list[Pointer] | None,
    ) -> None:
        """kept: where exponentials are stored meanwhile; None: in y."""
        self.vectors, self.kind, self.length, self.least, self.rows = vectors, kind, length, least, rows
        self.x, self.y = ([place[i] for place in places] for i in range(2))
        self.kept = kept or self.y
        # Once the prologue has been applied, y holds what is to be read.
        self.source = self.y if vectors.has_prologue else self.x

    def emit(self) -> None:
        vectors, code, lanes, count = self.vectors, self.vectors.code, self.vectors.lanes, len(self.rows)
        # A NaN need not come through here: its exponential spoils the sum.
        lane_bests = vectors.folds(count, self.length, _LOWEST, larger_lanes, self._first)
        largest = in_all_lanes(vectors.across(lane_bests, larger_lanes), lanes)

        # While exponentials keep the core busy, the memory that only the last pass writes is fetched.
        ask_ahead = self.kind == "log_softmax" and count == 1 and not vectors.has_prologue

        def exponentials(column: SSAValue, active: SSAValue | None) -> list[SSAValue]:
            if ask_ahead and active is None:
                emit_prefetch(code.builder, self.y[0].at(column).value, write=True)
            differences = zip(self._load(self.source, column, active), largest, strict=True)
            powers = [vecmath.exp_flush(x - best) for x, best in differences]
            if self.kind == "softmax":
                self._store(self.kept, column, powers, active)
            return powers

        totals = vectors.sums(vectors.folds(count, self.length, 0.0, lambda a, b: a + b, exponentials))
        factors = in_all_lanes(1.0 / totals if self.kind == "softmax" else vecmath.log(totals), lanes)

        def finish(slot: int, column: SSAValue, active: SSAValue | None) -> None:
            if self.kind == "softmax":
                powers = zip(self._load(self.kept, column, active), factors, strict=True)
                results = [_scaled(x, factor, self.least) for x, factor in powers]
            else:
                values = zip(self._load(self.source, column, active), largest, factors, strict=True)
                results = [x - best - factor for x, best, factor in values]
            stage = zip(results, self.rows, strict=True)
            results = [vectors.epilogue(x, code.integer(0), row, column, active) for x, row in stage]
            self._store(self.y, column, results, active)

        vectors.each(self.length, finish, count)

    def _first(self, column: SSAValue, active: SSAValue | None) -> list[SSAValue]:
        """A vector of each row, which is read for the first time."""
        vectors, loaded = self.vectors, self._load(self.x, column, active)
        if not vectors.has_prologue:
            return loaded
        zero = vectors.code.integer(0)
        values = [vectors.prologue(x, zero, row, column, active) for x, row in zip(loaded, self.rows, strict=True)]
        self._store(self.y, column, values, active)
        return values

    def _load(self, places: list[Pointer], column: SSAValue, active: SSAValue | None) -> list[SSAValue]:
        return [place.load(column, self.vectors.lanes, active) for place in places]

    def _store(self, places: list[Pointer], column: SSAValue, values: list[SSAValue], active: SSAValue | None) -> None:
        for place, value in zip(places, values, strict=True):
            place.store(column, value, active)


class _Columns:
    """`lanes` neighbouring slices whose elements are a step apart.

    They are gathered in scratch: steps are often multiples of 4 KB, whose lines share a few sets of the cache.
    """

    def __init__(
        self, vectors: Vectors, kind: str, length: SSAValue, least: SSAValue, x_step: SSAValue, y_step: SSAValue
    ) -> None:
        self.vectors, self.kind, self.length, self.least = vectors, kind, length, least
        self.x_step, self.y_step = x_step, y_step
        self.values = vectors.code.scratch(vectors.element)

    def emit(self, x: Pointer, y: Pointer, batch: SSAValue, column: SSAValue, active: SSAValue) -> None:
        vectors, code, lanes = self.vectors, self.vectors.code, self.vectors.lanes
        mask = code.active(active, lanes)
        largest = code.variable(code.number(vectors.element, _LOWEST, lanes))
        with code.loop(self.length) as k:
            value = vectors.prologue(x.load(k * self.x_step + column, lanes, mask), batch, k, column, active)
            self.values.store(k * lanes, value)
            largest.set(larger_lanes(largest.get(), value))
        total = code.variable(code.number(vectors.element, 0.0, lanes))
        with code.loop(self.length) as k:
            shifted = self.values.load(k * lanes, lanes) - largest.get()
            power = vecmath.exp_flush(shifted)
            self.values.store(k * lanes, power if self.kind == "softmax" else shifted)
            total.set(total.get() + power)
        factor = 1.0 / total.get() if self.kind == "softmax" else vecmath.log(total.get())
        with code.loop(self.length) as k:
            value = self.values.load(k * lanes, lanes)
            result = _scaled(value, factor, self.least) if self.kind == "softmax" else value - factor
            y.store(k * self.y_step + column, vectors.epilogue(result, batch, k, column, active), mask)
