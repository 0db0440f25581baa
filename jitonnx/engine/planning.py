"""Planning of schedules: which nodes of a graph are native code, planned, and which are left to the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jitonnx.engine.partition import (
    Part,
    host_nodes,
    is_settled,
    live_nodes,
    partition,
    returns_strings,
    without_kernel,
)
from jitonnx.engine.schedule_plan import UNBOUNDED, Counted, HostNode, LoopNode, SchedulePlan, Segment
from jitonnx.ir.computation.lowering import Lowered, LoweringDefect, lower
from jitonnx.ir.defects import survive, told
from jitonnx.ir.dims import DimLike
from jitonnx.ir.extract import extract, substituted, told_numbers, with_sizes
from jitonnx.ir.graph import Graph, Node, Value, describe
from jitonnx.plan.choices import Caution, Choices
from jitonnx.plan.make import PlanningDefect, make_plan
from jitonnx.plan.plan import Plan
from jitonnx.plan.planner import UnplannableError
from jitonnx.target.machine import Target

FAILED = "jitonnx failed to plan it"
"""Why a node is left to the host that has a kernel."""


def plan_schedule(
    graph: Graph, target: Target, choices: Choices, refused: Mapping[str, str] | None = None
) -> SchedulePlan:
    """The steps of an optimised graph, its native segments planned.

    refused: names of the model's nodes that get no kernels, in bodies, too, with the reasons.
    """
    refused = refused or {}
    on_host = host_nodes(graph, refused)
    if choices.caution is Caution.KERNELS:
        on_host |= {node: FAILED for node in graph if not is_settled(node)}
    ranked = all(value.type.shape is not None for value in (*graph.inputs, *graph.outputs))
    if not on_host and not graph.bindings and ranked and not returns_strings(graph):
        made = plan_native(graph, target, choices)
        if isinstance(made, Plan):
            return SchedulePlan(graph, (Segment(tuple(graph.inputs), tuple(graph.outputs), made),), whole=True)
        on_host = made
    planned: dict[tuple[Node, ...], Segment] = {}
    while True:
        parts = partition(graph, on_host)
        needed = _needed(graph, parts)
        found: dict[Node, str] = {}
        segments: dict[tuple[Node, ...], Segment] = {}
        for part in parts:
            if not part.native:
                continue
            if part.nodes in planned:
                segments[part.nodes] = planned[part.nodes]
                continue
            segment = _segment(graph, part, needed, target, choices)
            if isinstance(segment, Segment):
                segments[part.nodes] = segment
            else:
                found |= segment
        planned = segments
        if not found:
            break
        on_host |= found
    return SchedulePlan(graph, tuple(_steps(parts, segments, on_host, target, choices, refused)))


def _steps(
    parts: Sequence[Part],
    segments: Mapping[tuple[Node, ...], Segment],
    on_host: Mapping[Node, str],
    target: Target,
    choices: Choices,
    refused: Mapping[str, str],
) -> Iterator[Segment | LoopNode | HostNode]:
    """The steps of a schedule. What plans loops is imported where there is a node that is no native code by itself."""
    for part in parts:
        if part.native:
            yield segments[part.nodes]
            continue
        from jitonnx.engine.loops.planning import native_loop

        (node,) = part.nodes
        yield native_loop(node, target, choices, refused) or HostNode(
            node, on_host[node], tuple(_body(body, target, choices, refused) for body in node.bodies)
        )


def _body(graph: Graph, target: Target, choices: Choices, refused: Mapping[str, str]) -> SchedulePlan:
    """The steps of a body: none where all that it gives is known, or what it is given."""
    if all(is_settled(node) for node in live_nodes(graph)):
        return SchedulePlan(graph, ())
    return plan_schedule(graph, target, choices, refused)


def _needed(graph: Graph, parts: Sequence[Part]) -> dict[Value, None]:
    """What parts hand on: arrays that others read, graph outputs, and what binds variables."""
    part_of = {node: number for number, part in enumerate(parts) for node in part.nodes}
    needed = dict.fromkeys(value for value in graph.results if value.contents is None or value.measured)
    for node, number in part_of.items():
        for value in node.inputs:
            computed = value is not None and value.contents is None and value.producer is not None
            if computed and part_of.get(value.producer) != number:  # type: ignore[union-attr,arg-type]
                needed[value] = None  # type: ignore[index]
    return needed


def _segment(
    graph: Graph, part: Part, needed: Mapping[Value, None], target: Target, choices: Choices
) -> Segment | dict[Node, str]:
    """The plan of a native part; or the nodes that have to be left to the host."""
    outputs = tuple(value for node in part.nodes for value in node.outputs if value in needed)
    inputs, copy = extracted(graph, part.nodes, outputs)
    names = dict(zip(copy, part.nodes, strict=True))
    unbounded = [b.value.producer for b in copy.bindings.values() if b.element or not _is_counted(b.value)]
    if unbounded:
        return {names[node]: UNBOUNDED for node in unbounded}  # type: ignore[index]
    made = plan_native(copy, target, choices)
    if isinstance(made, Plan):
        return Segment(inputs, outputs, made, tuple(_counted(copy)))
    return {names[node]: reason for node, reason in made.items()}


def extracted(graph: Graph, nodes: Sequence[Node], outputs: Sequence[Value]) -> tuple[tuple[Value, ...], Graph]:
    """What some nodes of a graph read of others, and a graph of these nodes. Outputs may be inputs, or known."""
    own = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    read |= dict.fromkeys(outputs)
    # What is taken to be a number is one to the code: an axis of one element is broadcast, others are not.
    sizes = told_numbers(graph)
    is_one_program = {
        value: _settled(value, sizes)
        for value in read
        if value.contents is not None
        and (value.constant is None or (value.producer is not None and value not in own))
        and (value not in own or not value.measured)
    }
    is_input = set(graph.inputs)
    inputs = tuple(
        value
        for value in read
        if value not in own and value not in is_one_program and (value.producer is not None or value in is_input)
    )
    types = [substituted(value.type, sizes) for value in inputs]
    copy = extract(nodes, inputs, types, outputs, is_one_program, Graph(assumptions=graph.assumptions.apart()))
    return inputs, copy


def _is_counted(value: Value) -> bool:
    return value.producer is not None and value.producer.operator.counted


def _counted(graph: Graph) -> Iterator[Counted]:
    """The outputs of a segment's graph that have an axis of a size which only data tells."""
    measured = {(binding.value, binding.place): name for name, binding in graph.bindings.items()}
    for number, value in enumerate(graph.outputs):
        axes = tuple([None if (value, axis) in measured else dim for axis, dim in enumerate(value.type.shape or ())])
        if None in axes:
            yield Counted(number, axes)


