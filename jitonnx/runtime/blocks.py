"""Memory for large outputs, kept when an output dies for the next one of its size.

A new array of 64 MB costs more than most kernels that fill it: the system clears its pages one by one. NumPy lets an
array's memory come from a handler (NEP 49), which it also gives it back to. Ours keeps up to KEPT_BYTES of freed blocks
for all sessions of the process. The arrays own their memory as all others do.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref

from .driver import driver
from .layout import BLOCKS, address, records

LARGE_BYTES = 16 << 20
"""Outputs from this size on come from here. The C library keeps freed memory below twice this size itself."""

KEPT_BYTES = 256 << 20
"""How much freed memory is kept at most."""

_VERSION = 1
_NAME = b"jitonnx large outputs"


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


class Blocks:
    """The kept blocks and the handler, as a capsule. There is one, `blocks()`, that is never freed."""

    def __init__(self) -> None:
        native = driver()
        self._users: set[object] = set()  # whose changes no collection of garbage can come between
        self._record = records(BLOCKS)
        functions = (native.image[f"jitonnx_block_{name}"] for name in ("malloc", "calloc", "realloc", "free"))
        self._handler = _Handler(_NAME, _VERSION, address(self._record), *functions)
        self._capsule_name = ctypes.create_string_buffer(b"mem_handler")
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.capsule = new(ctypes.addressof(self._handler), ctypes.addressof(self._capsule_name), None)
        self._trim = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(native.image["jitonnx_block_trim"])
        for kept in (self, native.image):  # arrays may die after this module, at the end of the process
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    @property
    def kept_bytes(self) -> int:
        """Bytes of the blocks that no array uses."""
        return int(self._record["kept"][0])

    def trim(self) -> None:
        """Free the blocks that no array uses."""
        self._trim(address(self._record))

    def serve(self, user: object) -> None:
        """Keep freed blocks as long as this user lives, or another."""
        token = object()
        self._users.add(token)
        self._record["limit"] = KEPT_BYTES
        weakref.finalize(user, self._leave, token).atexit = False

    def _leave(self, token: object) -> None:
        self._users.discard(token)
        if not self._users:
            self._record["limit"] = 0
            self.trim()


@functools.cache
def blocks() -> Blocks:
    """The process's blocks."""
    return Blocks()


def _after_fork() -> None:
    """In a child process: no thread is at the blocks."""
    if blocks.cache_info().currsize:
        blocks()._record["busy"] = 0


os.register_at_fork(after_in_child=_after_fork)
