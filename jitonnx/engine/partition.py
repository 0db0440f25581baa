"""A graph parted into straight-line steps: native code goes together, and what the host evaluates lies between.

Nodes are put in levels: the native ones in even levels, those of the host in odd ones, each as early as what it reads
allows. A node also waits for the variables that its types and its inputs' contents mention: what they are bound to has
to be there. So K nodes of the host make at most K + 1 native parts, and what does not depend on them is in the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jitonnx.engine.schedule_plan import STRINGS, UNBOUNDED
from jitonnx.ir.computation.computations import Host
from jitonnx.ir.computation.lowering import Lowered
from jitonnx.ir.dims import variables
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, GraphError, Node, Value, describe
from jitonnx.ir.types import is_symbolic
from jitonnx.support.records import NamedTuple


class Part(NamedTuple):
    """Nodes that are done in one go, producers first. Of the host it is one node."""

    native: bool
    nodes: tuple[Node, ...]


def host_nodes(graph: Graph, refused: Mapping[str, str] | None = None) -> dict[Node, str]:
    """Nodes that no native code can do, with the reason, as far as their types tell.

    refused: names of the model's nodes that get none anyway, with the reasons.
    """
    found = {}
    measured = {binding.value for binding in graph.bindings.values() if not binding.element}
    for node in graph:
        if is_settled(node):
            continue
        reason = _reason(node, measured)
        if not reason and refused:
            reason = next((refused[name] for name in node.origin or (node.name,) if name in refused), "")
        if reason:
            found[node] = reason
    return found


def _reason(node: Node, measured: set[Value]) -> str:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if node.bodies:
        return "it runs graphs of its own"
    if any(value.dtype is DType.STRING for value in values):
        return STRINGS
    if any(value.dtype is None and value.type.shape is None for value in values):
        return "what it reads or gives is no tensor of a known type"
    if any(value.type.shape is None for value in values):
        return "the rank of what it reads or gives depends on data"
    if any(value in measured for value in node.outputs) and not node.operator.counted:
        return UNBOUNDED
    return ""


def returns_strings(graph: Graph) -> bool:
    """Whether an output holds strings, which no native code can hand out."""
    return any(value.dtype is DType.STRING for value in graph.outputs)


def without_kernel(lowered: Lowered) -> dict[Node, str]:
    """Nodes of a graph of known ranks that no computation is known for."""
    return {s.node: "no kernel" for s in lowered.statements if isinstance(s.computation, Host)}


def is_settled(node: Node) -> bool:
    """Whether all that a node gives is known before the run, or follows from what is known by then."""
    return all(value.contents is not None and not value.measured for value in node.outputs)


def needed_variables(node: Node) -> set[str]:
    """The variables whose values a node needs, before it is run: also those that only its bodies read."""
    own = set(node.outputs)
    names: set[str] = set()
    for body in node.bodies:
        inside = set().union(*(needed_variables(one) for one in body), *map(contents_variables, body.outputs))
        names |= inside - body.bindings.keys()
    for value in (*node.inputs, *node.outputs):
        if value is not None:
            names |= type_variables(value)
            if value.contents is not None and value not in own:
                names |= contents_variables(value)
    return names


def type_variables(value: Value) -> set[str]:
    """The variables that a value's sizes are made of."""
    return set().union(*(variables(dim) for dim in value.type.shape or () if not isinstance(dim, int)))


def contents_variables(value: Value) -> set[str]:
    """The variables that a value's elements are made of."""
    if value.contents is None or value.dtype is DType.STRING or not is_symbolic(value.contents):
        return set()
    return set().union(*(variables(dim) for dim in value.contents.flat))


def live_nodes(graph: Graph) -> list[Node]:
    """The nodes that the outputs depend on, be it through a variable; those that others wait for come before them."""
    live: set[Node] = set()
    measured = [binding.value for binding in graph.bindings.values() if binding.element]
    stack = list(_producers(graph, [*graph.outputs, *measured]))
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack.extend(_producers(graph, node.inputs, node))
    nodes = [node for node in graph if node in live]
    return nodes if not graph.bindings else _sorted(graph, nodes)


def _sorted(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    """The nodes, each behind those whose results or sizes it waits for, otherwise in this order."""
    order: dict[Node, None] = {}
    entered: set[Node] = set()
    for first in nodes:
        stack = [(first, False)]
        while stack:
            node, ready = stack.pop()
            if node in order:
                continue
            if ready:
                order[node] = None
                continue
            if node in entered:
                raise GraphError(f"Bug: {describe(node)} waits for a size that it gives itself")
            entered.add(node)
            stack.append((node, True))
            stack.extend((one, False) for one in _producers(graph, node.inputs, node) if one not in order)
    return list(order)


def _producers(graph: Graph, values: Iterable[Value | None], node: Node | None = None) -> Iterable[Node]:
    """What has to be run before `node`, which reads these values (None: before they are given to the caller)."""
    names = needed_variables(node) if node is not None else set()
    for value in values:
        if value is None:
            continue
        if value.contents is None or value.measured:
            if value.producer is not None:
                yield value.producer
        elif node is None:
            names |= contents_variables(value)
    for name in sorted(names):
        binder = graph.bindings[name].value.producer if name in graph.bindings else None
        if binder is not None and binder is not node:
            yield binder


def partition(graph: Graph, on_host: Mapping[Node, str]) -> list[Part]:
    """The parts of a graph, in the order in which they are run."""
    made: dict[Value, int] = {}
    levels: dict[int, list[Node]] = {}
    for node in live_nodes(graph):
        if is_settled(node):
            continue
        host = node in on_host
        level = 1 if host else 0
        for value in node.inputs:
            if value is not None and value in made:
                level = max(level, _behind(made[value], host=host))
        for name in needed_variables(node):
            binding = graph.bindings.get(name)
            if binding is not None and binding.value in made:
                level = max(level, _measured(made[binding.value], host=host))
        levels.setdefault(level, []).append(node)
        made.update((value, level) for value in node.outputs)
    parts: list[Part] = []
    for level, nodes in sorted(levels.items()):
        if level % 2:
            parts.extend(Part(native=False, nodes=(node,)) for node in nodes)
        else:
            parts.append(Part(native=True, nodes=tuple(nodes)))
    return parts


def _behind(level: int, *, host: bool) -> int:
    """The first level that can read what another gives."""
    return level if level % 2 == host else level + 1


def _measured(level: int, *, host: bool) -> int:
    """The first level that can know the sizes of what another gives: native code of that level does not yet."""
    return level + 2 if not host and level % 2 == 0 else _behind(level, host=host)
