"""Making a plan: statements are fused into groups, results placed, and each group turned into kernel calls."""

from __future__ import annotations

from jitonnx.computation import computations as c
from jitonnx.computation.lowering import Lowered, Statement
from jitonnx.ir.dims import product, taking
from jitonnx.ir.graph import Value
from jitonnx.plan.choices import Choices
from jitonnx.plan.denormals import without_denormals
from jitonnx.plan.fusion import Group, fuse
from jitonnx.plan.halves import place_halves
from jitonnx.plan.integer_caches import with_integer_caches
from jitonnx.plan.placement import Placement
from jitonnx.plan.plan import Plan
from jitonnx.plan.planner import Planner
from jitonnx.plan.precision import NO_BFLOAT16, in_bfloat16
from jitonnx.plan.region import region_call
from jitonnx.plan.selection import selector_of, takes_epilogue, takes_scaling
from jitonnx.plan.tensor import Buffer, Tensor, apply_view, orders_around, row_major
from jitonnx.target import Target


def make_plan(lowered: Lowered, target: Target, choices: Choices | None = None) -> Plan:
    """The plan of a lowered graph for a CPU.

    UnplannableError names a node that has no kernel.
    """
    with taking(lowered.assumptions.taken):
        return _planned(lowered, target, choices or Choices())


def _planned(lowered: Lowered, target: Target, choices: Choices) -> Plan:
    lowered, notes = place_halves(with_integer_caches(without_denormals(lowered)), takes_epilogue), []
    asked = choices.precision == "bfloat16"
    if target.bfloat16_products:
        packs = target.bfloat16_products == "tiles"
        lowered = in_bfloat16(lowered, takes_epilogue, exactly=not asked, packs=packs)
    elif asked:
        notes.append(NO_BFLOAT16)
    groups = fuse(lowered, takes_epilogue, takes_scaling)
    planner = Planner(lowered, target, choices, Placement(lowered, groups))
    for group in groups:
        planner.begin(group)
        if group.anchor is None:
            _region(planner, group)
        elif isinstance(group.anchor.computation, c.View):
            _view(planner, group.anchor)
        else:
            selector_of(group.anchor.computation)(planner, group, group.anchor)
    planner.begin(None)
    _copy_outputs(planner, lowered)
    plan = planner.plan
    if any(call.spec.family in ("gemm", "convolution") for call in plan.calls):
        _multiply_together(planner, target)
    used = {tensor.buffer for call in plan.calls for tensor in call.tensors}
    plan.constants = [buffer for buffer in plan.constants if buffer in used]
    plan.notes += notes
    plan.prepare()
    return plan


def _multiply_together(planner: Planner, target: Target) -> None:
    """What products and convolutions do for each other, once all are there; plans of neither do without its modules."""
    from jitonnx.plan.ahead import ask_ahead
    from jitonnx.plan.alike import share_kernels
    from jitonnx.plan.bands import in_bands
    from jitonnx.plan.row_bands import rows_in_bands

    plan = planner.plan
    plan.calls = rows_in_bands(in_bands(plan.calls, target), target)
    share_kernels(plan.calls, planner.constant)
    ask_ahead(plan.calls, target)


def _view(planner: Planner, statement: Statement) -> None:
    """A view is no work: its result lies where its operand does, unless the memory does not allow that."""
    (value,) = [v for v in statement.inputs if v is not None]
    assert isinstance(statement.computation, c.View)
    seen = apply_view(statement.computation, planner.tensor(value))
    if seen is None:
        seen = apply_view(statement.computation, _gathered(planner, value, statement.computation))
        assert seen is not None
    planner.check(seen)
    planner.bind(statement.outputs[0], seen)


def _gathered(planner: Planner, value: Value, view: c.View) -> Tensor:
    """A view's operand made dense: in the graph output that the view is to become, if it is, else in new memory."""
    tensor, target = planner.tensor(value), planner.destination(value)
    if target is not None and target.contiguous and not tensor.contiguous:
        planner.copy_into(tensor, target, "a graph output")
        planner.bind(value, target)
        return target
    orders = orders_around(view, value.shape, planner.order(value))
    if orders is not None:
        target = planner.temporary(value.shape, value.dtype, orders[0])
        if apply_view(view, target) is not None:
            planner.copy_into(tensor, target, "needed without gaps")
            return target
    return planner.dense(value)


def _region(planner: Planner, group: Group) -> None:
    """One loop nest for all of a region's statements."""
    assert group.output is not None and group.expr is not None
    inputs = [planner.tensor(value) for value in group.operands]
    target = planner.place(group.output, planner.order(group.output))
    names = "+".join(dict.fromkeys(statement.node.operator.name for statement in group.maps))
    reason = "; ".join(group.reasons) or "elementwise"
    call = region_call(
        [group.expr],
        inputs,
        [target],
        label=f"region {names}",
        origin=group.origin,
        reason=reason,
        streams=planner.outgrows_caches(target),
    )
    planner.call(call)


def _copy_outputs(planner: Planner, lowered: Lowered) -> None:
    """Graph outputs that lie elsewhere: inputs and constants passed on, and what no kernel could write in place."""
    for number, value in enumerate(lowered.outputs):
        tensor = planner.tensor(value)
        if tensor.buffer.space == "output" and tensor.buffer.index == number:
            continue
        buffer = Buffer(value.name, "output", product(value.shape), value.dtype, index=number)
        planner.copy_into(tensor, Tensor(buffer, 0, value.shape, row_major(value.shape)), "a graph output")
