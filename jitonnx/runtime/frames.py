"""The memory of runs: one frame each, kept in a pool, so that runs that overlap never share an arena."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from .driver import driver
from .layout import FRAME, POOL, SEPARATION, WORD_BYTES, address, aligned_bytes, records
from .program import Flag, Program
from .tables import Tables, frame_bytes, make_tables
from .threads import Team, allowed_cpus, team

STEP_BYTES = 3000
"""About what a step takes in Python objects and tables, with some five operands."""


class Frame:
    """Arena, scratch memory, pointer table and record of one run at a time.

    `bases` has the addresses of inputs, then outputs; they are set before each run. `flags` are zeros before a run.
    """

    def __init__(self, program: Program, tables: Tables, shared_by: Team | None) -> None:
        self._tables = tables
        self._memory = aligned_bytes(frame_bytes(tables), SEPARATION)
        arena = address(self._memory)
        flags_end = tables.flags_begin + tables.flag_count * WORD_BYTES
        self.flags = self._memory[tables.flags_begin : flags_end].view(np.int64)
        self.flags[:] = 0
        self._pointers = np.where(tables.in_arena, tables.pointers + arena, tables.pointers)
        self.bases = np.zeros(max(1, len(program.inputs) + len(program.outputs)), np.int64)
        self._held = np.zeros(max(1, len(program.inputs)), np.int64)
        self._record = records(FRAME)
        self.address = address(self._record)
        for name, value in {
            "rows": address(tables.rows),
            "row_count": len(tables.rows),
            "shared_end": tables.shared_end,
            "participants": tables.participants,
            "team": shared_by.address if shared_by else 0,
            "patches": address(tables.patches),
            "patch_count": len(tables.patches),
            "pointers": address(self._pointers),
            "bases": address(self.bases),
            "held": address(self._held),
            "scratch": arena + self._memory.nbytes - tables.scratch_stride * tables.participants,
            "scratch_stride": tables.scratch_stride,
            "flags": arena + tables.flags_begin,
            "flag_count": tables.flag_count,
        }.items():
            self._record[name] = value


class FramePool:
    """The frames of one program, and all that its runs need to stay alive.

    Runs take a frame and give it back. A run that finds none makes one; as many are kept as there are CPUs to use, as
    more runs than that only happen in bursts.
    """

    def __init__(
        self, program: Program, addresses: Mapping[str, int], threads: int, flags: Sequence[Flag] = ()
    ) -> None:
        self.program = program
        self.tables = make_tables(program, addresses, threads, flags)
        self._code = addresses
        self._team = team(threads) if self.tables.participants > 1 else None
        self._native = driver()
        self._limit = _frames_kept()
        self._lock = threading.RLock()  # again by the same thread: collecting garbage can run anything
        self._kept: dict[int, Frame] = {}
        self._free = np.zeros(self._limit, np.int64)
        self._record = records(POOL)
        self._record["frames"] = address(self._free)
        self.address = address(self._record)
        _pools.add(self)

    @contextmanager
    def frame(self) -> Iterator[Frame]:
        """A frame for one run."""
        frame = self._take()
        try:
            yield frame
        finally:
            frame.flags[:] = 0
            self._put_back(frame)

    def trim(self) -> None:
        """Free the memory of the frames that no run is using; the next run makes one again."""
        with self._lock:
            while free := self._native.take(self.address):
                del self._kept[free]

    @property
    def kept(self) -> int:
        """How many frames are kept, in use or not."""
        return len(self._kept)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the frames, one at least, and about what steps and tables take."""
        frame = frame_bytes(self.tables)
        return max(1, self.kept) * frame + STEP_BYTES * len(self.program.steps)

    def _take(self) -> Frame:
        with self._lock:
            free = self._native.take(self.address)
            if free:
                return self._kept[free]
        frame = Frame(self.program, self.tables, self._team)
        with self._lock:
            if len(self._kept) < self._limit:
                self._kept[frame.address] = frame
        return frame

    def _put_back(self, frame: Frame) -> None:
        with self._lock:
            if frame.address in self._kept:
                self._native.put_back(self.address, frame.address)

    def reset(self) -> None:
        """Count all kept frames as free: in a child process, where the threads that used them are not."""
        self._lock = threading.RLock()
        self._record["count"] = len(self._kept)
        self._free[: len(self._kept)] = list(self._kept)


@functools.cache
def _frames_kept() -> int:
    """How many frames a pool keeps. Asked once: reading the control groups' files takes as long as making a program."""
    return allowed_cpus()


_pools: weakref.WeakSet[FramePool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.reset()


os.register_at_fork(after_in_child=_after_fork)
