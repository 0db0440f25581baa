"""How many threads the BLAS takes that NumPy calls.

It takes all CPUs by default, and its threads wait for each other by spinning. Runs on NumPy stand in for compiled ones
while code is made behind them: they take as many threads as those would, and leave what compiles a CPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np

from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)
"""What builds of OpenBLAS call their functions."""


class _Blas(NamedTuple):
    """The functions of NumPy's BLAS."""

    get: Any
    set: Any


class _Limits:
    """The blocks that limit the threads of the process's BLAS, and how many it had before them."""

    def __init__(self) -> None:
        self._lock = fork_safety.lock()
        self._blocks: list[tuple[int, int]] = []
        """The thread and the number of each."""
        self._before = 0

    def enter(self, blas: _Blas, threads: int) -> None:
        with self._lock:
            if not self._blocks:
                self._before = blas.get()
            self._blocks.append((get_ident(), threads))
            self._apply(blas)

    def leave(self, blas: _Blas, threads: int) -> None:
        with self._lock:
            self._blocks.remove((get_ident(), threads))
            self._apply(blas)

    def keep_own(self) -> None:
        """Forget the blocks of other threads, which a child process does not have."""
        blas = _blas() if self._blocks else None
        if blas is not None:
            self._blocks = [block for block in self._blocks if block[0] == get_ident()]
            self._apply(blas)

    def _apply(self, blas: _Blas) -> None:
        blas.set(min([self._before, *(threads for _, threads in self._blocks)]))


_limits = _Limits()
fork_safety.in_child(_limits.keep_own)


@fork_safety.once
def _blas() -> _Blas | None:
    """NumPy's BLAS; None if it is none that we know."""
    extension = np.linalg._umath_linalg.__file__
    try:
        library = ctypes.CDLL(extension)  # its symbols are looked for in what it was linked with, too
    except OSError:
        return None
    for name in _NAMES:
        if hasattr(library, name.format("set")) and hasattr(library, name.format("get")):
            return _Blas(getattr(library, name.format("get")), getattr(library, name.format("set")))
    return None


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """A block in which NumPy's BLAS takes `threads` threads at most, in all threads of the process.

    Where blocks overlap, the least number holds. Without effect where NumPy calls another BLAS than OpenBLAS.
    """
    blas = _blas()
    if blas is None:
        yield
        return
    _limits.enter(blas, threads)
    try:
        yield
    finally:
        _limits.leave(blas, threads)
