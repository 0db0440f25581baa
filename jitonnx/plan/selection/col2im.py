"""Blocks of images added up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import product
from jitonnx.ir.graph import Value
from jitonnx.kernels.col2im.spec import MAX_AXES, FoldSizes, FoldSpec
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def fold(planner: Planner, group: Group, computation: c.Fold, value: Value) -> None:
    """Col2Im."""
    axes = len(computation.kernel)
    if axes > MAX_AXES:
        # Images have two axes, volumes three.
        planner.unplannable(f"its blocks have {axes} axes; kernels add up those of up to {MAX_AXES}")
    x, y = planner.dense(value), planner.dense_place(group.output)
    windows = computation.kernel, computation.strides, computation.dilations, computation.before
    sizes = FoldSizes(
        planes=product(y.shape[:2]),
        extents=y.shape[2:],
        blocks=computation.blocks,
        **by_name("kernels steps dilations before", windows),
    )
    name = x.dtype.numpy.name.removeprefix("u")  # sums of unsigned integers wrap around alike
    kernel, step, dilation, before = (values[-1] for values in windows)
    spec = FoldSpec(axes, kernel, step, dilation, before, name)
    planner.call(KernelCall(spec, UnaryBuffers(x=x, y=y), sizes, label="add up blocks", reason="a row at a time"))
