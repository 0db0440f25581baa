"""What a loaded model is: the graph, and what its file says about it."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from jitonnx import errors
from jitonnx.ir.declaration import Declaration, is_named
from jitonnx.ir.dims import Dim, variable
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.schema import text_of
from jitonnx.ir.types import MapType, OptionalType, SequenceType, Shape, SparseTensorType, TensorType, Type
from jitonnx.proto import AttributeProto, TypeProto, ValueInfoProto
from jitonnx.support.mapped_files import DataFile, FileMap
from jitonnx.support.metadata import ModelMetadata
from jitonnx.support.records import dataclass


@dataclass
class Model:
    """A checked model: its graph with inferred types, and the declarations and metadata of its file."""

    graph: Graph
    """Inputs and outputs are in the order of `inputs` and `outputs`. Its values carry the model's names."""
    opset_imports: dict[str, int]
    """Operator-set version by domain; "" is ai.onnx."""
    ir_version: int
    metadata: ModelMetadata
    inputs: list[Declaration]
    """The inputs that have to be fed."""
    outputs: list[Declaration]
    overridable: list[Declaration] = field(default_factory=list)
    """Initializers that are inputs too, from IR version 4 on: defaults of these inputs, and constants of `graph`."""
    dimensions: dict[str, str] = field(default_factory=dict)
    """What the file calls every dimension variable of `graph`'s inputs; those that it does not call anything are not
    here. Several variables may be called "?" or the like."""
    external: Sequence[DataFile] = ()
    """The other files that some of its weights are in."""
    files: Sequence[FileMap] = ()
    """The files whose content weights are read from where it lies."""
    custom: frozenset[tuple[str, str]] = frozenset()
    """Those of its operators that are users', by domain and name."""
    documented: bool = False
    """Some of its nodes are functions of documents that users registered."""
    described: frozenset[str] = frozenset()
    """The inner values whose types it tells, by name, if it was loaded to be written with the operators it has."""
    initializers: tuple[str, ...] = ()
    """The names of its initializers in their order, if it was loaded to be written with the operators it has."""
    lenient: Mapping[str, Sequence[AttributeProto]] = field(default_factory=dict)
    """The attributes of nodes that may have any (`ir.schema.LENIENT`), by the names of their first outputs, if it was
    loaded so."""
    warnings: tuple[str, ...] = ()
    """What was warned of when it was loaded."""


class Dimensions:
    """The dimension variables of a model.

    The file may call a dimension anything ("batch size", "2*n", "class", even "max"). Variables are named by Python
    identifiers, unique and clear of keywords and builtins, because generated source mentions them.
    """

    def __init__(self) -> None:
        self.original: dict[str, str] = {}
        """What the file calls each variable, if anything."""
        self._by_param: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, dim: str | None, value: str, axis: int) -> Dim:
        """The variable of a `dim_param`; one of its own for an axis whose size the file has no telling name for."""
        if not is_named(dim):
            name = self._claim(f"{value}_{axis}")
        elif dim in self._by_param:
            return variable(self._by_param[dim])
        else:
            name = self._by_param[dim] = self._claim(dim)
        if dim is not None:
            self.original[name] = dim
        return variable(name)

    def _claim(self, wanted: str) -> str:
        stem = re.sub(r"\W", "_", wanted, flags=re.ASCII)
        if not stem.isidentifier() or keyword.iskeyword(stem) or hasattr(builtins, stem):
            stem = f"dim_{stem}"
        name, number = stem, 1
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name


def declaration(info: ValueInfoProto) -> Declaration:
    """What a ValueInfoProto declares."""
    tensor = info.type.tensor_type if info.type.HasField("tensor_type") else None
    dtype = _dtype(tensor.elem_type) if tensor is not None else None
    sparse = info.type.sparse_tensor_type if info.type.HasField("sparse_tensor_type") else None
    return Declaration(info.name, type_text(info.type), dtype, _shape(sparse if tensor is None else tensor))


def declared_input(info: ValueInfoProto, *, free: bool) -> Declaration:
    """What a ValueInfoProto of an input declares. free: a scalar may have any shape."""
    declared = declaration(info)
    return declared._replace(shape=None) if free and declared.shape == () else declared


