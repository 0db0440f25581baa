"""What kernels on planes of pixels share: a task is a block of rows of one plane, planes in the order of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.emit.builder import KernelBuilder, remainder, smaller
from jitonnx.emit.ssa import SSAValue
from jitonnx.support.records import NamedTuple


class BlockOfRows(NamedTuple):
    """Rows start … stop - 1 of a plane, which is that of a channel of an image."""

    plane: SSAValue
    image: SSAValue
    channel: SSAValue
    start: SSAValue
    stop: SSAValue


@contextmanager
def each_block_of_rows(
    code: KernelBuilder, begin: SSAValue, end: SSAValue, height: SSAValue, rows: SSAValue, channels: SSAValue
) -> Iterator[BlockOfRows]:
    """The loop over tasks `begin` … `end` - 1: blocks of `rows` of the `height` rows of each plane."""
    blocks = (height + rows - 1) / rows
    with code.loop(end, begin) as task:
        plane, start = task / blocks, remainder(task, blocks) * rows
        yield BlockOfRows(plane, plane / channels, remainder(plane, channels), start, smaller(start + rows, height))
