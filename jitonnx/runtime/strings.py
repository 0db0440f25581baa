"""Strings looked at and looked up by native code (`native/strings.py`), where this Python allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .driver import image, make_ahead
from .entry import strings_builtin, supported
from .layout import HASH_FACTOR, STRING_SLOT, STRINGS, address, records

_PART = "strings"
_WORD = (1 << 64) - 1


def ready() -> bool:
    """Whether look-ups are native by now. What compiles them is begun behind the runs at the first call."""
    return supported() and make_ahead((_PART,))


def hashed(text: bytes) -> int:
    """The hash of a text, of 64 bits."""
    whole = len(text) // 8 * 8
    parts = [int.from_bytes(text[at : at + 8], "little") for at in range(0, whole, 8)]
    state = len(text) * HASH_FACTOR & _WORD
    for part in (*parts, *text[whole:]):
        state = (state ^ part) * HASH_FACTOR & _WORD
        state ^= state >> 32
    return state


class StringTable:
    """What strings become. Has to be `ready`.

    texts: of equal ones the first counts. rows: for each text what an element equal to it becomes, and behind them what
    all others become: no objects. columns: if given, by text, and for the others, the column of a row of `width` to
    which the float32 of `rows` is added, or with `once` where it is put; negative: none.

    `find(array, out)` is True if all elements of an array of objects, of rank 1 or 2, are str that UTF-8 can encode; it
    then has put what they become into `out`, a dense array: a row of `rows` for each element, or, if there are
    `columns`, a row of `width` for each row. Else it is False. Without `out` it only looks.
    """

    def __init__(
        self,
        texts: Sequence[str],
        rows: np.ndarray,
        columns: np.ndarray | None = None,
        width: int = 0,
        *,
        once: bool = False,
    ) -> None:
        encoded = [text.encode() for text in texts]
        size = 1 << max(2 * len(texts), 1).bit_length()
        self._slots = records(STRING_SLOT, size)
        self._slots["place"] = len(texts)
        self._memory = np.frombuffer(b"".join(encoded) + b"\0", np.uint8)
        self._rows = np.ascontiguousarray(rows)
        self._columns = None if columns is None else np.ascontiguousarray(columns, np.int64)
        at = address(self._memory)
        taken: dict[int, bytes] = {}
        for number, text in enumerate(encoded):
            value = hashed(text)
            slot = value & (size - 1)
            while taken.get(slot, text) != text:
                slot = (slot + 1) & (size - 1)
            if slot not in taken:
                taken[slot] = text
                self._slots[slot] = (at, len(text), value - (value >> 63 << 64), number)
            at += len(text)
        record = records(STRINGS)
        record[0] = (
            *(id(np.ndarray), id(str), id(True), id(False), address(self._slots), size - 1),  # noqa: FBT003  (Python's constants)
            *(address(self._rows), self._rows.nbytes // (len(texts) + 1)),
            *(0 if self._columns is None else address(self._columns), width, int(once)),
        )
        self.find: Callable[..., bool] = strings_builtin(image(_PART)["jitonnx_strings"], record, self)


class StringCheck:
    """Whether an array of objects of rank 1 or 2 is known to hold nothing but str, which UTF-8 can encode."""

    def __init__(self) -> None:
        self._find: Callable[..., bool] | None = None

    def __call__(self, array: Any) -> bool:
        if self._find is None:
            if not ready():
                return False
            self._find = StringTable((), np.zeros(1)).find
        return self._find(array)
