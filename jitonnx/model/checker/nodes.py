"""What the rules and the loader ask of nodes, graphs and functions as they stand in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jitonnx.ops.onnx import NEWEST
from jitonnx.ops.registry import canonical
from jitonnx.proto import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto
from jitonnx.support.records import dataclass

GRADIENT = ("ai.onnx.preview.training", "Gradient")
FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a function, or of the call that means it."""


@dataclass(frozen=True)
class Opsets:
    """Operator-set versions by domain, as a model or a function imports them.

    A domain may be imported several times, also by both of its names: "All nodes in the graph will bind against the
    operator with the same-domain/same-op_type operator with the HIGHEST version in the referenced operator sets"
    (onnx.proto). A model that imports other domains alone has ONNX's newest operator set, as in onnxruntime.
    """

    versions: Mapping[str, int]

    @classmethod
    def of(cls, proto: ModelProto | FunctionProto) -> Opsets:
        versions: dict[str, int] = {}
        for entry in proto.opset_import:
            domain = canonical(entry.domain)
            versions[domain] = max(entry.version, versions.get(domain, entry.version))
        if versions and isinstance(proto, ModelProto):
            versions.setdefault("", NEWEST)
        return cls(versions)


def function_key(proto: NodeProto | FunctionProto) -> FunctionKey:
    """What a call and its function have in common."""
    name = proto.op_type if isinstance(proto, NodeProto) else proto.name
    return canonical(proto.domain), name, proto.overload


def describe(node: NodeProto) -> str:
    """A node for error messages."""
    name = f" {node.name!r}" if node.name else ""
    return f"{node.op_type} node{name} (outputs: {', '.join(map(repr, node.output))})"


def repeated(names: Iterable[str]) -> list[str]:
    """The names that stand there again, as often as they do."""
    seen: set[str] = set()
    again = []
    for name in names:
        if name in seen:
            again.append(name)
        seen.add(name)
    return again


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The graphs among a node's attributes."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH or attribute.HasField("g"):
            found.append(attribute.g)
        found.extend(attribute.graphs)
    return found


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes with those of the graphs among their attributes."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def all_tensors(message: Any) -> Iterator[TensorProto]:
    """All tensors of a message, wherever they are: those of attributes, of nested graphs, parts of sparse ones."""
    waiting: list[Any] = [message]
    while waiting:
        one = waiting.pop()
        if isinstance(one, TensorProto):
            yield one
            continue
        for field, value in one.ListFields():
            if field.message_type is not None:
                waiting += [value] if hasattr(value, "ListFields") else value


def initializer_names(graph: GraphProto) -> list[str]:
    """Names of all initializers, dense and sparse."""
    return [tensor.name for tensor in graph.initializer] + [tensor.values.name for tensor in graph.sparse_initializer]


def reads(node: NodeProto) -> list[str]:
    """Names that a node reads from the graph it stands in, those its subgraphs capture included; of a Gradient also
    those that it differentiates by and what."""
    names = [name for name in node.input if name]
    if (canonical(node.domain), node.op_type) == GRADIENT:
        names += gradient_names(node)
    for graph in subgraphs(node):
        names += captured(graph)
    return names


def gradient_names(node: NodeProto) -> list[str]:
    """What a Gradient differentiates, and by what: names in its attributes."""
    named = {attribute.name: attribute for attribute in node.attribute}
    found = [attribute for name in ("xs", "zs", "y") if (attribute := named.get(name)) is not None]
    return [name.decode("utf-8", "replace") for each in found for name in (*each.strings, each.s) if name]


def captured(graph: GraphProto) -> list[str]:
    """Names that a subgraph reads from the graphs around it."""
    own = {value.name for value in graph.input} | set(initializer_names(graph))
    own |= {name for node in graph.node for name in node.output}
    wanted = [name for node in graph.node for name in reads(node)] + [value.name for value in graph.output]
    return [name for name in dict.fromkeys(wanted) if name not in own]
