"""Copying the rows of a task to scratch memory, for products in tile registers: as they are, tap by tap, or with an
image's padding."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable

from jitonnx.kernels.language.code import Code, Mask, Pointer, larger, remainder, smaller
from jitonnx.kernels.language.llvm import live_bytes
from jitonnx.kernels.language.trace import Traced
from jitonnx.kernels.parts.layouts import LINE
from jitonnx.kernels.parts.tiled_products import TiledSizes, padded_width
from jitonnx.kernels.parts.windows import copy_taps, each_window


class Copying:
    """Emits the copies of one kernel. Scratch memory is addressed by bytes.

    outside: what pixels outside of an image are, a vector of a cache line: a step of elements as products take them.
    take: a step of x from a place on, as such elements; if there is a third argument, as many, and others behind them.
    """

    def __init__(
        self,
        code: Code,
        size: TiledSizes,
        x: Pointer,
        outside: Traced,
        take: Callable[..., Traced],
    ) -> None:
        self._code, self._size, self._x, self._outside, self._take = code, size, x, outside, take
        self._element, self._step = outside.element, outside.lanes
        self._bytes = LINE // outside.lanes

    def rows(self, scratch: Pointer, first: Traced, count: Traced, depth: Traced) -> None:
        """`count` rows of `depth` elements from number `first` on."""
        size = self._size
        with self._code.loop(count) as r:
            self._run(scratch.at(r * size.row_bytes), self._x.at((first + r) * size.x_pixel), depth)

    def gathered(self, scratch: Pointer, first: Traced, count: Traced, depth: Traced) -> None:
        """The taps of `count` output pixels from number `first` on, side by side."""
        code, size = self._code, self._size
        end = (depth + (self._step - 1)) / self._step * self._step
        image, fill, each = self._x, self._fill, self._bytes
        with each_window(code, size, first, count) as window:
            target = scratch.at(window.number * size.row_bytes)
            # What the runs below leave of the last step.
            fill(target.at((end - self._step) * each), code.integer(self._step))
            copy_taps(code, size, target, image.at(window.image * size.x_image), window, each, self._run, fill)

    def padded(
        self, scratch: Pointer, line_bytes: Traced, pitch: Traced, image: Traced, first: Traced, count: Traced
    ) -> None:
        """`count` rows of an image from number `first` on, which may lie outside, with the padding at both ends.

        Rows are line_bytes apart in scratch memory, pixels pitch bytes."""
        code, size = self._code, self._size
        across = padded_width(size)
        deep = (size.channels + (self._step - 1)) / self._step * self._step
        source = self._x.at(image * size.x_image)
        begin = smaller(size.pad_left, across)
        inner = larger(smaller(size.width, across - begin), 0)
        together = size.x_pixel.equals(size.channels) & pitch.equals(size.channels * self._bytes)
        with code.loop(count) as r:
            row, into = first + r, scratch.at(r * line_bytes)
            with code.either((row >= 0) & (row < size.height)) as (inside, outside):
                with inside:
                    line = source.at(row * size.x_row)
                    self._fill(into, begin * pitch / self._bytes)
                    with code.either(together) as (in_one, apart):
                        with in_one:
                            self._run(into.at(begin * pitch), line, inner * size.channels)
                        with apart, code.loop(inner) as column:
                            there = into.at((begin + column) * pitch)
                            self._fill(there.at((deep - self._step) * self._bytes), code.integer(self._step))
                            self._run(there, line.at(column * size.x_pixel), size.channels)
                    self._fill(into.at((begin + inner) * pitch), (across - begin - inner) * pitch / self._bytes)
                with outside:
                    self._fill(into, across * pitch / self._bytes)

    def unfolded(self, scratch: Pointer, lines: Pointer, count: Traced, depth: Traced) -> None:
        """The taps of `count` rows of output pixels side by side, out of what `padded` made of rows of the image."""
        code, size = self._code, self._size
        pixel = size.channels * self._bytes
        run = size.kernel_width * size.channels
        with code.loop(count) as i, code.loop(size.out_width) as j:
            source = lines.at(i * size.stride_height * size.line_bytes + j * size.stride_width * pixel)
            target = scratch.at((i * size.out_width + j) * size.row_bytes)
            with code.loop(size.kernel_height) as tap:
                line = source.at(tap * size.dilation_height * size.line_bytes).to(self._element)
                into = target.to(self._element).at(tap * run)
                # What follows is written, too; the next row of taps, or what is outside, replaces it.
                with code.loop(run, step=self._step) as at:
                    into.store(at, line.load(at, self._step))
            target.to(self._element).store(depth, self._outside)

    def joined(self, scratch: Pointer, lines: Pointer, count: Traced, steps: Traced, runs: int) -> None:
        """Do what `unfolded` does, but of rows of bytes of taps `runs` share each of the `steps`: vectors of them are
        shifted to their places as they are read. Of rows behind the last, for which weights are 0, anything is
        taken."""
        code, size = self._code, self._size
        run = size.kernel_width * size.channels
        ends = [live_bytes(code.builder, (run * number).value) for number in range(runs + 1)]
        masks = [Mask(code.builder.xor(low, high)) for low, high in itertools.pairwise(ends)]
        line = size.dilation_height * size.line_bytes
        with code.loop(count) as i:
            source = lines.at(i * size.stride_height * size.line_bytes)
            target = scratch.at(i * size.out_width * size.row_bytes)
            with code.loop(size.out_width) as j:
                window = source.at(j * size.stride_width * size.channels).to(self._element)
                into = target.at(j * size.row_bytes).to(self._element)
                with code.loop(steps) as step:
                    place = window.at(step * runs * line)
                    parts = [place.at(line * n - run * n).load(0, self._step, mask) for n, mask in enumerate(masks)]
                    into.store(step * self._step, functools.reduce(operator.or_, parts))

    def _run(self, target: Pointer, source: Pointer, count: Traced) -> None:
        """`count` elements side by side, as products take them, and others behind them, to whole steps."""
        self._code.subroutine("copy_run", [target, source, count], self._write_run, inline=False)

    def _write_run(self, code: Code, target: Pointer, source: Pointer, count: Traced) -> None:
        to = target.to(self._element)
        full = count - remainder(count, code.integer(self._step))
        four = count - remainder(count, code.integer(4 * self._step))
        with code.loop(four, 0, 4 * self._step) as at:
            vectors = [self._take(source, at + part * self._step) for part in range(4)]
            for part, vector in enumerate(vectors):
                to.store(at + part * self._step, vector)
        with code.loop(full, four, self._step) as at:
            to.store(at, self._take(source, at))
        with code.when(count > full):
            to.store(full, self._take(source, full, count - full))

    def _fill(self, target: Pointer, count: Traced) -> None:
        """`count` times what is outside; more may be written behind, to whole steps."""
        to = target.to(self._element)
        with self._code.loop(count, step=self._step) as at:
            to.store(at, self._outside)
