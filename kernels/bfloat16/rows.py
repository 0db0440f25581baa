"""Copying the rows of a task to scratch memory, as bfloat16: as they are, tap by tap, or with an image's padding."""

from __future__ import annotations

from jitonnx.kernels.bfloat16.spec import STEP, BfloatBuffers, BfloatSizes, BfloatSpec, padded_width
from jitonnx.kernels.language import types
from jitonnx.kernels.language.code import Code, Pointer, larger, remainder, smaller
from jitonnx.kernels.language.half import narrow_for_products
from jitonnx.kernels.language.trace import Traced
from jitonnx.kernels.parts.windows import copy_taps, each_window

_LANES = 16
"""float32 in a vector; all CPUs with tiles have vectors of 64 bytes."""


class Copying:
    """Emits the copies of one kernel. Scratch memory is addressed by bytes."""

    def __init__(self, code: Code, spec: BfloatSpec, size: BfloatSizes) -> None:
        self._code, self._size = code, size
        self._element = types.uint16 if spec.x_type == "bfloat16" else types.float32
        self._x = code.buffers(BfloatBuffers, self._element).x

    def rows(self, scratch: Pointer, first: Traced, count: Traced, depth: Traced) -> None:
        """`count` rows of `depth` elements from number `first` on."""
        size = self._size
        with self._code.loop(count) as r:
            self._run(scratch.at(r * size.row_bytes), self._x.at((first + r) * size.x_pixel), depth)

    def gathered(self, scratch: Pointer, first: Traced, count: Traced, depth: Traced) -> None:
        """The taps of `count` output pixels from number `first` on, side by side."""
        code, size = self._code, self._size
        end = (depth + (STEP - 1)) / STEP * STEP
        with each_window(code, size, first, count) as window:
            target = scratch.at(window.number * size.row_bytes)
            self._zeros(target.at((end - STEP) * 2), code.integer(STEP))  # what the runs below leave of the last step
            copy_taps(code, size, target, self._x.at(window.image * size.x_image), window, 2, self._run, self._zeros)

    def padded(
        self, scratch: Pointer, line_bytes: Traced, pitch: Traced, image: Traced, first: Traced, count: Traced
    ) -> None:
        """`count` rows of an image from number `first` on, which may lie outside, with the padding at both ends.

        Rows are line_bytes apart in scratch memory, pixels pitch bytes."""
        code, size = self._code, self._size
        across = padded_width(size)
        deep = (size.channels + (STEP - 1)) / STEP * STEP
        source = self._x.at(image * size.x_image)
        begin = smaller(size.pad_left, across)
        inner = larger(smaller(size.width, across - begin), 0)
        together = size.x_pixel.equals(size.channels) & pitch.equals(size.channels * 2)
        with code.loop(count) as r:
            row, into = first + r, scratch.at(r * line_bytes)
            with code.either((row >= 0) & (row < size.height)) as (inside, outside):
                with inside:
                    line = source.at(row * size.x_row)
                    self._zeros(into, begin * pitch / 2)
                    with code.either(together) as (in_one, apart):
                        with in_one:
                            self._run(into.at(begin * pitch), line, inner * size.channels)
                        with apart, code.loop(inner) as column:
                            there = into.at((begin + column) * pitch)
                            self._zeros(there.at((deep - STEP) * 2), code.integer(STEP))
                            self._run(there, line.at(column * size.x_pixel), size.channels)
                    self._zeros(into.at((begin + inner) * pitch), (across - begin - inner) * pitch / 2)
                with outside:
                    self._zeros(into, across * pitch / 2)

    def unfolded(self, scratch: Pointer, lines: Pointer, count: Traced, depth: Traced) -> None:
        """The taps of `count` rows of output pixels side by side, out of what `padded` made of rows of the image."""
        code, size = self._code, self._size
        pixel = size.channels * 2
        run = size.kernel_width * size.channels
        zero = code.number(types.uint16, 0, STEP)
        with code.loop(count) as i, code.loop(size.out_width) as j:
            source = lines.at(i * size.stride_height * size.line_bytes + j * size.stride_width * pixel)
            target = scratch.at((i * size.out_width + j) * size.row_bytes)
            with code.loop(size.kernel_height) as tap:
                line = source.at(tap * size.dilation_height * size.line_bytes).to(types.uint16)
                into = target.to(types.uint16).at(tap * run)
                with code.loop(run, step=STEP) as at:  # and what follows, which the next row of taps or zeros replace
                    into.store(at, line.load(at, STEP))
            target.to(types.uint16).store(depth, zero)

    def _run(self, target: Pointer, source: Pointer, count: Traced) -> None:
        """`count` elements side by side, as bfloat16; zeros are written behind them, to whole steps from the first."""
        self._code.subroutine("copy_run", [target, source, count], self._write_run, inline=False)

    def _write_run(self, code: Code, target: Pointer, source: Pointer, count: Traced) -> None:
        to = target.to(types.uint16)
        full = count - remainder(count, code.integer(STEP))
        four = count - remainder(count, code.integer(4 * STEP))
        with code.loop(four, 0, 4 * STEP) as at:
            vectors = [self._step(source, at + part * STEP) for part in range(4)]
            for part, vector in enumerate(vectors):
                to.store(at + part * STEP, vector)
        with code.loop(full, four, STEP) as at:
            to.store(at, self._step(source, at))
        with code.when(count > full):
            to.store(full, self._step(source, full, count - full))

    def _step(self, source: Pointer, at: Traced, live: Traced | None = None) -> Traced:
        """STEP elements, those from `live` on 0."""
        if self._element is types.uint16:
            return source.load(at, STEP, live)
        first = source.load(at, _LANES, live)
        second = source.load(at + _LANES, _LANES, None if live is None else live - _LANES)
        return narrow_for_products(first, second)

    def _zeros(self, target: Pointer, count: Traced) -> None:
        """`count` zeros; more may be written behind them, to whole steps."""
        zero, to = self._code.number(types.uint16, 0, STEP), target.to(types.uint16)
        with self._code.loop(count, step=STEP) as at:
            to.store(at, zero)
