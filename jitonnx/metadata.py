"""What a session tells about its model: `NodeArg` for each input and output, and `ModelMetadata`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from jitonnx.ir.declaration import Declaration

if TYPE_CHECKING:
    from jitonnx.ir.dims import DimLike
    from jitonnx.ir.graph import Graph
    from jitonnx.ir.types import TensorType
    from jitonnx.model import Metadata
    from jitonnx.runtime.artifact import Argument, ModelInfo

UNSET_VERSION = 2**63 - 1
"""What onnxruntime gives as the version of a model that has none."""


class NodeArg:
    """An input or output of a model: its name, its type as `tensor(float)`, and its shape.

    The shape is a list with an int for a fixed dimension, a str for a named one and None for one that nothing is known
    of. It is empty for a scalar, and also where the file says nothing about the shape.
    """

    __slots__ = ("__weakref__", "_name", "_shape", "_type")

    def __init__(self, name: str, type: str, shape: list[int | str | None]) -> None:
        self._name, self._type, self._shape = name, type, shape

    @property
    def name(self) -> str:
        return self._name

    @property
    def type(self) -> str:
        return self._type

    @property
    def shape(self) -> list[int | str | None]:
        return list(self._shape)

    def __repr__(self) -> str:
        return f"NodeArg(name={self._name!r}, type={self._type!r}, shape={self._shape!r})"


class ModelMetadata(NamedTuple):
    """What a model's file says about it; `description` is about the model, `graph_description` about its graph."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def model_metadata(metadata: Metadata) -> ModelMetadata:
    """A file's metadata under onnxruntime's names."""
    return ModelMetadata(
        producer_name=metadata.producer_name,
        graph_name=metadata.graph_name,
        domain=metadata.domain,
        description=metadata.doc_string,
        graph_description=metadata.graph_doc_string,
        version=metadata.version or UNSET_VERSION,
        custom_metadata_map=dict(metadata.custom),
    )


def saved_metadata(model: ModelInfo) -> ModelMetadata:
    """The metadata of a model that an artifact was made of."""
    return ModelMetadata(
        producer_name=model.producer_name,
        graph_name=model.graph_name,
        domain=model.domain,
        description=model.description,
        graph_description=model.graph_description,
        version=model.version,
        custom_metadata_map=dict(model.custom_metadata),
    )


def argument_arg(argument: Argument) -> NodeArg:
    """An input or output of a model that an artifact was made of."""
    return NodeArg(argument.name, argument.type, list(argument.shape or ()))


def input_arg(declared: Declaration) -> NodeArg:
    """An input as it is declared."""
    return NodeArg(declared.name, declared.type, list(declared.shape or ()))


def output_arg(declared: Declaration, inferred: TensorType, dimensions: Mapping[str, str]) -> NodeArg:
    """An output: what is inferred where that is a number, else what is declared, else what is inferred.

    `dimensions`: the file's name of each dimension variable.
    """
    kind = declared.type
    if declared.dtype is None and inferred.dtype is not None:
        kind = f"tensor({inferred.dtype.text})"
    if inferred.shape is None:
        return NodeArg(declared.name, kind, list(declared.shape or ()))
    known = [_named(dim, dimensions) for dim in inferred.shape]
    if declared.shape is None or len(declared.shape) != len(known):
        return NodeArg(declared.name, kind, known)
    merged = [
        found if isinstance(found, int) or said is None else said
        for found, said in zip(known, declared.shape, strict=True)
    ]
    return NodeArg(declared.name, kind, merged)


def _named(dim: DimLike, dimensions: Mapping[str, str]) -> int | str | None:
    """A dimension as a file would have it: a number, a variable's name, or None for any other expression."""
    return dim if isinstance(dim, int) else dimensions.get(str(dim))


class ModelNode(NamedTuple):
    """A node as the model has it, before anything is rewritten."""

    name: str
    """What `origin` calls it in the graph, in rewrites and in the plan."""
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, TensorType], ...]


def model_nodes(graph: Graph) -> list[ModelNode]:
    """The nodes of a graph that was just loaded."""
    return [
        ModelNode(
            (node.origin or (node.name,))[0],
            node.operator.name,
            tuple(value.name if value is not None else "" for value in node.inputs),
            tuple((value.name, value.type) for value in node.outputs),
        )
        for node in graph
    ]
