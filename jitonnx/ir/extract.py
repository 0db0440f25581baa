"""Graphs made of others: some of the nodes, or all of them for other input types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.types import TensorType


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
    """
    copy = Graph()
    values: dict[Value, Value] = dict(replaced or {})
    for value, kind in zip(inputs, types, strict=True):
        values[value] = copy.add_input(value.name, kind)
    constants = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    for value in constants:
        if value.producer is None and value not in values:
            values[value] = Value(value.name, value.type, value.contents)
    for node in nodes:
        arguments = [None if value is None else values[value] for value in node.inputs]
        names = [value.name for value in node.outputs]
        made = copy.add(node.operator, arguments, name=node.name, outputs=names, origin=node.origin)
        values.update(zip(node.outputs, made, strict=True))
    copy.outputs = [values.get(value, value) for value in outputs]
    return copy
