"""The kernel that adds up blocks of an image where they overlap."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, Variable, gathered, remainder, smaller
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.col2im.spec import FoldSizes, FoldSpec
from jitonnx.kernels.parts.layouts import UnaryBuffers

_SHUFFLED = 4
"""Vectors that are put in order by shuffles at most; the elements of more are stored one by one."""


def build(spec: FoldSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    return lambda code, begin, end: _Fold(code, spec, lanes).emit(begin, end)


class _Fold:
    """Emits the code of one spec."""

    def __init__(self, code: KernelBuilder, spec: FoldSpec, lanes: int) -> None:
        self.code, self.spec = code, spec
        self.element = getattr(types, spec.element)
        self.lanes = min(16, lanes * 4 // (self.element.bitwidth // 8))
        self.size = code.sizes(FoldSizes)
        self.x, self.y = code.buffers(UnaryBuffers, self.element)
        self.lines = code.scratch(types.int64)
        self.last = spec.axes - 1
        self.extent, self.blocks = self.size.extents[self.last], self.size.blocks[self.last]
        self.apart = self.blocks
        """How far what a tap of the last axis reads is from what the next one does."""
        for axis in range(self.last):
            self.apart = self.apart * self.size.blocks[axis]

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, size = self.code, self.size
        rows = size.planes + 0
        for axis in range(self.last):
            rows = rows * size.extents[axis]
        stop = smaller(end * size.task_rows, rows)
        with code.loop(stop, begin * size.task_rows) as row:
            place: list[SSAValue] = []
            plane = row
            for axis in reversed(range(self.last)):
                place.insert(0, remainder(plane, size.extents[axis]))
                plane = plane / size.extents[axis]
            count = code.variable(code.integer(0))
            self._find_lines(count, plane, code.integer(0), place, 0)
            self._row(self.y.at(row * self.extent), count.get())

    def _find_lines(self, count: Variable, taps: SSAValue, blocks: SSAValue, place: list[SSAValue], axis: int) -> None:
        """Note where the lines of x lie that a row at `place` is made of; taps, blocks: those along the axes before."""
        code, size = self.code, self.size
        if axis == self.last:
            line = taps * self.spec.kernel * self.apart + blocks * self.blocks
            self.lines.store(count.get(), line)
            count.set(count.get() + 1)
            return
        step, before, dilation = size.steps[axis], size.before[axis], size.dilations[axis]
        with code.loop(size.kernels[axis]) as tap:
            away = place[axis] + before - tap * dilation
            with code.if_then(away >= 0):
                block = away / step
                with code.if_then(remainder(away, step).equals(0) & (block < size.blocks[axis])):
                    inner = blocks * size.blocks[axis] + block
                    self._find_lines(count, taps * size.kernels[axis] + tap, inner, place, axis + 1)

    def _row(self, y: Pointer, lines: SSAValue) -> None:
        """A row of y, made of so many lines of x."""
        code, spec, lanes = self.code, self.spec, self.lanes
        taps = [spec.taps(place) for place in range(spec.step)]
        reach = [distance for of_place in taps for _, distance in of_place] or [0]
        with code.loop((self.extent + (spec.step - 1)) / spec.step, step=lanes) as done:
            totals = [code.variable(code.number(self.element, 0, lanes)) for _ in taps]
            within = (done + min(reach) >= 0) & (done + (max(reach) + lanes) <= self.blocks)
            with code.if_else(within) as (all_there, some_there):
                with all_there:
                    self._add(totals, taps, lines, done, lambda line, at: line.load(at, lanes))
                with some_there:
                    self._add(totals, taps, lines, done, self._load_some)
            self._store(y, [total.get() for total in totals], done)

    def _add(
        self,
        totals: Sequence[Variable],
        taps: Sequence[Sequence[tuple[int, int]]],
        lines: SSAValue,
        done: SSAValue,
        load: Callable[[Pointer, SSAValue], SSAValue],
    ) -> None:
        with self.code.loop(lines) as number:
            first = self.x.at(self.lines.load(number))
            for total, of_place in zip(totals, taps, strict=True):
                for tap, distance in of_place:
                    total.set(total.get() + load(first.at(self.apart * tap), done + distance))

    def _load_some(self, line: Pointer, start: SSAValue) -> SSAValue:
        """A vector of a line, of which only a part may be there."""
        at = start.splat(self.lanes) + self.code.iota(self.lanes)
        inside = (at >= 0) & (at < self.blocks.splat(self.lanes))
        return line.load(start, self.lanes, Mask(inside.value))

    def _store(self, y: Pointer, totals: Sequence[SSAValue], done: SSAValue) -> None:
        """The elements of all places within steps, from step `done` on."""
        lanes, step = self.lanes, self.spec.step
        target, active = y.at(done * step), self.extent - done * step
        if step > _SHUFFLED:
            for place, total in enumerate(totals):
                # Of the last steps there may be fewer elements at later places.
                target.at(place).store_apart(
                    self.code.integer(0), self.code.integer(step), total, (active + (step - 1 - place)) / step
                )
            return
        for vector in range(step):
            order = [at % step * lanes + at // step for at in range(vector * lanes, (vector + 1) * lanes)]
            target.store(vector * lanes, gathered(totals, order), active - vector * lanes)
