"""Tensors in a file: an element type, sizes, and the elements in one place, as many as the sizes say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from jitonnx.ir.dtypes import DType
from jitonnx.model.checker.report import quoted
from jitonnx.proto import TensorProto

BITS: Mapping[DType, int] = {
    DType.UINT4: 4,
    DType.INT4: 4,
    DType.FLOAT4E2M1: 4,
    DType.UINT2: 2,
    DType.INT2: 2,
    DType.FLOAT6E2M3: 6,
    DType.FLOAT6E3M2: 6,
}
"""Bits of an element for the types that are packed several a byte."""
_TYPED = {
    DType.FLOAT: "float_data",
    DType.COMPLEX64: "float_data",
    DType.DOUBLE: "double_data",
    DType.COMPLEX128: "double_data",
    DType.INT64: "int64_data",
    DType.UINT64: "uint64_data",
    DType.UINT32: "uint64_data",
    DType.STRING: "string_data",
}
_DATA = {"float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "raw_data"}
_KEYS = {"location", "offset", "length", "checksum", "basepath"}
"""The keys of external data that ONNX has."""
_DIGITS = 19
"""Decimal digits of a byte count at most, as it is a number of 64 bits."""
_SIZES = {dtype.value: BITS.get(dtype, 8 * dtype.itemsize) for dtype in DType if dtype is not DType.STRING}
"""The bits of an element, by the number of its type."""


def typed_field(dtype: DType) -> str:
    """The field in which elements of a type are, if not in raw_data: all small types are in `int32_data`."""
    return _TYPED.get(dtype, "int32_data")


def byte_size(dtype: DType, count: int) -> int:
    """Bytes of `count` elements as they are packed in raw_data and in other files."""
    return -(-count * BITS[dtype] // 8) if dtype in BITS else count * dtype.itemsize


def faults(tensor: TensorProto, data_of: Callable[[TensorProto], bytes | memoryview]) -> Iterator[tuple[str, str]]:
    """What is wrong with a tensor, by rule; texts go on behind what the tensor is.

    data_of: the bytes of its raw_data, which may have been left in the file.
    """
    dims, number = tensor.dims, tensor.data_type
    count = math.prod(dims)
    if number in _SIZES and tensor.HasField("raw_data") and count >= 0:
        bits = _SIZES[number]
        if len(data_of(tensor)) == (count * bits + 7) // 8 and not _has_more(tensor) and not any(d < 0 for d in dims):
            return  # as nearly all of them
    yield from _faults(tensor, data_of)


def _has_more(tensor: TensorProto) -> bool:
    """Whether a tensor has anything besides name, type, sizes and raw_data."""
    return bool(
        tensor.float_data
        or tensor.int32_data
        or tensor.int64_data
        or tensor.double_data
        or tensor.uint64_data
        or tensor.string_data
        or tensor.data_location
        or tensor.external_data
        or tensor.HasField("segment")
    )


def _faults(tensor: TensorProto, data_of: Callable[[TensorProto], bytes | memoryview]) -> Iterator[tuple[str, str]]:
    try:
        dtype = DType(tensor.data_type)
    except ValueError:
        if tensor.data_type:
            yield "tensors.type", f"has the element type {tensor.data_type}, which jitonnx does not know"
        else:
            yield "tensors.type-missing", "has no element type"
        return
    dims = list(tensor.dims)
    if any(dim < 0 for dim in dims):
        yield "tensors.dims", f"has a negative dimension: {dims[:20]}"
        return
    if tensor.HasField("segment"):
        yield "tensors.segment", "is a segment of a larger tensor, which no known exporter writes"
        return
    held = [field.name for field, value in tensor.ListFields() if field.name in _DATA and len(value)]
    count = math.prod(dims)
    field = typed_field(dtype)
    if tensor.data_location == TensorProto.EXTERNAL:
        if held:
            yield "tensors.fields", f"has external data, and elements in {' and '.join(held)}"
        if dtype is DType.STRING:
            yield "tensors.fields", "has strings as external data; they stand in string_data alone"
        yield from _external_faults(tensor)
    elif len(held) > 1:
        yield "tensors.fields", f"has elements in {' and '.join(held)}; they stand in one place"
    elif held and held[0] not in (field, "raw_data"):
        yield "tensors.fields", f"has elements of {dtype.text} in {held[0]}; they stand in {field} or raw_data"
    elif held == ["raw_data"] and dtype is DType.STRING:
        yield "tensors.fields", "has strings in raw_data; they stand in string_data alone"
    elif held == ["raw_data"] or tensor.HasField("raw_data"):
        size = len(data_of(tensor))
        if size != byte_size(dtype, count):
            text = f"has {size} bytes of data, but {count} elements of {dtype.text} take {byte_size(dtype, count)}"
            yield "tensors.count", text
    else:
        yield from _count_faults(tensor, dtype, count, field)


def _count_faults(tensor: TensorProto, dtype: DType, count: int, field: str) -> Iterator[tuple[str, str]]:
    """What is wrong with elements in a typed field."""
    dims, length = list(tensor.dims), len(getattr(tensor, field))
    if dtype is DType.STRING:
        if length != count:
            yield "tensors.count", f"has {length} strings, but its shape {dims[:20]} takes {count}"
        for position, text in enumerate(tensor.string_data):
            if not text.isascii() and not _is_text(text):
                yield "tensors.text", f"has bytes that are not UTF-8 in the place of string {position}"
                return
        return
    if dtype in (DType.COMPLEX64, DType.COMPLEX128):
        wanted, what = 2 * count, "numbers"
    elif dtype in BITS and BITS[dtype] != 6:
        wanted, what = byte_size(dtype, count), "packed bytes"
    else:
        wanted, what = count, "elements"
    if length != wanted:
        yield "tensors.count", f"has {length} {what} in {field}, but its shape {dims[:20]} takes {wanted}"


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _external_faults(tensor: TensorProto) -> Iterator[tuple[str, str]]:
    """What is wrong with the entries that say where external data is."""
    keys = [entry.key for entry in tensor.external_data]
    for key in {key for key in keys if keys.count(key) > 1} if len(keys) < 10 else ():
        yield "external.entries", f"has several entries {quoted(key)} of external data"
    for entry in tensor.external_data:
        if entry.key in ("offset", "length") and not is_byte_count(entry.value):
            yield (
                "external.range",
                f"has external data with the {entry.key} {quoted(entry.value)}, a byte count is expected",
            )
    if "location" not in keys:
        yield "external.location", "has external data without a location"


def is_byte_count(text: str) -> bool:
    """Whether an entry is a decimal number of bytes, or empty, which is as none."""
    return not text or (text.isascii() and text.isdigit() and len(text) <= _DIGITS)
