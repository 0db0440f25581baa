"""What the kernel that adds rows to a cache is, without compiling it."""

from __future__ import annotations

from jitonnx.emit.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.spec import ITEMSIZES, KernelSpec, Work, only
from jitonnx.support.records import dataclass


class CacheBuffers(Arguments):
    past: Buffer
    new: Buffer
    start: Buffer
    present: Buffer = result()
    error: Buffer = result()


class CacheSizes(Arguments):
    """Extents, and strides in elements."""

    batch: Size
    heads: Size
    past_rows: Size
    rows: Size
    steps: Size
    depth: Size
    new_batch: Size
    new_head: Size
    new_row: Size


@dataclass(frozen=True)
class CacheSpec(KernelSpec):
    """present[b, h, start[b] + i] = new[b, h, i] for i < steps; other rows are those of past, 0 behind its last.

    past [batch, heads, past_rows, depth] and present [batch, heads, rows, depth] are dense. Element (b, h, i, j) of new
    lies at b * new_batch + h * new_head + i * new_row + j. start is int64 [batch]. Rows that do not fit into present
    are not written: the word `error` is set to 1.

    past and present may be the same memory: then nothing is written but the new rows. Task: a head.
    """

    itemsize: int
    past: bool
    """Whether there is a past; otherwise its pointer goes unread."""

    BUFFERS = CacheBuffers
    SIZES = CacheSizes
    IN_PLACE = (("past", "present"),)
    ALLOWED = only(itemsize=ITEMSIZES)

    def tasks(self, sizes: CacheSizes) -> int:
        return sizes.batch * sizes.heads

    def work(self, sizes: CacheSizes) -> Work:
        """Count what caches take that are updated in place."""
        return Work(0, 2 * sizes.batch * sizes.heads * sizes.steps * sizes.depth * self.itemsize)
