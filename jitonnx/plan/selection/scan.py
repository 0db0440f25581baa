"""Cumulative sums and products: loops outside, along and inside of one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Statement
from jitonnx.ir.graph import Value
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.scan.spec import ELEMENTS, ScanSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import memory_order
from jitonnx.plan.selection.rows import Loops, three_loops
from jitonnx.plan.tensor import StridedTensor

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner

_WRAPPING = {"uint32": "int32", "uint64": "int64"}
"""Integers that wrap around are summed and multiplied alike, whether signed or not."""


def cumulate(planner: Planner, group: Group, statement: Statement) -> None:
    """CumSum and CumProd."""
    computation = statement.computation
    assert isinstance(computation, c.Cumulate) and statement.inputs[0] is not None
    x, y, loops = _three_loops(planner, statement.inputs[0], statement.outputs[0], computation.axis)
    name = x.dtype.numpy.name
    element = _WRAPPING.get(name, name)
    if element not in ELEMENTS:
        # What ONNX allows is here: other types are widened or wrap around alike.
        planner.unplannable(f"no cumulative {computation.kind} of {x.dtype.text}")
    spec = ScanSpec(computation.kind, loops.inner == 1, computation.exclusive, computation.reverse, element)
    label, reason = f"cumulative {spec.kind}", "along rows" if spec.last else "across rows"
    planner.call(KernelCall(spec, UnaryBuffers(x=x, y=y), loops.sizes(), label=label, reason=reason))


def _three_loops(
    planner: Planner, source: Value, result: Value, axis: int
) -> tuple[StridedTensor, StridedTensor, Loops]:
    """The operand and a place for a result of its shape, both as loops outside, along and inside of `axis`."""
    x = planner.tensor(source)
    if three_loops([axis], x) is None:
        x = planner.copy(x, tuple(range(x.rank)), "needed as rows")
    y = planner.place(result, memory_order(x))
    loops = three_loops([axis], x, y)
    if loops is None:
        y = planner.move(result, memory_order(x))
        loops = three_loops([axis], x, y)
    assert loops is not None, "Bug: a dense tensor is not three loops"
    return x, y, loops
