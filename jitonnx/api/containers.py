"""Feeds are turned into sequences, optionals, maps and sparse tensors: lists, a value or None, dicts, and such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jitonnx.api.feeds import read
from jitonnx.api.sparse import SparseTensor
from jitonnx.api.values import OrtValue
from jitonnx.errors import InvalidArgument
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.dtypes import DType
from jitonnx.ir.maps import Map

_DTYPES = {dtype.text: dtype for dtype in DType}


def read_value(value: Any, declared: Declaration) -> Any:
    """What one input is given: an array, a list for a sequence, None for an optional without a value, a map for a dict.

    InvalidArgument says what does not fit, and of which element.
    """
    kind, _, inner = declared.type.partition("(")
    inner = inner.removesuffix(")")
    if kind == "tensor":
        return read(value, declared)
    if kind == "optional":
        return None if value is None else read_value(value, _declaration(declared.name, inner))
    if kind == "sparse_tensor":
        return _read_sparse(value, declared)
    if kind == "map":
        return _read_map(value, declared, *inner.split(",", 1))
    if kind != "seq":
        raise InvalidArgument(f"input {declared.name!r} is a {declared.type}, which jitonnx cannot be given yet")
    if not isinstance(value, list | tuple):
        raise InvalidArgument(
            f"input {declared.name!r} is a {declared.type}: give a list of its elements, not a {type(value).__name__}"
        )
    return [read_value(element, _declaration(f"{declared.name}[{n}]", inner)) for n, element in enumerate(value)]


def _read_sparse(value: Any, declared: Declaration) -> SparseTensor:
    """A sparse tensor of the declared type, and of the declared shape as far as that is known."""
    tensor = value.as_sparse_tensor() if isinstance(value, OrtValue) and value.is_sparse_tensor() else value
    what = f"input {declared.name!r} is a {declared.type}"
    if not isinstance(tensor, SparseTensor):
        raise InvalidArgument(f"{what}: give a SparseTensor, not a {type(value).__name__}")
    given, wanted = tensor.dense_shape(), declared.shape
    fits = wanted is None or (
        len(given) == len(wanted) and all(b == a for a, b in zip(wanted, given, strict=True) if isinstance(a, int))
    )
    if tensor.data_type() != declared.type or not fits:
        raise InvalidArgument(f"{what} of shape {wanted}: a {tensor.data_type()} of shape {given} was given")
    return tensor


def _read_map(value: Any, declared: Declaration, key: str, element: str) -> Map:
    """A dict as a map. key, element: the types of keys and values, as they are written."""
    what = f"input {declared.name!r} is a {declared.type}"
    dtype = _declaration(declared.name, element).dtype
    if dtype is None:
        raise InvalidArgument(
            f"{what}, which jitonnx cannot be given: the values of maps have to be numbers or strings"
        )
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{what}: give a dict, not a {type(value).__name__}")
    kinds: tuple[Any, Any] = (str, "strings") if key == "string" else ((int, np.integer), "integers")
    if other := [name for name in value if not isinstance(name, kinds[0])]:
        wrong = f"Unexpected key type  {type(other[0])}, it cannot be linked to C type"
        linked = "std::string" if key == "string" else "int64_t"
        raise InvalidArgument(f"{what}: its keys are {kinds[1]}, one is {other[0]!r}. {wrong} {linked}")
    if dtype is DType.STRING:
        if texts := [text for text in value.values() if not isinstance(text, str)]:
            raise InvalidArgument(f"{what}: its values are strings, one is {texts[0]!r}")
        return Map(dict(value), dtype)
    try:
        return Map({name: dtype.numpy.type(number) for name, number in value.items()}, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"{what}: {error}") from error


def _declaration(name: str, type: str) -> Declaration:
    dtype = _DTYPES.get(type.removeprefix("tensor(").removesuffix(")")) if type.startswith("tensor(") else None
    return Declaration(name, type, dtype, None)
