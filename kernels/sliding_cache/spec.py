"""What the kernel that moves a cache on is, without compiling it."""

from __future__ import annotations

from jitonnx.emit.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.spec import ITEMSIZES, KernelSpec, Work, only
from jitonnx.support.records import dataclass


class SlidingBuffers(Arguments):
    past: Buffer
    new: Buffer
    before: Buffer
    seen: Buffer = result()
    present: Buffer = result()
    error: Buffer = result()


class SlidingSizes(Arguments):
    """Extents, and strides in elements."""

    batch: Size
    heads: Size
    capacity: Size
    window: Size
    seen_rows: Size
    steps: Size
    depth: Size
    new_batch: Size
    new_head: Size
    new_row: Size


@dataclass(frozen=True)
class SlidingSpec(KernelSpec):
    """One head's rows of a cache of `capacity` rows, of which `window` at least are the last positions.

    A cache that T positions went into holds the last kept(T): all while they fit, else as many as are left when
    capacity - window + 1 are dropped at a time. past [batch, heads, capacity, depth] holds kept(before[b]), present
    kept(before[b] + steps), with those of new; rows behind are 0. seen [batch, heads, seen_rows, depth] has what the
    new positions attend to: the last min(before[b], window - 1) of past, then all of new; rows behind are 0.

    past and present are dense, and may be the same memory. Element (b, h, i, j) of new lies at b * new_batch + h *
    new_head + i * new_row + j. before is int64 [batch]. Where it is negative, or rows do not fit into seen, the word
    `error` is set to 1, and nothing is written. Task: a head.
    """

    itemsize: int

    BUFFERS = SlidingBuffers
    SIZES = SlidingSizes
    IN_PLACE = (("past", "present"),)
    ALLOWED = only(itemsize=ITEMSIZES)

    def tasks(self, sizes: SlidingSizes) -> int:
        return sizes.batch * sizes.heads

    def work(self, sizes: SlidingSizes) -> Work:
        rows = 2 * (sizes.seen_rows + sizes.capacity)
        return Work(0, sizes.batch * sizes.heads * rows * sizes.depth * self.itemsize)
