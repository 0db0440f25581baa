"""Gathering the left operands of a task's rows: the taps of each output pixel side by side in scratch memory, or the
rows of the image that they lie in."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder, Mask, Pointer, remainder
from jitonnx.emit.intrinsics import live_bytes
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.integer.spec import IntegerBuffers, IntegerSizes, IntegerSpec, taps_high
from jitonnx.kernels.parts.layouts import padded_width
from jitonnx.kernels.parts.memory import copy_bytes
from jitonnx.kernels.parts.windows import copy_padded, copy_taps, each_window_row

_FLIP = 0x80
_MASKED_BYTES = 64
"""Vectors of this size are loaded in part by masks of bytes (AVX-512), without a branch for each size."""


def zero_point(code: KernelBuilder, spec: IntegerSpec) -> SSAValue:
    """The number that x's 0 is gathered as, in a type that holds it."""
    element = types.int8 if spec.signed else types.uint8
    zero = code.buffers(IntegerBuffers, element).zero.load(0) if spec.shifted else code.number(element, 0)
    return (
        SSAValue(code.builder, types.uint8 if spec.signed else types.int8, (zero ^ -_FLIP).value)
        if spec.flipped
        else zero
    )


def emit_gather(
    code: KernelBuilder,
    spec: IntegerSpec,
    size: IntegerSizes,
    first_row: SSAValue,
    count: SSAValue,
    depth: SSAValue,
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
    run = elements.run(size.kernel_width * size.channels)
    between = size.dilation_height * size.x_row
    together = size.dilation_width.equals(1) & size.x_pixel.equals(size.channels)
    with each_window_row(code, size, first_row, count) as row:
        source, target = x.at(row.image * size.x_image), scratch.at(row.number * row_bytes)
        bottom = row.top + (size.kernel_height - 1) * size.dilation_height
        inside = together & (row.top >= 0) & (bottom < size.height)
        begin, end = (select(inside, column, row.columns) for column in row.within(size))
        first_left = row.at(size, code.integer(0)).left * size.channels
        next_column = code.variable(code.integer(0))  # in this order: writing may reach behind a row's end
        with code.loop_while(lambda: next_column.get() < row.columns):
            column = next_column.get()
            with code.if_else((column >= begin) & (column < end)) as (whole, part):
                with whole:
                    with code.loop(end, begin) as column_within:
                        from_left = first_left + column_within * (size.stride_width * size.channels)
                        from_row = source.at(row.top * size.x_row + from_left)
                        into = target.at(column_within * row_bytes)
                        run.copy_rows(into, from_row, size.kernel_height, between)
                    next_column.set(end)
                with part:
                    copy_taps(code, size, target.at(column * row_bytes), source, row.at(size, column), elements)
                    next_column.set(column + 1)


def emit_padded_rows(
    code: KernelBuilder, spec: IntegerSpec, size: IntegerSizes, first_row: SSAValue, count: SSAValue
) -> None:
    """The rows of images that output pixels first_row, …, first_row + count - 1 read, with their padding, in scratch
    memory; at its beginning where each of the windows begins, in bytes from there, and some places more for whole
    tiles."""
    x = code.buffers(IntegerBuffers, types.int8 if spec.signed else types.uint8).x
    places, elements = code.scratch(types.int64), _Elements(code, spec)
    lines = code.scratch(types.uint8).at(size.lines_at)
    pixel_bytes = size.channels * elements.itemsize
    an_image = size.out_height * size.stride_height + taps_high(size)
    """Rows of an image and the next one's do not meet."""

    def first_line(pixel: SSAValue) -> SSAValue:
        """The first row of images that an output pixel reads, counted over all of them."""
        row = pixel / size.out_width
        image = row / size.out_height
        return image * an_image + (row - image * size.out_height) * size.stride_height

    begin, end = first_line(first_row), first_line(first_row + count - 1) + taps_high(size)
    across = padded_width(size), pixel_bytes
    together = size.x_pixel.equals(size.channels)

    def write(into: Pointer, line: Pointer, pixels: SSAValue) -> None:
        with code.if_else(together) as (in_one, apart):
            with in_one:
                elements.copy(into, line, pixels * size.channels)
            with apart, code.loop(pixels) as pixel:
                elements.copy(into.at(pixel * pixel_bytes), line.at(pixel * size.x_pixel), size.channels)

    with code.loop(end, begin) as line:
        image = line / an_image
        row = line - image * an_image - size.pad_top
        source, into = x.at(image * size.x_image), lines.at((line - begin) * size.line_bytes)
        copy_padded(code, size, into, source, row, across, elements, write)
    across_bytes = size.stride_width * pixel_bytes
    with each_window_row(code, size, first_row, count) as row:
        line = row.image * an_image + (row.top + size.pad_top) - begin
        place = size.lines_at + line * size.line_bytes + row.column * across_bytes
        with code.loop(row.columns) as column:
            places.store(row.number + column, place + column * across_bytes)
    for r in range(spec.rows[0]):
        places.store(count + r, size.lines_at)


class _Run:
    """Copies of runs of one length."""

    def __init__(self, elements: _Elements, count: SSAValue) -> None:
        self._elements, self.count = elements, count
        code = elements.code
        self._lanes = elements.lanes if code.target.vector_bytes == _MASKED_BYTES and elements.itemsize == 1 else 0
        """Masks take parts of vectors of so many; 0 where they do not."""
        if self._lanes:
            self._rest = remainder(count, code.integer(self._lanes))
            self._mask = Mask(live_bytes(code.builder, self._rest.value))

    def copy_rows(self, target: Pointer, source: Pointer, rows: SSAValue, between: SSAValue) -> None:
        """Runs that begin `between` elements apart, side by side. Where they are short, one part of a vector each."""
        elements, code, lanes = self._elements, self._elements.code, self._lanes
        into, out_of = code.variable(code.integer(0)), code.variable(code.integer(0))

        def each(copy: Callable[[Pointer, Pointer], None]) -> None:
            with code.loop(rows):
                copy(target.at(into.get()), source.at(out_of.get()))
                into.set(into.get() + self.count * elements.itemsize)
                out_of.set(out_of.get() + between)

        if not lanes:
            each(self.copy)
            return
        with code.if_else(self.count < lanes) as (short, long):
            with short:
                each(self._copy_rest)
            with long:
                each(self.copy)

    def _copy_rest(self, target: Pointer, source: Pointer) -> None:
        """What a run has behind its whole vectors."""
        last = self.count - self._rest
        vector = source.load(last, self._lanes, self._mask)
        target.to(source.element).store(last, self._elements.changed(vector))

    def copy(self, target: Pointer, source: Pointer) -> None:
        """A run. Up to a vector behind its end may be written, too, where what follows is not there yet."""
        elements, code, lanes = self._elements, self._elements.code, self._lanes
        if not lanes:
            elements.copy(target, source, self.count)
            return
        typed = target.to(source.element)
        with code.loop(self.count - (lanes - 1), step=lanes) as at:
            typed.store(at, elements.changed(source.load(at, lanes)))
        with code.if_then(self._rest > 0):
            self._copy_rest(target, source)


class _Elements:
    """How elements of x lie in scratch memory: as they are, with their sign bits flipped, or wider."""

    def __init__(self, code: KernelBuilder, spec: IntegerSpec) -> None:
        self.code, self._spec = code, spec
        self.itemsize = spec.row_itemsize
        self._element = {1: types.int8 if spec.signed else types.uint8, 2: types.int16, 4: types.int32}[self.itemsize]
        self.lanes = code.target.vector_bytes // self.itemsize
        self._zero = convert(zero_point(code, spec), self._element)

    def run(self, count: SSAValue) -> _Run:
        """What copies runs of `count` elements."""
        return _Run(self, count)

    def changed(self, vector: SSAValue) -> SSAValue:
        """A vector of x as it lies in scratch memory."""
        return _change(self._spec, self._element)(vector)

    def copy(self, target: Pointer, source: Pointer, count: SSAValue) -> None:
        """`count` elements side by side."""

        def write(code: KernelBuilder, target: Pointer, source: Pointer, count: SSAValue) -> None:
            copy_bytes(code, target, source, count, self.lanes, change=_change(self._spec, self._element))

        self.code.subroutine("copy_elements", [target.to(self._element), source, count], write, inline=False)

    def fill(self, target: Pointer, count: SSAValue) -> None:
        """`count` times what 0 is gathered as; more may be written behind, where what follows is not there yet."""
        vector, typed = self._zero.splat(self.lanes), target.to(self._element)
        with self.code.loop(count, step=self.lanes) as at:
            typed.store(at, vector)


def _change(spec: IntegerSpec, element: types.ElementType) -> Callable[[SSAValue], SSAValue]:
    return (lambda vector: vector ^ -_FLIP) if spec.flipped else (lambda vector: convert(vector, element))
