"""Linked code in memory: a block that `linker` made, mapped, with the addresses of what it imports.

An artifact's code comes this way, without LLVM, whose import takes longer than everything else that opening one does.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

from .layout import WORD_BYTES, address
from .libc import libc
from .loader import LoadError


class Linked(NamedTuple):
    """A block of code: functions at `offsets`, and words from `imports_offset` on for the addresses of `imports`."""

    code: bytes
    offsets: Mapping[str, int]
    imports: Sequence[str]
    imports_offset: int


class MappedCode(Mapping[str, int]):
    """A linked block in memory: a mapping from its functions to their addresses. Unmapped when nobody holds it."""

    def __init__(self, linked: Linked) -> None:
        size = max(1, len(linked.code))
        self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
        self._memory[: len(linked.code)] = linked.code
        block = np.frombuffer(self._memory, np.uint8)
        if linked.imports:
            end = linked.imports_offset + WORD_BYTES * len(linked.imports)
            block[linked.imports_offset : end].view(np.uint64)[:] = [_address_of(name) for name in linked.imports]
        self._start = address(block)
        _make_executable(self._start, size)
        self._offsets = dict(linked.offsets)

    def __getitem__(self, symbol: str) -> int:
        return self._start + self._offsets[symbol]

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)


@fork_safety.once
def _address_of(name: str) -> int:
    """The address of a function that this process has loaded. LoadError if it has none of this name.

    Asked once: each of ctypes' functions is a reference cycle.
    """
    for library in _libraries():
        try:
            return ctypes.cast(library[name], ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise LoadError(f"cannot link compiled kernels: this process has no function {name!r}")


@fork_safety.once
def _libraries() -> list[ctypes.CDLL]:
    """The libraries in which functions are looked up: Python, what is loaded, and the C library's mathematics, which
    may be a library of its own that nobody has loaded as yet."""
    libraries = [ctypes.pythonapi, libc()]
    with contextlib.suppress(OSError):
        libraries.append(ctypes.CDLL("libm.so.6"))
    return libraries


def _make_executable(start: int, size: int) -> None:
    """Make whole pages executable, and no longer writable."""
    if libc().mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        raise LoadError(
            f"the system does not let this process make memory executable (error {ctypes.get_errno()}); "
            "compiled models need that"
        )
