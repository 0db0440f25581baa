"""What kernels on planes of pixels share: a task is a block of rows of one plane, planes in the order of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.kernels.language.code import Code, remainder, smaller
from jitonnx.kernels.language.trace import Traced
from jitonnx.records import NamedTuple


class BlockOfRows(NamedTuple):
    """Rows start … stop - 1 of a plane, which is that of a channel of an image."""

    plane: Traced
    image: Traced
    channel: Traced
    start: Traced
    stop: Traced


@contextmanager
def each_block_of_rows(
    code: Code, begin: Traced, end: Traced, height: Traced, rows: Traced, channels: Traced
) -> Iterator[BlockOfRows]:
    """The loop over tasks `begin` … `end` - 1: blocks of `rows` of the `height` rows of each plane."""
    blocks = (height + rows - 1) / rows
    with code.loop(end, begin) as task:
        plane, start = task / blocks, remainder(task, blocks) * rows
        yield BlockOfRows(plane, plane / channels, remainder(plane, channels), start, smaller(start + rows, height))
