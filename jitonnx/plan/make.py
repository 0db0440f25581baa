"""Making a plan: statements are fused into groups, results placed, and each group turned into kernel calls.

Where code of ours fails in itself, `PlanningDefect` tells the nodes that it failed for; whoever wants a plan asks
again, for one with less fusion or with fewer nodes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Sequence

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowered, Statement
from jitonnx.ir.defects import is_defect
from jitonnx.ir.dims import UnwieldyError, product, taking
from jitonnx.ir.graph import Node, Value
from jitonnx.plan.choices import Caution, Choices
from jitonnx.plan.denormals import without_denormals
from jitonnx.plan.fusion import Group, fuse
from jitonnx.plan.integer_caches import with_integer_caches
from jitonnx.plan.placement import Placement
from jitonnx.plan.plan import Plan
from jitonnx.plan.planner import Planner, UnplannableError
from jitonnx.plan.precision import NO_BFLOAT16, in_bfloat16
from jitonnx.plan.region import region_call
from jitonnx.plan.rounded_weights import with_rounded_weights
from jitonnx.plan.selection import selector_of, takes_epilogue, takes_scaling
from jitonnx.plan.selection.convolution import outruns_dots
from jitonnx.plan.storage_types import place_halves
from jitonnx.plan.tensor import Buffer, StridedTensor, apply_view, orders_around, row_major
from jitonnx.target.choosing import choosing, made_choices
from jitonnx.target.machine import Target


class PlanningDefect(Exception):
    """The planner failed in itself for some groups, each told by its nodes; for none, if it failed for all together."""

    def __init__(self, groups: Sequence[Sequence[Node]], error: Exception) -> None:
        super().__init__(str(error))
        self.groups, self.error = groups, error


def make_plan(lowered: Lowered, target: Target, choices: Choices | None = None, apart: Collection[Node] = ()) -> Plan:
    """The plan of a lowered graph for a CPU.

    apart: nodes that are fused with nothing.

    UnplannableError names a node that has no kernel; PlanningDefect tells of those that the planner failed for.
    """
    with taking(lowered.assumptions.taken):
        try:
            return _planned(lowered, target, choices or Choices(), apart)
        except UnplannableError:
            raise
        except Exception as error:
            if isinstance(error, PlanningDefect) or not is_defect(error):
                raise
            raise PlanningDefect([], error) from error


def _planned(lowered: Lowered, target: Target, choices: Choices, apart: Collection[Node]) -> Plan:
    lowered, notes = without_denormals(lowered), list[str]()
    plain = choices.caution >= Caution.FUSION
    if plain:
        apart = {statement.node for statement in lowered.statements}
    else:
        lowered = with_integer_caches(lowered)
    lowered = place_halves(lowered, takes_epilogue)
    asked = choices.precision == "bfloat16"
    if target.bfloat16_products and not plain:
        packs = target.bfloat16_products in ("tiles", "dots")
        outruns = functools.partial(outruns_dots, target=target, choices=choices)
        lowered = in_bfloat16(lowered, takes_epilogue, outruns, exactly=not asked, packs=packs)
    elif asked:
        notes.append(NO_BFLOAT16)
        lowered = with_rounded_weights(lowered)
    groups = fuse(lowered, takes_epilogue, takes_scaling, apart)
    planner = Planner(lowered, target, choices, Placement(lowered, groups))
    settled = None if choices.measured is None else {measured.problem: measured for measured in choices.measured}
    plan = planner.plan
    with choosing(settled):
        _plan_groups(planner, groups)
        planner.begin(None)
        _copy_outputs(planner, lowered)
        if not plain and any(call.spec.family in ("gemm", "convolution") for call in plan.calls):
            _multiply_together(planner, target)
    used = {tensor.buffer for call in plan.calls for tensor in call.tensors}
    plan.constants = [buffer for buffer in plan.constants if buffer in used]
    plan.notes += notes
    plan.prepare()
    return plan


def _plan_groups(planner: Planner, groups: Sequence[Group]) -> None:
    """Kernel calls for all groups, producers first."""
    failed: list[Sequence[Node]] = []
    first: Exception | None = None
    for group in groups:
        planner.begin(group)
        first_call = len(planner.plan.calls)
        try:
            _plan_group(planner, group)
        except UnplannableError:
            raise
        except UnwieldyError as error:
            raise UnplannableError(group.statements[-1].node, str(error)) from error
        except Exception as error:
            if not is_defect(error):
                raise
            first = first or error
            failed.append(list(dict.fromkeys(statement.node for statement in group.statements)))
            for statement in group.statements:  # so that the groups behind it tell whether they fail, too
                for value in statement.outputs:
                    planner.place(value)
        if made := made_choices():
            for call in planner.plan.calls[first_call:]:
                call.note_choices(made)
    if first is not None:
        raise PlanningDefect(failed, first) from first


def _plan_group(planner: Planner, group: Group) -> None:
    if group.anchor is None:
        _region(planner, group)
    elif isinstance(group.anchor.computation, c.View):
        _view(planner, group.anchor)
    else:
        computation = group.anchor.computation
        selector_of(computation)(planner, group, computation, *group.anchor.inputs)


def _multiply_together(planner: Planner, target: Target) -> None:
    """What products and convolutions do for each other, once all are there; plans of neither do without its modules."""
    from jitonnx.plan.depth_first_rows import rows_in_bands
    from jitonnx.plan.depth_first_tiling import in_bands
    from jitonnx.plan.kernel_deduplication import share_kernels
    from jitonnx.plan.weight_prefetch import ask_ahead

    plan = planner.plan
    with contextlib.suppress(UnwieldyError):  # the calls are as they were where a band has no size to work with
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


def _gathered(planner: Planner, value: Value, view: c.View) -> StridedTensor:
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
    assert group.expr is not None
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
        planner.copy_into(tensor, StridedTensor(buffer, 0, value.shape, row_major(value.shape)), "a graph output")
