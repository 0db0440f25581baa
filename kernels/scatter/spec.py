"""What the scattering kernels are, without compiling them.

`out` holds a copy of ONNX's input `data` when a kernel is called. Indices are int32 or int64; negative ones count from
the end of their axis. An index out of range touches no memory: the word `error` (int64) is set to 1, so that the caller
can raise. Updates of the same element are applied in the order in which ONNX lists them: a task does all that meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, Sizes, by_name, computed, each, result
from jitonnx.kernels.parts.axes import MAX_RANK, dense, merged
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import INDICES, KernelSpec, Work, only
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

REDUCTIONS = ("none", "add", "mul", "max", "min")
ELEMENTS = (*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")


def word(itemsize: int) -> str:
    """The element type that stands for all of `itemsize` bytes where elements are only moved, not computed with."""
    return f"uint{8 * itemsize}"


class ScatterBuffers(Arguments):
    indices: Buffer
    updates: Buffer
    out: Buffer = result()
    error: Buffer = result()


@dataclass(frozen=True)
class _ScatterSpec(KernelSpec):
    index: str
    """"int32" or "int64"."""
    element: str
    """Element type of out and updates; `word` of its size without reduction."""
    reduction: str = "none"
    """What becomes of the old and the new element: none (the new one), add, mul, max or min. NaN wins max and min."""

    BUFFERS = ScatterBuffers
    ALLOWED = only(index=INDICES, element=ELEMENTS, reduction=REDUCTIONS)

    @property
    def _itemsizes(self) -> tuple[int, int]:
        return np.dtype(self.element).itemsize, np.dtype(self.index).itemsize


class ScatterElementsSizes(Arguments):
    extents: Sizes = each(MAX_RANK, fill=1)
    """The extents are of indices and updates; `given` are the strides of both, `out` those in out, in elements."""
    given: Sizes = each(MAX_RANK, fill=0)
    out: Sizes = each(MAX_RANK, fill=0)
    axis: Size
    axis_extent: Size
    axis_stride: Size
    """Which axis is indexed, and its extent and stride in out."""
    units: Size = computed()
    task_units: Size = computed()
    outer_rank: Size = computed()
    blocks: Size = computed()
    block: Size = computed()
    slow_extent: Size = computed()
    slow_given: Size = computed()
    fast_extent: Size = computed()
    fast_given: Size = computed()
    fast_out: Size = computed()
    outer: Sizes = computed(MAX_RANK * 3)


@dataclass(frozen=True)
class ScatterElementsSpec(_ScatterSpec):
    """out[i, j, …] with the coordinate on one axis replaced by indices[i, j, …] becomes updates[i, j, …].

    `complete` turns that into units: two nested loops each, the outer one along the indexed axis, the inner one over a
    block of what lies inside of it; if nothing does, the inner one runs along the axis. Task: task_units units.
    """

    SIZES = ScatterElementsSizes

    def arguments(self, shape: Sequence[int], indices_shape: Sequence[int], axis: int) -> ScatterElementsSizes:
        """The sizes for dense tensors and `axis` >= 0. ValueError for more than 8 axes."""
        if len(shape) > MAX_RANK:
            raise ValueError(f"ScatterElements has at most {MAX_RANK} axes, not {len(shape)}")
        out = dense(shape)
        axes = by_name("axis axis_extent axis_stride", (axis, shape[axis], out[axis]))
        return self.complete(ScatterElementsSizes(extents=indices_shape, given=dense(indices_shape), out=out, **axes))

    def complete(self, sizes: ScatterElementsSizes) -> ScatterElementsSizes:
        axes = [*zip(sizes.extents, sizes.given, sizes.out, strict=True)]
        extent, stride, _ = axes.pop(sizes.axis)
        outer = merged(axes)
        along = not outer or outer[-1][1] != 1
        slow, fast = ((1, 0), (extent, stride, 0)) if along else ((extent, stride), outer.pop())
        block = fast[0] if along else smaller(fast[0], tuning.SCATTER_BLOCK)
        blocks = -(-fast[0] // larger(1, block))
        return ScatterElementsSizes.following(
            sizes,
            units=prod(axis[0] for axis in outer) * blocks,
            task_units=larger(1, tuning.TASK_BYTES // larger(1, slow[0] * block * self._itemsizes[0])),
            outer_rank=len(outer),
            blocks=blocks,
            block=block,
            **by_name("slow_extent slow_given", slow),
            **by_name("fast_extent fast_given fast_out", fast),
            outer=[number for axis in (*outer, *[(1, 0, 0)] * (MAX_RANK - len(outer))) for number in axis],
        )

    def tasks(self, sizes: ScatterElementsSizes) -> int:
        return -(-sizes.units // sizes.task_units) if prod(sizes.extents) else 0

    def work(self, sizes: ScatterElementsSizes) -> Work:
        elements, (item, index) = prod(sizes.extents), self._itemsizes
        return Work(elements if self.reduction != "none" else 0, elements * (3 * item + index))


class ScatterRowsSizes(Arguments):
    count: Size
    run: Size
    width: Size
    """Indices of a tuple."""
    extents: Sizes = each(MAX_RANK, fill=0)
    strides: Sizes = each(MAX_RANK, fill=0)
    """Extents and strides in out of the axes that indices are of."""
    block: Size = computed()


@dataclass(frozen=True)
class ScatterRowsSpec(_ScatterSpec):
    """out[indices[r, 0], indices[r, 1], …] becomes updates[r], a run of elements, for one r after the other: ScatterND.

    Run r of updates starts at r * run, that of out at the sum of index i times strides[i]; all in elements, all runs
    dense. Task: `block` elements of every run, for only one who does all runs keeps their order.
    """

    SIZES = ScatterRowsSizes

    def arguments(self, shape: Sequence[int], indices_shape: Sequence[int]) -> ScatterRowsSizes:
        """The sizes for dense out of `shape` and dense indices. ValueError for more than 8 indices a tuple."""
        width = indices_shape[-1]
        if width > MAX_RANK:
            raise ValueError(f"ScatterND addresses at most {MAX_RANK} axes, not {width}")
        return self.complete(
            ScatterRowsSizes(
                count=prod(indices_shape[:-1]),
                run=prod(shape[width:]),
                width=width,
                extents=shape[:width],
                strides=dense(shape)[:width],
            )
        )

    def complete(self, sizes: ScatterRowsSizes) -> ScatterRowsSizes:
        item = self._itemsizes[0]
        block = larger(tuning.SCATTER_LEAST_RUN // item, tuning.TASK_BYTES // larger(1, sizes.count * item))
        return ScatterRowsSizes.following(sizes, block=smaller(block, larger(1, sizes.run)))

    def tasks(self, sizes: ScatterRowsSizes) -> int:
        return -(-sizes.run // sizes.block) if sizes.count else 0

    def work(self, sizes: ScatterRowsSizes) -> Work:
        (count, run, width, *_), (item, index) = sizes, self._itemsizes
        return Work(count * run if self.reduction != "none" else 0, count * (3 * run * item + width * index))
