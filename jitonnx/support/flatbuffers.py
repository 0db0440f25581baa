"""FlatBuffers: tables of fields that are read where they lie, and written, as far as files of onnxruntime's need them.

    table = root(data, b"TORT")
    table.integer(1), table.text(0), table.bytes(3), [parameter.text(0) for parameter in table.tables(3)]

A table begins with the distance back to its vtable, which tells where in the table each field is, 0 for one that is
absent. Text, lists and tables lie behind the place that points to them, at a distance of 32 bits. Every place is
checked against the end of the file before it is read, so bytes that are no such file are an error, whatever they are.

Our own, as the package flatbuffers checks no place (a wrong offset gives other bytes, or Python's `struct.error`), and
its accessors are modules that a compiler writes for each schema; here a field is a number. On a Zen 5, names, inputs
and outputs of the 100 nodes of an .ort file of MobileNetV2, and names and shapes of its weights, are read in 0.9 ms;
with the package and onnxruntime's accessors that takes 2.2 ms, and 27 the first time, with their import.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

_NUMBERS = {1: "<b", 2: "<h", 4: "<i", 8: "<q"}
_LARGEST = (1 << 31) - 1
"""Bytes of a file at most, which distances reach."""


class FlatbufferError(ValueError):
    """Bytes that are not what they are read as; the text says where."""


class Table:
    """A table at a place in a file."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data, self._place = data, place
        self._vtable = place - self._unpack("<i", place)
        self._vtable_size, self._size = (self._unpack("<H", self._vtable + at) for at in (0, 2))
        if self._vtable_size < 4 or self._vtable + self._vtable_size > len(data) or place + self._size > len(data):
            raise FlatbufferError(f"the table at byte {place} reaches past the end")

    def integer(self, field: int, default: int = 0, size: int = 4) -> int:
        """A number of `size` bytes, with a sign."""
        place = self._field(field, size)
        return default if place is None else self._unpack(_NUMBERS[size], place)

    def bytes(self, field: int) -> memoryview:
        """A list of bytes; without elements if it is absent."""
        start, count = self._list(field, 1)
        return self._data[start : start + count]

    def text(self, field: int, most: int = 1 << 12) -> str:
        """A text of `most` bytes at most, "" if it is absent. FlatbufferError for what is not UTF-8."""
        start, count = self._list(field, 1, most)
        try:
            return str(self._data[start : start + count], "utf-8")
        except UnicodeDecodeError as error:
            raise FlatbufferError(f"a text in the table at byte {self._place} is not UTF-8: {error}") from error

    def integers(self, field: int, most: int, size: int = 8) -> tuple[int, ...]:
        """A list of `most` numbers of `size` bytes at most."""
        start, count = self._list(field, size, most)
        return struct.unpack(f"<{count}{_NUMBERS[size][1]}", self._data[start : start + count * size])

    def number(self, field: int) -> float:
        """A float of 32 bits."""
        place = self._field(field, 4)
        return 0.0 if place is None else float(struct.unpack_from("<f", self._data, place)[0])

    def numbers(self, field: int, most: int) -> tuple[float, ...]:
        """A list of `most` floats of 32 bits at most."""
        start, count = self._list(field, 4, most)
        return struct.unpack(f"<{count}f", self._data[start : start + 4 * count])

    def texts(self, field: int, most: int) -> list[str]:
        """A list of texts, of `most` bytes together at most."""
        start, count = self._list(field, 4, most)
        found = []
        for place in range(start, start + 4 * count, 4):
            place += self._unpack("<I", place)
            size = self._unpack("<I", place)
            most -= size
            if most < 0 or place + 4 + size > len(self._data):
                raise FlatbufferError(f"the text at byte {place} has {size} bytes, which are too many")
            try:
                found.append(str(self._data[place + 4 : place + 4 + size], "utf-8"))
            except UnicodeDecodeError as error:
                raise FlatbufferError(f"the text at byte {place} is not UTF-8: {error}") from error
        return found

    def table(self, field: int) -> Table | None:
        """A table, None if it is absent."""
        place = self._field(field, 4)
        return None if place is None else Table(self._data, place + self._unpack("<I", place))

    def tables(self, field: int) -> Iterator[Table]:
        """A list of tables."""
        start, count = self._list(field, 4)
        for place in range(start, start + 4 * count, 4):
            yield Table(self._data, place + self._unpack("<I", place))

    def _field(self, field: int, size: int) -> int | None:
        """A field's first byte; None for one that is absent."""
        entry = 4 + 2 * field
        if entry + 2 > self._vtable_size:
            return None
        offset = self._unpack("<H", self._vtable + entry)
        if offset and offset + size > self._size:
            raise FlatbufferError(f"field {field} of the table at byte {self._place} lies behind the table")
        return self._place + offset if offset else None

    def _list(self, field: int, size: int, most: int = _LARGEST) -> tuple[int, int]:
        """The first byte of a list's elements, and how many there are.

        most: of a list that is copied, as many tables of a file may have the same long one.
        """
        place = self._field(field, 4)
        if place is None:
            return 0, 0
        place += self._unpack("<I", place)
        count = self._unpack("<I", place)
        if count > most:
            raise FlatbufferError(f"the list at byte {place} has {count} elements, and may have {most}")
        if place + 4 + count * size > len(self._data):
            raise FlatbufferError(f"the list at byte {place} has {count} elements, which reach past the end")
        return place + 4, count

    def _unpack(self, kind: str, place: int) -> int:
        if place < 0 or place + struct.calcsize(kind) > len(self._data):
            raise FlatbufferError(f"byte {place} is read of {len(self._data)}")
        return int(struct.unpack_from(kind, self._data, place)[0])


