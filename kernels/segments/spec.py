"""What the kernel of reductions by segments is, without compiling it."""

from __future__ import annotations

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.parts.sizes import larger
from jitonnx.kernels.spec import KernelSpec, Work, only
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

ELEMENTS = ("float32", "float64")
KINDS = ("sum", "mean", "max")


class SegmentsBuffers(Arguments):
    x: Buffer
    offsets: Buffer
    y: Buffer = result()
    error: Buffer = result()


class SegmentsSizes(Arguments):
    rows: Size
    segments: Size
    columns: Size
    task_segments: Size = computed()


@dataclass(frozen=True)
class SegmentsSpec(KernelSpec):
    """y[s] = rows offsets[s] to offsets[s + 1] of x [rows, columns], reduced: vectors of columns go down the rows.

    x, y [segments, columns] and offsets, int64 [segments + 1], are dense. Of no rows y is 0. Offsets that are negative,
    beyond the rows or not in order set the word `error` to 1, and their segments have no rows. Task: task_segments.
    """

    kind: str
    element: str = "float32"

    BUFFERS = SegmentsBuffers
    SIZES = SegmentsSizes
    ALLOWED = only(kind=KINDS, element=ELEMENTS)

    def complete(self, sizes: SegmentsSizes) -> SegmentsSizes:
        rows = larger(1, sizes.rows // larger(1, sizes.segments))
        return SegmentsSizes.following(
            sizes, task_segments=larger(1, tuning.TASK_ELEMENTS // larger(1, rows * sizes.columns))
        )

    def tasks(self, sizes: SegmentsSizes) -> int:
        return -(-sizes.segments // sizes.task_segments) if sizes.columns else 0

    def work(self, sizes: SegmentsSizes) -> Work:
        read, written = sizes.rows * sizes.columns, sizes.segments * sizes.columns
        return Work(read, np.dtype(self.element).itemsize * (read + written))
