"""Files in memory: small ones are read, large ones are mapped, and a mapped one that was written to is noticed.

Weights of a model file are read where they lie, page by page. Once a weight is packed for a kernel its original is not
needed any more, and the pages would only count as memory of the process.

A mapping shows what is written to its file, and pages behind the end of one that was cut off end the process when they
are touched. So whoever reads a mapped file compares its size and time before, and behind, which `check_unchanged` does;
and what runs read is copied where it is small. Of ours imports errors and records alone.
"""

from __future__ import annotations

import mmap
import os
import stat
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from jitonnx.errors import Fail
from jitonnx.support.records import NamedTuple

READ_BYTES = 1 << 20
"""Files of so many bytes are read: that takes 0.3 ms, a hundredth of the shortest start."""
COPIED_BYTES = 16 << 20
"""Weights that runs read where they lie are copied up to so many bytes of a plan: 0.4 ms of a start for each MB, most
of it for new pages."""
_HUGE_PAGE = 2 << 20
_CHUNK_BYTES = 16 << 20


class FileChangedError(Fail):
    """A mapped file was written to while a model was in use that reads it."""


class DataFile(NamedTuple):
    """A file that weights of a model were read from. location: what the model calls it, "" for the model's own file.

    identity: what `identity_of` told when it was opened.
    """

    location: str
    identity: tuple[int, ...]


def identity_of(path: str | os.PathLike[str]) -> tuple[int, ...] | None:
    """What changes whenever a file does: its place, size and times. None for what is no regular file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a null character in the path
        return None
    return identity_in(found)


def identity_in(found: os.stat_result) -> tuple[int, ...] | None:
    """The same of what is known of a file."""
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class FileMap(mmap.mmap):
    """A file mapped to be read. Made by `content_of`."""

    name: str
    is_read: bool
    """Whether runs read it where it lies."""
    number: int
    """A descriptor of it."""
    identity: tuple[int, ...] | None
    """What `identity_of` gave when it was mapped."""

    def note(self, name: str, number: int) -> None:
        """Note what the file is now. number: a descriptor, which stays the caller's."""
        self.name, self.is_read = name, False
        self.number = os.dup(number)
        self._was, self.identity = _state(self.number), identity_in(os.fstat(self.number))
        # Not as the interpreter ends: jobs that end with it may read.
        weakref.finalize(self, os.close, self.number).atexit = False

    def check(self) -> None:
        """FileChangedError if the file was written to since it was mapped."""
        if _state(self.number) != self._was:
            raise FileChangedError(
                f"{self.name} was written to while a model was in use that reads its weights there: make a new "
                "session, and have a new file take the place of one in use (os.replace) instead of writing to it"
            )


class OpenFile:
    """A file that is held open: it can be read also when another has taken its place, or its name is gone.

    OSError if it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._number = os.open(path, os.O_RDONLY)

    def identity(self) -> tuple[int, ...] | None:
        """What `identity_of` tells, now."""
        return identity_in(os.fstat(self._number))

    def content(self) -> memoryview:
        """What is in it, read or mapped."""
        return content_of(self._number, self.path)

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            os.close(self._number)


def content_of(number: int, name: str) -> memoryview:
    """What is in a file, read or mapped. number: a descriptor of it, which stays the caller's; name: for messages."""
    size = os.fstat(number).st_size
    if size <= READ_BYTES:
        return _read(number, size).toreadonly()
    found = FileMap(number, 0, access=mmap.ACCESS_READ)
    found.note(name, number)
    return memoryview(found)


def file_of(array: Any) -> FileMap | None:
    """The mapped file that an array, or another view of memory, lies in; None if it lies elsewhere."""
    owner = _owner(array)
    return owner if isinstance(owner, FileMap) else None


def files_of(arrays: Iterable[np.ndarray]) -> list[FileMap]:
    """The mapped files that arrays lie in, each once."""
    found = {id(file): file for array in arrays if (file := file_of(array)) is not None}
    return list(found.values())


def check_unchanged(files: Iterable[FileMap]) -> None:
    """FileChangedError for the first of the files that was written to."""
    for file in files:
        file.check()


def copied(array: np.ndarray) -> np.ndarray:
    """The array, C-contiguous and in memory of its own where it lies in a mapped file: read from there, as an end that
    was cut off is an error then. FileChangedError if the file was written to."""
    file = file_of(array)
    if file is None:
        return array
    if array.flags.c_contiguous:
        content = _read(file.number, array.nbytes, offset_in(file, array))
        file.check()
        return np.frombuffer(content, array.dtype).reshape(array.shape)
    made = np.array(array, order="C")
    file.check()
    return made


def offset_in(file: FileMap, array: np.ndarray) -> int:
    """The offset, in bytes, at which an array begins that lies in a mapped file."""
    return int(array.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data)


def chunks(array: np.ndarray) -> Iterator[memoryview]:
    """The bytes of an array in row-major order, piece by piece. FileChangedError as for `copied`."""
    file = file_of(array)
    if file is None or not array.flags.c_contiguous:
        octets = copied(array).reshape(-1).view(np.uint8).data
        for begin in range(0, len(octets), _CHUNK_BYTES):
            yield octets[begin : begin + _CHUNK_BYTES]
        return
    start = offset_in(file, array)
    for begin in range(0, array.nbytes, _CHUNK_BYTES):
        yield _read(file.number, min(_CHUNK_BYTES, array.nbytes - begin), start + begin)
        file.check()


def kept_apart(arrays: Sequence[Any]) -> list[Any]:
    """What runs are to read of arrays: copies of those that lie in mapped files, the smallest first, as long as these
    are not large together; of others the file notes that it is read. FileChangedError as for `copied`."""
    kept, room = list(arrays), COPIED_BYTES
    found = [(place, file_of(array)) for place, array in enumerate(arrays) if isinstance(array, np.ndarray)]
    mapped = [(arrays[place].nbytes, place, file) for place, file in found if file is not None]
    for nbytes, place, file in sorted(mapped, key=lambda each: each[:2]):
        room -= nbytes
        if room >= 0:
            kept[place] = copied(arrays[place])
        else:
            file.is_read = True
    return kept


def _state(number: int) -> tuple[int, int]:
    found = os.fstat(number)
    return found.st_size, found.st_mtime_ns


def _read(number: int, size: int, begin: int = 0) -> memoryview:
    """So many bytes of a file, fewer where it ends, in memory that begins at a page, as that of a mapped file does."""
    content = memoryview(_pages(size) if size else b"")
    at = 0
    while at < size and (count := os.preadv(number, [content[at:]], begin + at)):
        at += count
    return content[:at]


def _pages(size: int) -> mmap.mmap:
    """Memory of this process alone, in huge pages where they fill: half the time that small ones take."""
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _owner(view: Any) -> object:
    """Whose memory it is."""
    owner: object = view
    while (inner := getattr(owner, "base", None)) is not None:  # strided views have a base that is no array
        owner = inner
    return owner.obj if isinstance(owner, memoryview) else owner


def release_pages(array: np.ndarray) -> None:
    """Let go of the pages of a mapped file that only `array` covers; they are read again if it is. Else nothing: memory
    of another kind, as that of a file that was read, would be zeros from then on."""
    if array.nbytes < mmap.PAGESIZE:
        return
    owner = _owner(array)
    if not isinstance(owner, FileMap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    base = np.frombuffer(owner, np.uint8).ctypes.data
    low, high = np.lib.array_utils.byte_bounds(array)
    first = -(-(low - base) // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (high - base) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        owner.madvise(mmap.MADV_DONTNEED, first, last - first)
