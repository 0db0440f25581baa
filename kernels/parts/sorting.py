"""Sorting records in memory, for kernels that rank what they are given."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.kernels.language import ir, types
from jitonnx.kernels.language.code import Code, Pointer, smaller
from jitonnx.kernels.language.trace import Traced, select

Before = Callable[[Traced, Traced, Traced], Traced]
"""before(a, b, both): whether record a, which came first, is to stay in front of b. Where `both` does not hold, one of
them is none, and the answer counts for nothing."""


def merge_sort(code: Code, records: Pointer, stride: Traced, count: Traced, before: Before) -> Pointer:
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


def _merge(code: Code, source: Pointer, target: Pointer, bounds: tuple[Traced, Traced, Traced], before: Before) -> None:
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


def one_if(condition: Traced) -> Traced:
    """1 if a condition (a scalar) holds, else 0."""
    return Traced(condition.builder, types.int64, condition.builder.zext(condition.value, ir.IntType(64)))
