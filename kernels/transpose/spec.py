"""What the transposing copy is, and how a problem of many axes becomes one of two; without LLVM."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod

from jitonnx.emit.arguments import Arguments, Buffer, Size, Sizes, by_name, computed, each, result
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import ITEMSIZES, KernelSpec, Work, only
from jitonnx.support.records import NamedTuple, dataclass
from jitonnx.target import tuning

MAX_RANK = 8


LARGEST_TILE = 16
_LINE_BYTES = 64
"""The bytes of a cache line: in rows of the target whose distance is a multiple of this, tiles begin where lines do, so
that each is written by one store."""

INTERLEAVED = (2, 3, 4)
"""Numbers of elements side by side that have code of their own."""


class Axis(NamedTuple):
    """An axis of both tensors; strides in elements."""

    extent: int
    source: int
    target: int


_NOTHING = Axis(1, 0, 0)

STEPS = (-1, 2, 3, 4)
"""Distances of a source's elements, along the axis that the target is contiguous along, that have code of their own."""

COPY, TILES, ELEMENTS, FILL, STRIDED = range(5)
"""What is done along the two inner axes: runs copied, square tiles transposed in registers, single elements moved, one
element repeated, elements some way apart put together by shuffles."""


class TransposeBuffers(Arguments):
    source: Buffer
    target: Buffer = result()


class TransposeSizes(Arguments):
    """Axes that are there, and their strides in elements."""

    extents: Sizes = each(MAX_RANK, fill=1)
    sources: Sizes = each(MAX_RANK, fill=0)
    targets: Sizes = each(MAX_RANK, fill=0)
    mode: Size = computed()
    a_extent: Size = computed()
    a_source: Size = computed()
    a_target: Size = computed()
    a_block: Size = computed()
    b_extent: Size = computed()
    b_source: Size = computed()
    b_target: Size = computed()
    b_block: Size = computed()
    a_slack: Size = computed()
    b_slack: Size = computed()
    c_extent: Size = computed()
    c_source: Size = computed()
    c_target: Size = computed()
    c_block: Size = computed()
    outer_tasks: Size = computed()
    outer_rank: Size = computed()
    outer: Sizes = computed((MAX_RANK - 1) * len(Axis._fields))


