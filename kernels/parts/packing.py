"""Packing weights when a program is made: memory that costs few page faults, and parts shared out among threads.

A start packs all weights of a model, and is bound by memory: measured on a virtual machine, the page faults of fresh
memory cost 0.5 ms a megabyte in pages of 4 KB and 0.1 in pages of 2 MB, as much as the packing itself.
Imports no LLVM.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Sequence

import numpy as np

from jitonnx.support import background_jobs, fork_safety
from jitonnx.target import tuning

_OWN_BYTES = 256 << 10
"""Arrays below lie in memory of NumPy's; blocks would round small models up to whole huge pages."""
_BLOCK_BYTES = 16 << 20
_HUGE_PAGE_BYTES = 2 << 20
_ALIGNMENT = 64


def zeros(elements: int, dtype: np.typing.DTypeLike) -> np.ndarray:
    """A flat array of zeros that lives as long as weights do, aligned to 64 bytes: a vector that straddles two cache
    lines takes two reads (an LSTM of 128 units, bound by them, 10 % longer)."""
    size = elements * np.dtype(dtype).itemsize
    if size < _OWN_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        memory = np.zeros(size + _ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        return memory[start : start + size].view(dtype)
    return _blocks.take(size).view(dtype)


def aligned(array: np.ndarray) -> np.ndarray:
    """A C-contiguous array that begins where a cache line does: itself, or a copy of what is small enough to have been
    allocated by NumPy, which aligns to 16 bytes. Of a vector that lies in two lines, both are read."""
    if array.ctypes.data % _ALIGNMENT == 0 or not 0 < array.nbytes < _OWN_BYTES:
        return array
    copy = zeros(array.size, array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class _Blocks:
    """Memory handed out of blocks in huge pages. A block is given back when no array lies in it any more."""

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)
        self._lock = fork_safety.lock()

    def take(self, size: int) -> np.ndarray:
        """Bytes, all zero, aligned to 64."""
        with self._lock:
            if self._left.size < size:
                block = _new_block(max(size, _BLOCK_BYTES))
                if block.size - size < self._left.size:  # the block before has more room for others
                    return block[:size]
                self._left = block
            taken, rest = self._left[:size], self._left[-(-size // _ALIGNMENT) * _ALIGNMENT :]
            self._left = rest
            return taken


_blocks = _Blocks()


def _new_block(size: int) -> np.ndarray:
    """Memory from the beginning of a huge page on; pages that nobody touches are not there."""
    memory = mmap.mmap(-1, size + _HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    start = -whole.ctypes.data % _HUGE_PAGE_BYTES
    return whole[start : start + size]


def for_each(work: Callable[[int], None], parts: int, size: int) -> None:
    """work(0) … work(parts - 1) on as many threads as there are CPUs and `size` bytes are worth; behind runs on one.

    Parts write to places of their own, and NumPy lets go of the GIL while it copies. The first error is raised when
    all threads have ended.
    """
    threads = (
        1 if background_jobs.behind_runs() else min(parts, _allowed_cpus(), size // tuning.PACKING_THREAD_BYTES + 1)
    )
    if threads <= 1:
        for part in range(parts):
            work(part)
        return
    errors: list[BaseException] = []

    def run(first: int) -> None:
        try:
            for part in range(first, parts, threads):
                work(part)
        except BaseException as error:  # handed to the caller below
            errors.append(error)

    others = [threading.Thread(target=run, args=(first,)) for first in range(1, threads)]
    for other in others:
        other.start()
    run(0)
    for other in others:
        other.join()
    if errors:
        raise errors[0]


def _allowed_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def copy_columns(source: np.ndarray, target: np.ndarray) -> None:
    """target[...] = source for matrices [rows, columns] of few columns, target row-major.

    Where the source is column-major, NumPy would write the target down its columns, or read the source across: with
    strides of a power of two, both throw out of the cache what the next step needs. So blocks of rows go by way of a
    small buffer whose rows do not fall onto each other. Measured for 3072 x 48: 2.4 against 10.5 ms.
    """
    rows, columns = source.shape
    if rows < 2 or abs(source.strides[0]) > abs(source.strides[1]):
        target[...] = source
        return
    buffer = np.empty((columns, _BUFFER_ROWS + _BUFFER_GAP), source.dtype)
    for row in range(0, rows, _BUFFER_ROWS):
        part = source[row : row + _BUFFER_ROWS]
        buffer[:, : len(part)] = part.T
        target[row : row + _BUFFER_ROWS] = buffer[:, : len(part)].T


_BUFFER_ROWS, _BUFFER_GAP = 512, 16


def blocks(length: int, block: int) -> Sequence[slice]:
    """Slices of `block` elements that cover a length, the last one shorter."""
    return [slice(start, min(start + block, length)) for start in range(0, length, block)]
