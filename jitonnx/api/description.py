"""What a session tells about a model, from its graph and its declarations or from an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jitonnx.ir.declaration import Declaration
from jitonnx.support.metadata import ModelMetadata, NodeArg
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.ir.dims import DimLike
    from jitonnx.ir.graph import Graph
    from jitonnx.ir.types import TensorType


class ModelDescription(NamedTuple):
    """What users may ask about a model."""

    inputs: Sequence[Declaration]
    """Those that have to be fed, in the order in which the engine takes them."""
    overridable: Mapping[str, Declaration]
    """Inputs with a default, by name."""
    outputs: Sequence[NodeArg]
    """What was inferred of them is put in."""
    declared_outputs: Sequence[Declaration]
    """They stand as they are declared."""
    nodes: Sequence[ModelNode]
    """They stand as the file has them; there are none where an artifact tells about its model."""
    metadata: ModelMetadata
    opsets: Mapping[str, int]
    """Operator-set version by domain; "" is ai.onnx."""
    warnings: Sequence[str]
    """What was warned of when the file was loaded."""


def declared_arg(declared: Declaration) -> NodeArg:
    """An input or output as it is declared."""
    return NodeArg(declared.name, declared.type, list(declared.shape or ()))


def output_arg(
    declared: Declaration, inferred: TensorType, dimensions: Mapping[str, str], *, certain: bool = True
) -> NodeArg:
    """An output: what is inferred where that is a number, else what is declared, else what is inferred.

    dimensions: the file's name of each dimension variable. certain: what is inferred holds for all sizes that can be
    fed; else a declared rank counts.
    """
    kind = declared.type
    if declared.dtype is None and inferred.dtype is not None:
        kind = f"tensor({inferred.dtype.text})"
    if inferred.shape is None:
        return NodeArg(declared.name, kind, list(declared.shape or ()))
    known = [_named(dim, dimensions) for dim in inferred.shape]
    if declared.shape is not None and len(declared.shape) != len(known) and not certain:
        return NodeArg(declared.name, kind, list(declared.shape))
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
    domain: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, TensorType], ...]


def model_nodes(graph: Graph) -> list[ModelNode]:
    """The nodes of a graph that was just loaded."""
    return [
        ModelNode(
            (node.origin or (node.name,))[0],
            node.operator.domain,
            node.operator.name,
            tuple(value.name if value is not None else "" for value in node.inputs),
            tuple((value.name, value.type) for value in node.outputs),
        )
        for node in graph
    ]
