"""What the padding kernel is, and how a problem of many axes becomes rows; without LLVM."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, NamedTuple

from jitonnx.kernels.parts.axes import MAX_RANK
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

MODES = ("constant", "reflect", "edge", "wrap")
_TASK_BYTES = 32 << 10
"""About what a task writes."""
_LONG_RUN = 32
"""From so many elements on, runs that continue from elsewhere are rows of their own, which are copied by vectors."""


class Axis(NamedTuple):
    """An axis of both tensors; strides in elements."""

    extent: int
    target: int
    source: int
    before: int
    source_extent: int


@dataclass(frozen=True)
class PadSpec(KernelSpec):
    """target = source with `before` elements added (or, negative, cut) in front of each axis, and others behind.

    What is added is value[0] (mode constant), or continues from the source: mirrored without its first or last element
    (reflect), that element (edge), or from the other end (wrap); the source is then what is left after cutting.

    GIVEN: for up to 8 axes the extents of target and source (1 where there is none), their strides in elements, and
    `before`. `complete` orders and merges the axes: rows along the innermost, which has stride 1 in both, or along the
    last that is padded with the short run of elements inside of it. Task: task_rows rows, which follow each other along
    axis b, at one place of the other axes.
    """

    itemsize: int
    """Bytes of an element: 1, 2, 4 or 8."""
    mode: str
    """One of MODES."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("source", "value", "target")
    GIVEN: ClassVar[tuple[str, ...]] = tuple(f"{what}_{axis}" for what in Axis._fields for axis in range(MAX_RANK))
    SIZES: ClassVar[tuple[str, ...]] = (
        *GIVEN,
        *("source_start", "row_before", "row_extent", "run", "left", "middle", "right"),
        *("task_rows", "outer_places", "outer_rank"),
        *(f"b_{what}" for what in Axis._fields),
        *(f"outer_{axis}_{what}" for axis in range(MAX_RANK - 1) for what in Axis._fields),
    )
    """source_start: what is cut off in front. A row: elements added, those of the source, elements added."""

    def __post_init__(self) -> None:
        if self.itemsize not in (1, 2, 4, 8) or self.mode not in MODES:
            raise ValueError(f"no padding kernel for elements of {self.itemsize} bytes, mode {self.mode!r}")

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """GIVEN -> SIZES."""
        given = list(sizes[: len(self.GIVEN)])
        axes = [Axis(*given[axis::MAX_RANK]) for axis in range(MAX_RANK)]
        start = sum(larger(0, -axis.before) * axis.source for axis in axes)
        *outer, row, run = self._rows([_cut(axis) for axis in axes])
        left = smaller(row.before, row.extent)
        middle = smaller(row.extent - left, row.source_extent)
        counts = [left, middle, row.extent - left - middle]
        row_elements = row.extent * run.extent
        nothing = Axis(1, 0, 0, 0, 1)
        b = outer.pop() if outer else nothing
        task_rows = larger(1, smaller(b.extent, _TASK_BYTES // larger(1, row_elements * self.itemsize)))
        axes = [b, *outer, *[nothing] * (MAX_RANK - 1 - len(outer))]
        return [
            *given,
            *(start, row.before, row.source_extent, run.extent, *(count * run.extent for count in counts)),
            *(task_rows, prod(axis.extent for axis in outer), len(outer)),
            *(number for axis in axes for number in axis),
        ]

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
        return left if dense and (self.mode == "constant" or run.extent < _LONG_RUN) else [*left, one]

    def tasks(self, sizes: Sequence[int]) -> int:
        named = dict(zip(self.SIZES, sizes, strict=False))
        sources = [Axis(*sizes[axis : len(self.GIVEN) : MAX_RANK]) for axis in range(MAX_RANK)]
        nothing = self.mode != "constant" and any(_cut(axis).source_extent == 0 for axis in sources)
        if nothing or 0 in sizes[:MAX_RANK]:
            return 0
        return named["outer_places"] * -(-named["b_extent"] // named["task_rows"])

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        """Where the elements that a row adds come from."""
        named = dict(zip(self.SIZES, sizes, strict=False))
        return 0 if self.mode == "constant" else 8 * (named["left"] + named["right"])

    def work(self, sizes: Sequence[int]) -> Work:
        read = prod(sizes[self.GIVEN.index("source_extent_0") :][:MAX_RANK])
        return Work(0, self.itemsize * (prod(sizes[:MAX_RANK]) + read))


def _cut(axis: Axis) -> Axis:
    """The axis without what is cut off from the source, as if that were not there."""
    after = axis.extent - axis.before - axis.source_extent
    kept = axis.source_extent - larger(0, -axis.before) - larger(0, -after)
    return axis._replace(before=larger(0, axis.before), source_extent=larger(0, kept))


def _is_padded(axis: Axis) -> bool:
    return axis.before != 0 or axis.extent != axis.source_extent
