"""The memory of runs: one frame each, kept in a pool, so that runs that overlap never share an arena.

A pool serves any number of programs, those of one model for all its shapes: a frame has the memory of the largest, and
is loaded with another program in about a microsecond. So a new shape finds memory that the caches hold already, where
new memory would have to be cleared page by page, and old shapes hold none.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from .driver import driver
from .layout import FRAME, POOL, PROGRAM, SEPARATION, WORD_BYTES, address, aligned_bytes, records
from .program import Program
from .tables import Common, make_tables
from .threads import allowed_cpus, team

PROGRAM_BYTES, STEP_BYTES = 8000, 250
"""About what a program takes in Python objects, and each of its steps, with some five operands, in tables."""

_numbers = itertools.count(1)


class Loadable:
    """A program as frames are loaded with it. Arguments as for `make_tables`."""

    def __init__(self, program: Program, common: Common, threads: int) -> None:
        self.program, self.common = program, common
        self.tables = tables = make_tables(program, common, threads)
        self.base_count = len(program.inputs) + len(program.outputs)
        self.team = team(threads) if tables.participants > 1 else None
        self._record = np.zeros(1, PROGRAM)
        self.address = address(self._record)
        self._record[0] = (
            next(_numbers),
            tables.rows,
            tables.row_count,
            tables.shared_end,
            tables.participants,
            self.team.address if self.team else 0,
            tables.patches,
            common.patch_count,
            tables.scratch_stride,
            len(common.flags),
            tables.pointers,
            common.in_arena_place,
            len(common.in_arena),
            self.base_count,
            tables.scratch_begin,
            tables.memory_bytes,
        )

    @property
    def bytes(self) -> int:
        """About what steps and tables take."""
        return PROGRAM_BYTES + STEP_BYTES * len(self.program.steps)


class Frame:
    """Memory and pointer table of one run at a time: of this many bytes, pointers, and inputs and outputs.

    `bases` has the addresses of inputs, then outputs; they are set before each run.
    """

    def __init__(self, memory_bytes: int, pointers: int, bases: int) -> None:
        self.memory = aligned_bytes(memory_bytes, SEPARATION)
        self.pointers = np.zeros(pointers, np.int64)
        self.bases = np.zeros(bases, np.int64)
        self._held = np.zeros(bases, np.int64)
        self._record = records(FRAME)
        self.address = address(self._record)
        for name, value in {
            "pointers": address(self.pointers),
            "bases": address(self.bases),
            "held": address(self._held),
            "memory": address(self.memory),
            "memory_bytes": memory_bytes,
            "pointer_limit": pointers,
            "base_limit": bases,
        }.items():
            self._record[name] = value

    def flags(self, program: Loadable) -> npt.NDArray[np.int64]:
        """The flags of the program that it is loaded with: zeros before a run."""
        return self.memory[: WORD_BYTES * len(program.common.flags)].view(np.int64)


class FramePool:
    """Frames for the programs of a model.

    Runs take a frame and give it back. A run that finds none, or one that is too small, makes one; as many are kept as
    there are CPUs to use, as more runs than that only happen in bursts.

    limit: where all hold more bytes, those that are far too large for a program that is made make way.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._native = driver()
        self._limit = limit
        self._number = _frames_kept()
        self._lock = threading.RLock()  # again by the same thread: collecting garbage can run anything
        self._kept: dict[int, Frame] = {}
        self._free = np.zeros(self._number, np.int64)
        self._record = records(POOL)
        self._record["frames"] = address(self._free)
        self.address = address(self._record)
        _pools.add(self)

    @contextmanager
    def frame(self, program: Loadable) -> Iterator[Frame]:
        """A frame for one run of the program."""
        frame = self._take(program)
        try:
            yield frame
        finally:
            frame.flags(program)[:] = 0
            self._put_back(frame)

    def expect(self, program: Loadable) -> None:
        """Keep to the limit, now that this program is going to be used."""
        if self._limit is not None and self.bytes > self._limit:
            self._let_go(lambda frame: frame.memory.nbytes > 2 * program.tables.memory_bytes)

    def trim(self) -> None:
        """Free the memory of the frames that no run is using; the next run makes one again."""
        self._let_go(lambda frame: True)

    @property
    def kept(self) -> int:
        """How many frames are kept, in use or not."""
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Bytes of memory of the frames kept."""
        with self._lock:
            return sum(frame.memory.nbytes for frame in self._kept.values())

    def _take(self, program: Loadable) -> Frame:
        with self._lock:
            found = self._native.take(self.address, program.address)
            if found:
                return self._kept[found]
            self._drop_last()
        tables = program.tables
        frame = Frame(_with_room(tables.memory_bytes), _with_room(len(program.common.in_arena)), program.base_count)
        self._native.load(frame.address, program.address)
        with self._lock:
            if len(self._kept) < self._number:
                self._kept[frame.address] = frame
        return frame

    def _drop_last(self) -> None:
        """Let go of the free frame that the next run would take, if there is one."""
        count = int(self._record["count"][0])
        if count:
            self._record["count"] = count - 1
            del self._kept[int(self._free[count - 1])]

    def _let_go(self, unwanted: Callable[[Frame], bool]) -> None:
        """Let go of the free frames that are unwanted."""
        with self._lock:
            free = self._free[: int(self._record["count"][0])].tolist()
            left = [place for place in free if not unwanted(self._kept[place])]
            for place in set(free).difference(left):
                del self._kept[place]
            self._free[: len(left)] = left
            self._record["count"] = len(left)

    def _put_back(self, frame: Frame) -> None:
        with self._lock:
            if frame.address in self._kept:
                self._native.put_back(self.address, frame.address)

    def reset(self) -> None:
        """Count all kept frames as free: in a child process, where the threads that used them are not."""
        self._lock = threading.RLock()
        self._record["count"] = len(self._kept)
        self._free[: len(self._kept)] = list(self._kept)


def _with_room(size: int) -> int:
    """A size that is enough also for somewhat more: the next of eight steps between powers of two."""
    step = max(1, (1 << size.bit_length()) >> 4)
    return max(1, -(-size // step) * step)


@functools.cache
def _frames_kept() -> int:
    """How many frames a pool keeps. Asked once: reading the control groups' files takes as long as making a program."""
    return allowed_cpus()


_pools: weakref.WeakSet[FramePool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.reset()


os.register_at_fork(after_in_child=_after_fork)
