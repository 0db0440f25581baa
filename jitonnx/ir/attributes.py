"""The attributes that operators declare: what a field's annotation means, in ONNX's words and for a node's value."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from jitonnx.ir.operator import SparseTensor, Tensor
from jitonnx.ir.types import Type
from jitonnx.support.records import NamedTuple


class Kind(NamedTuple):
    """A kind of attribute."""

    name: str
    """ONNX's name of it (`AttributeProto.AttributeType`)."""
    read: Any
    """The type, or a union of types, that an attribute of the kind is read as."""
    convert: Callable[[Any], Any]
    """It makes what the operator has of what is read."""


def kind_of(annotation: Any) -> Kind | None:
    """The kind that a field's annotation stands for, a class or a text of code; None for one that stands for none."""
    return KINDS.get(plain(annotation))


def plain(annotation: Any) -> str:
    """An annotation as `KINDS` has it: without the modules of its names, and without None, which an attribute has that
    is absent."""
    return _shortened(annotation.__name__ if type(annotation) is type else str(annotation))


@functools.cache
def _shortened(text: str) -> str:
    text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)
    text = re.sub(r"^Optional\[(.*)\]$", r"\1", text).replace("Tuple[", "tuple[")
    names = [name.strip() for name in text.split("|")]
    return " | ".join(name for name in names if name != "None")


def _itself(value: Any) -> Any:
    return value


def _tensors(arrays: tuple[np.ndarray, ...]) -> tuple[Tensor, ...]:
    return tuple(map(Tensor, arrays))


def _sparse_tensors(arrays: tuple[np.ndarray, ...]) -> tuple[SparseTensor, ...]:
    return tuple(map(SparseTensor, arrays))


KINDS = {
    "int": Kind("INT", int, int),
    "bool": Kind("INT", int, bool),
    "float": Kind("FLOAT", float | int, float),
    "str": Kind("STRING", str, str),
    "Tensor": Kind("TENSOR", np.ndarray, Tensor),
    "SparseTensor": Kind("SPARSE_TENSOR", np.ndarray, SparseTensor),
    "Type": Kind("TYPE_PROTO", Type, _itself),
    "tuple[int, ...]": Kind("INTS", tuple, tuple),
    "tuple[float, ...]": Kind("FLOATS", tuple, tuple),
    "tuple[str, ...]": Kind("STRINGS", tuple, tuple),
    "tuple[Tensor, ...]": Kind("TENSORS", tuple, _tensors),
    "tuple[SparseTensor, ...]": Kind("SPARSE_TENSORS", tuple, _sparse_tensors),
    "tuple[Type, ...]": Kind("TYPE_PROTOS", tuple, tuple),
}
"""The kinds by annotation. Graphs are no fields: `Operator.bodies` names them."""
