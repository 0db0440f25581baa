"""The kernel of TopK: a threshold that vectors are compared with, quickselect, and a merge sort of what is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, larger, remainder, smaller
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, bits, isnan, one_if, select
from jitonnx.kernels.parts.masks import each_bit, mask_of
from jitonnx.kernels.parts.rows import unit_range
from jitonnx.kernels.parts.sorting import merge_sort
from jitonnx.kernels.topk.spec import BLOCK, TopKBuffers, TopKSizes, TopKSpec

_INT128 = types.Integer(128, signed=True)


def build(spec: TopKSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements (of spec.element)."""

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        size = code.sizes(TopKSizes)
        element = getattr(types, spec.element)
        x, values, indices = code.buffers(TopKBuffers, element, indices=types.int64)
        emit = _TopK(spec, code, lanes, size.length, size.k, size.capacity)
        first, stop = unit_range(code, begin, end, size.rows, size.length)
        with code.loop(stop, first) as row:
            emit.row(
                x.at(row * size.x_row),
                values.at(row * size.values_row),
                indices.at(row * size.indices_row),
                size.one_by_one.equals(1),
            )

    return body


class _TopK:
    """Emits what is done with a row. Records are compared as signed integers: the larger, the further in front."""

    def __init__(
        self, spec: TopKSpec, code: KernelBuilder, lanes: int, length: SSAValue, k: SSAValue, capacity: SSAValue
    ) -> None:
        self.spec, self.code, self.lanes = spec, code, lanes
        self.length, self.k, self.capacity = length, k, capacity
        self.record = types.int64 if spec.record_bytes == 8 else _INT128
        self.key_bits = 4 * spec.record_bytes
        self.memory = code.scratch(self.record)
        self.stride = capacity + 2 * BLOCK  # the candidates' memory, with room for one block more

    def row(self, x: Pointer, values: Pointer, indices: Pointer, one_by_one: SSAValue) -> None:
        """The k best elements of a row, and where they stand."""
        code = self.code

        def store(place: SSAValue, record: SSAValue) -> SSAValue:
            index = self.index(record)
            values.store(place, x.load(index))
            indices.store(place, index)
            return index

        with code.if_else(one_by_one) as (few, many):
            with few:
                self._take_one_by_one(x, store)
            with many:
                best = self._sort(self._candidates(x))
                with code.loop(self.k) as i:
                    store(i, best.load(i))

    # ------------------------------------------------------------ records

    def _key(self, x: SSAValue) -> SSAValue:
        """Integers in the order of the elements."""
        wide = types.int32 if self.key_bits == 32 else types.int64
        highest = (1 << (self.key_bits - 1)) - 1
        if x.is_float:
            number = x + 0.0  # -0 becomes 0
            key = bits(number)
            key = key ^ ((key >> (self.key_bits - 1)) & highest)
            key = select(isnan(x), highest, key)
        elif x.element.bitwidth == self.key_bits and not x.element.signed:
            key = SSAValue(x.builder, wide, x.value) ^ (-highest - 1)
        else:
            key = convert(x, wide)
        return key if self.spec.largest else ~key

    def _record(self, x: SSAValue, index: SSAValue) -> SSAValue:
        """Key and complemented index of elements in one integer each: among equal keys the lower index is larger."""
        low = SSAValue(index.builder, types.uint64, (~index).value)
        if self.key_bits == 32:
            low = low & 0xFFFFFFFF
        return (convert(self._key(x), self.record) << self.key_bits) | convert(low, self.record)

    def index(self, record: SSAValue) -> SSAValue:
        """The index in a record."""
        low = ~convert(record, types.int64)
        return low & 0xFFFFFFFF if self.key_bits == 32 else low

    def _key_of(self, record: SSAValue) -> SSAValue:
        return convert(record >> self.key_bits, types.int32 if self.key_bits == 32 else types.int64)

    # ------------------------------------------------------------ short rows

    def _take_one_by_one(self, x: Pointer, store: Callable[[SSAValue, SSAValue], SSAValue]) -> None:
        """The largest record k times; record i of a row lies at place i, and is wiped out when it was taken."""
        code, memory = self.code, self.memory
        lanes = self.lanes if self.key_bits == 32 else None
        least = code.number(self.record, -(1 << (self.record.bitwidth - 1)), lanes)
        self._fill(x, self.length)
        memory.store(self.length, least)
        with code.loop(self.k) as place:
            best = code.variable(least)
            with code.loop(self.length, step=lanes or 1) as i:
                best.set(larger(best.get(), memory.load(i, lanes)))
            index = store(place, self._across(best.get()))
            memory.store(index, code.number(self.record, -(1 << (self.record.bitwidth - 1))))

    def _across(self, x: SSAValue) -> SSAValue:
        """The largest lane."""
        lanes = self.lanes
        while self.key_bits == 32 and lanes > 1:
            lanes //= 2
            x = larger(self.code.part(x, 0, lanes), self.code.part(x, lanes, lanes))
        return x.like(x.builder.extract_element(x.value, self.code.integer(0).value)) if self.key_bits == 32 else x

    # ------------------------------------------------------------ candidates

    def _candidates(self, x: Pointer) -> Pointer:
        """The records of the k best elements of a row, in any order."""
        code, zero = self.code, self.code.integer(0)
        self.count = code.variable(smaller(self.length, self.capacity))
        self._fill(x, self.count.get())
        at, going = code.variable(self.count.get()), code.variable(zero + 1)
        whole = self.length - remainder(self.length - self.count.get(), code.integer(self._block))
        with code.loop_while(lambda: going.get() > 0):
            with code.if_then(self.count.get() > self.k):
                self._select(self.count.get())
                self.count.set(self.k)
            going.set(select(at.get() < self.length, zero + 1, zero))
            with code.if_then(at.get() < self.length):
                threshold = self._threshold()
                vector = code.splat(threshold, self._block)
                with code.loop_while(lambda: (at.get() < whole) & (self.count.get() <= self.capacity)):
                    passed = self._key(x.load(at.get(), self._block)) > vector
                    self._add_chosen(x, at.get(), passed)
                    at.set(at.get() + self._block)
                with code.if_then(at.get() >= whole):
                    with code.loop(self.length, at.get()) as i, code.if_then(self._key(x.load(i)) > threshold):
                        self._add(x, i)
                    at.set(self.length)
        return self.memory

    @property
    def _block(self) -> int:
        return min(BLOCK, 4 * self.lanes)

    def _fill(self, x: Pointer, count: SSAValue) -> None:
        """The first `count` elements of a row as candidates."""
        code, done = self.code, self.code.integer(0)
        for lanes in (self.lanes, 4) if self.key_bits == 32 else ():
            start, done = done, count - remainder(count, code.integer(lanes))
            with code.loop(done, start, lanes) as i:
                self.memory.store(i, self._record(x.load(i, lanes), code.splat(i, lanes) + code.iota(lanes)))
        with code.loop(count, done) as i:
            self.memory.store(i, self._record(x.load(i), i))

    def _add(self, x: Pointer, index: SSAValue) -> None:
        self.memory.store(self.count.get(), self._record(x.load(index), index))
        self.count.set(self.count.get() + 1)

    def _add_chosen(self, x: Pointer, first: SSAValue, passed: SSAValue) -> None:
        """The elements from `first` on that passed the threshold, as candidates."""
        each_bit(self.code, mask_of(self.code, passed), lambda bit: self._add(x, first + bit))

    def _threshold(self) -> SSAValue:
        """The key of the worst of the k best."""
        code = self.code
        worst = code.variable(self.memory.load(0))
        with code.loop(self.k, 1) as i:
            worst.set(smaller(worst.get(), self.memory.load(i)))
        return self._key_of(worst.get())

    # ------------------------------------------------------------ quickselect

    def _select(self, count: SSAValue) -> None:
        """Bring the k largest of `count` > k records to the front of memory.

        Each round parts what is left at a pivot: larger ones to one place, smaller ones to another, and goes on with
        the part that the k-th largest is in. Where that is the smaller ones, all others are among the k largest.
        """
        code, memory, zero = self.code, self.memory, self.code.integer(0)
        source, more, less = (code.variable(self.stride * number) for number in range(3))
        free = code.variable(self.stride * 3)
        left, wanted, found = code.variable(count), code.variable(self.k), code.variable(zero)
        with code.loop_while(lambda: wanted.get() > 0):
            pivot = self._pivot(memory.at(source.get()), left.get())
            above, below = self._part(source.get(), more.get(), less.get(), left.get(), pivot)
            with code.if_else(above >= wanted.get()) as (inside, outside):
                with inside:
                    self._go_on(source, more, less, free)
                    left.set(above)
                with outside:
                    with code.loop(above) as i:
                        memory.store(found.get() + i, memory.load(more.get() + i))
                    memory.store(found.get() + above, pivot)
                    found.set(found.get() + above + 1)
                    wanted.set(wanted.get() - above - 1)
                    self._go_on(source, less, more, free)
                    left.set(below)

    @staticmethod
    def _go_on(source: Any, chosen: Any, other: Any, free: Any) -> None:
        """`chosen` is parted next; memory that is free then takes its place."""
        source.set(chosen.get())
        chosen.set(free.get())
        free.set(source.get())

    def _pivot(self, records: Pointer, count: SSAValue) -> SSAValue:
        """The median of the first, the middle and the last record."""
        a, b, c = records.load(0), records.load(count / self.code.integer(2)), records.load(count - 1)
        return larger(smaller(a, b), smaller(larger(a, b), c))

    def _part(
        self, source: SSAValue, more: SSAValue, less: SSAValue, count: SSAValue, pivot: SSAValue
    ) -> tuple[SSAValue, SSAValue]:
        """Records above and below the pivot to different places; how many. Without branches, which none could guess."""
        code, memory = self.code, self.memory
        above, below = code.variable(code.integer(0)), code.variable(code.integer(0))
        with code.loop(count) as i:
            record = memory.load(source + i)
            memory.store(more + above.get(), record)
            memory.store(less + below.get(), record)
            above.set(above.get() + one_if(record > pivot))
            below.set(below.get() + one_if(record < pivot))
        return above.get(), below.get()

    # ------------------------------------------------------------ sorting

    def _sort(self, records: Pointer) -> Pointer:
        """The k records in descending order."""
        return merge_sort(self.code, records, self.stride, self.k, lambda a, b, both: a > b)
