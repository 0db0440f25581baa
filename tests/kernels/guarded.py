"""Arrays that end where memory ends: reading or writing behind them stops the process, instead of going unnoticed."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

_NO_ACCESS = 0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(array: np.ndarray) -> np.ndarray:
    """A dense copy of `array` whose last byte is the last before a page without access."""
    copy = guarded_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def guarded_bytes(nbytes: int, in_front: bool = False) -> np.ndarray:
    """Memory filled with 255 (a NaN, or -1) whose last byte is the last before a page without access.

    in_front: whose first byte is the first behind such a page; where it ends another begins.
    """
    pages = -(-max(1, nbytes) // mmap.PAGESIZE)
    memory: Any = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)  # keeps the mapping alive, and so does every view of it
    begin, end = mmap.PAGESIZE, (pages + 1) * mmap.PAGESIZE
    whole[begin:end] = 255
    for page in (0, end):
        if _libc.mprotect(whole.ctypes.data + page, mmap.PAGESIZE, _NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect failed")
    return whole[begin : begin + nbytes] if in_front else whole[end - nbytes : end]
