"""Computations that give as many elements as the data says: NonZero, Compress, Unique, NonMaxSuppression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import concrete, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.compaction.spec import (
    CompressBuffers,
    CompressSizes,
    CompressSpec,
    NonZeroBuffers,
    NonZeroSizes,
    NonZeroSpec,
)
from jitonnx.kernels.nms.spec import (
    NmsBuffers,
    NmsSizes,
    NmsSpec,
    SelectedBuffers,
    SelectedSizes,
    SelectedSpec,
)
from jitonnx.kernels.parts.axes import MAX_RANK
from jitonnx.kernels.unique.spec import UniqueBuffers, UniqueSizes, UniqueSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def non_zero(planner: Planner, group: Group, computation: c.NonZero, source: Value) -> None:
    """NonZero: one kernel that counts, then writes."""
    x = planner.dense(source)
    if not 0 < x.rank <= MAX_RANK:
        planner.unplannable(f"elements of {x.rank} axes are not counted by a kernel")
    spec = NonZeroSpec(x.rank, x.dtype.itemsize, x.dtype.numpy.kind == "f" or x.dtype is DType.BFLOAT16)
    out, count = map(planner.place, group.outputs)
    buffers, sizes = NonZeroBuffers(x=x, out=out, count=count), NonZeroSizes(extents=x.shape)
    label, reason = "non-zero", "counted by vectors, then written"
    planner.call(KernelCall(spec, buffers, sizes, label=label, reason=reason))


def compress(planner: Planner, group: Group, computation: c.Compress, source: Value, condition: Value) -> None:
    """Compress: runs of bytes by a condition."""
    x, chosen = planner.dense(source), planner.dense(condition)
    run = product(x.shape[computation.axis + 1 :]) * x.dtype.itemsize
    size = concrete(run)
    spec = CompressSpec(size if size in (1, 2, 4, 8) else 0)
    out, count = map(planner.place, group.outputs)
    sizes = CompressSizes(
        outer=product(x.shape[: computation.axis]),
        length=x.shape[computation.axis],
        run_bytes=run,
        conditions=product(chosen.shape),
    )
    buffers = CompressBuffers(x=x, condition=chosen, out=out, count=count)
    planner.call(KernelCall(spec, buffers, sizes, label="compress", reason="runs of bytes by a condition"))


def unique(planner: Planner, group: Group, computation: c.Unique, source: Value) -> None:
    """Unique: slices sorted, those that are equal numbered."""
    x, axis = planner.dense(source), computation.axis
    outer, length, inner = product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])
    run = concrete(inner * x.dtype.itemsize)
    spec = UniqueSpec(x.dtype.text, x.rank > 1, computation.ascending, run if run in (1, 2, 4, 8) else 0)
    results = by_name(
        "values indices inverse counts values_count indices_count counts_count", map(planner.place, group.outputs)
    )
    sizes = UniqueSizes(outer=outer, length=length, inner=inner)
    sort = "a merge sort of slices" if x.rank > 1 else "a radix sort of elements"
    reason = f"{sort}, then runs of equal ones"
    planner.call(KernelCall(spec, UniqueBuffers(x=x, **results), sizes, label="unique", reason=reason))


def non_max_suppression(planner: Planner, group: Group, computation: c.NonMaxSuppression, *inputs: Value) -> None:
    """NonMaxSuppression: the boxes of each class, then all of them in rows."""
    given = [planner.dense(value) for value in inputs]
    batches, classes, boxes = given[1].shape
    out, total = map(planner.place, group.outputs)
    rows, most = batches * classes, computation.most
    chosen = planner.temporary((rows, most), DType.INT64)
    counts = planner.temporary((rows,), DType.INT64)
    error = planner.flag("iou_threshold has to be in [0, 1]")
    spec = NmsSpec(computation.centers, computation.thresholded)
    reason = "a heap of boxes by score, compared by vectors with those chosen"
    buffers = NmsBuffers(
        **by_name("boxes scores limit overlap least", given), chosen=chosen, counts=counts, error=error
    )
    sizes = NmsSizes(batches=batches, classes=classes, boxes=boxes, most=most)
    planner.call(KernelCall(spec, buffers, sizes, label="non-max suppression", reason=reason))
    planner.call(
        KernelCall(
            SelectedSpec(),
            SelectedBuffers(chosen=chosen, counts=counts, out=out, count=total),
            SelectedSizes(batches=batches, classes=classes, most=most),
            label="selected boxes",
            reason="boxes of all classes as rows",
        )
    )