@dataclass(frozen=True)
class TransposeSpec(KernelSpec):
    """target[i, j, …] = source[i, j, …] for two tensors of one shape and any strides (0 and negative ones included).

    `complete` orders and merges the axes and finds the two inner ones: a (contiguous in target
    where one is) and b (contiguous in source, or the longest left), and c, along which runs and shuffles are repeated
    in a task.
    Task: a block of these, at one place of the others; along an axis with slack, blocks begin up to that many elements
    earlier, where lines of the cache do.
    """

    itemsize: int
    """Bytes of an element: 1, 2, 4 or 8."""
    interleaved: int = 0
    """So many elements, 2 to 4, lie side by side in one of the tensors, and in planes in the other (the pixels of an
    image of few channels): they are put together or taken apart by shuffles, 2 to 4 vectors at a time, where square
    tiles would be mostly empty. 0: for any extents. Those of another number, or with gaps, are copied all the same."""
    step: int = 0
    """So far apart, one of STEPS, lie the source's elements along the axis that the target is contiguous along; others
    are copied all the same. 0: any way."""
    streams: bool = False
    """Runs and tiles of whole cache lines are written past the caches, which the target would not fit."""

    BUFFERS = TransposeBuffers
    SIZES = TransposeSizes
    COMBINING = True
    ALLOWED = only(itemsize=ITEMSIZES, interleaved=(0, *INTERLEAVED), step=(0, *STEPS))

    def arguments(
        self, shape: Sequence[int], source_strides: Sequence[int], target_strides: Sequence[int]
    ) -> TransposeSizes:
        """The sizes for tensors of `shape`, strides in elements. ValueError for more than 8 axes."""
        if len(shape) > MAX_RANK:
            raise ValueError(f"a transposing copy has at most {MAX_RANK} axes, not {len(shape)}")
        return self.complete(TransposeSizes(extents=shape, sources=source_strides, targets=target_strides))

    def complete(self, sizes: TransposeSizes) -> TransposeSizes:
        triples = zip(sizes.extents, sizes.sources, sizes.targets, strict=True)
        mode, a, b, outer = self._plan([Axis(*triple) for triple in triples if triple[0] != 1])
        blocks = self._blocks(mode, a, b, prod([axis.extent for axis in outer]))
        c = _repeated(outer)
        outer = [axis for axis in outer if axis is not c]
        each_block = self.itemsize * smaller(a.extent, blocks[0]) * smaller(b.extent, blocks[1])
        repeated = mode in (COPY, STRIDED) or (mode == TILES and self._by_shuffles(a, b))
        return TransposeSizes.following(
            sizes,
            mode=mode,
            **by_name("a_extent a_source a_target a_block", (*a, blocks[0])),
            **by_name("b_extent b_source b_target b_block", (*b, blocks[1])),
            a_slack=self._slack(mode, a, b.target, _LINE_BYTES),
            b_slack=self._slack(mode, b, a.source, tuning.TRANSPOSE_ALIASING_BYTES),
            **by_name("c_extent c_source c_target", c),
            c_block=larger(1, tuning.TASK_BYTES // larger(1, each_block)) if repeated else 1,
            outer_tasks=prod([axis.extent for axis in outer]),
            outer_rank=len(outer),
            outer=[number for axis in (*outer, *[_NOTHING] * (MAX_RANK - 1 - len(outer))) for number in axis],
        )

    def _plan(self, axes: Sequence[Axis]) -> tuple[int, Axis, Axis, list[Axis]]:
        """(mode, a, b, other axes). Elements side by side are taken apart all at once: read once, not once for each."""
        if self.interleaved:
            found = _plan(axes, 0)
            if found[0] == TILES and self._by_shuffles(*found[1:3]):
                return found
        return _plan(axes, self.step)

    def _slack(self, mode: int, axis: Axis, step: int, period: int) -> int:
        """How much earlier than at a multiple of their extent blocks may begin, to begin where lines of the cache do.

        That is where rows along `axis`, which are `step` apart, lie a multiple of `period` bytes apart.
        """
        aligned = step * self.itemsize % period == 0 and axis.extent >= tuning.TRANSPOSE_ALIGNED_EXTENT
        return LARGEST_TILE - 1 if mode == TILES and not self.interleaved and aligned else 0

    def _by_shuffles(self, a: Axis, b: Axis) -> bool:
        """Whether `interleaved` elements lie side by side without gaps."""
        count = self.interleaved
        return count != 0 and (count, count) in ((a.extent, b.target), (b.extent, a.source))

    def _blocks(self, mode: int, a: Axis, b: Axis, outer: int) -> tuple[int, int]:
        """Extents of a task along a and b."""
        if mode == TILES and self.interleaved and self.interleaved in (a.extent, b.extent):
            along = tuning.TASK_BYTES // self.itemsize // self.interleaved // 64 * 64
            return (self.interleaved, along) if a.extent == self.interleaved else (along, self.interleaved)
        if mode == TILES:
            for block in tuning.TRANSPOSE_BLOCKS:
                if -(-a.extent // block) * -(-b.extent // block) * outer >= tuning.TRANSPOSE_TASKS:
                    break
            return block, block
        items = tuning.TASK_BYTES // self.itemsize
        along_a = smaller(a.extent, items)
        return larger(1, along_a), larger(1, items // larger(1, along_a))

    def tasks(self, sizes: TransposeSizes) -> int:
        if 0 in sizes.extents:
            return 0
        a_blocks = -(-(sizes.a_extent + sizes.a_slack) // sizes.a_block)
        b_blocks = -(-(sizes.b_extent + sizes.b_slack) // sizes.b_block)
        return a_blocks * b_blocks * -(-sizes.c_extent // sizes.c_block) * sizes.outer_tasks

    def work(self, sizes: TransposeSizes) -> Work:
        return Work(0, 2 * self.itemsize * prod(sizes.extents))


def _plan(axes: Sequence[Axis], step: int) -> tuple[int, Axis, Axis, list[Axis]]:
    """(mode, a, b, other axes from the outermost on) for axes in any order, but of extent 1; step: the spec's."""
    left = _merged(sorted(axes, key=_target_distance, reverse=True))
    along_target = [axis for axis in left if axis.target == 1]
    runs = [axis for axis in along_target if axis.source == 1]
    along_source = [axis for axis in left if axis.source == 1]
    spread = [
        axis for axis in along_target if axis.source in (0, step or 0) and axis.extent >= tuning.TRANSPOSE_FILLED_EXTENT
    ]
    if runs:
        mode, a = COPY, runs[0]
    elif spread:
        mode, a = STRIDED if spread[0].source else FILL, spread[0]
    elif along_target and along_source:
        mode, a = TILES, along_target[0]
    else:
        mode, a = ELEMENTS, left[-1] if left else _NOTHING
    left = [axis for axis in left if axis is not a]
    following = [axis for axis in left if mode == COPY and _follow(axis, a)]
    b = along_source[0] if mode == TILES else max(following or left, key=_extent, default=_NOTHING)
    return mode, a, b, [axis for axis in left if axis is not b]


def _follow(axis: Axis, run: Axis) -> bool:
    """Whether short runs follow each other in the source along `axis`, so that a line is read at once."""
    short = run.extent <= tuning.TRANSPOSE_SHORT_RUN
    return short and axis.source == run.extent and axis.extent >= tuning.TRANSPOSE_REPEATED_EXTENT


def _repeated(outer: Sequence[Axis]) -> Axis:
    """The axis c: the innermost that is not short, so that what is written follows what was written before."""
    long = [axis for axis in outer if axis.extent >= tuning.TRANSPOSE_REPEATED_EXTENT]
    return long[-1] if long else max(outer, key=_extent, default=_NOTHING)


def _merged(axes: Sequence[Axis]) -> list[Axis]:
    """Neighbours that both tensors run through without a gap, as one axis."""
    result: list[Axis] = []
    for axis in axes:
        extent, source, target = axis
        if result and result[-1].source == extent * source and result[-1].target == extent * target:
            axis = Axis(result.pop().extent * extent, source, target)
        result.append(axis)
    return result


def _target_distance(axis: Axis) -> int:
    return abs(axis.target)


_extent = operator.itemgetter(0)
