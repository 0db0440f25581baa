"""Cumulative sums and products: loops outside, along and inside of one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.graph import Value
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.scan.spec import ELEMENTS, ScanSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.rows import in_three_loops

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner

_WRAPPING = {"uint32": "int32", "uint64": "int64"}
"""Integers that wrap around are summed and multiplied alike, whether signed or not."""


def cumulate(planner: Planner, group: Group, computation: c.Cumulate, source: Value) -> None:
    """CumSum and CumProd."""
    x, y, loops = in_three_loops(planner, source, group.output, computation.axis)
    name = x.dtype.numpy.name
    element = _WRAPPING.get(name, name)
    if element not in ELEMENTS:
        # What ONNX allows is here: other types are widened or wrap around alike.
        planner.unplannable(f"no cumulative {computation.kind} of {x.dtype.text}")
    spec = ScanSpec(computation.kind, loops.inner == 1, computation.exclusive, computation.reverse, element)
    label, reason = f"cumulative {spec.kind}", "along rows" if spec.last else "across rows"
    planner.call(KernelCall(spec, UnaryBuffers(x=x, y=y), loops.sizes(), label=label, reason=reason))
