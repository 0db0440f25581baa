"""Computations along one axis whose results are not one a row: cumulative sums, the largest elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir import computation as c
from jitonnx.ir.dims import DimLike, product
from jitonnx.ir.graph import Value
from jitonnx.ir.lowering import Statement
from jitonnx.kernels.scan.spec import ELEMENTS, ScanSpec
from jitonnx.kernels.topk.spec import ELEMENTS as TOPK_ELEMENTS
from jitonnx.kernels.topk.spec import TopKSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.lowerings.rows import Loops, three_loops
from jitonnx.plan.region import memory_order
from jitonnx.plan.tensor import Tensor, reshape_strides

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
    (x_outer, x_step, _), (y_outer, y_step, _) = loops.strides
    sizes = [loops.outer, loops.length, loops.inner, x_outer, x_step, y_outer, y_step]
    label, reason = f"cumulative {spec.kind}", "along rows" if spec.last else "across rows"
    planner.call(KernelCall(spec, [x, y], sizes, 1, 1, label=label, reason=reason))


def top_k(planner: Planner, group: Group, statement: Statement) -> None:
    """TopK: values and indices."""
    computation = statement.computation
    assert isinstance(computation, c.TopK) and statement.inputs[0] is not None
    axis = computation.axis
    x = planner.tensor(statement.inputs[0])
    order = [*(other for other in range(x.rank) if other != axis), axis]
    if x.dtype.numpy.name not in TOPK_ELEMENTS:
        # ONNX's numbers are all here; half precision is widened.
        planner.unplannable(f"no largest elements of {x.dtype.text}")
    if _row_stride(x, axis) is None:
        x = planner.copy(x, order, "needed as rows")
    results = []
    for value in statement.outputs:
        result = planner.place(value, order)
        results.append(planner.move(value, order) if _row_stride(result, axis) is None else result)
    strides = [_row_stride(tensor, axis) for tensor in (x, *results)]
    assert None not in strides, "Bug: a dense tensor is not rows"
    rows = product(x.shape[other] for other in order[:-1])
    sizes: list[DimLike] = [rows, x.shape[axis], results[0].shape[axis], *strides]  # type: ignore[list-item]
    spec = TopKSpec(x.dtype.numpy.name, computation.largest)
    label, reason = f"top k of {x.shape[axis]}", "threshold and quickselect"
    planner.call(KernelCall(spec, [x, *results], sizes, 2, 1, label=label, reason=reason))


def _row_stride(tensor: Tensor, axis: int) -> DimLike | None:
    """How far apart rows along `axis` lie, the other axes in order; None if that differs or rows have gaps."""
    if tensor.strides[axis] != 1 and tensor.shape[axis] != 1:
        return None
    shape, strides = ([part[a] for a in range(tensor.rank) if a != axis] for part in (tensor.shape, tensor.strides))
    merged = reshape_strides(shape, strides, (product(shape),))
    return None if merged is None else merged[0]


def _three_loops(planner: Planner, source: Value, result: Value, axis: int) -> tuple[Tensor, Tensor, Loops]:
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
