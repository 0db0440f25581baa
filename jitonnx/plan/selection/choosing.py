"""Computations that give as many elements as the data says: NonZero, Compress, NonMaxSuppression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.computation import computations as c
from jitonnx.computation.lowering import Statement
from jitonnx.ir.dims import DimLike, concrete, product
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.compaction.spec import CompressSpec, NonZeroSpec
from jitonnx.kernels.parts.axes import MAX_RANK
from jitonnx.kernels.suppression.spec import SelectedSpec, SuppressionSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.tensor import Tensor

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def non_zero(planner: Planner, group: Group, statement: Statement) -> None:
    """NonZero: one kernel that counts, then writes."""
    (source,) = statement.inputs
    assert source is not None
    x = planner.dense(source)
    if not 0 < x.rank <= MAX_RANK:
        planner.unplannable(f"elements of {x.rank} axes are not counted by a kernel")
    spec = NonZeroSpec(x.rank, x.dtype.itemsize, x.dtype.numpy.kind == "f" or x.dtype is DType.BFLOAT16)
    sizes: list[DimLike] = [*x.shape, *(1 for _ in range(MAX_RANK - x.rank))]
    label, reason = "non-zero", "counted by vectors, then written"
    planner.call(KernelCall(spec, [x, *_places(planner, statement)], sizes, 2, 1, label=label, reason=reason))


def compress(planner: Planner, group: Group, statement: Statement) -> None:
    """Compress: runs of bytes by a condition."""
    computation = statement.computation
    source, condition = statement.inputs
    assert isinstance(computation, c.Compress) and source is not None and condition is not None
    x, chosen = planner.dense(source), planner.dense(condition)
    run = product(x.shape[computation.axis + 1 :]) * x.dtype.itemsize
    size = concrete(run)
    spec = CompressSpec(size if size in (1, 2, 4, 8) else 0)
    sizes = [product(x.shape[: computation.axis]), x.shape[computation.axis], run, product(chosen.shape)]
    tensors = [x, chosen, *_places(planner, statement)]
    planner.call(KernelCall(spec, tensors, sizes, 2, 2, label="compress", reason="runs of bytes by a condition"))


def non_max_suppression(planner: Planner, group: Group, statement: Statement) -> None:
    """NonMaxSuppression: the boxes of each class, then all of them in rows."""
    computation = statement.computation
    assert isinstance(computation, c.NonMaxSuppression)
    operands = [planner.dense(value) for value in statement.inputs if value is not None]
    batches, classes, boxes = operands[1].shape
    out, total = _places(planner, statement)
    rows, most = batches * classes, computation.most
    chosen = planner.temporary((rows, most), DType.INT64)
    counts = planner.temporary((rows,), DType.INT64)
    error = planner.flag("iou_threshold has to be in [0, 1]")
    spec = SuppressionSpec(computation.centers, computation.thresholded)
    reason = "a heap of boxes by score, compared by vectors with those chosen"
    tensors = [*operands, chosen, counts, error]
    sizes: list[DimLike] = [batches, classes, boxes, most]
    planner.call(KernelCall(spec, tensors, sizes, 2, 5, label="non-max suppression", reason=reason))
    planner.call(
        KernelCall(
            SelectedSpec(),
            [chosen, counts, out, total],
            [batches, classes, most],
            2,
            2,
            label="selected boxes",
            reason="boxes of all classes as rows",
        )
    )


def _places(planner: Planner, statement: Statement) -> list[Tensor]:
    """Where to write the result and how many elements it has."""
    return [planner.place(value) for value in statement.outputs]
