"""The memory of runs: one frame each, kept in a pool, so that runs that overlap never share an arena.

A pool serves any number of programs, those of one model for all its shapes: a frame has the memory of the largest, and
is loaded with another program in about a microsecond. So a new shape finds memory that the caches hold already, where
new memory would have to be cleared page by page, and old shapes hold none.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable

import numpy as np

from jitonnx.errors import RuntimeException
from jitonnx.support import cancellation, fork_safety

from .driver import Driver, driver, is_made
from .layout import FIRST_NATIVE_NUMBER, FRAME, POOL, PROGRAM, WATCHED_NANOSECONDS, Record, address, records
from .program import Program, Words
from .tables import Common, Tables, make_tables
from .threads import allowed_cpus, team

PROGRAM_BYTES, STEP_BYTES = 8000, 250
"""About what a program takes in Python objects, and each of its steps, with some five operands, in tables."""

_ALL = -1
"""Every frame has more bytes of memory."""

_numbers = itertools.count(1)
_numbering = fork_safety.lock()


class Loadable:
    """A program as frames are loaded with it. Arguments as for `make_tables`; zeros: its runs take denormal numbers for
    zeros; tables: if it is laid out already."""

    def __init__(
        self, program: Program, common: Common, threads: int, *, zeros: bool = False, tables: Tables | None = None
    ) -> None:
        self.program, self.common = program, common
        self.tables = tables = tables or make_tables(program, common, threads)
        self.base_count = len(program.inputs) + len(program.outputs)
        self.team = team(threads) if tables.participants > 1 else None
        self._record = np.zeros(1, PROGRAM)
        self.address = address(self._record)
        with _numbering:
            number = next(_numbers)
        self._record[0] = (
            number,
            tables.rows,
            tables.row_count,
            tables.shared_end,
            tables.participants,
            self.team.address if self.team else 0,
            tables.patches,
            common.patch_count,
            tables.scratch_stride,
            len(common.flags),
            int(zeros),
            int(tables.nanoseconds >= WATCHED_NANOSECONDS),
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


class ExecutionContextPool:
    """Frames for the programs of a model: as many as there are CPUs to use, as more runs at once only happen in bursts.

    A frame has no memory until a run needs it, and grows for programs that it is too small for.
    `native/execution_contexts.py` says how runs on several threads share a pool.

    limit: where all hold more bytes, those that are far too large for a program that is made make way.
    zeros: whether runs take denormal numbers for zeros.
    """

    def __init__(self, limit: int | None = None, *, zeros: bool = False) -> None:
        self.zeros = zeros
        self._limit = limit
        self.frames = records(FRAME, _frames_kept())
        """A `FRAME` each, to be looked at: native code alone changes them."""
        self._record = records(POOL)
        self._record[0] = address(self.frames), len(self.frames), FIRST_NATIVE_NUMBER, id(cancellation.still_asked)
        self.address = address(self._record)
        # At the end of the process daemon threads may be in the middle of runs: then nothing is freed.
        weakref.finalize(self, _free, self._record, self.frames).atexit = False
        _pools.add(self)

    @property
    def native(self) -> Driver:
        """The native functions: they may be in the making until the first run needs them."""
        return driver()

    def execute(self, program: Loadable, bases: Words, stamps: Words | None = None) -> Words:
        """Run a program, and return its flags: words that kernels have set, where they found the data in error.

        bases: the addresses of inputs, then of outputs. stamps: where to note the clock (ns) before the first step and
        after each. RuntimeException if memory is short.
        """
        return self.prepared(program, bases, stamps)()

    def prepared(self, program: Loadable, bases: Words, stamps: Words | None = None) -> Callable[[], Words]:
        """What does so, one run at a time: whoever holds it keeps program, addresses and what lies there."""
        words = np.zeros(len(program.common.flags), np.int64)
        places = (program.address, address(bases), address(words), 0 if stamps is None else address(stamps))
        native, pool = self.native.execute, self.address

        def execute() -> Words:
            if not native(pool, *places):
                raise RuntimeException(
                    "There is not enough memory for a run, whose intermediate results take "
                    f"{program.tables.memory_bytes} bytes"
                )
            return words

        return execute

    def expect(self, program: Loadable) -> None:
        """Keep to the limit, now that this program is going to be used."""
        self.shrink(program.tables.memory_bytes)

    def shrink(self, memory_bytes: int) -> None:
        """Keep to the limit, now that a program is used which needs so much memory."""
        if self._limit is not None and self.bytes > self._limit:
            self.native.trim(self.address, 2 * memory_bytes)

    def reclaim(self) -> None:
        """Take over frames from threads of the parent, in a child process: it does not have them."""
        if is_made():
            self.native.reclaim(self.address)

    def trim(self) -> None:
        """Free the memory of the frames that no run is using; the next run takes memory again."""
        self.native.trim(self.address, _ALL)

    @property
    def kept(self) -> int:
        """How many frames have memory, in use or not."""
        return int(np.count_nonzero(self.frames["memory"]))

    @property
    def bytes(self) -> int:
        """Bytes of memory of the frames."""
        return int(self.frames["memory_bytes"].sum())


def _free(pool: Record, frames: Record) -> None:
    """Free what the frames of a pool hold that is gone: nobody runs in them, as runs hold their pool."""
    if is_made():
        driver().trim(address(pool), _ALL)


@functools.cache
def _frames_kept() -> int:
    """How many frames a pool keeps. Asked once: reading the control groups' files takes as long as making a program."""
    return allowed_cpus()


_pools: weakref.WeakSet[ExecutionContextPool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.reclaim()


fork_safety.in_child(_after_fork)
