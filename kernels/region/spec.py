"""The sizes, tasks and work of a region: all that a program needs of it, without its expressions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from jitonnx.kernels.parts.sizes import larger
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

TASK_ELEMENTS = 8192
"""Elements of one task: some microseconds of work, and a few dozen KB that stay in the first cache levels."""


@dataclass(frozen=True)
class LoopsSpec(KernelSpec):
    """A loop nest of `rank` loops over operands whose elements have `itemsizes` bytes: inputs first, then outputs.

    sizes: the extents of the loops, then for each operand its strides by loop; `complete` appends how rows and columns
    are cut into tasks: rows a task, columns a task, column pieces, rows.
    """

    rank: int
    itemsizes: tuple[int, ...]
    cost: int
    """Rough floating-point operations for one element of the loops."""

    @property
    def first_cut(self) -> int:
        """Position in `sizes` of what `complete` appends."""
        return self.rank * (1 + len(self.itemsizes))

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        extents = sizes[: self.rank]
        rows, columns = prod(extents[:-1]), extents[-1]
        rows_each = larger(1, TASK_ELEMENTS // larger(1, columns))
        columns_each = columns if columns <= 2 * TASK_ELEMENTS else TASK_ELEMENTS
        return [*sizes, rows_each, columns_each, -(-columns // larger(1, columns_each)), rows]

    def tasks(self, sizes: Sequence[int]) -> int:
        rows_each, _, pieces, rows = sizes[self.first_cut : self.first_cut + 4]
        return -(-rows // rows_each) * pieces

    def work(self, sizes: Sequence[int]) -> Work:
        rank = self.rank
        extents, moved, at = sizes[:rank], 0, rank
        for touched in self.itemsizes:
            for extent, stride in zip(extents, sizes[at : at + rank], strict=True):
                if stride:
                    touched *= extent
            moved += touched
            at += rank
        return Work(prod(extents) * self.cost, moved)
