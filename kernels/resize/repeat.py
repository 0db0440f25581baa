"""The kernel that repeats pixels of planes, as `spec.RepeatPlanesSpec` describes it."""

from __future__ import annotations

from jitonnx.emit.builder import KernelBuilder, Pointer, remainder, shuffled
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.parts.memory import WORDS
from jitonnx.kernels.parts.planes import each_block_of_rows
from jitonnx.kernels.resize.spec import RepeatPlanesSizes, RepeatPlanesSpec

_LONGEST_VECTOR = 16


class Repeat:
    """Emits the kernel: a row of x after the other."""

    def __init__(self, code: KernelBuilder, spec: RepeatPlanesSpec, lanes: int) -> None:
        self.code, self.across = code, spec.across
        self.lanes = min(_LONGEST_VECTOR, 4 * lanes // spec.itemsize)
        self.size = code.sizes(RepeatPlanesSizes)
        self.x, self.y = code.buffers(UnaryBuffers, WORDS[spec.itemsize])

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, size = self.code, self.size
        written = size.width * self.across * size.down
        with each_block_of_rows(code, begin, end, size.height, size.row_block, size.channels) as rows:
            x = self.x.at(rows.image * size.x_image + rows.channel * size.x_channel)
            y = self.y.at(rows.plane * size.height * written)
            with code.loop(rows.stop, rows.start) as row:
                self._row(x.at(row * size.x_row), y.at(row * written))

    def _row(self, x: Pointer, y: Pointer) -> None:
        """Whole vectors, the last of which may be made a second time; rows shorter than one go by elements."""
        code, width, lanes = self.code, self.size.width, self.lanes
        with code.loop(width - (lanes - 1), step=lanes) as column:
            self._repeat(x, y, column, lanes)
        with code.if_then(remainder(width, code.integer(lanes)) > 0), code.if_else(width > lanes) as (long, short):
            with long:
                self._repeat(x, y, width - lanes, lanes)
            with short, code.loop(width) as column:
                self._repeat(x, y, column, None)

    def _repeat(self, x: Pointer, y: Pointer, column: SSAValue, lanes: int | None) -> None:
        """A vector of pixels, or one pixel."""
        pixels = x.load(column, lanes)
        parts = [pixels] * self.across
        if lanes is not None and self.across > 1:
            orders = [[(part * lanes + i) // self.across for i in range(lanes)] for part in range(self.across)]
            parts = [shuffled(pixels, pixels, order) for order in orders]
        target = y.at(column * self.across)
        with self.code.loop(self.size.down) as copy:
            row = target.at(copy * self.size.width * self.across)
            for number, part in enumerate(parts):
                row.store(number * (lanes or 1), part)
