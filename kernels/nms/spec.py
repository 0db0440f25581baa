"""What the kernels of NonMaxSuppression are, without compiling them."""

from __future__ import annotations

from jitonnx.emit.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.parts.sizes import smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass

CORNERS = 5
"""Numbers that are kept of a chosen box: its lowest and highest coordinates, and its area."""
PADDING = 16
"""Elements behind the end of scratch arrays that whole vectors reach to."""


class NmsBuffers(Arguments):
    boxes: Buffer
    scores: Buffer
    limit: Buffer
    overlap: Buffer
    least: Buffer
    chosen: Buffer = result()
    counts: Buffer = result()
    error: Buffer = result()


class NmsSizes(Arguments):
    batches: Size
    classes: Size
    boxes: Size
    most: Size


@dataclass(frozen=True)
class NmsSpec(KernelSpec):
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

    BUFFERS = NmsBuffers
    SIZES = NmsSizes

    def tasks(self, sizes: NmsSizes) -> int:
        return sizes.batches * sizes.classes

    def scratch_bytes(self, sizes: NmsSizes) -> int:
        """The heap, and of each chosen box its corners and area."""
        return 8 * (sizes.boxes + PADDING) + 4 * CORNERS * (sizes.most + PADDING)

    def work(self, sizes: NmsSizes) -> Work:
        """Count as if an eighth of the boxes, but for 100 of them, were compared with 20 each: the data tells."""
        rows, boxes = sizes.batches * sizes.classes, sizes.boxes
        return Work(rows * (4 * boxes + 400 * smaller(boxes, 100 + boxes // 8)), rows * 20 * boxes)


class SelectedBuffers(Arguments):
    chosen: Buffer
    counts: Buffer
    out: Buffer = result()
    count: Buffer = result()


class SelectedSizes(Arguments):
    batches: Size
    classes: Size
    most: Size


@dataclass(frozen=True)
class SelectedSpec(KernelSpec):
    """out[i] = (batch, class, box) for all boxes chosen, row after row, int64; count = how many there are.

    One task, also where there are no elements.
    """

    BUFFERS = SelectedBuffers
    SIZES = SelectedSizes

    def tasks(self, sizes: SelectedSizes) -> int:
        return 1

    def work(self, sizes: SelectedSizes) -> Work:
        return Work(0, sizes.batches * sizes.classes * (8 + 32 * smaller(sizes.most, 8)))
