"""Gathering the left operands of a task's rows: the taps of each output pixel side by side in scratch memory."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.kernels.integer.spec import IntegerBuffers, IntegerSizes, IntegerSpec
from jitonnx.kernels.language import types
from jitonnx.kernels.language.code import Code, Mask, Pointer, larger, remainder, smaller
from jitonnx.kernels.language.llvm import live_bytes
from jitonnx.kernels.language.simd import convert
from jitonnx.kernels.language.trace import Traced, select
from jitonnx.kernels.parts.memory import copy_bytes

_FLIP = 0x80
_MASKED_BYTES = 64
"""Vectors of this size are loaded in part by masks of bytes (AVX-512), without a branch for each size."""


def zero_point(code: Code, spec: IntegerSpec) -> Traced:
    """The number that x's 0 is gathered as, in a type that holds it."""
    element = types.int8 if spec.signed else types.uint8
    zero = code.buffers(IntegerBuffers, element).zero.load(0) if spec.shifted else code.number(element, 0)
    return (
        Traced(code.builder, types.uint8 if spec.signed else types.int8, (zero ^ -_FLIP).value)
        if spec.flipped
        else zero
    )


def emit_gather(
    code: Code,
    spec: IntegerSpec,
    size: IntegerSizes,
    first_row: Traced,
    count: Traced,
    depth: Traced,
) -> None:
    """Rows first_row, …, first_row + count - 1, `row_bytes` apart from the beginning of scratch memory on."""
    row_bytes = size.row_bytes
    x = code.buffers(IntegerBuffers, types.int8 if spec.signed else types.uint8).x
    scratch = code.scratch(types.uint8)
    elements = _Elements(code, spec)
    if not spec.windows:
        whole_row = elements.run(depth)
        with code.loop(count) as r:
            whole_row.copy(scratch.at(r * row_bytes), x.at((first_row + r) * size.x_pixel))
        return
    pixels = size.out_height * size.out_width
    place = remainder(first_row, pixels)
    image, out_row = code.variable(first_row / pixels), code.variable(place / size.out_width)
    out_column = code.variable(remainder(place, size.out_width))
    run = elements.run(size.kernel_width * size.channels)
    together = size.dilation_width.equals(1) & size.x_pixel.equals(size.channels)
    with code.loop(count) as r:
        row, column = out_row.get(), out_column.get()
        top, left = row * size.stride_height - size.pad_top, column * size.stride_width - size.pad_left
        source, target = x.at(image.get() * size.x_image), scratch.at(r * row_bytes)
        bottom, right = top + (size.kernel_height - 1) * size.dilation_height, left + size.kernel_width
        inside = (top >= 0) & (bottom < size.height) & (left >= 0) & (right <= size.width)
        with code.either(inside & together) as (whole, part):
            with whole, code.loop(size.kernel_height) as tap_row:
                from_row = source.at((top + tap_row * size.dilation_height) * size.x_row + left * size.channels)
                run.copy(target.at(tap_row * run.count * elements.itemsize), from_row)
            with part:
                _gather_window(code, elements, size, source, target, top, left)
        next_row = (column + 1).equals(size.out_width)
        next_image = next_row & (row + 1).equals(size.out_height)
        out_column.set(select(next_row, code.integer(0), column + 1))
        out_row.set(select(next_image, code.integer(0), select(next_row, row + 1, row)))
        image.set(select(next_image, image.get() + 1, image.get()))


