"""What the kernels of NonMaxSuppression are, without compiling them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from jitonnx.kernels.parts.sizes import smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

CORNERS = 5
"""Numbers that are kept of a chosen box: its lowest and highest coordinates, and its area."""
PADDING = 16
"""Elements behind the end of scratch arrays that whole vectors reach to."""


@dataclass(frozen=True)
class SuppressionSpec(KernelSpec):
    """chosen[row, :counts[row]] = the boxes of a (batch, class) in the order in which they are chosen.

    boxes [batches, boxes, 4] are corners in any order, or centers and sizes; scores [batches, classes, boxes]; both
    dense. `limit` (int64), `overlap` and `least` (float32) are one element each: at most so many boxes a row, the
    intersection over union above which a box is left out, and the score that boxes have to be above if `thresholded`.
    An overlap outside of [0, 1] sets `error`.

    Boxes become records, integers in the order wanted: a key of the score, then the number, complemented. They are a
    heap, as most rows are done long before all of it is sorted; what comes off it is compared with the chosen ones,
    whose corners lie by vectors. A NaN is below all scores.

    Task: one class of one batch. A row of `chosen` has room for `most` boxes.
    """

    centers: bool
    thresholded: bool

    BUFFERS: ClassVar[tuple[str, ...]] = (
        *("boxes", "scores", "limit", "overlap", "least"),
        *("chosen", "counts", "error"),
    )
    SIZES: ClassVar[tuple[str, ...]] = ("batches", "classes", "boxes", "most")

    def tasks(self, sizes: Sequence[int]) -> int:
        return sizes[0] * sizes[1]

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        """The heap, and of each chosen box its corners and area."""
        return 8 * (sizes[2] + PADDING) + 4 * CORNERS * (sizes[3] + PADDING)

    def work(self, sizes: Sequence[int]) -> Work:
        """As if an eighth of the boxes, but for 100 of them, were compared with 20 each: the data tells."""
        batches, classes, boxes, _ = sizes
        rows = batches * classes
        return Work(rows * (4 * boxes + 400 * smaller(boxes, 100 + boxes // 8)), rows * 20 * boxes)


@dataclass(frozen=True)
class SelectedSpec(KernelSpec):
    """out[i] = (batch, class, box) for all boxes chosen, row after row, int64; count = how many there are.

    One task, also where there are no elements.
    """

    BUFFERS: ClassVar[tuple[str, ...]] = ("chosen", "counts", "out", "count")
    SIZES: ClassVar[tuple[str, ...]] = ("batches", "classes", "most")

    def tasks(self, sizes: Sequence[int]) -> int:
        return 1

    def work(self, sizes: Sequence[int]) -> Work:
        batches, classes, most = sizes
        return Work(0, batches * classes * (8 + 32 * smaller(most, 8)))
