"""From what users feed to sequences and optionals: lists of arrays, and a value or None."""

from __future__ import annotations

from typing import Any

from jitonnx.api.feeds import read
from jitonnx.errors import InvalidArgument
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.dtypes import DType

_DTYPES = {dtype.text: dtype for dtype in DType}


def read_value(value: Any, declared: Declaration) -> Any:
    """What one input is given: an array, a list for a sequence, None for an optional without a value.

    InvalidArgument says what does not fit, and of which element.
    """
    kind, _, inner = declared.type.partition("(")
    inner = inner.removesuffix(")")
    if kind == "tensor":
        return read(value, declared)
    if kind == "optional":
        return None if value is None else read_value(value, _declaration(declared.name, inner))
    if kind != "seq":
        raise InvalidArgument(f"input {declared.name!r} is a {declared.type}, which jitonnx cannot be given yet")
    if not isinstance(value, list | tuple):
        raise InvalidArgument(
            f"input {declared.name!r} is a {declared.type}: give a list of its elements, not a {type(value).__name__}"
        )
    return [read_value(element, _declaration(f"{declared.name}[{n}]", inner)) for n, element in enumerate(value)]


def _declaration(name: str, type: str) -> Declaration:
    dtype = _DTYPES.get(type.removeprefix("tensor(").removesuffix(")")) if type.startswith("tensor(") else None
    return Declaration(name, type, dtype, None)
