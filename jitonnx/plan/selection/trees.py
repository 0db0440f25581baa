"""Ensembles of decision trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.graph import Value
from jitonnx.kernels.trees.spec import TreesSizes
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.forests import packed
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def trees(planner: Planner, group: Group, computation: c.Trees, rows: Value) -> None:
    """The scores of a forest."""
    forest, x, out = computation.forest, planner.unit_inner(rows), planner.dense_place(group.output)
    spec, arrays = packed(forest, computation.aggregate, planner.target.lanes(4))
    constants = {name: planner.constant(array) for name, array in arrays.items()}
    sizes = TreesSizes(
        rows=x.shape[0],
        x_row=x.strides[0],
        features=x.shape[1],
        trees=len(forest.roots),
        targets=forest.target_count,
        depth=forest.depth,
    )
    buffers = spec.BUFFERS(x=x, **constants, out=out)
    call = KernelCall(spec, buffers, sizes, label=f"{len(forest.roots)} trees")
    call.reason = f"{len(forest.features)} nodes, of which at most {forest.depth} follow one another"
    planner.call(call)
