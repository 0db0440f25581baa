"""Our objects by what libraries know them by: pointers that are numbers, which nobody can follow."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any, TypeVar

from jitonnx.c_api.errors import Refused

_T = TypeVar("_T")

_objects: dict[int, Any] = {}
_numbers = itertools.count(16, 16)


def new(made: object) -> int:
    """A pointer for an object, which is kept until `release`."""
    pointer = next(_numbers)
    _objects[pointer] = made
    return pointer


def find(pointer: int | None, kind: type[_T]) -> _T:
    """The object of a pointer. Refused for what is none, or is one of another kind."""
    found = _objects.get(pointer) if pointer else None
    if not isinstance(found, kind):
        what = "a null pointer" if not pointer else f"{pointer:#x}, which is none, or one that was released"
        raise Refused(f"{what} was given for an Ort{kind.__name__}")
    return found


def release(pointer: int | None) -> None:
    """Let an object go. Null pointers, and what is no pointer any more, are nothing to do."""
    _objects.pop(pointer or 0, None)


class Lent:
    """Pointers for the time of a call, or of an object: they are released together."""

    def __init__(self) -> None:
        self._pointers: list[int] = []

    def new(self, made: object) -> int:
        """A pointer for an object, until `release`."""
        self._pointers.append(new(made))
        return self._pointers[-1]

    def release(self) -> None:
        """Release all."""
        while self._pointers:
            release(self._pointers.pop())


def store(place: int | None, kind: Any, value: Any) -> None:
    """Write a value of a ctypes type to an address that a library gave. Refused for a null pointer."""
    if not place:
        raise Refused("a null pointer was given for a result")
    kind.from_address(place).value = value


def read_array(place: int | None, kind: Any, count: int) -> list[Any]:
    """`count` values of a ctypes type at an address. Refused for a null pointer."""
    if not count:
        return []
    if not place:
        raise Refused(f"a null pointer was given for {count} values")
    return list((kind * count).from_address(place))


def write_bytes(place: int | None, content: bytes) -> None:
    """Write bytes to an address. Refused for a null pointer."""
    if content and not place:
        raise Refused(f"a null pointer was given for {len(content)} bytes")
    if content:
        ctypes.memmove(place or 0, content, len(content))


def write_array(place: int | None, kind: Any, values: Any) -> None:
    """Write values of a ctypes type to an address. Refused for a null pointer."""
    if len(values) and not place:
        raise Refused(f"a null pointer was given for {len(values)} results")
    if len(values):
        (kind * len(values)).from_address(place)[:] = values


def write_text(text: bytes, out: int | None, size: int | None) -> None:
    """Write a text and a zero byte to `out`, and how many bytes these are to `size`, as the interface has it: a null
    pointer for `out` asks for the size alone. Refused where `out` is too small."""
    if not size:
        raise Refused("a null pointer was given for a size")
    needed, room = len(text) + 1, ctypes.c_size_t.from_address(size)
    given, room.value = room.value, needed
    if not out:
        return
    if given < needed:
        raise Refused(f"{given} bytes are too few for a text of {needed}")
    ctypes.memmove(out, text + b"\0", needed)
