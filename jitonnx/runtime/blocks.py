"""Memory for outputs: it begins at a cache line, and that of large ones is kept when they die for others of their size.

NumPy lets an array's memory come from a handler (NEP 49), which it also gives it back to. The arrays own their memory
as all others do. Two things are better than where NumPy's own comes from the C library, 16 bytes behind the beginning
of a line as often as not:

- A vector that is stored across two lines costs twice: taking apart an image of 224x224x3 in the second-level cache
  took 34 µs, and takes 14.
- A new array of 64 MB costs more than most kernels that fill it: the system clears its pages one by one. Up to
  KEPT_BYTES of freed large blocks are kept for all sessions of the process.
"""

from __future__ import annotations

import ctypes
import weakref

from jitonnx.support import fork_safety

from .driver import image
from .layout import BLOCKS, address, records

ALIGNED_BYTES = 256 << 10
"""Outputs from this size on come from here. To set the handler takes 0.25 µs, 4 % of what Relu takes for these."""

LARGE_BYTES = 16 << 20
"""Blocks from this size on are kept. The C library keeps freed memory below twice this size itself."""

KEPT_BYTES = 256 << 20
"""How much freed memory is kept at most."""

_VERSION = 1
_NAME = b"jitonnx outputs"


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
        native = image("blocks")
        self._record = records(BLOCKS)
        self._record["limit"], self._record["least"] = KEPT_BYTES, LARGE_BYTES
        functions = (native[f"jitonnx_block_{name}"] for name in ("malloc", "calloc", "realloc", "free"))
        self._handler = _Handler(_NAME, _VERSION, address(self._record), *functions)
        self._capsule_name = ctypes.create_string_buffer(b"mem_handler")
        pointer = ctypes.c_void_p
        new = ctypes.PYFUNCTYPE(ctypes.py_object, pointer, pointer, pointer)(("PyCapsule_New", ctypes.pythonapi))
        self.capsule = new(ctypes.addressof(self._handler), ctypes.addressof(self._capsule_name), None)
        self._trim = ctypes.PYFUNCTYPE(None, pointer)(native["jitonnx_block_trim"])
        self._count = ctypes.PYFUNCTYPE(None, pointer, ctypes.c_int64)(native["jitonnx_block_count"])
        for kept in (self, native):  # arrays may die after this module, at the end of the process
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
        self._count(address(self._record), 1)
        weakref.finalize(user, self._count, address(self._record), -1).atexit = False

    def reset(self) -> None:
        """Begin anew in a child process: no thread is at the blocks. One that was leaves them in no order to go on
        with."""
        if self._record["busy"][0]:
            self._record["count"] = self._record["kept"] = self._record["busy"] = 0


@fork_safety.once
def blocks() -> Blocks:
    """The process's blocks."""
    made = Blocks()
    fork_safety.in_child(made.reset)
    return made
