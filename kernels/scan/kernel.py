"""The scanning kernels: along rows by vectors that are scanned in registers, or across rows with one sum a lane."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import (
    REGISTER_LANE_BYTES,
    Kernel,
    KernelBuilder,
    Mask,
    Pointer,
    Variable,
    remainder,
    shuffled,
    smaller,
)
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.parts.layouts import KeptAxis, UnaryBuffers
from jitonnx.kernels.parts.rows import unit_range
from jitonnx.kernels.scan.spec import COLUMNS, ScanSpec

_VECTORS = 4
"""Vectors of columns scanned at once: their chains of dependent operations hide each other's latency."""


def build(spec: ScanSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements (of spec.element)."""
    element = getattr(types, spec.element)

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        scan = _Scan(spec, code, element, lanes)
        x, y = code.buffers(UnaryBuffers, element)
        outer, length, inner, x_outer, x_step, y_outer, y_step = code.sizes(KeptAxis)
        if spec.last:
            first, stop = unit_range(code, begin, end, outer, length)
            with code.loop(stop, first) as row:
                scan.row(x.at(row * x_outer), y.at(row * y_outer), length)
            return
        blocks = (inner + (COLUMNS - 1)) / COLUMNS
        first, stop = unit_range(code, begin, end, outer * blocks, length * COLUMNS)
        with code.loop(stop, first) as unit:
            batch, start = unit / blocks, remainder(unit, blocks) * COLUMNS
            end_column = smaller(start + COLUMNS, inner)
            block = _VECTORS * lanes
            whole = end_column - remainder(end_column - start, code.integer(block))
            source, target = x.at(batch * x_outer), y.at(batch * y_outer)
            with code.loop(whole, start, block) as column:
                scan.columns(source.at(column), target.at(column), (x_step, y_step), length, _VECTORS, None)
            with code.loop(end_column, whole, lanes) as column:
                active = code.active(end_column - column, lanes)
                scan.columns(source.at(column), target.at(column), (x_step, y_step), length, 1, active)

    return body


class _Scan:
    """Emits the scan of a row, or of neighbouring columns."""

    def __init__(self, spec: ScanSpec, code: KernelBuilder, element: types.ElementType, lanes: int) -> None:
        self.spec, self.code, self.element, self.lanes = spec, code, element, lanes
        self.neutral = code.number(element, 0 if spec.kind == "sum" else 1, lanes)

    def _combine(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return a + b if self.spec.kind == "sum" else a * b

    def row(self, x: Pointer, y: Pointer, length: SSAValue) -> None:
        """Vectors of a row one after the other, from its start or from its end, then single elements."""
        code, lanes = self.code, self.lanes
        before = code.variable(self.neutral)
        whole = length - remainder(length, code.integer(lanes))
        with code.loop(whole, step=lanes) as done:
            at = length - lanes - done if self.spec.reverse else done
            y.store(at, self._turned(self._vector(self._turned(x.load(at, lanes)), before)))
        total = code.variable(self._first_lane(before.get()))
        with code.loop(length, whole) as done:
            at = length - 1 - done if self.spec.reverse else done
            old = total.get()
            total.set(self._combine(old, x.load(at)))
            y.store(at, old if self.spec.exclusive else total.get())

    def _vector(self, x: SSAValue, before: Variable) -> SSAValue:
        """The scan of one vector behind all `before`, whose total is then in all lanes of `before`.

        First stretches of 128 bits, within which shuffles are cheap, then what lies in front of each stretch.
        """
        total, within = before.get(), min(self.lanes, REGISTER_LANE_BYTES * 8 // self.element.bitwidth)
        distance = 1
        while distance < within:
            x = self._combine(x, self._shifted(x, distance, within))
            distance *= 2
        last = shuffled(x, x, [lane // within * within + within - 1 for lane in range(self.lanes)])
        offset = self._shifted(last, within)  # what the stretches in front of each one come to
        while distance < self.lanes:
            offset = self._combine(offset, self._shifted(offset, distance))
            distance *= 2
        x = self._combine(x, offset)
        # From one vector to the next there is only one operation to wait for.
        before.set(self._combine(total, self._last_lane(x)))
        return self._combine(total, self._shifted(x, 1) if self.spec.exclusive else x)

    def _shifted(self, x: SSAValue, distance: int, within: int | None = None) -> SSAValue:
        """Lane i is lane i - distance of x, or neutral where that is in front of its stretch of `within` lanes."""
        lanes = self.lanes
        stretch = within or lanes
        return shuffled(x, self.neutral, [i - distance if i % stretch >= distance else lanes for i in range(lanes)])

    def _last_lane(self, x: SSAValue) -> SSAValue:
        return shuffled(x, x, [self.lanes - 1] * self.lanes)

    def _first_lane(self, x: SSAValue) -> SSAValue:
        return x.like(x.builder.extract_element(x.value, self.code.integer(0).value))

    def _turned(self, x: SSAValue) -> SSAValue:
        """The lanes in the order of the scan."""
        return shuffled(x, x, list(reversed(range(self.lanes)))) if self.spec.reverse else x

    def columns(
        self,
        x: Pointer,
        y: Pointer,
        steps: tuple[SSAValue, SSAValue],
        length: SSAValue,
        several: int,
        active: Mask | None,
    ) -> None:
        """`several` vectors of columns, element after element along the axis."""
        code, lanes = self.code, self.lanes
        totals = [code.variable(self.neutral) for _ in range(several)]
        with code.loop(length) as k:
            row = length - 1 - k if self.spec.reverse else k
            for v, total in enumerate(totals):
                before = total.get()
                total.set(self._combine(before, x.load(row * steps[0] + v * lanes, lanes, active)))
                y.store(row * steps[1] + v * lanes, before if self.spec.exclusive else total.get(), active)
