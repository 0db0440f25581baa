"""The sizes, tasks and work of a region: all that a program needs of it, without its expressions."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

from jitonnx.emit.arguments import Arguments, computed, each, record
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning


@functools.cache
def loops_sizes(rank: int, operands: int) -> type[Arguments]:
    """The sizes of `rank` loops over some operands.

    Extents by loop; strides by operand and loop; rows and columns of a task, columns' pieces, and rows, of which
    `complete` adds the latter four.
    """
    added = dict.fromkeys(("rows_each", "columns_each", "pieces", "rows"), computed())
    return record("LoopsSizes", extents=each(rank), strides=each(operands * rank), **added)


@functools.cache
def loops_buffers(inputs: int, outputs: int) -> type[Arguments]:
    """The buffers of a loop nest."""
    return record("LoopsBuffers", inputs=each(inputs), outputs=each(outputs, result=True))


@dataclass(frozen=True)
class LoopsSpec(KernelSpec):
    """A loop nest of `rank` loops over operands whose elements have `itemsizes` bytes: inputs first, then outputs.

    sizes: see `loops_sizes`.
    """

    rank: int
    itemsizes: tuple[int, ...]
    cost: int
    """Rough floating-point operations for one element of the loops."""
    strided: bool = False
    """Whether elements of some operand lie apart along the inner loop."""

    @property
    def SIZES(self) -> Any:
        return loops_sizes(self.rank, len(self.itemsizes))

    def complete(self, sizes: Any) -> Any:
        rows, columns = prod(sizes.extents[:-1]), sizes.extents[-1]
        if self.strided:
            columns_each = smaller(columns, tuning.REGION_STRIDED_COLUMNS)
        else:
            columns_each = columns if columns <= 2 * tuning.REGION_TASK_ELEMENTS else tuning.REGION_TASK_ELEMENTS
        return self.SIZES.following(
            sizes,
            rows_each=larger(1, tuning.REGION_TASK_ELEMENTS // larger(1, columns_each if self.strided else columns)),
            columns_each=columns_each,
            pieces=-(-columns // larger(1, columns_each)),
            rows=rows,
        )

    def tasks(self, sizes: Any) -> int:
        return -(-sizes.rows // sizes.rows_each) * sizes.pieces

    def work(self, sizes: Any) -> Work:
        moved, rank = 0, self.rank
        for number, touched in enumerate(self.itemsizes):
            strides = sizes.strides[number * rank : (number + 1) * rank]
            for extent, stride in zip(sizes.extents, strides, strict=True):
                if stride:
                    touched *= extent
            moved += touched
        return Work(prod(sizes.extents) * self.cost, moved)
