"""Filling the weights that the zoo's graphs leave out, in memory or as a stream of a file's bytes.

The stream writes protobuf's wire format around the weights itself, so that a model of 500 MB is written with a few
megabytes of memory. It gives the bytes that serialising the filled model would give.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import Message
from onnx import GraphProto, ModelProto, TensorProto

_CHUNK = 1 << 20  # numbers drawn at once: 4 MiB
_LENGTH_DELIMITED = 2  # protobuf's wire type of strings, bytes and messages


@dataclass(frozen=True)
class Normal:
    """`count` float32 numbers, normally distributed, determined by `seed`."""

    count: int
    mean: np.float32
    std: np.float32
    seed: int

    @property
    def nbytes(self) -> int:
        """Size of all numbers in bytes."""
        return 4 * self.count

    def chunks(self) -> Iterator[bytes]:
        """The numbers as little-endian bytes, in pieces; how they are cut does not change them."""
        rng = np.random.default_rng(self.seed)
        for start in range(0, self.count, _CHUNK):
            values = rng.standard_normal(min(_CHUNK, self.count - start), dtype=np.float32)
            values *= self.std
            values += self.mean
            yield values.astype("<f4", copy=False).tobytes()


def left_out(tensor: TensorProto) -> Normal | None:
    """What fills `tensor`, or None when it holds its own data.

    Raises `ValueError` when a weight that is not float32 was left out.
    """
    if not tensor.doc_string.startswith("normal "):
        return None
    if tensor.data_type != TensorProto.FLOAT:
        raise ValueError(f"weight {tensor.name!r}: only float32 can be left out, its data_type is {tensor.data_type}")
    _, mean, std, seed = tensor.doc_string.split()
    return Normal(math.prod(tensor.dims), np.float32(mean), np.float32(std), int(seed))


def fill(model: ModelProto) -> ModelProto:
    """Fill every weight that was left out, in place; return `model`."""
    for tensor in model.graph.initializer:
        if normal := left_out(tensor):
            tensor.raw_data = b"".join(normal.chunks())
            tensor.doc_string = ""
    return model


def filled_chunks(model: ModelProto) -> Iterator[bytes]:
    """The bytes of `fill(model).SerializeToString()` in pieces of a few megabytes; `model` stays as it is.

    Serialised protobuf has its fields in the order of their numbers, and each message after its length. So the lengths
    are added up from the weights' sizes first, and the weights are drawn as they are written.
    """
    parts = [_initializer(model.graph, tensor) for tensor in model.graph.initializer]
    graph_head, graph_tail = _around(model.graph, "initializer")
    model_head, model_tail = _around(model, "graph")
    graph_size = len(graph_head) + sum(part.size for part in parts) + len(graph_tail)
    yield model_head + _prefix(model, "graph", graph_size) + graph_head
    for part in parts:
        yield part.head
        if part.normal:
            yield from part.normal.chunks()
        yield part.tail
    yield graph_tail + model_tail


@dataclass(frozen=True)
class _Part:
    """A serialised initializer, cut open where its weights come in."""

    head: bytes
    normal: Normal | None
    tail: bytes

    @property
    def size(self) -> int:
        return len(self.head) + (self.normal.nbytes if self.normal else 0) + len(self.tail)


def _initializer(graph: GraphProto, tensor: TensorProto) -> _Part:
    """One entry of the graph's `initializer`, with the field's prefix."""
    normal = left_out(tensor)
    if normal is None:
        own = tensor.SerializeToString()
        return _Part(_prefix(graph, "initializer", len(own)) + own, None, b"")
    filled = TensorProto()
    filled.CopyFrom(tensor)
    filled.doc_string = ""
    head, tail = _around(filled, "raw_data")
    head += _prefix(filled, "raw_data", normal.nbytes)
    return _Part(_prefix(graph, "initializer", len(head) + normal.nbytes + len(tail)) + head, normal, tail)


def _around(message: Message, field: str) -> tuple[bytes, bytes]:
    """The serialised fields of `message` before `field` and behind it, in the order of their numbers."""
    number = message.DESCRIPTOR.fields_by_name[field].number
    before, behind = type(message)(), type(message)()
    before.CopyFrom(message)
    behind.CopyFrom(message)
    for descriptor, _ in message.ListFields():
        if descriptor.number >= number:
            before.ClearField(descriptor.name)
        if descriptor.number <= number:
            behind.ClearField(descriptor.name)
    return before.SerializePartialToString(), behind.SerializePartialToString()


def _prefix(message: Message, field: str, size: int) -> bytes:
    """What stands before `size` bytes of `field`: its number with the wire type, and the size."""
    number = message.DESCRIPTOR.fields_by_name[field].number
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(size)


def _varint(value: int) -> bytes:
    """Protobuf's integer of variable length: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
