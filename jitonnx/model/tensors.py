"""TensorProto to NumPy array: every element type and every place where ONNX keeps elements.

Arrays of whole bytes are read-only views into the file wherever that is possible; packed 6-, 4- and 2-bit numbers,
strings and the typed fields are unpacked into arrays of their own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitonnx.errors import Fail
from jitonnx.ir.dtypes import DType
from jitonnx.ir.strings import strings_of
from jitonnx.model.checker.tensors import BITS, byte_size, typed_field
from jitonnx.model.external import ExternalData
from jitonnx.model.wire import Tickets
from jitonnx.proto import SparseTensorProto, TensorProto

_NUMBERS = {
    "float_data": np.float32,
    "double_data": np.float64,
    "int64_data": np.int64,
    "uint64_data": np.uint64,
    "int32_data": np.int32,
}
"""The type of the numbers in a typed field; floats in `int32_data` are there as their bits."""


class TensorReader:
    """Reads the tensors of one model."""

    def __init__(self, tickets: Tickets, external: ExternalData) -> None:
        self.tickets, self.external = tickets, external

    def raw(self, tensor: TensorProto) -> bytes | memoryview:
        """The bytes of a tensor's raw_data, of which the message has a ticket if they are many."""
        return self.tickets.redeem(tensor.raw_data)

    def array(self, tensor: TensorProto, where: str = "initializer") -> np.ndarray:
        """The elements of a tensor that the checker has found sound.

        Fail names a tensor whose external data cannot be read; `where` says what it is.
        """
        dtype, shape = DType(tensor.data_type), tuple(tensor.dims)
        count = math.prod(shape)
        if dtype is DType.STRING:
            return _strings(tensor)
        if tensor.data_location == TensorProto.EXTERNAL:
            what = f"{where} {tensor.name!r}" if tensor.name else where
            elements = _from_bytes(self.external.read(tensor, byte_size(dtype, count), what), dtype, count)
        elif tensor.HasField("raw_data"):
            elements = _from_bytes(self.raw(tensor), dtype, count)
        else:
            elements = _from_typed_field(tensor, dtype, count)
        array = elements.reshape(shape)
        array.flags.writeable = False
        return array

    def dense(self, sparse: SparseTensorProto, where: str = "sparse initializer") -> np.ndarray:
        """A sparse tensor with what it leaves out filled in: zeros, or strings without characters."""
        values, indices = self.array(sparse.values, where), self.array(sparse.indices, where)
        shape = tuple(sparse.dims)
        try:
            dense = np.full(shape, "", object) if values.dtype == object else np.zeros(shape, values.dtype)
        except (MemoryError, ValueError) as error:
            text = f"there is no memory for a tensor of shape {list(shape)}: {error}"
            raise Fail(f"{where} {sparse.values.name!r}: {text}") from error
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
        dense.reshape(-1)[flat] = values
        dense.flags.writeable = False
        return dense


def _from_bytes(data: bytes | memoryview, dtype: DType, count: int) -> np.ndarray:
    if dtype in BITS:
        return _unpack(np.frombuffer(data, np.uint8), dtype, count)
    if dtype is DType.BOOL:
        truths: np.ndarray = np.frombuffer(data, np.uint8) != 0  # a byte other than 0 and 1 would be an invalid bool
        return truths
    return np.frombuffer(data, dtype.numpy)


def _unpack(packed: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """Elements of 6, 4 or 2 bits, the first in the lowest bits of the first byte, as one byte each."""
    bits = BITS[dtype]
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


def _from_typed_field(tensor: TensorProto, dtype: DType, count: int) -> np.ndarray:
    field = typed_field(dtype)
    values: Any = np.fromiter(getattr(tensor, field), _NUMBERS[field])
    if dtype in BITS and BITS[dtype] != 6:
        return _from_bytes(values.astype(np.uint8).tobytes(), dtype, count)
    if dtype in BITS:  # one a number, in its lowest bits
        values = values & 0x3F
    if dtype in (DType.COMPLEX64, DType.COMPLEX128):
        values = values.view(dtype.numpy)
    elif dtype.is_float and field == "int32_data":
        values = values.astype(f"u{dtype.itemsize}").view(dtype.numpy)
    elements: np.ndarray = values.astype(dtype.numpy, copy=False)
    return elements


def _strings(tensor: TensorProto) -> np.ndarray:
    array = strings_of([text.decode() for text in tensor.string_data], tuple(tensor.dims))
    array.flags.writeable = False
    return array
