"""Arrays that are views of mapped files: giving their pages back.

Weights of a model file are read where they lie, page by page. Once a weight is packed for a kernel its original is not
needed any more, and the pages would only count as memory of the process. Imports nothing of ours.
"""

from __future__ import annotations

import mmap

import numpy as np


def release_pages(array: np.ndarray) -> None:
    """Let go of the pages of a mapped file that only `array` covers; they are read again if it is. Else nothing."""
    if array.nbytes < mmap.PAGESIZE:
        return
    owner: object = array
    while (inner := getattr(owner, "base", None)) is not None:  # strided views have a base that is no array
        owner = inner
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    base = np.frombuffer(owner, np.uint8).ctypes.data
    low, high = np.lib.array_utils.byte_bounds(array)
    first = -(-(low - base) // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (high - base) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        owner.madvise(mmap.MADV_DONTNEED, first, last - first)
