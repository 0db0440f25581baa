"""The arena: where each intermediate buffer lies, so that buffers which are never alive together share memory.

Lifetimes come from the order of the calls and are known when the plan is made; sizes are known when a program is made.
Buffers are placed largest first, each at the lowest offset where it overlaps nobody that is alive with it (the greedy
method of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.runtime.driver import driver
from jitonnx.runtime.layout import PLACED, PLACEMENT, address
from jitonnx.runtime.program import Words, arena_beyond_memory
from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.plan.calls import KernelCall
    from jitonnx.plan.tensor import Buffer


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


class ArenaPlacement:
    """Places buffers whose lifetimes are known, for any sizes."""

    def __init__(self, lives: Sequence[Lifetime]) -> None:
        self._first, self._last = (np.array([life[which] for life in lives], np.int64) for which in (0, 1))
        self._placed = np.zeros(len(lives), PLACED)
        self._lock = fork_safety.lock()

    @property
    def lives(self) -> tuple[Words, Words]:
        """The first and the last call that each buffer is alive in."""
        return self._first, self._last

    def __call__(self, sizes: Words) -> tuple[Words, int]:
        """Byte offsets of buffers of `sizes` bytes, and the arena's size. Buffers of 0 bytes are at 0.

        Fail for buffers beyond all memory.
        """
        together = float(sizes.sum(dtype=np.float64))
        if together >= 1 << 62:
            raise arena_beyond_memory(int(together))
        order, offsets = np.lexsort((self._first, -sizes)), np.zeros(len(sizes), np.int64)
        arrays = order, sizes, self._first, self._last, offsets, self._placed
        record = np.zeros(1, PLACEMENT)
        record[0] = len(sizes), *map(address, arrays)
        with self._lock:
            return offsets, driver().place(address(record))
