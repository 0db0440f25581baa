"""Checks of what only data shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import product
from jitonnx.ir.graph import Value
from jitonnx.kernels.check.spec import CheckBuffers, CheckSizes, CheckSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def check(planner: Planner, group: Group, computation: c.Check, condition: Value) -> None:
    """A flag that is set if a condition holds anywhere."""
    met = planner.dense(condition)
    buffers = CheckBuffers(met=met, error=planner.flag(computation.text))
    sizes = CheckSizes(elements=product(met.shape))
    planner.call(KernelCall(CheckSpec(), buffers, sizes, label="check", reason="what only data shows"))
