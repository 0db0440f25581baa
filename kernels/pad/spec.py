"""What the padding kernel is, and how a problem of many axes becomes rows; without LLVM."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from jitonnx.emit.arguments import Arguments, Buffer, Size, Sizes, by_name, computed, each, result
from jitonnx.kernels.parts.axes import MAX_RANK
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import ITEMSIZES, KernelSpec, Work, only
from jitonnx.support.records import NamedTuple, dataclass
from jitonnx.target import tuning

MODES = ("constant", "reflect", "edge", "wrap")


class Axis(NamedTuple):
    """An axis of both tensors; strides in elements."""

    extent: int
    target: int
    source: int
    before: int
    source_extent: int


class PadBuffers(Arguments):
    source: Buffer
    value: Buffer
    target: Buffer = result()


class PadSizes(Arguments):
    """What `Axis` has of each axis."""

    extents: Sizes = each(MAX_RANK, fill=1)
    targets: Sizes = each(MAX_RANK, fill=0)
    sources: Sizes = each(MAX_RANK, fill=0)
    before: Sizes = each(MAX_RANK, fill=0)
    source_extents: Sizes = each(MAX_RANK, fill=1)
    source_start: Size = computed()
    """What is cut off in front."""
    row_before: Size = computed()
    row_extent: Size = computed()
    run: Size = computed()
    left: Size = computed()
    middle: Size = computed()
    right: Size = computed()
    """A row: elements added, those of the source, elements added."""
    task_rows: Size = computed()
    outer_places: Size = computed()
    outer_rank: Size = computed()
    b_extent: Size = computed()
    b_target: Size = computed()
    b_source: Size = computed()
    b_before: Size = computed()
    b_source_extent: Size = computed()
    outer: Sizes = computed((MAX_RANK - 1) * len(Axis._fields))


@dataclass(frozen=True)
class PadSpec(KernelSpec):
    """target = source with `before` elements added (or, negative, cut) in front of each axis, and others behind.

    What is added is value[0] (mode constant), or continues from the source: mirrored without its first or last element
    (reflect), that element (edge), or from the other end (wrap); the source is then what is left after cutting.

    `complete` orders and merges the axes: rows along the innermost, which has stride 1 in both, or along the
    last that is padded with the short run of elements inside of it. Task: task_rows rows, which follow each other along
    axis b, at one place of the other axes.
    """

    itemsize: int
    """Bytes of an element: 1, 2, 4 or 8."""
    mode: str
    """One of MODES."""

    BUFFERS = PadBuffers
    SIZES = PadSizes
    COMBINING = True
    ALLOWED = only(itemsize=ITEMSIZES, mode=MODES)

    def complete(self, sizes: PadSizes) -> PadSizes:
        axes = _axes(sizes)
        start = sum(larger(0, -axis.before) * axis.source for axis in axes)
        *outer, row, run = self._rows([_cut(axis) for axis in axes])
        left = smaller(row.before, row.extent)
        middle = smaller(row.extent - left, row.source_extent)
        nothing = Axis(1, 0, 0, 0, 1)
        b = outer.pop() if outer else nothing
        row_bytes = row.extent * run.extent * self.itemsize
        return PadSizes.following(
            sizes,
            source_start=start,
            row_before=row.before,
            row_extent=row.source_extent,
            run=run.extent,
            left=left * run.extent,
            middle=middle * run.extent,
            right=(row.extent - left - middle) * run.extent,
            task_rows=larger(1, smaller(b.extent, tuning.TASK_BYTES // larger(1, row_bytes))),
            outer_places=prod(axis.extent for axis in outer),
            outer_rank=len(outer),
            **by_name("b_extent b_target b_source b_before b_source_extent", b),
            outer=[number for axis in (*outer, *[nothing] * (MAX_RANK - 1 - len(outer))) for number in axis],
        )

    def _rows(self, axes: Sequence[Axis]) -> list[Axis]:
        """The axes from the outermost on: the last two are that of a row, and a run of what is inside of it."""
        left: list[Axis] = []
        for axis in sorted(axes, key=lambda axis: -axis.target):
            if axis.source_extent == 1:  # wherever its one element is said to lead
                axis = axis._replace(source=axis.target)
            if not _is_padded(axis) and axis.extent == 1:
                continue
            above = left[-1] if left else axis
            dense = all(above[i] == axis.extent * axis[i] for i in (1, 2))
            if left and dense and not _is_padded(above) and not _is_padded(axis):
                extent = left.pop().extent * axis.extent
                axis = Axis(extent, axis.target, axis.source, 0, extent)
            left.append(axis)
        one = Axis(1, 1, 1, 0, 1)
        if not left or (left[-1].target, left[-1].source) != (1, 1):  # rows of one element
            left.append(one)
        if len(left) < 2 or _is_padded(left[-1]):
            return [*left, one]
        row, run = left[-2:]
        dense = row.target == row.source == run.extent
        return left if dense and (self.mode == "constant" or run.extent < tuning.PAD_LONG_RUN) else [*left, one]

    def tasks(self, sizes: PadSizes) -> int:
        nothing = self.mode != "constant" and any(_cut(axis).source_extent == 0 for axis in _axes(sizes))
        if nothing or 0 in sizes.extents:
            return 0
        return sizes.outer_places * -(-sizes.b_extent // sizes.task_rows)

    def scratch_bytes(self, sizes: PadSizes) -> int:
        """Holds where the elements that a row adds come from."""
        return 0 if self.mode == "constant" else 8 * (sizes.left + sizes.right)

    def work(self, sizes: PadSizes) -> Work:
        return Work(0, self.itemsize * (prod(sizes.extents) + prod(sizes.source_extents)))


def _axes(sizes: PadSizes) -> list[Axis]:
    each_axis = (sizes.extents, sizes.targets, sizes.sources, sizes.before, sizes.source_extents)
    return [Axis(*of) for of in zip(*each_axis, strict=True)]


def _cut(axis: Axis) -> Axis:
    """The axis without what is cut off from the source, as if that were not there."""
    after = axis.extent - axis.before - axis.source_extent
    kept = axis.source_extent - larger(0, -axis.before) - larger(0, -after)
    return axis._replace(before=larger(0, axis.before), source_extent=larger(0, kept))


def _is_padded(axis: Axis) -> bool:
    return axis.before != 0 or axis.extent != axis.source_extent
