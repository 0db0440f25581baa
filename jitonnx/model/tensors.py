"""TensorProto to NumPy array: every element type and every place where ONNX keeps elements.

Arrays of whole bytes are read-only views into the file wherever that is possible; packed 6-, 4- and 2-bit numbers,
strings and the typed fields are unpacked into arrays of their own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitonnx import errors
from jitonnx.errors import Fail
from jitonnx.ir.dtypes import DType
from jitonnx.ir.strings import strings_of
from jitonnx.model.external import ExternalData
from jitonnx.model.wire import Tickets
from jitonnx.proto import SparseTensorProto, TensorProto

_BITS = {
    DType.UINT4: 4,
    DType.INT4: 4,
    DType.FLOAT4E2M1: 4,
    DType.UINT2: 2,
    DType.INT2: 2,
    DType.FLOAT6E2M3: 6,
    DType.FLOAT6E3M2: 6,
}
"""Bits of an element for the types that are packed several a byte."""
_TYPED_FIELDS = {
    DType.FLOAT: ("float_data", np.float32),
    DType.COMPLEX64: ("float_data", np.float32),
    DType.DOUBLE: ("double_data", np.float64),
    DType.COMPLEX128: ("double_data", np.float64),
    DType.INT64: ("int64_data", np.int64),
    DType.UINT64: ("uint64_data", np.uint64),
    DType.UINT32: ("uint64_data", np.uint64),
}
"""Field and its type; all other types are in `int32_data`, floats as their bits."""


class TensorReader:
    """Reads the tensors of one model."""

    def __init__(self, tickets: Tickets, external: ExternalData) -> None:
        self._tickets, self._external = tickets, external

    def array(self, tensor: TensorProto, where: str = "initializer") -> np.ndarray:
        """The elements. Fail or NotImplemented names the tensor; `where` says what it is."""
        what = f"{where} {tensor.name!r}" if tensor.name else where
        dtype, shape = _dtype(tensor, what), tuple(tensor.dims)
        if any(dim < 0 for dim in shape):
            raise Fail(f"{what} has a negative dimension: {list(shape)}")
        if tensor.HasField("segment"):
            raise errors.NotImplemented(f"{what} is a segment of a larger tensor, which no known exporter writes")
        count = math.prod(shape)
        if dtype is DType.STRING:
            return _strings(tensor, count, what)
        if tensor.data_location == TensorProto.EXTERNAL:
            elements = _from_bytes(self._external.read(tensor, _byte_size(dtype, count), what), dtype, count, what)
        elif tensor.HasField("raw_data"):
            elements = _from_bytes(self._tickets.redeem(tensor.raw_data), dtype, count, what)
        else:
            elements = _from_typed_field(tensor, dtype, count, what)
        array = elements.reshape(shape)
        array.flags.writeable = False
        return array

    def dense(self, sparse: SparseTensorProto, where: str = "sparse initializer") -> np.ndarray:
        """A sparse tensor with what it leaves out filled in: zeros, or strings without characters."""
        name = sparse.values.name
        values, indices = self.array(sparse.values, where), self.array(sparse.indices, where)
        shape = tuple(sparse.dims)
        dense = np.full(shape, "", object) if values.dtype == object else np.zeros(shape, values.dtype)
        try:
            flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
            dense.reshape(-1)[flat] = values
        except (ValueError, IndexError) as error:
            raise Fail(
                f"{where} {name!r}: indices of shape {indices.shape} do not place {values.shape} values in a tensor of "
                f"shape {list(shape)}: {error}"
            ) from error
        dense.flags.writeable = False
        return dense


def _dtype(tensor: TensorProto, what: str) -> DType:
    try:
        return DType(tensor.data_type)
    except ValueError:
        known = {value.number: name for name, value in TensorProto.DataType.DESCRIPTOR.values_by_name.items()}
        name = known.get(tensor.data_type, str(tensor.data_type))
        raise errors.NotImplemented(f"{what} has the element type {name}, which jitonnx does not know") from None


def _byte_size(dtype: DType, count: int) -> int:
    return -(-count * _BITS[dtype] // 8) if dtype in _BITS else count * dtype.itemsize


def _from_bytes(data: bytes | memoryview, dtype: DType, count: int, what: str) -> np.ndarray:
    if len(data) != _byte_size(dtype, count):
        raise Fail(
            f"{what} has {len(data)} bytes of data, but {count} elements of {dtype.text} take "
            f"{_byte_size(dtype, count)}"
        )
    if dtype in _BITS:
        return _unpack(np.frombuffer(data, np.uint8), dtype, count)
    if dtype is DType.BOOL:
        return np.frombuffer(data, np.uint8) != 0  # a byte other than 0 and 1 would be an invalid bool
    return np.frombuffer(data, dtype.numpy)


def _unpack(packed: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """Elements of 6, 4 or 2 bits, the first in the lowest bits of the first byte, as one byte each."""
    bits = _BITS[dtype]
    if bits == 6:  # which lie across bytes
        each = np.unpackbits(packed, bitorder="little")[: count * bits].reshape(count, bits)
        return np.packbits(each, axis=1, bitorder="little").reshape(count).view(dtype.numpy)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    elements = (packed[:, None] >> shifts & ((1 << bits) - 1)).reshape(-1)[:count]
    if dtype is DType.FLOAT4E2M1:
        return elements.view(dtype.numpy)
    if dtype in (DType.INT4, DType.INT2):
        sign = 1 << (bits - 1)
        return ((elements.astype(np.int8) ^ sign) - sign).astype(dtype.numpy)
    return elements.astype(dtype.numpy)


def _from_typed_field(tensor: TensorProto, dtype: DType, count: int, what: str) -> np.ndarray:
    field, kind = _TYPED_FIELDS.get(dtype, ("int32_data", np.int32))
    values: Any = np.fromiter(getattr(tensor, field), kind)
    if dtype in _BITS and _BITS[dtype] != 6:
        return _from_bytes(values.astype(np.uint8).tobytes(), dtype, count, what)
    if dtype in _BITS:  # one a number, in its lowest bits
        values = values & 0x3F
    if dtype in (DType.COMPLEX64, DType.COMPLEX128):
        values = values.view(dtype.numpy) if len(values) % 2 == 0 else values
    elif dtype.is_float and dtype not in _TYPED_FIELDS:
        values = values.astype(f"u{dtype.itemsize}").view(dtype.numpy)
    if len(values) != count:
        raise Fail(f"{what} has {len(values)} elements in {field}, but its shape {list(tensor.dims)} takes {count}")
    return values.astype(dtype.numpy, copy=False)


def _strings(tensor: TensorProto, count: int, what: str) -> np.ndarray:
    if len(tensor.string_data) != count:
        raise Fail(f"{what} has {len(tensor.string_data)} strings, but its shape {list(tensor.dims)} takes {count}")
    texts = []
    for position, text in enumerate(tensor.string_data):
        try:
            texts.append(text.decode())
        except UnicodeDecodeError as error:
            raise Fail(f"{what}: string {position} is not UTF-8: {error}") from error
    array = strings_of(texts, tuple(tensor.dims))
    array.flags.writeable = False
    return array
