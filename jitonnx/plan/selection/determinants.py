"""Determinants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation.lowering import Statement
from jitonnx.ir.dims import product
from jitonnx.kernels.determinant.spec import DeterminantGiven, DeterminantSpec
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def determinant(planner: Planner, group: Group, statement: Statement) -> None:
    """Det."""
    value = statement.inputs[0]
    assert value is not None
    x, y = planner.dense(value), planner.place(statement.outputs[0])
    if not y.contiguous:
        y = planner.move(statement.outputs[0], tuple(range(y.rank)))
    spec = DeterminantSpec(x.dtype.numpy.name)
    sizes = DeterminantGiven(matrices=product(y.shape), size=x.shape[-1])
    planner.call(KernelCall(spec, UnaryBuffers(x=x, y=y), sizes, label="determinant", reason="by elimination"))
