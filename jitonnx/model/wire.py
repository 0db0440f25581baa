"""Parsing a model without copying its weights.

Protobuf copies every `bytes` field that it parses. Here a walk over the wire format first takes the large `raw_data`
fields out and puts short tickets in their place; what is left, some kilobytes, is parsed, and a ticket is exchanged for
a view into the file when the tensor is read. So a mapped file of 500 MB is loaded without touching its weights, and
files above protobuf's limit of 2 GB can be read.

Our own, as protobuf has no parser that leaves fields where they lie: each would be in memory twice while it is read. A
mapped file of 25 weights, 100 MB in all, is parsed in 0.13 ms without memory for them on a Zen 5; protobuf's
`FromString` takes 162 ms and 95 MB besides the file's bytes.
"""

from __future__ import annotations

import os
from typing import Any

from jitonnx.errors import InvalidProtobuf
from jitonnx.proto import ModelProto
from jitonnx.support.artifact_magic import GIVEN_AS_MODEL, is_artifact

LARGE = 16 << 10
"""Bytes from which on a field is left where it is; below, copying costs less than another view."""
_DEPTH_LIMIT = 100  # protobuf's own
_MOST_PARTS = 1 << 20
"""Messages that a large message may consist of: empty nodes take two bytes each in a file, and a hundred when they are
parsed."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TICKET_INDEX_BYTES = 4
_LISTS = {"AttributeProto": frozenset(("floats", "ints", "strings"))}
"""Fields of a message that has no weights if it has one of these: nothing of what follows is looked at."""


class WireError(ValueError):
    """Bytes that are not in protobuf's wire format; the text says where."""


class Tickets:
    """Views into a file, by the short byte strings that stand for them in its parsed messages.

    A ticket begins with random bytes, so no file can hold a field that passes for one.
    """

    def __init__(self) -> None:
        self._secret = os.urandom(16)
        self._views: list[memoryview] = []

    def issue(self, view: memoryview) -> bytes:
        """A ticket for `view`."""
        self._views.append(view)
        return self._secret + (len(self._views) - 1).to_bytes(_TICKET_INDEX_BYTES, "little")

    def redeem(self, raw_data: bytes) -> bytes | memoryview:
        """What a `raw_data` field stands for: the view if it is a ticket, else the field itself."""
        if len(raw_data) == len(self._secret) + _TICKET_INDEX_BYTES and raw_data.startswith(self._secret):
            return self._views[int.from_bytes(raw_data[len(self._secret) :], "little")]
        return raw_data


def parse(data: memoryview) -> tuple[ModelProto, Tickets]:
    """The model in `data`, its large weights as tickets. InvalidProtobuf says what the bytes look like instead."""
    if is_artifact(data):
        raise InvalidProtobuf(GIVEN_AS_MODEL)
    from google.protobuf.message import DecodeError

    tickets = Tickets()
    try:
        skeleton = b"".join(_strip(data, 0, len(data), ModelProto.DESCRIPTOR, tickets, 0))
        return ModelProto.FromString(skeleton), tickets
    except (WireError, DecodeError) as error:
        raise InvalidProtobuf(f"protobuf parsing failed: {error}{_looks_like(bytes(data[:64]))}") from error


def _strip(
    data: memoryview, start: int, end: int, message: Any, tickets: Tickets, depth: int
) -> list[bytes | memoryview]:
    """The message in data[start:end], in pieces, with every large `raw_data` below it exchanged for a ticket."""
    if depth > _DEPTH_LIMIT:
        raise WireError(f"messages nested more than {_DEPTH_LIMIT} deep at byte {start}")
    pieces: list[bytes | memoryview] = []
    lists = {message.fields_by_name[name].number for name in _LISTS.get(message.name, ())}
    kept = position = start
    parts = 0
    while position < end:
        field = position
        key, position = _read_varint(data, position, end)
        number, kind = key >> 3, key & 7
        if number in lists:
            position = end
            break
        if kind == _VARINT:
            _, position = _read_varint(data, position, end)
        elif kind in (_FIXED32, _FIXED64):
            position += 4 if kind == _FIXED32 else 8
        elif kind == _BYTES:
            parts += 1
            if parts > _MOST_PARTS:
                raise WireError(f"the {message.name} that begins at byte {start} has more than {_MOST_PARTS} parts")
            size, position = _read_varint(data, position, end)
            if position + size > end:
                raise WireError(
                    f"the field at byte {field} says it has {size} bytes, {end - position} are left: truncated?"
                )
            if size >= LARGE and (body := _exchange(data, position, size, number, message, tickets, depth)) is not None:
                pieces += [data[kept:field], _varint(key), _varint(sum(map(len, body))), *body]
                kept = position + size
            position += size
        else:
            raise WireError(f"wire type {kind} at byte {field}")
    if position != end:
        raise WireError(f"a field runs past byte {end}: truncated?")
    pieces.append(data[kept:end])
    return pieces


def _exchange(
    data: memoryview, start: int, size: int, number: int, message: Any, tickets: Tickets, depth: int
) -> list[bytes | memoryview] | None:
    """What stands for the large field `number` of `message`; None: itself."""
    field = message.fields_by_number.get(number)
    if field is None:
        return None
    if field.message_type is not None:
        return _strip(data, start, start + size, field.message_type, tickets, depth + 1)
    if message.name == "TensorProto" and field.name == "raw_data":
        return [tickets.issue(data[start : start + size])]
    return None


def _read_varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """The number at `position`, and where the next field begins."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise WireError(f"a number that does not end at byte {position}: truncated?")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SIGNATURES = (
    (b"version https://git-lfs", "a git-lfs pointer: fetch the file itself with `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive, as torch.save writes: export the model with torch.onnx.export"),
    (b"\x89HDF", "an HDF5 file, as Keras writes: convert the model with tf2onnx"),
    (b"\x1f\x8b", "gzip: unpack it first"),
    (b"<", "HTML or XML: the download went to a web page"),
    (b"{", "JSON"),
)


def _looks_like(head: bytes) -> str:
    for signature, meaning in _SIGNATURES:
        if head.lstrip().startswith(signature):
            return f" (the bytes look like {meaning})"
    return ""
