"""Computations that give as many elements as the data says: NonZero, Compress, Unique, NonMaxSuppression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Statement
from jitonnx.ir.dims import concrete, product
from jitonnx.ir.dtypes import DType
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
from jitonnx.plan.tensor import StridedTensor

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
    out, count = _places(planner, statement)
    buffers, sizes = NonZeroBuffers(x=x, out=out, count=count), NonZeroSizes(extents=x.shape)
    label, reason = "non-zero", "counted by vectors, then written"
    planner.call(KernelCall(spec, buffers, sizes, label=label, reason=reason))


def compress(planner: Planner, group: Group, statement: Statement) -> None:
    """Compress: runs of bytes by a condition."""
    computation = statement.computation
    source, condition = statement.inputs
    assert isinstance(computation, c.Compress) and source is not None and condition is not None
    x, chosen = planner.dense(source), planner.dense(condition)
    run = product(x.shape[computation.axis + 1 :]) * x.dtype.itemsize
    size = concrete(run)
    spec = CompressSpec(size if size in (1, 2, 4, 8) else 0)
    out, count = _places(planner, statement)
    sizes = CompressSizes(
        outer=product(x.shape[: computation.axis]),
        length=x.shape[computation.axis],
        run_bytes=run,
        conditions=product(chosen.shape),
    )
    buffers = CompressBuffers(x=x, condition=chosen, out=out, count=count)
    planner.call(KernelCall(spec, buffers, sizes, label="compress", reason="runs of bytes by a condition"))


def unique(planner: Planner, group: Group, statement: Statement) -> None:
    """Unique: slices sorted, those that are equal numbered."""
    computation, (source,) = statement.computation, statement.inputs
    assert isinstance(computation, c.Unique) and source is not None
    x, axis = planner.dense(source), computation.axis
    outer, length, inner = product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])
    run = concrete(inner * x.dtype.itemsize)
    spec = UniqueSpec(x.dtype.text, x.rank > 1, computation.ascending, run if run in (1, 2, 4, 8) else 0)
    results = by_name(
        "values indices inverse counts values_count indices_count counts_count", _places(planner, statement)
    )
    sizes = UniqueSizes(outer=outer, length=length, inner=inner)
    sort = "a merge sort of slices" if x.rank > 1 else "a radix sort of elements"
    reason = f"{sort}, then runs of equal ones"
    planner.call(KernelCall(spec, UniqueBuffers(x=x, **results), sizes, label="unique", reason=reason))


def non_max_suppression(planner: Planner, group: Group, statement: Statement) -> None:
    """NonMaxSuppression: the boxes of each class, then all of them in rows."""
    computation = statement.computation
    assert isinstance(computation, c.NonMaxSuppression)
    given = [planner.dense(value) for value in statement.inputs if value is not None]
    batches, classes, boxes = given[1].shape
    out, total = _places(planner, statement)
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


def _places(planner: Planner, statement: Statement) -> list[StridedTensor]:
    """The places of the result and of how many elements it has."""
    return [planner.place(value) for value in statement.outputs]
