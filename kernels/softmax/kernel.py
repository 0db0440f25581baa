"""Softmax kernels: three passes over a slice that stays in the first-level cache: largest, exponentials, scaling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from jitonnx.kernels import vecmath
from jitonnx.kernels.code import Code, Pointer, emitted, remainder, smaller
from jitonnx.kernels.rows import Vectors, larger_lanes, unit_range
from jitonnx.kernels.softmax.spec import COLUMNS, SoftmaxSpec
from jitonnx.kernels.trace import Traced

_LOWEST = float("-inf")


def build(spec: SoftmaxSpec, lanes: int, epilogue: Any = None, prologue: Any = None) -> Callable[..., None]:
    """The kernel of `spec` for vectors of `lanes` elements (of spec.element)."""
    element = getattr(types, spec.element)

    def body(code: Code, begin: Traced, end: Traced) -> None:
        vectors = Vectors(code, element, lanes, prologue, epilogue)
        x, y = code.buffer(0, element), code.buffer(1, element)
        outer, length, inner, x_outer, x_step, y_outer, y_step = (code.size(i) for i in range(len(spec.SIZES)))
        if spec.last:
            first, stop = unit_range(code, begin, end, outer, length)
            with code.loop(stop, first) as row:
                _Row(vectors, spec.kind, length).emit(x.at(row * x_outer), y.at(row * y_outer), row)
            return
        blocks = (inner + (COLUMNS - 1)) / COLUMNS
        first, stop = unit_range(code, begin, end, outer * blocks, length * COLUMNS)
        with code.loop(stop, first) as unit:
            batch, start = unit / blocks, remainder(unit, blocks) * COLUMNS
            columns = _Columns(vectors, spec.kind, length, x_step, y_step)
            with code.loop(smaller(start + COLUMNS, inner), start, lanes) as column:
                columns.emit(x.at(batch * x_outer), y.at(batch * y_outer), batch, column, inner - column)

    return emitted(body)


class _Row:
    """A slice whose elements are neighbours."""

    def __init__(self, vectors: Vectors, kind: str, length: Traced) -> None:
        self.vectors, self.kind, self.length = vectors, kind, length

    def emit(self, x: Pointer, y: Pointer, row: Traced) -> None:
        vectors, code, lanes = self.vectors, self.vectors.code, self.vectors.lanes
        zero = code.integer(0)
        # Once the prologue has been applied, y holds what is to be read.
        source = y if vectors.has_prologue else x

        def value(column: Traced, live: Traced | None) -> Traced:
            loaded = vectors.prologue(x.load(column, lanes, live), zero, row, column, live)
            if vectors.has_prologue:
                y.store(column, loaded, live)
            return loaded

        # A NaN need not come through here: its exponential spoils the sum.
        largest = vectors.largest(vectors.fold(self.length, _LOWEST, larger_lanes, value))
        spread = code.spread(largest, lanes)

        def exponential(column: Traced, live: Traced | None) -> Traced:
            power = code.call(vecmath.exp_flush, source.load(column, lanes, live) - spread)
            if self.kind == "softmax":
                y.store(column, power, live)
            return power

        total = vectors.sum(vectors.fold(self.length, 0.0, lambda a, b: a + b, exponential))
        if self.kind == "softmax":
            factor = code.spread(1.0 / total, lanes)
        else:
            factor = code.spread(code.call(vecmath.log, total), lanes)

        def finish(slot: int, column: Traced, live: Traced | None) -> None:
            if self.kind == "softmax":
                result = y.load(column, lanes, live) * factor
            else:
                result = source.load(column, lanes, live) - spread - factor
            y.store(column, vectors.epilogue(result, zero, row, column, live), live)

        vectors.each(self.length, finish)


class _Columns:
    """`lanes` neighbouring slices whose elements are a step apart.

    They are gathered in scratch: steps are often multiples of 4 KB, whose lines share a few sets of the cache.
    """

    def __init__(self, vectors: Vectors, kind: str, length: Traced, x_step: Traced, y_step: Traced) -> None:
        self.vectors, self.kind, self.length, self.x_step, self.y_step = vectors, kind, length, x_step, y_step
        self.values = vectors.code.scratch(vectors.element)

    def emit(self, x: Pointer, y: Pointer, batch: Traced, column: Traced, live: Traced) -> None:
        vectors, code, lanes = self.vectors, self.vectors.code, self.vectors.lanes
        mask = code.live(live, lanes)
        largest = code.variable(code.number(vectors.element, _LOWEST, lanes))
        with code.loop(self.length) as k:
            value = vectors.prologue(x.load(k * self.x_step + column, lanes, mask), batch, k, column, live)
            self.values.store(k * lanes, value)
            largest.set(larger_lanes(largest.get(), value))
        total = code.variable(code.number(vectors.element, 0.0, lanes))
        with code.loop(self.length) as k:
            shifted = self.values.load(k * lanes, lanes) - largest.get()
            power = code.call(vecmath.exp_flush, shifted)
            self.values.store(k * lanes, power if self.kind == "softmax" else shifted)
            total.set(total.get() + power)
        factor = 1.0 / total.get() if self.kind == "softmax" else code.call(vecmath.log, total.get())
        with code.loop(self.length) as k:
            value = self.values.load(k * lanes, lanes)
            result = value * factor if self.kind == "softmax" else value - factor
            y.store(k * self.y_step + column, vectors.epilogue(result, batch, k, column, live), mask)
