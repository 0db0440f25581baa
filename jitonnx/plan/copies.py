"""Copies between tensors of any strides."""

from __future__ import annotations

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.transpose.spec import (
    INTERLEAVED,
    MAX_RANK,
    STEPS,
    TransposeBuffers,
    TransposeSizes,
    TransposeSpec,
)
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.region import region_call
from jitonnx.plan.tensor import StridedTensor


def copy_call(
    source: StridedTensor, target: StridedTensor, *, label: str, reason: str, streams: bool = False
) -> KernelCall:
    """The call that copies `source` to `target`, of equal shape and any strides; one kernel an item size.

    streams: the target is too large for the caches, and is written past them.
    """
    axes = [axis for axis in range(source.rank) if source.shape[axis] != 1]
    extents, sources, targets = (
        [values[axis] for axis in axes] for values in (source.shape, source.strides, target.strides)
    )
    if source.dtype is DType.COMPLEX128:  # two words side by side are copied as an axis of two
        spec = TransposeSpec(source.dtype.itemsize // 2, streams=streams)
        extents, sources, targets = [*extents, 2], [*(2 * n for n in sources), 1], [*(2 * n for n in targets), 1]
    else:
        spec = TransposeSpec(source.dtype.itemsize, _interleaved(source, target), _step(source, target), streams)
    if len(extents) <= MAX_RANK:
        sizes = TransposeSizes(extents=extents, sources=sources, targets=targets)
        return KernelCall(spec, TransposeBuffers(source=source, target=target), sizes, label=label, reason=reason)
    expr = e.operand(0, source.dtype)
    return region_call([expr], [source], [target], label=label, origin=(), reason=reason, streams=streams)


def _step(source: StridedTensor, target: StridedTensor) -> int:
    """How far apart the source's elements lie along the axis that the target is contiguous along, if that has code of
    its own; else 0."""
    axes = zip(target.shape, source.strides, target.strides, strict=True)
    steps = [step for dim, step, contiguous in axes if dim != 1 and contiguous == 1]
    return steps[0] if steps and isinstance(steps[0], int) and steps[0] in STEPS else 0


def _interleaved(source: StridedTensor, target: StridedTensor) -> int:
    """How many elements, if few, lie side by side in one tensor and in planes in the other; else 0."""
    for one, other in ((source, target), (target, source)):
        for axis, extent in enumerate(one.shape):
            if (
                isinstance(extent, int)
                and extent in INTERLEAVED
                and one.strides[axis] == 1
                and other.strides[axis] != 1
            ):
                along = [i for i in range(other.rank) if other.strides[i] == 1 and one.strides[i] == extent]
                return extent if any(other.shape[i] != 1 for i in along) else 0
    return 0
