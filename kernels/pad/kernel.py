"""The padding kernel: each row of the result is written once, from left to right."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, remainder, smaller
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.pad.spec import Axis, PadBuffers, PadSizes, PadSpec
from jitonnx.kernels.parts.memory import WORDS, copy_bytes, fill


def build(spec: PadSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of 4 * lanes bytes."""
    return lambda code, begin, end: _Kernel(code, spec, 4 * lanes).emit(begin, end)


class _Kernel:
    """Emits the code of one spec."""

    def __init__(self, code: KernelBuilder, spec: PadSpec, vector_bytes: int) -> None:
        self.code, self.spec, self.vector_bytes = code, spec, vector_bytes
        self.size = code.sizes(PadSizes)
        self.outer = PadSizes.place("outer")
        self.source, self.value, self.target = code.buffers(PadBuffers, WORDS[spec.itemsize])
        self.places = code.scratch(types.int64)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size = self.code, self.size
        if self.spec.mode != "constant":
            self._find_places()
        blocks = (size.b_extent + size.task_rows - 1) / size.task_rows
        with code.loop(end, begin) as task:
            source, target, inside = self._outer_place(task / blocks)
            first = remainder(task, blocks) * size.task_rows
            with code.loop(smaller(first + size.task_rows, size.b_extent), first) as b:
                place, is_inside = self._along("b", b)
                from_, to = source.at(place * size.b_source), target.at(b * size.b_target)
                with code.if_else((inside & is_inside).equals(1)) as (row, nothing):
                    with row:
                        self._row(from_, to)
                    with nothing:
                        self._fill(to, size.left + size.middle + size.right)

    def _outer_place(self, number: SSAValue) -> tuple[Pointer, Pointer, SSAValue]:
        """The addresses of source and target at place `number` of the outer axes, and whether (1) the source is
        there."""
        code, one = self.code, self.code.integer(1)
        rest, source, target, inside = (code.variable(x) for x in (number, one - 1, one - 1, one))
        with code.loop(self.size.outer_rank) as done:
            first = (self.size.outer_rank - 1 - done) * len(Axis._fields) + self.outer
            extent, *strides, before, source_extent = (code.size(first + field) for field in range(len(Axis._fields)))
            index = rest.get()
            coordinate = remainder(index, extent)
            rest.set(index / extent)
            place, is_inside = self._folded(coordinate - before, source_extent)
            source.set(source.get() + place * strides[1])
            target.set(target.get() + coordinate * strides[0])
            inside.set(inside.get() & is_inside)
        return self.source.at(self.size.source_start + source.get()), self.target.at(target.get()), inside.get()

    def _along(self, axis: str, coordinate: SSAValue) -> tuple[SSAValue, SSAValue]:
        size = self.size
        return self._folded(coordinate - getattr(size, f"{axis}_before"), getattr(size, f"{axis}_source_extent"))

    def _folded(self, place: SSAValue, extent: SSAValue) -> tuple[SSAValue, SSAValue]:
        """Which element of a source of some extent continues it at `place`, and whether (1) that is one of its own."""
        code, mode = self.code, self.spec.mode
        outside = (place < 0) | (place >= extent)
        if mode == "constant":
            return place, select(outside, code.integer(0), 1)
        found = code.variable(place)
        with code.if_then(outside):
            if mode == "edge":
                found.set(select(place < 0, 0, extent - 1))
            else:
                period = extent if mode == "wrap" else select(extent > 1, (extent - 1) * 2, 1)
                within = remainder(place, period)  # has the sign of `place`
                within = select(within < 0, within + period, within)
                found.set(within if mode == "wrap" else smaller(within, period - within))
        return found.get(), code.integer(1)

    def _find_places(self) -> None:
        """Find where in a row of the source the elements come from that a row of the target adds on its left and
        right."""
        code, size = self.code, self.size
        with code.loop(size.left + size.right) as number:
            at = select(number < size.left, number, number + size.middle)
            place, _ = self._folded(at / size.run - size.row_before, size.row_extent)
            self.places.store(number, place * size.run + remainder(at, size.run))

    def _row(self, source: Pointer, target: Pointer) -> None:
        code, size = self.code, self.size
        item = self.spec.itemsize
        right = size.left + size.middle
        self._added(source, target, size.left, self.places)
        copy_bytes(code, target.at(size.left).as_bytes(), source.as_bytes(), size.middle * item, self.vector_bytes)
        self._added(source, target.at(right), size.right, self.places.at(size.left))

    def _added(self, source: Pointer, target: Pointer, count: SSAValue, places: Pointer) -> None:
        if self.spec.mode == "constant":
            self._fill(target, count)
            return
        with self.code.loop(count) as number:
            target.store(number, source.load(places.load(number)))

    def _fill(self, target: Pointer, count: SSAValue) -> None:
        fill(self.code, target, self.value.load(0), count, self.vector_bytes // self.spec.itemsize)
