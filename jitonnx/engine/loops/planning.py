"""Planning of loops whose body is one native segment."""

from __future__ import annotations

from collections.abc import Mapping

from jitonnx.engine.loops.step import wanted
from jitonnx.engine.partition import host_nodes, partition
from jitonnx.engine.planning import extracted, plan_native
from jitonnx.engine.schedule_plan import IndexedCapture, LoopNode
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Binding, Node, short_name
from jitonnx.ops.onnx.control_flow import Parts, appended_axis, parts_of, plain
from jitonnx.ops.onnx.gather import Gather
from jitonnx.plan.choices import Caution, Choices
from jitonnx.plan.plan import Plan
from jitonnx.target.machine import Target


def native_loop(node: Node, target: Target, choices: Choices, refused: Mapping[str, str]) -> LoopNode | None:
    """A loop whose body is one native segment; None for other nodes. refused: as for `plan_schedule`."""
    parts = parts_of(node)
    if parts is None:
        return None
    (body,), outputs = node.bodies, wanted(parts)
    own = (*parts.carried, *parts.elements, *outputs)
    if any(value.dtype in (None, DType.STRING) or value.type.shape is None for value in own):
        return None
    if host_nodes(body, refused) or choices.caution is Caution.KERNELS:
        return None
    if not all(_told_before(binding, parts) for binding in body.bindings.values()):
        return None
    nodes = tuple(node for part in partition(body, {}) for node in part.nodes)
    followed = [one for one in nodes if _follows(one, parts)]
    inputs, copy = extracted(body, [one for one in nodes if one not in followed], outputs)
    if copy.bindings:
        return None
    made = plan_native(copy, target, choices)
    if not isinstance(made, Plan):
        return None
    pairs = enumerate(zip(parts.carried, parts.carried_out, strict=True))
    grown = tuple([place for place, (before, behind) in pairs if appended_axis(before, behind) == 0])
    return LoopNode(node, body, made, inputs, outputs, tuple(map(_followed, followed)), grown)


def _told_before(binding: Binding, parts: Parts) -> bool:
    """Whether a variable of a body is known before an iteration: by the sizes of what it reads, or by its number."""
    return binding.value is parts.counted if binding.element else binding.value.producer is None


def _follows(node: Node, parts: Parts) -> bool:
    """Whether a node of a body gives the element of a captured tensor that has the number of the iteration."""
    operator = node.operator
    if not isinstance(operator, Gather):
        return False
    table, index = node.inputs
    captured = {inner for _, inner in parts.captured}
    if table not in captured or index is None or plain(index) is not parts.counted or index.type.shape != ():
        return False
    return operator.axis % len(table.shape) == 0


OUTSIDE = "an index that its inputs give is outside of the tensor that it selects from"


def _followed(gather: Node) -> IndexedCapture:
    table, _ = gather.inputs
    assert table is not None
    return IndexedCapture(table, gather.output, f"{short_name(gather)}: {OUTSIDE}")
