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
    pages = -(-max(1, array.nbytes) // mmap.PAGESIZE)
    memory: Any = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)  # keeps the mapping alive, and so does every view of it
    if _libc.mprotect(whole.ctypes.data + pages * mmap.PAGESIZE, mmap.PAGESIZE, _NO_ACCESS):
        raise OSError(ctypes.get_errno(), "mprotect failed")
    end = pages * mmap.PAGESIZE
    copy = whole[end - array.nbytes : end].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