def root(data: memoryview, identifier: bytes) -> Table:
    """The table that a file holds. FlatbufferError for one of another kind, which other four letters identify."""
    if len(data) < 8 or bytes(data[4:8]) != identifier:
        raise FlatbufferError(f"bytes 4 to 8 are not {identifier.decode()!r}")
    return Table(data, int(struct.unpack_from("<I", data)[0]))


class Writer:
    """A file in the making. Tables come first, and behind each what it points to."""

    def __init__(self, identifier: bytes) -> None:
        self._data = bytearray(4) + identifier
        self._tables: dict[int, int] = {}

    def table(self, fields: int) -> int:
        """A new table of as many fields of four bytes, all 0; where it begins."""
        self._align(4)
        vtable = len(self._data)
        self._data += struct.pack(f"<{2 + fields}H", 4 + 2 * fields, 4 + 4 * fields, *range(4, 4 + 4 * fields, 4))
        self._align(4)
        place = len(self._data)
        self._data += struct.pack("<i", place - vtable) + bytes(4 * fields)
        if not self._tables:
            struct.pack_into("<I", self._data, 0, place)
        self._tables[place] = fields
        return place

    def set_integer(self, table: int, field: int, value: int) -> None:
        """Set a field to a number of 32 bits."""
        struct.pack_into("<i", self._data, table + 4 + 4 * field, value)

    def set_text(self, table: int, field: int, text: str) -> None:
        """Set a field to a text, which a byte of 0 ends."""
        encoded = text.encode()
        self._set_list(table, field, len(encoded), encoded + b"\0", 4)

    def set_integers(self, table: int, field: int, values: Sequence[int]) -> None:
        """Set a field to a list of numbers of 64 bits."""
        self._set_list(table, field, len(values), struct.pack(f"<{len(values)}q", *values), 8)

    def set_bytes(self, table: int, field: int, content: bytes | memoryview, boundary: int = 4) -> None:
        """Set a field to a list of bytes, which begins at a multiple of `boundary`."""
        self._set_list(table, field, len(content), content, boundary)

    def set_tables(self, table: int, field: int, count: int) -> list[int]:
        """Set a field to a list of places for tables, which `point` fills."""
        self._set_list(table, field, count, bytes(4 * count), 4)
        start = len(self._data) - 4 * count
        return list(range(start, len(self._data), 4))

    def point(self, place: int, table: int) -> None:
        """Let a place in a list lead to a table behind it."""
        struct.pack_into("<I", self._data, place, table - place)

    def finished(self) -> bytearray:
        """The file. FlatbufferError for one that is too large."""
        if len(self._data) > _LARGEST:
            raise FlatbufferError(f"{len(self._data)} bytes are more than such a file holds")
        return self._data

    def _set_list(self, table: int, field: int, count: int, content: bytes | memoryview, boundary: int) -> None:
        while len(self._data) % boundary != -4 % boundary:  # the elements stand behind their number
            self._data.append(0)
        if len(self._data) + len(content) > _LARGEST:
            raise FlatbufferError(f"{len(self._data) + len(content)} bytes are more than such a file holds")
        place = table + 4 + 4 * field
        struct.pack_into("<I", self._data, place, len(self._data) - place)
        self._data += struct.pack("<I", count)
        self._data += content

    def _align(self, boundary: int) -> None:
        self._data += bytes(-len(self._data) % boundary)
