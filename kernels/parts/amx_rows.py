"""Copying the rows of a task to scratch memory, for products in tile registers: as they are, tap by tap, or with an
image's padding."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit.builder import KernelBuilder, Pointer, remainder, shuffled
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.parts.amx_products import AmxSizes, pieces
from jitonnx.kernels.parts.layouts import LINE, TILE, padded_width
from jitonnx.kernels.parts.windows import copy_padded, copy_taps, each_window


class Copying:
    """Emits the copies of one kernel. Scratch memory is addressed by bytes.

    outside: what pixels outside of an image are, a vector of a cache line: a step of elements as products take them.
    take: a step of x from a place on, as such elements; if there is a third argument, as many, and others behind them.
    planes: see `AmxSpec`.
    """

    def __init__(
        self,
        code: KernelBuilder,
        size: AmxSizes,
        x: Pointer,
        outside: SSAValue,
        take: Callable[..., SSAValue],
        planes: int = 0,
    ) -> None:
        self._code, self._size, self._x, self._outside, self._take = code, size, x, outside, take
        self._planes = planes
        self._element, self._step = outside.element, outside.lanes
        self.itemsize = LINE // outside.lanes

    def rows(self, scratch: Pointer, first: SSAValue, count: SSAValue, depth: SSAValue) -> None:
        """`count` rows of `depth` elements from number `first` on."""
        size = self._size
        with self._code.loop(count) as r:
            self.copy(scratch.at(r * size.row_bytes), self._x.at((first + r) * size.x_pixel), depth)

    def tiles(self, scratch: Pointer, first: SSAValue, count: SSAValue, depth: SSAValue) -> None:
        """The same as tiles that lie one after the other: [16 rows][step][row] of whole steps."""
        code, size = self._code, self._size
        tall = (depth + (self._step - 1)) / self._step * (TILE * LINE)
        with code.loop(count) as r:
            block = r / TILE
            target, source = (
                scratch.at(block * tall + (r - block * TILE) * LINE),
                self._x.at((first + r) * size.x_pixel),
            )
            code.subroutine("copy_to_tiles", [target, source, depth], self._write_to_tiles, inline=False)

    def gathered(self, scratch: Pointer, first: SSAValue, count: SSAValue, depth: SSAValue) -> None:
        """The taps of `count` output pixels from number `first` on, side by side."""
        code, size = self._code, self._size
        end = (depth + (self._step - 1)) / self._step * self._step
        image, each = self._x, self.itemsize
        with each_window(code, size, first, count) as window:
            target = scratch.at(window.number * size.row_bytes)
            # What the runs below leave of the last step.
            self.fill(target.at((end - self._step) * each), code.integer(self._step))
            copy_taps(code, size, target, image.at(window.image * size.x_image), window, self)

    def padded(
        self, scratch: Pointer, line_bytes: SSAValue, pitch: SSAValue, image: SSAValue, first: SSAValue, count: SSAValue
    ) -> None:
        """`count` rows of an image from number `first` on, which may lie outside, with the padding at both ends.

        Rows are line_bytes apart in scratch memory, pixels pitch bytes."""
        code, size = self._code, self._size
        across = padded_width(size)
        source = self._x.at(image * size.x_image)

        def write(into: Pointer, line: Pointer, pixels: SSAValue) -> None:
            self._write_line(into, line, pixels, pitch)

        with code.loop(count) as r:
            copy_padded(code, size, scratch.at(r * line_bytes), source, first + r, (across, pitch), self, write)

    def _write_line(self, into: Pointer, line: Pointer, count: SSAValue, pitch: SSAValue) -> None:
        """`count` pixels of a row of an image; more may be written behind them."""
        code, size = self._code, self._size
        if self._planes:
            self._interleave(into.to(self._element), line, count)
            return
        deep = (size.channels + (self._step - 1)) / self._step * self._step
        together = size.x_pixel.equals(size.channels) & pitch.equals(size.channels * self.itemsize)
        with code.if_else(together) as (in_one, apart):
            with in_one:
                self.copy(into, line, count * size.channels)
            with apart, code.loop(count) as column:
                there = into.at(column * pitch)
                self.fill(there.at((deep - self._step) * self.itemsize), code.integer(self._step))
                self.copy(there, line.at(column * size.x_pixel), size.channels)

    def _interleave(self, into: Pointer, line: Pointer, count: SSAValue) -> None:
        """`count` pixels out of a line of each plane."""
        code, step, planes = self._code, self._step, self._planes
        with code.loop(count, step=step) as at:
            vectors = [self._take(line.at(self._size.x_pixel * plane), at, count - at) for plane in range(planes)]
            for part in range(planes):
                places = [divmod(part * step + lane, planes) for lane in range(step)]
                mixed = vectors[0]
                for plane, vector in enumerate(vectors):
                    # Lanes of this plane and, from the second on, those before it, which are in their places.
                    order = [
                        pixel + step * (plane > 0) if own == plane else lane for lane, (pixel, own) in enumerate(places)
                    ]
                    mixed = shuffled(mixed, vector, order)
                into.store(at * planes + part * step, mixed)

    def im2col(
        self, scratch: Pointer, lines: Pointer, row: SSAValue, column: SSAValue, count: SSAValue, depth: SSAValue
    ) -> None:
        """The taps of `count` output pixels of a row side by side, from a column on, out of what `padded` made of rows
        of the image."""
        code, size = self._code, self._size
        run = size.kernel_width * size.channels
        first, pixel = self._windows(lines, row, column)
        with code.loop(count) as j:
            source, target = first.at(j * pixel), scratch.at(j * size.row_bytes)
            with code.loop(size.kernel_height) as tap:
                line = source.at(size.dilation_height * tap * size.line_bytes).to(self._element)
                into = target.to(self._element).at(tap * run)
                # What follows is written, too; the next row of taps, or what is outside, replaces it.
                with code.loop(run, step=self._step) as at:
                    into.store(at, line.load(at, self._step))
            target.to(self._element).store(depth, self._outside)

    def im2col_by_pieces(
        self,
        scratch: Pointer,
        lines: Pointer,
        row: SSAValue,
        column: SSAValue,
        count: SSAValue,
        window: tuple[int, int],
    ) -> None:
        """`im2col` of few taps, which are known: each step is put together in a register and written once. Stores
        that straddle cache lines and overlap take three times as long."""
        code, size, step = self._code, self._size, self._step
        first, pixel = self._windows(lines, row, column)
        (_, run), steps = window, pieces(window, step)
        with code.loop(count) as j:
            source, into = first.at(j * pixel), scratch.at(j * size.row_bytes).to(self._element)
            for number, parts in enumerate(steps):
                vector = self._outside
                for tap, begin in parts:
                    line = source.at(size.dilation_height * tap * size.line_bytes - begin * self.itemsize)
                    if begin <= 0 and number + 1 < len(steps):  # the rows that follow replace what is behind it
                        vector = line.to(self._element).load(0, step)
                    else:
                        places = range(max(begin, 0), min(begin + run, step))
                        vector = line.to(self._element).load_over(0, vector, places)
                into.store(number * step, vector)

    def _windows(self, lines: Pointer, row: SSAValue, column: SSAValue) -> tuple[Pointer, SSAValue]:
        """The window of an output pixel in `lines`, and how many bytes from there to the next one's."""
        size = self._size
        pixel = size.stride_width * size.channels * self.itemsize
        return lines.at(row * size.stride_height * size.line_bytes + column * pixel), pixel

    def copy(self, target: Pointer, source: Pointer, count: SSAValue) -> None:
        """`count` elements side by side, as products take them, and others behind them, to whole steps."""
        self._code.subroutine("copy_run", [target, source, count], self._write_run, inline=False)

    def _write_run(
        self, code: KernelBuilder, target: Pointer, source: Pointer, count: SSAValue, apart: int = 1
    ) -> None:
        """The steps of the target begin so many times their size apart."""
        to = target.to(self._element)
        full = count - remainder(count, code.integer(self._step))
        four = count - remainder(count, code.integer(4 * self._step))
        with code.loop(four, 0, 4 * self._step) as at:
            vectors = [self._take(source, at + part * self._step) for part in range(4)]
            for part, vector in enumerate(vectors):
                to.store((at + part * self._step) * apart, vector)
        with code.loop(full, four, self._step) as at:
            to.store(at * apart, self._take(source, at))
        with code.if_then(count > full):
            to.store(full * apart, self._take(source, full, count - full))

    def _write_to_tiles(self, code: KernelBuilder, target: Pointer, source: Pointer, count: SSAValue) -> None:
        self._write_run(code, target, source, count, TILE)

    def fill(self, target: Pointer, count: SSAValue) -> None:
        """`count` times what is outside; more may be written behind, to whole steps."""
        to = target.to(self._element)
        with self._code.loop(count, step=self._step) as at:
            to.store(at, self._outside)
