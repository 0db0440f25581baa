"""Shared libraries as files: what keeps two copies of one apart in a process."""

from __future__ import annotations

import struct

_DYNAMIC_SYMBOLS, _UNIQUE, _WEAK = 11, 10, 2
"""ELF's SHT_DYNSYM, STB_GNU_UNIQUE and STB_WEAK."""


def make_unshared(content: bytearray) -> None:
    """Give a library, in place, variables of its own that the loader would have all copies in a process share.

    Static variables of inline functions in C++ are marked so (STB_GNU_UNIQUE). What is no 64-bit ELF is left alone:
    nothing else has such variables.
    """
    if content[:5] != b"\x7fELF\x02":
        return
    order = "<" if content[5] == 1 else ">"
    (sections,) = struct.unpack_from(f"{order}Q", content, 0x28)
    size, count = struct.unpack_from(f"{order}HH", content, 0x3A)
    for place in range(sections, sections + size * count, size):
        (kind,) = struct.unpack_from(f"{order}I", content, place + 4)
        if kind != _DYNAMIC_SYMBOLS:
            continue
        begin, length = struct.unpack_from(f"{order}QQ", content, place + 0x18)
        for symbol in range(begin, begin + length, 24):
            if content[symbol + 4] >> 4 == _UNIQUE:
                content[symbol + 4] = _WEAK << 4 | content[symbol + 4] & 15
