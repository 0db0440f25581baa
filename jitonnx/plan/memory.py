"""The arena: where each intermediate buffer lies, so that buffers which are never alive together share memory.

Lifetimes come from the order of the calls and are known when the plan is made; sizes are known when a program is made.
Buffers are placed largest first, each at the lowest offset where it overlaps nobody that is alive with it (the greedy
method of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitonnx.plan.calls import KernelCall
from jitonnx.plan.tensor import Buffer

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@dataclass(frozen=True)
class Lifetime:
    """The first and the last call (positions in the plan) that touch a buffer."""

    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


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
    placed: list[int] = []
    total = 0
    for number in sorted(range(len(sizes)), key=lambda n: (-sizes[n], lives[n].first)):
        size = -(-sizes[number] // ALIGNMENT) * ALIGNMENT
        life, offset = lives[number], 0
        # `placed` is kept in order of offsets: the first gap that is wide enough wins.
        for other in placed:
            if offset + size <= offsets[other]:
                break
            if life.overlaps(lives[other]):
                offset = max(offset, offsets[other] + -(-sizes[other] // ALIGNMENT) * ALIGNMENT)
        offsets[number] = offset
        total = max(total, offset + size)
        position = next((i for i, other in enumerate(placed) if offsets[other] > offset), len(placed))
        placed.insert(position, number)
    return offsets, total
