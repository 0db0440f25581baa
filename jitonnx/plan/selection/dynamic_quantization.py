"""Quantising by the least and the largest element: one kernel for few elements, else two, the first by parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import DimLike, concrete, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.dynamic_quantization.spec import (
    PARTS_MOST,
    ExtremesBuffers,
    ExtremesSpec,
    QuantiseBuffers,
    QuantiseSpec,
    RowsSizes,
)
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.windows import rows_in_memory
from jitonnx.target import tuning

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def dynamic_quantize(planner: Planner, group: Group, computation: c.DynamicQuantize, source: Value) -> None:
    """x as uint8, its scale and its zero point."""
    quantised, scale, zero = group.outputs
    x, y, (rows, length, (x_row, y_row)) = rows_in_memory(planner, source, quantised)
    given = RowsSizes(rows=rows, length=length, x_row=x_row, y_row=y_row)
    results = {"y": y, "scale": planner.place(scale, ()), "zero": planner.place(zero, ())}
    alone = _few(product(x.shape))
    extremes = x
    if not alone:
        extremes = planner.temporary((2, PARTS_MOST), DType.FLOAT)
        call = KernelCall(ExtremesSpec(), ExtremesBuffers(x=x, extremes=extremes), given, label="extremes")
        call.reason = "least and largest element in one pass, by parts that threads share"
        planner.call(call)
    buffers = QuantiseBuffers(x=x, extremes=extremes, **results)
    call = KernelCall(QuantiseSpec(alone=alone), buffers, given, label="dynamic quantisation")
    call.reason = "; ".join([*(["few elements: one task finds the extremes, too"] if alone else []), *group.reasons])
    planner.call(call)


def _few(elements: DimLike) -> bool:
    """Whether one task does for so many."""
    number = concrete(elements)
    return number is not None and number < 2 * tuning.TASK_ELEMENTS
