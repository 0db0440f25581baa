"""What native code is told of the pointers that a run lends to a library, so that it answers without Python
(`runtime/native/handles.py`)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jitonnx.runtime.driver import image
from jitonnx.runtime.layout import (
    HANDLE,
    HANDLE_CONTEXT,
    HANDLE_ROOM,
    HANDLE_SLOTS,
    HANDLE_TEXTS,
    HANDLE_VALUE,
    HANDLES,
    WORD_BYTES,
    address,
    records,
)
from jitonnx.runtime.loader import provided
from jitonnx.runtime.native.names import C_API, HANDLES_NAME
from jitonnx.support import fork_safety

_lent, _made, _state = records(HANDLE, HANDLE_SLOTS), records(HANDLE, HANDLE_SLOTS), records(HANDLES)
_others = (ctypes.c_int64 * len(C_API))()
_state[0] = (address(_lent), address(_made), 0, ctypes.addressof(_others), 0, 0)
provided[HANDLES_NAME] = address(_state)
for _kept in (_lent, _made, _state, _others):  # libraries call to the end of the process, after Python has gone
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))

_bytes = _lent.view("u1").data
_words, _made_words = (table.view("u1").data.cast("q") for table in (_lent, _made))
_WIDTH = HANDLE.itemsize // WORD_BYTES
_OWN = 8
"""The bit of pointers that native code has made."""
_writing = fork_safety.lock()
"""Held where a slot is taken, whose record native code may read meanwhile."""


class Texts(NamedTuple):
    """The memory of strings: the addresses of their bytes, `length` in all, and of where each begins."""

    data: int
    length: int
    starts: int


def functions(written: Mapping[str, Any]) -> dict[str, int]:
    """The addresses of the native functions by name. written: Python's, by ctypes, which answer what they cannot."""
    _others[:] = [ctypes.cast(written[name], ctypes.c_void_p).value or 0 for name in C_API]
    found = image("handles")
    return {name: found[f"jitonnx_ort_{name}"] for name in C_API}


def set_memory(pointer: int, name: int) -> None:
    """Tell what all tensors lie in: its pointer, and the address of its name."""
    _state["memory"], _state["memory_name"] = pointer, name


def _slot(pointer: int) -> int:
    return (pointer >> 4) % HANDLE_SLOTS * _WIDTH


def _lend(pointer: int, fields: tuple[int, ...], words: Sequence[int]) -> None:
    at = _slot(pointer)
    if len(words) <= HANDLE_ROOM:
        with _writing:
            if not _words[at]:
                struct.pack_into(f"={8 + len(words)}q", _bytes, at * WORD_BYTES, pointer, *fields, *words)


def lend_context(pointer: int, inputs: Sequence[int | None], outputs: int) -> None:
    """Tell of a run: the pointers of its inputs, and how many outputs the node has."""
    _lend(pointer, (HANDLE_CONTEXT, len(inputs), outputs, 0, 0, 0, 0), [one or 0 for one in inputs])


def lend_tensor(
    pointer: int, element_type: int, count: int, shape: Sequence[int], data: int = 0, texts: Texts | None = None
) -> None:
    """Tell of a tensor. data: the address of its elements, or `texts`; without both Python gives and takes them."""
    where = (data, 0, 0) if texts is None else texts
    kind = HANDLE_VALUE if texts is None else HANDLE_TEXTS
    _lend(pointer, (kind, element_type, count, len(shape), *where), shape)


def take_back(pointer: int) -> None:
    """Have native code forget a pointer."""
    at = _slot(pointer)
    if _words[at] == pointer:
        _words[at] = 0


def adopt(pointer: int) -> tuple[int, tuple[int, ...]] | None:
    """The element type and sizes of what native code made, which it then knows no longer; None for what it did not."""
    at = _slot(pointer)
    if not pointer & _OWN or _made_words[at] != pointer:
        return None
    _, _, element_type, _, rank, *_ = _made_words[at : at + 8].tolist()
    sizes = tuple(_made_words[at + 8 : at + 8 + rank].tolist())
    _made_words[at] = 0
    return element_type, sizes
