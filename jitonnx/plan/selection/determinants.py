"""Determinants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import product
from jitonnx.ir.graph import Value
from jitonnx.kernels.determinant.spec import DeterminantSizes, DeterminantSpec
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def determinant(planner: Planner, group: Group, computation: c.Determinant, matrices: Value) -> None:
    """Det."""
    x, y = planner.dense(matrices), planner.dense_place(group.output)
    spec = DeterminantSpec(x.dtype.numpy.name)
    sizes = DeterminantSizes(matrices=product(y.shape), size=x.shape[-1])
    planner.call(KernelCall(spec, UnaryBuffers(x=x, y=y), sizes, label="determinant", reason="by elimination"))