def _gather_window(
    code: Code,
    elements: _Elements,
    size: IntegerSizes,
    image: Pointer,
    target: Pointer,
    top: Traced,
    left: Traced,
) -> None:
    """The taps of one output pixel. Those of a row that lie side by side are copied in one run."""
    channels, taps = size.channels, size.kernel_width
    run = taps * channels
    together = size.dilation_width.equals(1) & size.x_pixel.equals(channels)
    itemsize = elements.itemsize
    with code.loop(size.kernel_height) as tap_row:
        row = top + tap_row * size.dilation_height
        into = target.at(tap_row * run * itemsize)
        inside = (row >= 0) & (row < size.height)
        with code.either(inside & together) as (in_one, apart):
            with in_one:
                begin = smaller(larger(0 - left, 0), taps)
                end = larger(smaller(size.width - left, taps), begin)
                elements.fill(into, begin * channels)
                source = image.at(row * size.x_row + (left + begin) * channels)
                elements.copy(into.at(begin * channels * itemsize), source, (end - begin) * channels)
                elements.fill(into.at(end * channels * itemsize), (taps - end) * channels)
            with apart, code.loop(taps) as tap:
                column = left + tap * size.dilation_width
                there = into.at(tap * channels * itemsize)
                with code.either(inside & (column >= 0) & (column < size.width)) as (read, padded):
                    with read:
                        elements.copy(there, image.at(row * size.x_row + column * size.x_pixel), channels)
                    with padded:
                        elements.fill(there, channels)


class _Run:
    """Copies of runs of one length."""

    def __init__(self, elements: _Elements, count: Traced) -> None:
        self._elements, self.count = elements, count
        code = elements.code
        self._lanes = elements.lanes if code.target.vector_bytes == _MASKED_BYTES and elements.itemsize == 1 else 0
        """Of vectors, of which masks take parts; 0 where they do not."""
        if self._lanes:
            self._rest = remainder(count, code.integer(self._lanes))
            self._mask = Mask(live_bytes(code.builder, self._rest.value))

    def copy(self, target: Pointer, source: Pointer) -> None:
        """A run. Up to a vector behind its end may be written, too, where what follows is not there yet."""
        elements, code, lanes = self._elements, self._elements.code, self._lanes
        if not lanes:
            elements.copy(target, source, self.count)
            return
        typed = target.to(source.element)
        with code.loop(self.count - (lanes - 1), step=lanes) as at:
            typed.store(at, elements.changed(source.load(at, lanes)))
        with code.when(self._rest > 0):
            last = self.count - self._rest
            typed.store(last, elements.changed(source.load(last, lanes, self._mask)))


class _Elements:
    """How elements of x lie in scratch memory: as they are, with their sign bits flipped, or wider."""

    def __init__(self, code: Code, spec: IntegerSpec) -> None:
        self.code, self._spec = code, spec
        self.itemsize = spec.row_itemsize
        self._element = {1: types.int8 if spec.signed else types.uint8, 2: types.int16, 4: types.int32}[self.itemsize]
        self.lanes = code.target.vector_bytes // self.itemsize
        self._zero = convert(zero_point(code, spec), self._element)

    def run(self, count: Traced) -> _Run:
        """What copies runs of `count` elements."""
        return _Run(self, count)

    def changed(self, vector: Traced) -> Traced:
        """A vector of x as it lies in scratch memory."""
        return _change(self._spec, self._element)(vector)

    def copy(self, target: Pointer, source: Pointer, count: Traced) -> None:
        """`count` elements side by side."""

        def write(code: Code, target: Pointer, source: Pointer, count: Traced) -> None:
            copy_bytes(code, target, source, count, self.lanes, change=_change(self._spec, self._element))

        self.code.subroutine("copy_elements", [target.to(self._element), source, count], write, inline=False)

    def fill(self, target: Pointer, count: Traced) -> None:
        """`count` times what 0 is gathered as; more may be written behind, where what follows is not there yet."""
        vector, typed = self._zero.spread(self.lanes), target.to(self._element)
        with self.code.loop(count, step=self.lanes) as at:
            typed.store(at, vector)


def _change(spec: IntegerSpec, element: types.Type) -> Callable[[Traced], Traced]:
    return (lambda vector: vector ^ -_FLIP) if spec.flipped else (lambda vector: convert(vector, element))