def tensor_type(declared: Declaration, dimensions: Dimensions) -> TensorType:
    """The type of a tensor input, its unknown dimensions as variables."""
    if declared.shape is None:
        return TensorType(declared.dtype, None)
    dims = [
        dim if isinstance(dim, int) else dimensions.of(dim, declared.name, axis)
        for axis, dim in enumerate(declared.shape)
    ]
    return TensorType(declared.dtype, tuple(dims))


def value_type(proto: TypeProto, what: str) -> Type:
    """A type as a file gives it, its unknown sizes None. NotImplemented for a kind that jitonnx does not know."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return TensorType(_dtype(proto.tensor_type.elem_type), _open_shape(proto.tensor_type))
    if kind == "sparse_tensor_type" and (element := _dtype(proto.sparse_tensor_type.elem_type)) is not None:
        return SparseTensorType(element, _open_shape(proto.sparse_tensor_type))
    if kind == "sequence_type":
        return SequenceType(value_type(proto.sequence_type.elem_type, what))
    if kind == "optional_type":
        return OptionalType(value_type(proto.optional_type.elem_type, what))
    key = _dtype(proto.map_type.key_type) if kind == "map_type" else None
    if key is not None:
        return MapType(key, value_type(proto.map_type.value_type, what))
    raise errors.NotImplemented(f"{what} is a {type_text(proto)}, which jitonnx does not support yet")


def contradiction(type: Type, info: ValueInfoProto) -> str:
    """What is wrong if a value is not of the kind or the element type that a file declares for it; "" if nothing is."""
    kind = info.type.WhichOneof("value")
    if kind is None:
        return ""
    if kind == "tensor_type" and isinstance(type, TensorType):
        number = info.type.tensor_type.elem_type
        if type.dtype is None or not number or type.dtype.value == number:
            return ""
    if isinstance(type, OptionalType) and kind != "optional_type":
        return contradiction(
            type.element, info
        )  # a loop that may run no time gives it, and the file knows that it runs
    actual = text_of(type)
    expected = type_text(info.type)
    if actual is None or expected == actual or "undefined" in expected:
        return ""
    return (
        f"Type Error: Type ({actual}) of output arg ({info.name}) does not match expected type ({expected}): correct "
        "the model's declaration of it"
    )


def other_shape(value: Value, declared: Declaration, *, certain: bool) -> str:
    """What is wrong if a value has another shape than the file says; "" if nothing is.

    certain: it has the shape that was inferred whatever is fed, and not only for usual sizes: the file may know better.
    """
    shape = value.type.shape
    if shape is None or declared.shape is None or not certain:
        return ""
    differ = len(shape) != len(declared.shape) or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(shape, declared.shape, strict=True)
    )
    if not differ:
        return ""
    return (
        f"output {declared.name!r} is declared with the shape {list(declared.shape)}, but is {value.type}: "
        "the declaration is ignored"
    )


def _open_shape(tensor: TypeProto.Tensor | TypeProto.SparseTensor) -> Shape | None:
    """The sizes, None for those that have no number."""
    shape = _shape(tensor)
    return None if shape is None else tuple(dim if isinstance(dim, int) else None for dim in shape)  # type: ignore[misc]


def type_text(type: TypeProto) -> str:
    """A type in onnxruntime's words."""
    kind = type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        dtype = _dtype(getattr(type, kind).elem_type)
        return f"{kind.removesuffix('_type')}({dtype.text if dtype else 'undefined'})"
    if kind == "sequence_type":
        return f"seq({type_text(type.sequence_type.elem_type)})"
    if kind == "map_type":
        key = _dtype(type.map_type.key_type)
        return f"map({key.text if key else 'undefined'},{type_text(type.map_type.value_type)})"
    if kind == "optional_type":
        return f"optional({type_text(type.optional_type.elem_type)})"
    return kind.removesuffix("_type") if kind else "undefined"


def _dtype(number: int) -> DType | None:
    try:
        return DType(number)
    except ValueError:
        return None


def _shape(tensor: TypeProto.Tensor | TypeProto.SparseTensor | None) -> tuple[int | str | None, ...] | None:
    if tensor is None or not tensor.HasField("shape"):
        return None
    dims: list[int | str | None] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):
            dims.append(dim.dim_value if dim.dim_value >= 0 else None)
        else:
            dims.append(dim.dim_param or None)
    return tuple(dims)
