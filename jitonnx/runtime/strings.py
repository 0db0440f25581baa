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
    """Numbers of texts, of equal ones that of the first. Has to be `ready`.

    `find(array, places)` is True if all elements of an array of objects, of rank 1 or 2, are str that UTF-8 can encode,
    whose numbers it then puts into `places`, dense int64 of as many elements: len(texts) for what is no text of the
    table. Else it is False. Without `places` it only looks.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text.encode() for text in texts]
        size = 1 << max(2 * len(texts), 1).bit_length()
        self._slots = records(STRING_SLOT, size)
        self._slots["place"] = len(texts)
        self._memory = np.frombuffer(b"".join(self._texts) + b"\0", np.uint8)
        at = address(self._memory)
        taken: dict[int, bytes] = {}
        for number, text in enumerate(self._texts):
            value = hashed(text)
            slot = value & (size - 1)
            while taken.get(slot, text) != text:
                slot = (slot + 1) & (size - 1)
            if slot not in taken:
                taken[slot] = text
                self._slots[slot] = (at, len(text), value - (value >> 63 << 64), number)
            at += len(text)
        record = records(STRINGS)
        record[0] = (id(np.ndarray), id(str), id(True), id(False), address(self._slots), size - 1)
        self.find: Callable[..., bool] = strings_builtin(image(_PART)["jitonnx_strings"], record, self)


class StringCheck:
    """Whether an array of objects of rank 1 or 2 is known to hold nothing but str, which UTF-8 can encode."""

    def __init__(self) -> None:
        self._find: Callable[..., bool] | None = None

    def __call__(self, array: Any) -> bool:
        if self._find is None:
            if not ready():
                return False
            self._find = StringTable(()).find
        return self._find(array)
