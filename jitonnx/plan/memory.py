"""The arena: where each intermediate buffer lies, so that buffers which are never alive together share memory.

Lifetimes come from the order of the calls and are known when the plan is made; sizes are known when a program is made.
Buffers are placed largest first, each at the lowest offset where it overlaps nobody that is alive with it (the greedy
method of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jitonnx.plan.calls import KernelCall
    from jitonnx.plan.tensor import Buffer

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


class Lifetime(NamedTuple):
    """The first and the last call (positions in the plan) that touch a buffer."""

    first: int
    last: int


def lifetimes(calls: Sequence[KernelCall]) -> dict[Buffer, Lifetime]:
    """The lifetime of every arena buffer that a call touches."""
    found: dict[Buffer, Lifetime] = {}
    for position, call in enumerate(calls):
        for tensor in call.tensors:
            if tensor.buffer.space == "arena":
                known = found.get(tensor.buffer)
                found[tensor.buffer] = Lifetime(known.first if known else position, position)
    return found


def assign_offsets(sizes: Sequence[int], lives: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Byte offsets of buffers of `sizes` bytes with `lives`, and the arena's size. Buffers of 0 bytes are at 0."""
    offsets = [0] * len(sizes)
    # In order of offsets: begin and end in the arena, first and last call. Plain tuples: this runs for every new shape.
    placed: list[tuple[int, int, int, int]] = []
    total = 0
    for number in sorted(range(len(sizes)), key=lambda n: (-sizes[n], lives[n].first)):
        size = -(-sizes[number] // ALIGNMENT) * ALIGNMENT
        first, last, offset = lives[number].first, lives[number].last, 0
        # The first gap that is wide enough wins.
        for begin, end, other_first, other_last in placed:
            if offset + size <= begin:
                break
            if first <= other_last and other_first <= last and end > offset:
                offset = end
        offsets[number] = offset
        total = max(total, offset + size)
        bisect.insort_right(placed, (offset, offset + size, first, last), key=_begin)
    return offsets, total


_begin = operator.itemgetter(0)
