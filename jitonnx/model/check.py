"""Whether a parsed model can be what its author meant, asked before anything is built from it.

The order in which faults are reported is that of onnxruntime, and so are the texts' beginnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jitonnx import errors
from jitonnx.errors import Fail, InvalidArgument, InvalidGraph
from jitonnx.ops.registry import Registry, canonical
from jitonnx.proto import IR_VERSION, AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto
from jitonnx.records import dataclass

FIRST_IR_WITH_OPSETS = 3
GRADIENT = ("ai.onnx.preview.training", "Gradient")
HANDLED_BY_THE_LOADER = {("", "Constant"), GRADIENT}
"""Operators without a declaration: they never become nodes."""
IMPORTED_ANYWAY = {"ai.onnx.ml", "ai.onnx.training", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"}
"""Domains that onnxruntime takes for imported, in version 1: models made for it leave the import out."""

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a function, or of the call that means it."""


@dataclass(frozen=True)
class Opsets:
    """Operator-set versions by domain, as a model or a function imports them.

    A domain may be imported several times, also by both of its names: "All nodes in the graph will bind against the
    operator with the same-domain/same-op_type operator with the HIGHEST version in the referenced operator sets"
    (onnx.proto).
    """

    versions: Mapping[str, int]

    @classmethod
    def of(cls, proto: ModelProto | FunctionProto) -> Opsets:
        versions: dict[str, int] = {}
        for entry in proto.opset_import:
            domain = canonical(entry.domain)
            versions[domain] = max(entry.version, versions.get(domain, entry.version))
        return cls(versions)


def function_key(proto: NodeProto | FunctionProto) -> FunctionKey:
    """What a call and its function have in common."""
    name = proto.op_type if isinstance(proto, NodeProto) else proto.name
    return canonical(proto.domain), name, proto.overload


def describe(node: NodeProto) -> str:
    """A node for error messages."""
    name = f" {node.name!r}" if node.name else ""
    return f"{node.op_type} node{name} (outputs: {', '.join(map(repr, node.output))})"


def check_model(model: ModelProto, registry: Registry) -> None:
    """Everything that can be told without building the graph, but for the order of nodes (see `sorted_nodes`).

    registry: the operators that there are.
    """
    if not model.HasField("graph"):
        raise InvalidArgument("No graph was found in the protobuf.")
    if model.ir_version > IR_VERSION:
        raise Fail(
            f"Unsupported model IR version: {model.ir_version}, max supported IR version: {IR_VERSION}; "
            "export with an older onnx package, or upgrade jitonnx"
        )
    _check_opsets(model, registry)
    functions = {function_key(function) for function in model.functions}
    if len(functions) < len(model.functions):
        raise Fail("two functions of the model have the same domain, name and overload")
    _check_operators(model, functions, registry)
    _check_names(model.graph, set())


def _check_opsets(model: ModelProto, registry: Registry) -> None:
    if not model.opset_import and model.ir_version >= FIRST_IR_WITH_OPSETS:
        raise Fail(
            "Missing opset in the model. All ModelProtos MUST have at least one entry that specifies which version of "
            "the ONNX OperatorSet is being imported."
        )
    for opsets in [Opsets.of(model), *map(Opsets.of, model.functions)]:
        for name, version in opsets.versions.items():
            domain = registry.domain(name)
            if domain is not None and domain.newest is not None and not 1 <= version <= domain.newest:
                raise Fail(
                    f"operator set {version} of domain {name or 'ai.onnx'!r} is unknown: jitonnx knows 1 to "
                    f"{domain.newest}; export the model for one of these, or upgrade jitonnx"
                )


# ---------------------------------------------------------------------------------------------- operators


def _check_operators(model: ModelProto, functions: set[FunctionKey], registry: Registry) -> None:
    """Of every operator that cannot be run, not only the first: InvalidGraph if the model itself is wrong about one,
    errors.NotImplemented if jitonnx lacks them.
    """
    imports = Opsets.of(model)
    faults: dict[_Fault, int] = {}
    bodies = [(list(model.graph.node), imports)] + [(list(f.node), Opsets.of(f)) for f in model.functions]
    for nodes, opsets in bodies:
        for node in _with_subgraphs(nodes):
            fault = _operator_fault(node, opsets, functions, model.ir_version, registry)
            if fault is not None:
                faults[fault] = faults.get(fault, 0) + 1
    if not faults:
        return
    lines = "".join(f"\n  {fault.text} ({count} node{'s' * (count > 1)})" for fault, count in sorted(faults.items()))
    if any(fault.is_the_models for fault in faults):
        raise InvalidGraph(f"This is an invalid model. Operators that jitonnx cannot run:{lines}")
    raise errors.NotImplemented(
        f"Could not find an implementation for operators of the model, which jitonnx lacks:{lines}"
    )


class _Fault(NamedTuple):
    """Why an operator cannot be run."""

    text: str
    is_the_models: bool = False
    """Whether the model breaks ONNX's rules; else it may be right, and the operator is missing here."""


