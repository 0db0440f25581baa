"""The largest or smallest elements along an axis, as a kernel on rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import DimLike, product
from jitonnx.ir.graph import Value
from jitonnx.kernels.topk.spec import ELEMENTS, TopKBuffers, TopKSizes, TopKSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.tensor import StridedTensor, reshape_strides

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def top_k(planner: Planner, group: Group, computation: c.TopK, source: Value) -> None:
    """TopK: values and indices."""
    axis, x = computation.axis, planner.tensor(source)
    order = [*(other for other in range(x.rank) if other != axis), axis]
    if x.dtype.numpy.name not in ELEMENTS:
        # ONNX's numbers are all here; half precision is widened.
        planner.unplannable(f"no largest elements of {x.dtype.text}")
    if _row_stride(x, axis) is None:
        x = planner.copy(x, order, "needed as rows")
    results = []
    for value in group.outputs:
        result = planner.place(value, order)
        results.append(planner.move(value, order) if _row_stride(result, axis) is None else result)
    strides = [_row_stride(tensor, axis) for tensor in (x, *results)]
    assert None not in strides, "Bug: a dense tensor is not rows"
    rows = product(x.shape[other] for other in order[:-1])
    sizes = TopKSizes(
        rows=rows,
        length=x.shape[axis],
        k=results[0].shape[axis],
        **by_name("x_row values_row indices_row", strides),
    )
    buffers = TopKBuffers(x=x, values=results[0], indices=results[1])
    spec = TopKSpec(x.dtype.numpy.name, computation.largest)
    label, reason = f"top k of {x.shape[axis]}", "threshold and quickselect"
    planner.call(KernelCall(spec, buffers, sizes, label=label, reason=reason))


def _row_stride(tensor: StridedTensor, axis: int) -> DimLike | None:
    """How far apart rows along `axis` lie, the other axes in order; None if that differs or rows have gaps."""
    if tensor.strides[axis] != 1 and tensor.shape[axis] != 1:
        return None
    shape, strides = ([part[a] for a in range(tensor.rank) if a != axis] for part in (tensor.shape, tensor.strides))
    merged = reshape_strides(shape, strides, (product(shape),))
    return None if merged is None else merged[0]
