"""Graphs made of others: some of the nodes, or all of them for other input types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jitonnx.ir.dims import Dim, DimLike, substitute, variable, variables
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.types import TensorType, contents_array, is_symbolic


def specialise(graph: Graph, types: Sequence[TensorType]) -> Graph:
    """A copy of `graph` for other input types, everything inferred anew. Constants' arrays are shared."""
    return extract(list(graph), graph.inputs, types, graph.outputs)


def extract(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    types: Sequence[TensorType],
    outputs: Sequence[Value],
    replaced: Mapping[Value, Value] | None = None,
) -> Graph:
    """A graph of some nodes (producers first), with `inputs` of the given types as its inputs.

    `replaced`: constants, and those to read in their place. Other constants are new values with the same arrays: a
    value that several graphs read would keep all of them alive, and take the users in one for users in the others.
    Those that hold dimension expressions hold them over the new types' variables.
    """
    copy = Graph()
    sizes = _sizes([value.type for value in inputs], types)
    values: dict[Value, Value] = dict(replaced or {})
    for value, kind in zip(inputs, types, strict=True):
        values[value] = copy.add_input(value.name, kind)
    constants = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    for value in constants:
        if value.producer is None and value not in values:
            values[value] = Value(value.name, value.type, _with_sizes(value.contents, sizes))
    for node in nodes:
        arguments = [None if value is None else values[value] for value in node.inputs]
        names = [value.name for value in node.outputs]
        made = copy.add(node.operator, arguments, name=node.name, outputs=names, origin=node.origin)
        values.update(zip(node.outputs, made, strict=True))
    copy.outputs = [values.get(value, value) for value in outputs]
    return copy


def _sizes(old: Sequence[TensorType], new: Sequence[TensorType]) -> dict[str, DimLike]:
    """What the dimension variables of input types are in other types of the same inputs."""
    sizes: dict[str, DimLike] = {}
    for before, behind in zip(old, new, strict=True):
        for dim, size in zip(before.shape or (), behind.shape or (), strict=False):
            if isinstance(dim, Dim) and dim == variable(name := next(iter(variables(dim)))):
                sizes.setdefault(name, size)
    return sizes


def _with_sizes(contents: np.ndarray | None, sizes: Mapping[str, DimLike]) -> np.ndarray | None:
    """Contents with variables replaced by sizes; the same array where it holds numbers only."""
    if contents is None or not is_symbolic(contents):
        return contents
    elements = [substitute(element, sizes) for element in contents.flat]
    return contents_array(elements, contents.shape)