def _operator_fault(
    node: NodeProto,
    opsets: Opsets,
    functions: set[FunctionKey],
    ir_version: int,
    registry: Registry,
) -> _Fault | None:
    domain = canonical(node.domain)
    if function_key(node) in functions:
        return None
    default = 1 if ir_version < FIRST_IR_WITH_OPSETS or domain in IMPORTED_ANYWAY else None
    version = opsets.versions.get(domain, default)
    if version is None:
        return _Fault(f"No opset import for domain {domain or 'ai.onnx'!r}, which {node.op_type} needs", True)
    if (domain, node.op_type) in HANDLED_BY_THE_LOADER:
        return None
    declaration = registry.find(domain, node.op_type)
    if declaration is None:
        import difflib

        close = difflib.get_close_matches(node.op_type, registry.names(domain), 2, 0.8)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        if domain and not domain.startswith("ai.onnx"):  # onnxruntime's words for what ONNX does not define
            what = registry.describe(domain)
            return _Fault(f"{domain}:{node.op_type}({version}) is not a registered function/op{hint}; {what}")
        return _Fault(f"No Op registered for {node.op_type} with domain_version of {version}{hint}")
    if version < declaration.versions[0]:
        return _Fault(
            f"No Op registered for {node.op_type} with domain_version of {version}; "
            f"it exists since {declaration.versions[0]}",
            True,
        )
    return None


def _with_subgraphs(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from _with_subgraphs(graph.node)


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The graphs among a node's attributes."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH or attribute.HasField("g"):
            found.append(attribute.g)
        found.extend(attribute.graphs)
    return found


# ---------------------------------------------------------------------------------------------- names


def _check_names(graph: GraphProto, outer: set[str]) -> None:
    """Every value is defined once (a subgraph may not define a name of the graphs around it anew)."""
    inputs = [value.name for value in graph.input]
    for name in _repeated(inputs):
        raise Fail(f"Duplicate definition-site for ({name}). Two graph inputs have this name")
    initializers = initializer_names(graph)
    for name in _repeated(initializers):
        raise Fail(f"Duplicate definition of name ({name}). Two initializers have this name")
    defined = outer | set(inputs) | set(initializers)
    for node in graph.node:
        for name in filter(None, node.output):
            if name in defined:
                raise Fail(f"Duplicate definition of name ({name}). {describe(node)} defines it again")
            defined.add(name)
    for node in graph.node:
        for inner in subgraphs(node):
            _check_names(inner, defined)


def initializer_names(graph: GraphProto) -> list[str]:
    """Names of all initializers, dense and sparse."""
    return [tensor.name for tensor in graph.initializer] + [tensor.values.name for tensor in graph.sparse_initializer]


def _repeated(names: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


# ---------------------------------------------------------------------------------------------- order


def reads(node: NodeProto) -> list[str]:
    """Names that a node reads from the graph it stands in, those its subgraphs capture included; of a Gradient also
    those that it differentiates by and what."""
    names = [name for name in node.input if name]
    if (canonical(node.domain), node.op_type) == GRADIENT:
        named = {attribute.name: attribute for attribute in node.attribute}
        for attribute in (named.get("xs"), named.get("zs"), named.get("y")):
            if attribute is not None:
                names += [name.decode() for name in (*attribute.strings, attribute.s) if name]
    for graph in subgraphs(node):
        names += captured(graph)
    return names


def captured(graph: GraphProto) -> list[str]:
    """Names that a subgraph reads from the graphs around it."""
    own = {value.name for value in graph.input} | set(initializer_names(graph))
    own |= {name for node in graph.node for name in node.output}
    wanted = [name for node in graph.node for name in reads(node)] + [value.name for value in graph.output]
    return [name for name in dict.fromkeys(wanted) if name not in own]


def sorted_nodes(nodes: Sequence[NodeProto], defined: set[str]) -> list[NodeProto]:
    """The nodes with producers before their users, else in the order given.

    `defined` are the names that exist before the first node. InvalidArgument for a name that nobody defines, Fail with
    the nodes of a cycle.
    """
    producer = {name: position for position, node in enumerate(nodes) for name in node.output if name}
    needs: list[list[int]] = []
    for node in nodes:
        wanted = reads(node)
        for name in wanted:
            if name not in producer and name not in defined:
                raise InvalidArgument(_undefined(name, node, [*defined, *producer]))
        needs.append([producer[name] for name in wanted if name in producer and name not in defined])
    if all(need < position for position, wanted in enumerate(needs) for need in wanted):
        return list(nodes)
    return [nodes[position] for position in _topological(nodes, needs)]


def _undefined(name: str, node: NodeProto, names: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, names, 1)
    hint = f"; did the exporter mean {close[0]!r}?" if close else ""
    return (
        f"This is an invalid model. Error: Node input {name!r} is not a graph input, initializer, or output of a "
        f"previous node. It is read by {describe(node)}{hint}"
    )


def _topological(nodes: Sequence[NodeProto], needs: list[list[int]]) -> list[int]:
    order: list[int] = []
    state = [0] * len(nodes)  # 1: being visited, 2: placed
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            position = stack[-1]
            if state[position] == 2:
                stack.pop()
                continue
            state[position] = 1
            missing = [need for need in needs[position] if state[need] != 2]
            if any(state[need] == 1 for need in missing):
                raise Fail(
                    f"This is an invalid model. Error: the graph is not acyclic. {_cycle(nodes, needs, position)}"
                )
            if missing:
                stack.append(missing[0])
                continue
            state[position] = 2
            order.append(position)
            stack.pop()
    return order


def _cycle(nodes: Sequence[NodeProto], needs: list[list[int]], start: int) -> str:
    """The nodes of the shortest cycle through `start`, each needing the next."""
    came: dict[int, int] = {}
    frontier = [start]
    while frontier and start not in came:
        following = []
        for position in frontier:
            for need in needs[position]:
                if need not in came:
                    came[need] = position
                    following.append(need)
        frontier = following
    path = [start]
    while came[path[-1]] != start:
        path.append(came[path[-1]])
    return "The cycle: " + " -> ".join(describe(nodes[position]) for position in [start, *path[1:], start])
