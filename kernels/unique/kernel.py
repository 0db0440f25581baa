"""The kernel of Unique: a radix sort of elements or a merge sort of slices, and a pass over what it gives."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, one_if, select
from jitonnx.kernels.parts.memory import WORDS, copy_bytes
from jitonnx.kernels.parts.sorting import merge_sort, radix_sort
from jitonnx.kernels.unique.spec import INFINITIES, ITEM_BYTES, UniqueBuffers, UniqueSizes, UniqueSpec

_INT128 = types.Integer(128, signed=True)


def build(spec: UniqueSpec, lanes: int) -> Kernel:
    """The kernel of `spec`; runs are copied by vectors of 4 * lanes bytes."""
    return lambda code, begin, end: _Unique(spec, code).all(4 * lanes)


class _Unique:
    """Emits what is done with the slices."""

    def __init__(self, spec: UniqueSpec, code: KernelBuilder) -> None:
        self.spec, self.code = spec, code
        self.outer, self.length, self.inner = code.sizes(UniqueSizes)
        item_bytes = ITEM_BYTES[spec.element]
        signed = spec.element in INFINITIES or spec.element.startswith("int")
        word = types.Integer(8 * item_bytes, signed=signed)
        buffers = code.buffers(UniqueBuffers, types.int64, x=word, values=word)
        self.x, self.values, self.indices, self.inverse, self.counts, *self.told = buffers
        self.key_bits = 64 if item_bytes == 8 else 32
        self.nan_key = (1 << (word.bitwidth - 1)) - 1
        self.record = _INT128 if spec.record_bytes == 16 else types.int64

    def all(self, vector_bytes: int) -> None:
        """What the kernel does."""
        stride = self.length + 1
        records = self.code.scratch(self.record)
        with self.code.loop(self.length) as index:
            records.store(index, self._record_of(index))
        if self.spec.sliced:
            ordered = merge_sort(self.code, records, stride, self.length, self._before)
        else:
            bits = 8 * ITEM_BYTES[self.spec.element]
            ordered = radix_sort(self.code, records, stride, self.length, self.key_bits, bits)
        if self.spec.ascending:
            count = self._numbered(ordered)
        else:
            places = records.at(stride * 2).to(types.int64)
            self._runs(ordered, places)
            count = self._renumbered(places)
        for told in self.told:
            told.store(0, count)
        self._move(count, vector_bytes)

    # ------------------------------------------------------------ order

    def _key(self, x: SSAValue) -> SSAValue:
        """An int64 in the order of the elements, which fits into as many bits as they have; both zeros have one, and
        so has any NaN."""
        key, bits = convert(x, types.int64), x.element.bitwidth
        if self.spec.element in INFINITIES:
            magnitude = key & ((1 << (bits - 1)) - 1)
            ordered = select(key < 0, 0 - magnitude, magnitude)
            return select(magnitude > INFINITIES[self.spec.element], self.nan_key, ordered)
        if x.element.signed:
            return key
        return key ^ (-1 << 63) if bits == 64 else key - (1 << (bits - 1))

    def _record_of(self, index: SSAValue) -> SSAValue:
        """What is sorted in the place of a slice: its key and index, or its index alone."""
        if self.spec.sliced:
            return index
        key = convert(self._key(self.x.load(index)), self.record) << self.key_bits
        return key | convert(SSAValue(index.builder, types.uint64, index.value), self.record)

    def _index(self, record: SSAValue) -> SSAValue:
        index = convert(record, types.int64)
        return index & 0xFFFFFFFF if self.key_bits == 32 and not self.spec.sliced else index

    def _before(self, a: SSAValue, b: SSAValue, both: SSAValue) -> SSAValue:
        """Whether slice a, which comes first in x, stays in front of b."""
        later = self.code.variable(self.code.integer(0))
        with self.code.if_then(both):
            later.set(self._walked(a, b, lambda left, right: one_if(left > right) - one_if(left < right)))
        return later.get() <= 0

    def _differs(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """Whether two records that follow each other are those of different slices."""
        if not self.spec.sliced:
            return ((a ^ b) >> self.key_bits).differs(0)

        def apart(left: SSAValue, right: SSAValue) -> SSAValue:
            differ = left.differs(right)
            return one_if(differ | left.equals(self.nan_key) if self.spec.element in INFINITIES else differ)

        return self._walked(a, b, apart).differs(0)

    def _walked(self, a: SSAValue, b: SSAValue, compare: Callable[[SSAValue, SSAValue], SSAValue]) -> SSAValue:
        """The first result of comparing the keys of two slices that is not 0; 0 if none is."""
        code = self.code
        found, outer = code.variable(code.integer(0)), code.variable(code.integer(0))
        with code.loop_while(lambda: (outer.get() < self.outer) & found.get().equals(0)):
            first = outer.get() * self.length
            left, right = (self.x.at((first + slice_) * self.inner) for slice_ in (a, b))
            inner = code.variable(code.integer(0))
            with code.loop_while(lambda: (inner.get() < self.inner) & found.get().equals(0)):
                found.set(compare(self._key(left.load(inner.get())), self._key(right.load(inner.get()))))
                inner.set(inner.get() + 1)
            outer.set(outer.get() + 1)
        return found.get()

    # ------------------------------------------------------------ numbers

    def _each_run(self, ordered: Pointer, begin: Callable[[SSAValue, SSAValue], None]) -> SSAValue:
        """Number the runs of equal slices in `inverse`, after begin(number, index) for the first of each; how many."""
        code = self.code
        last, previous = code.variable(code.integer(-1)), code.variable(code.number(self.record, 0))
        with code.loop(self.length) as place:
            record = ordered.load(place)
            index = self._index(record)
            new = code.variable(code.integer(1))
            with code.if_then(place > 0):
                new.set(one_if(self._differs(previous.get(), record)))
            last.set(last.get() + new.get())
            with code.if_then(new.get().differs(0)):
                begin(last.get(), index)
            self.inverse.store(index, last.get())
            if self.spec.ascending:
                self.counts.store(last.get(), self.counts.load(last.get()) + 1)
            previous.set(record)
        return last.get() + 1

    def _numbered(self, ordered: Pointer) -> SSAValue:
        """All numbers, of slices in ascending order; how many are distinct."""

        def begin(number: SSAValue, index: SSAValue) -> None:
            self.indices.store(number, index)
            self.counts.store(number, self.code.integer(0))

        return self._each_run(ordered, begin)

    def _runs(self, ordered: Pointer, places: Pointer) -> None:
        """Write numbers in ascending order to `inverse`; for each of them -1 to `places`."""
        self._each_run(ordered, lambda number, index: places.store(number, self.code.integer(-1)))

    def _renumbered(self, places: Pointer) -> SSAValue:
        """All numbers, of slices in the order in which they come first; how many are distinct."""
        code = self.code
        count = code.variable(code.integer(0))
        with code.loop(self.length) as index:
            ranked = self.inverse.load(index)
            with code.if_then(places.load(ranked) < 0):
                places.store(ranked, count.get())
                self.indices.store(count.get(), index)
                self.counts.store(count.get(), code.integer(0))
                count.set(count.get() + 1)
            number = places.load(ranked)
            self.inverse.store(index, number)
            self.counts.store(number, self.counts.load(number) + 1)
        return count.get()

    # ------------------------------------------------------------ values

    def _move(self, count: SSAValue, vector_bytes: int) -> None:
        """The distinct slices, one behind the other."""
        code, piece = self.code, self.spec.piece
        run = code.integer(1) if piece else self.inner * ITEM_BYTES[self.spec.element]
        source, target = (pointer.to(WORDS[piece or 1]) for pointer in (self.x, self.values))
        with code.loop(self.outer) as outer, code.loop(count) as number:
            at, to = outer * self.length + self.indices.load(number), outer * count + number
            if piece:
                target.store(to, source.load(at))
            else:
                copy_bytes(code, target.at(to * run), source.at(at * run), run, vector_bytes)
