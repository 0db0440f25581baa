"""The messages of the schemas, with as little imported as may be.

A generated module (`onnx_pb2`) imports all of protobuf's Python, text format and calendars included: 10 ms of a start.
Where protobuf runs on its C library, `upb`, that library alone makes the same classes of the same schema
(`schemas.py`), in a pool of our own; elsewhere, and where PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION asks for another
implementation, the generated modules are used.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from jitonnx.proto import schemas
from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

_SCHEMAS = {"onnx": schemas.ONNX}


class Schema(NamedTuple):
    """The classes of messages by name, and the numbers of the values of enumerations."""

    messages: Mapping[str, Any]
    constants: Mapping[str, int]


@fork_safety.once
def schema(name: str) -> Schema:
    """The schema of a name; "onnx" is the only one."""
    library = _library()
    if library is None:
        generated = vars(importlib.import_module(f"jitonnx.proto.{name}_pb2"))
        return Schema(generated, generated)
    pool = library.DescriptorPool()
    pool.AddSerializedFile(_SCHEMAS[name])
    file = pool.FindFileByName(f"jitonnx/proto/{name}.proto")
    messages = {each.name: _made(library, each, name) for each in file.message_types_by_name.values()}
    enumerations = file.enum_types_by_name.values()
    return Schema(messages, {value.name: value.number for enumeration in enumerations for value in enumeration.values})


def _library() -> Any:
    """protobuf's C library; None where it does without."""
    if os.environ.get("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "upb") != "upb":
        return None
    try:
        return importlib.import_module("google._upb._message")
    except ImportError:
        return None


def _made(library: Any, descriptor: Any, schema: str) -> Any:
    """The class of a message, with those that are declared in it: what `google.protobuf.internal.builder` does."""
    from google.protobuf.message import Message

    inner = {each.name: _made(library, each, schema) for each in descriptor.nested_types}
    attributes = {**inner, "DESCRIPTOR": descriptor, "__module__": f"jitonnx.proto.{schema}_pb2"}
    return library.MessageMeta(descriptor.name, (Message,), attributes)
