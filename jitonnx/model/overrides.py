"""What a session's options say of a model before it is read: elements of initializers, and sizes of dimensions.

Both are written into the parsed message, so that what checks and reads it knows of nothing else. Elements stay where
they are: the message gets tickets for them (`jitonnx.model.wire`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

import numpy as np

from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.strings import string_array
from jitonnx.model.checker.tensors import BITS, byte_size
from jitonnx.model.wire import Tickets
from jitonnx.proto import ModelProto, TensorProto
from jitonnx.support.records import dataclass

_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "raw_data")


@dataclass
class Overrides:
    """What is said of a model."""

    initializers: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Elements by name, of the type and shape of what they replace."""
    files: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Contents of files by location; where there are any, no external data is looked for elsewhere."""
    denotations: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the inputs' dimensions by what they denote, in lower case."""

    def apply(self, proto: ModelProto, tickets: Tickets) -> None:
        """Write it into a model. Fail and InvalidArgument say what does not fit it."""
        if self.initializers:
            tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
            for name, array in self.initializers.items():
                if name not in tensors:
                    raise Fail(f"Failed to find existing initializer with name {name}.")
                _replace(tensors[name], array, tickets)
        if self.files:
            for tensor in proto.graph.initializer:
                if tensor.data_location == TensorProto.EXTERNAL:
                    self._read(tensor, tickets)
        if self.denotations:
            self._fix_dimensions(proto)

    def _read(self, tensor: TensorProto, tickets: Tickets) -> None:
        """Let an initializer have its elements from a file in memory."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location not in self.files:
            raise Fail(f"External file: {location} not found from the table user provided.")
        data, offset = self.files[location], entries.get("offset") or "0"
        if tensor.data_type not in list(DType) or tensor.data_type == DType.STRING:
            return  # which the checker tells better
        size = byte_size(DType(tensor.data_type), math.prod(tensor.dims))
        if not offset.isdecimal() or int(offset) + size > data.nbytes:
            raise Fail(
                f"External initializer: {tensor.name} offset: {offset} size to read: {size} given file_length: "
                f"{data.nbytes} are out of bounds or can not be read in full."
            )
        _put(tensor, data[int(offset) : int(offset) + size], tickets)

    def _fix_dimensions(self, proto: ModelProto) -> None:
        defaults = {tensor.name for tensor in proto.graph.initializer}
        for info in proto.graph.input:
            if info.name in defaults or not info.type.HasField("tensor_type"):
                continue
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                size = self.denotations.get(dim.denotation.lower())
                if size is None:
                    continue
                if dim.HasField("dim_value") and dim.dim_value != size:
                    raise InvalidArgument(
                        f"Invalid free dimension override. Axis {axis} of input {info.name!r}, which denotes "
                        f"{dim.denotation!r}, has the size {dim.dim_value}, not {size}"
                    )
                dim.dim_value = size


def _replace(tensor: TensorProto, given: np.ndarray, tickets: Tickets) -> None:
    """Let an initializer have other elements. Fail where they are not of its type and shape."""
    array, name = np.asarray(given), tensor.name
    if array.shape != tuple(tensor.dims):
        raise Fail(
            f"Replacement tensor's dimensions do not match. Initializer {name!r} is {list(tensor.dims)}, and "
            f"{list(array.shape)} is given"
        )
    dtype = of_numpy(array.dtype.newbyteorder("="))
    if dtype != tensor.data_type:
        raise Fail(
            f"Replacement tensor's data type does not match. A {dtype.text} is given for initializer {name!r}, which "
            "has another type"
        )
    if dtype is DType.STRING:
        texts = string_array(array, f"what replaces initializer {name!r}")
        _put(tensor, np.empty(0, np.uint8), tickets)
        tensor.ClearField("raw_data")
        tensor.string_data.extend(text.encode() for text in texts.flat)
        return
    if dtype in BITS:
        from jitonnx.model.write import packed_elements

        _put(tensor, packed_elements(array), tickets)
        return
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    _put(tensor, plain.reshape(-1).view(np.uint8), tickets)


def _put(tensor: TensorProto, data: np.ndarray, tickets: Tickets) -> None:
    """Let a tensor have these bytes alone."""
    for name in _FIELDS:
        tensor.ClearField(name)
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.raw_data = tickets.issue(data.data)
