"""The transposing copy: two inner axes by runs, tiles in registers, shuffles or elements, in blocks a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, gathered, larger, remainder, shuffled, smaller
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.parts.memory import WORDS, Copy, copy_runs, fill
from jitonnx.kernels.transpose.spec import (
    COPY,
    ELEMENTS,
    FILL,
    STRIDED,
    TILES,
    TransposeBuffers,
    TransposeSizes,
    TransposeSpec,
)
from jitonnx.kernels.transpose.tiles import TileOrder, copy_transposed, evenly, tile_size
from jitonnx.target import tuning


def build(spec: TransposeSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of 4 * lanes bytes."""
    return lambda code, begin, end: _Kernel(code, spec, 4 * lanes).emit(begin, end)


class _Kernel:
    """Emits the code of one spec."""

    def __init__(self, code: KernelBuilder, spec: TransposeSpec, vector_bytes: int) -> None:
        self.code, self.itemsize, self.vector_bytes = code, spec.itemsize, vector_bytes
        self.interleaved, self.step, self.streams = spec.interleaved, spec.step, spec.streams
        self.size = code.sizes(TransposeSizes)
        self.outer = TransposeSizes.place("outer")
        self.tile = tile_size(vector_bytes, spec.itemsize)
        word = WORDS[spec.itemsize]
        self.source, self.target = code.buffers(TransposeBuffers, word)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks: blocks of a fastest, then blocks of b and c, then the other axes."""
        code, size = self.code, self.size
        a_blocks = (size.a_extent + size.a_slack + size.a_block - 1) / size.a_block
        b_blocks = (size.b_extent + size.b_slack + size.b_block - 1) / size.b_block
        c_blocks = (size.c_extent + size.c_block - 1) / size.c_block
        # What is appended to where it lies is copied to itself.
        end = select(self.source.lies_at(self.target), begin, end)
        with code.loop(end, begin) as task:
            a, rest = remainder(task, a_blocks), task / a_blocks
            b, rest = remainder(rest, b_blocks), rest / b_blocks
            source, target = self._place(rest / c_blocks)
            first = remainder(rest, c_blocks) * size.c_block
            steps = smaller(size.c_block, size.c_extent - first)
            source, target = source.at(first * size.c_source), target.at(first * size.c_target)
            bounds = [*self._bounds("a", a), *self._bounds("b", b)]
            with code.if_then(size.mode.equals(COPY)):
                self._runs(source, target, steps, *bounds)
            for mode, way in {ELEMENTS: self._elements, FILL: self._fill}.items():
                with code.if_then(size.mode.equals(mode)):
                    way(source, target, *bounds)
            with code.if_then(size.mode.equals(TILES)):
                self._transpose(source, target, steps, a, b)
            if self.step:
                with code.if_then(size.mode.equals(STRIDED)), self._each(steps, source, target) as (from_, to):
                    self._strided(from_, to, *bounds)
        if self.streams:
            code.drain()

    @contextmanager
    def _each(self, steps: SSAValue, source: Pointer, target: Pointer) -> Iterator[tuple[Pointer, Pointer]]:
        """The block for each of a task's `steps` places along c."""
        with self.code.loop(steps) as c:
            yield source.at(c * self.size.c_source), target.at(c * self.size.c_target)

    def _bounds(self, axis: str, block: SSAValue, rows: Pointer | None = None) -> tuple[SSAValue, SSAValue]:
        """Start and stop of a block along an axis along which the rows at `rows`, if given, are contiguous."""
        size = self.size
        start = block * getattr(size, f"{axis}_block")
        if rows is not None:
            start = start - select(getattr(size, f"{axis}_slack") > 0, self._misalignment(rows), 0)
        return larger(start, 0), smaller(start + getattr(size, f"{axis}_block"), getattr(size, f"{axis}_extent"))

    def _misalignment(self, rows: Pointer) -> SSAValue:
        """How many elements a pointer is behind a place aligned as tiles are."""
        return rows.misalignment(self.tile * self.itemsize) / self.itemsize

    def _place(self, number: SSAValue) -> tuple[Pointer, Pointer]:
        """The addresses of source and target at which the inner axes start, at place `number` of the others."""
        code = self.code
        rest, source, target = (code.variable(x) for x in (number, code.integer(0), code.integer(0)))
        with code.loop(self.size.outer_rank) as done:
            axis = (self.size.outer_rank - 1 - done) * 3 + self.outer
            extent, index = code.size(axis), code.variable(rest.get())
            rest.set(index.get() / extent)
            coordinate = remainder(index.get(), extent)
            source.set(source.get() + coordinate * code.size(axis + 1))
            target.set(target.get() + coordinate * code.size(axis + 2))
        return self.source.at(source.get()), self.target.at(target.get())

    # ------------------------------------------------------------ the ways

    def _runs(
        self,
        source: Pointer,
        target: Pointer,
        steps: SSAValue,
        a: SSAValue,
        a_stop: SSAValue,
        b: SSAValue,
        b_stop: SSAValue,
    ) -> None:
        """Both are contiguous along a."""
        code, size = self.code, self.size

        def each(copy: Copy) -> None:
            with self._each(steps, source, target) as (from_, to), code.loop(b_stop, b) as row:
                copy(to.at(row * size.b_target + a).as_bytes(), from_.at(row * size.b_source + a).as_bytes())

        copy_runs(code, each, (a_stop - a) * self.itemsize, self.vector_bytes, streams=self.streams)

    def _elements(
        self, source: Pointer, target: Pointer, a: SSAValue, a_stop: SSAValue, b: SSAValue, b_stop: SSAValue
    ) -> None:
        """One by one: neither has a contiguous axis, or one is too short for tiles."""
        code, size = self.code, self.size
        with code.loop(b_stop, b) as row, code.loop(a_stop, a) as column:
            value = source.load(row * size.b_source + column * size.a_source)
            target.store(row * size.b_target + column * size.a_target, value)

    def _fill(
        self, source: Pointer, target: Pointer, a: SSAValue, a_stop: SSAValue, b: SSAValue, b_stop: SSAValue
    ) -> None:
        """The source has one element for all of a, the target is contiguous along it."""
        code, size, tile = self.code, self.size, self.tile
        with code.loop(b_stop, b) as row:
            to = target.at(row * size.b_target + a)
            fill(code, to, source.load(row * size.b_source), a_stop - a, tile)

    def _strided(
        self, source: Pointer, target: Pointer, a: SSAValue, a_stop: SSAValue, b: SSAValue, b_stop: SSAValue
    ) -> None:
        """The source's elements are `step` apart along a, along which the target is contiguous."""
        code, size, tile = self.code, self.size, self.tile
        with code.loop(b_stop, b) as row:
            from_, to = source.at(row * size.b_source), target.at(row * size.b_target)
            with code.loop(a_stop - tile, a, tile) as column:
                to.store(column, self._apart(from_, column, last=False))
            with code.if_else(a_stop - a > tile) as (long, short):
                with long:
                    to.store(a_stop - tile, self._apart(from_, a_stop - tile, last=True))
                with short, code.loop(a_stop, a) as column:
                    to.store(column, from_.load(column * self.step))

    def _apart(self, row: Pointer, column: SSAValue, *, last: bool) -> SSAValue:
        """A vector of elements `step` apart, the first of which is number `column`.

        What lies between them is read, too, but nothing before a row's first element or behind its last: the last
        vectors are loaded so that they end with that.
        """
        tile, step = self.tile, self.step
        if step < 0:
            vector = row.load(column * step - (tile - 1), tile)
            return shuffled(vector, vector, range(tile - 1, -1, -1))
        phase = step - 1 if last else 0
        vectors = [row.load(column * step - phase + part * tile, tile) for part in range(step)]
        return gathered(vectors, range(phase, step * tile, step))

    def _transpose(self, source: Pointer, target: Pointer, steps: SSAValue, a: SSAValue, b: SSAValue) -> None:
        """source is contiguous along b, target along a."""
        code, size, count = self.code, self.size, self.interleaved
        if not count:
            self._tiles(source, target, a, b)
            return
        together = size.a_extent.equals(count) & size.b_target.equals(count)
        apart = size.b_extent.equals(count) & size.a_source.equals(count)
        with code.if_else(together) as (yes, no):
            with yes, self._each(steps, source, target) as (from_, to):
                self._put_together(from_, to, *self._bounds("b", b))
            with no, code.if_else(apart) as (also, neither):
                with also, self._each(steps, source, target) as (from_, to):
                    self._take_apart(from_, to, *self._bounds("a", a))
                with neither:
                    self._tiles(source, target, a, b)

    def _put_together(self, source: Pointer, target: Pointer, b: SSAValue, b_stop: SSAValue) -> None:
        """Planes, `a_source` apart, to groups of `interleaved` elements without gaps."""
        code, size, count, tile = self.code, self.size, self.interleaved, self.tile
        whole = b_stop - remainder(b_stop - b, code.integer(tile))
        with code.loop(whole, b, tile) as start:
            planes = [source.load(size.a_source * plane + start, tile) for plane in range(count)]
            for number in range(count):
                places = range(number * tile, (number + 1) * tile)
                group = gathered(planes, [place % count * tile + place // count for place in places])
                target.store(start * count + number * tile, group)
        with code.loop(b_stop, whole) as at:
            for plane in range(count):
                target.store(at * count + plane, source.load(size.a_source * plane + at))

    def _take_apart(self, source: Pointer, target: Pointer, a: SSAValue, a_stop: SSAValue) -> None:
        """Groups of `interleaved` elements without gaps to planes, `b_target` apart."""
        code, size, count, tile = self.code, self.size, self.interleaved, self.tile
        whole = a_stop - remainder(a_stop - a, code.integer(tile))
        with code.loop(whole, a, tile) as start:
            groups = [source.load(start * count + number * tile, tile) for number in range(count)]
            for plane in range(count):
                one = gathered(groups, [place * count + plane for place in range(tile)])
                target.store(size.b_target * plane + start, one)
        with code.loop(a_stop, whole) as at:
            for plane in range(count):
                target.store(size.b_target * plane + at, source.load(at * count + plane))

    def _tiles(self, source: Pointer, target: Pointer, a_block: SSAValue, b_block: SSAValue) -> None:
        """source is contiguous along b, target along a: square tiles."""
        (a, a_stop), (b, b_stop) = self._bounds("a", a_block, target), self._bounds("b", b_block, source)
        a_source, b_target = self.size.a_source, self.size.b_target
        before = [
            select(getattr(self.size, f"{axis}_slack") > 0, self._misalignment(rows), 0)
            for axis, rows in (("a", target.at(a)), ("b", source.at(b)))
        ]
        # The tensor whose rows are further apart is walked along its rows: fewer streams, fewer pages. Rows of the
        # target that share few sets of a cache are, in any case: a store that misses costs more than a load.
        crowded = (b_target * self.itemsize & (tuning.TRANSPOSE_CROWDED_BYTES - 1)).equals(0)
        b_first = (a_source >= b_target) & ~crowded
        copy_transposed(
            self.code,
            source.at(a * a_source + b),
            a_source,
            evenly(target.at(b * b_target + a), b_target),
            (a_stop - a, b_stop - b),
            self.vector_bytes,
            TileOrder(self.code.integer(0) < 1 if self.streams else b_first, before, self.streams),
        )