def plan_native(graph: Graph, target: Target, choices: Choices) -> Plan | dict[Node, str]:
    """The plan of a graph; or the nodes that have to be left to the host."""
    try:
        lowered = lower(graph)
    except LoweringDefect as defect:
        survive(defect.error, f"lowering {describe(defect.node)}", "it is evaluated on NumPy")
        return {defect.node: f"{FAILED}: {told(defect.error)}"}
    hosts = without_kernel(lowered)
    if hosts:
        return hosts
    apart: set[Node] = set()
    while True:
        try:
            return make_plan(lowered, target, choices, apart)
        except UnplannableError as error:
            return {error.node: error.reason}
        except PlanningDefect as defect:
            found = _without(defect, lowered, apart, plain=choices.caution > Caution.NONE)
            if found:
                return found
            if not defect.groups:
                choices = replace(choices, caution=Caution.FUSION)


def _without(defect: PlanningDefect, lowered: Lowered, apart: set[Node], *, plain: bool) -> dict[Node, str]:
    """The nodes to leave to the host where the planner failed; none: plan anew, with what is `apart` by now.

    plain: nothing was fused anyway.
    """
    groups = defect.groups or [list(dict.fromkeys(statement.node for statement in lowered.statements))]
    doing = f"planning {' and '.join(describe(group[-1]) for group in defect.groups[:3]) or 'nodes together'}"
    fused = [node for group in groups for node in group if len(group) > 1 and node not in apart]
    if fused and not plain:
        survive(defect.error, doing, "nodes that are done together elsewhere are done one by one")
        apart.update(fused)
        return {}
    survive(defect.error, doing, "this is evaluated on NumPy")
    return {node: f"{FAILED}: {told(defect.error)}" for group in groups for node in group}


def _settled(value: Value, sizes: Mapping[str, DimLike]) -> Value:
    made = Value(value.name, value.type, with_sizes(value, sizes))
    made.measured = value.measured
    return made
