"""Sorting records in memory, for kernels that rank what they are given."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder, Pointer, smaller
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, one_if, select

_DIGIT_BITS = 8

Before = Callable[[SSAValue, SSAValue, SSAValue], SSAValue]
"""before(a, b, both): whether record a, which came first, is to stay in front of b. Where `both` does not hold, one of
them is none, and the answer counts for nothing."""


def merge_sort(code: KernelBuilder, records: Pointer, stride: SSAValue, count: SSAValue, before: Before) -> Pointer:
    """Sort `count` records; where they then lie: from the beginning or from `stride` on, of memory for 2 * stride.

    A merge sort from runs of one on, to and fro between the two places. It reads one record behind the last:
    stride > count. Stable if `before` holds for equal records.
    """
    source, target = code.variable(code.integer(0)), code.variable(stride)
    width = code.variable(code.integer(1))
    with code.loop_while(lambda: width.get() < count):
        with code.loop(count, step=width.get() * 2) as start:
            middle = smaller(start + width.get(), count)
            stop = smaller(middle + width.get(), count)
            _merge(code, records.at(source.get()), records.at(target.get()), (start, middle, stop), before)
        old = source.get()
        source.set(target.get())
        target.set(old)
        width.set(width.get() * 2)
    return records.at(source.get())


def _merge(
    code: KernelBuilder, source: Pointer, target: Pointer, bounds: tuple[SSAValue, SSAValue, SSAValue], before: Before
) -> None:
    """Two sorted runs as one. Behind the end of a run something else is read, and not used."""
    start, middle, stop = bounds
    left, right = code.variable(start), code.variable(middle)
    with code.loop(stop, start) as i:
        a, b = source.load(left.get()), source.load(right.get())
        more_left, more_right = left.get() < middle, right.get() < stop
        first = more_left & (~more_right | before(a, b, more_left & more_right))
        target.store(i, select(first, a, b))
        left.set(left.get() + one_if(first))
        right.set(i + 1 - left.get() + middle)


def radix_sort(
    code: KernelBuilder, records: Pointer, stride: SSAValue, count: SSAValue, first_bit: int, bits: int
) -> Pointer:
    """Sort `count` records by the signed integer of `bits` bits (a multiple of 8) that they hold from `first_bit` on.

    Stable; the result lies from the beginning or from `stride` > count on, of memory for 2 * stride. Digits of 8 bits,
    the lowest first: records are counted by their digit, then moved to where those of it begin. One that is the same in
    all records moves none.
    """
    digits = 1 << _DIGIT_BITS
    starts = code.memory(types.int64, digits)
    source, target = code.variable(code.integer(0)), code.variable(stride)
    for low in range(first_bit, first_bit + bits, _DIGIT_BITS):
        flipped = digits // 2 if low + _DIGIT_BITS == first_bit + bits else 0  # the sign bit: the negative come first

        def digit(record: SSAValue, low: int = low, flipped: int = flipped) -> SSAValue:
            return (convert(record >> low, types.int64) & (digits - 1)) ^ flipped

        given = records.at(source.get())
        with code.loop(digits) as number:
            starts.store(number, code.integer(0))
        with code.loop(count) as i:
            number = digit(given.load(i))
            starts.store(number, starts.load(number) + 1)
        with code.if_then(starts.load(digit(given.load(0))) < count):
            _move_by_digit(code, given, records.at(target.get()), count, starts, digit)
            old = source.get()
            source.set(target.get())
            target.set(old)
    return records.at(source.get())


def _move_by_digit(
    code: KernelBuilder,
    source: Pointer,
    target: Pointer,
    count: SSAValue,
    starts: Pointer,
    digit: Callable[[SSAValue], SSAValue],
) -> None:
    """Records in the order of a digit. starts: how many records there are of each, and then where they begin."""
    before = code.variable(code.integer(0))
    with code.loop(1 << _DIGIT_BITS) as number:
        many = starts.load(number)
        starts.store(number, before.get())
        before.set(before.get() + many)
    with code.loop(count) as i:
        record = source.load(i)
        number = digit(record)
        place = starts.load(number)
        target.store(place, record)
        starts.store(number, place + 1)
