"""The taps of output pixels of channels-last images, side by side in memory, for kernels that multiply rows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from jitonnx.emit.builder import KernelBuilder, Pointer, larger, remainder, smaller
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.parts.layouts import WindowProduct
from jitonnx.support.records import NamedTuple


class Window(NamedTuple):
    """What an output pixel reads: which of the pixels that are gone through it is, and of which image; the row and the
    column of its first tap, which may lie outside."""

    number: SSAValue
    image: SSAValue
    top: SSAValue
    left: SSAValue


@contextmanager
def each_window(code: KernelBuilder, size: WindowProduct, first: SSAValue, count: SSAValue) -> Iterator[Window]:
    """The block for each of `count` output pixels from number `first` of all images on."""
    pixels = size.out_height * size.out_width
    place = remainder(first, pixels)
    image, out_row = code.variable(first / pixels), code.variable(place / size.out_width)
    out_column = code.variable(remainder(place, size.out_width))
    with code.loop(count) as number:
        row, column = out_row.get(), out_column.get()
        top, left = row * size.stride_height - size.pad_top, column * size.stride_width - size.pad_left
        yield Window(number, image.get(), top, left)
        next_row = (column + 1).equals(size.out_width)
        next_image = next_row & (row + 1).equals(size.out_height)
        out_column.set(select(next_row, code.integer(0), column + 1))
        out_row.set(select(next_image, code.integer(0), select(next_row, row + 1, row)))
        image.set(select(next_image, image.get() + 1, image.get()))


class WindowRow(NamedTuple):
    """Windows of output pixels side by side: what the first of them reads, by number, image and row, and the columns
    of the output that they are."""

    number: SSAValue
    image: SSAValue
    top: SSAValue
    column: SSAValue
    columns: SSAValue

    def within(self, size: WindowProduct) -> tuple[SSAValue, SSAValue]:
        """Which of the columns read no column outside, as (begin, end), if taps lie side by side."""
        first = (size.pad_left + (size.stride_width - 1)) / size.stride_width
        behind = (size.width + size.pad_left - size.kernel_width + size.stride_width) / size.stride_width
        begin = smaller(larger(first - self.column, 0), self.columns)
        return begin, smaller(larger(behind - self.column, begin), self.columns)

    def at(self, size: WindowProduct, column: SSAValue) -> Window:
        """The window of one of the columns, counted from the first."""
        left = (self.column + column) * size.stride_width - size.pad_left
        return Window(self.number + column, self.image, self.top, left)


@contextmanager
def each_window_row(code: KernelBuilder, size: WindowProduct, first: SSAValue, count: SSAValue) -> Iterator[WindowRow]:
    """The block for each row of the `count` output pixels from number `first` of all images on, or part of a row."""
    pixels = size.out_height * size.out_width
    place = remainder(first, pixels)
    image, out_row = code.variable(first / pixels), code.variable(place / size.out_width)
    out_column, done = code.variable(remainder(place, size.out_width)), code.variable(code.integer(0))
    with code.loop_while(lambda: done.get() < count):
        number, row, column = done.get(), out_row.get(), out_column.get()
        columns = smaller(size.out_width - column, count - number)
        yield WindowRow(number, image.get(), row * size.stride_height - size.pad_top, column, columns)
        next_image = (row + 1).equals(size.out_height)
        out_row.set(select(next_image, code.integer(0), row + 1))
        image.set(select(next_image, image.get() + 1, image.get()))
        out_column.set(code.integer(0))
        done.set(number + columns)


class Elements(Protocol):
    """How elements of x lie where taps are copied to. What writes may write more than it is to, where what follows is
    not there yet."""

    @property
    def itemsize(self) -> int:
        """Bytes of one."""

    def copy(self, target: Pointer, source: Pointer, count: SSAValue) -> None:
        """A run of so many."""

    def fill(self, target: Pointer, count: SSAValue) -> None:
        """So many of padding."""


def copy_taps(
    code: KernelBuilder,
    size: WindowProduct,
    target: Pointer,
    image: Pointer,
    window: Window,
    elements: Elements,
) -> None:
    """The taps of one output pixel, to bytes from `target` on. Those of a row that lie side by side are one run."""
    channels, taps = size.channels, size.kernel_width
    itemsize, copy, fill = elements.itemsize, elements.copy, elements.fill
    together = size.dilation_width.equals(1) & size.x_pixel.equals(channels)
    with code.loop(size.kernel_height) as tap_row:
        row = window.top + tap_row * size.dilation_height
        into = target.at(tap_row * taps * channels * itemsize)
        inside = (row >= 0) & (row < size.height)
        with code.if_else(inside & together) as (in_one, apart):
            with in_one:
                begin = smaller(larger(0 - window.left, 0), taps)
                end = larger(smaller(size.width - window.left, taps), begin)
                fill(into, begin * channels)
                source = image.at(row * size.x_row + (window.left + begin) * channels)
                copy(into.at(begin * channels * itemsize), source, (end - begin) * channels)
                fill(into.at(end * channels * itemsize), (taps - end) * channels)
            with apart, code.loop(taps) as tap:
                column = window.left + tap * size.dilation_width
                there = into.at(tap * channels * itemsize)
                with code.if_else(inside & (column >= 0) & (column < size.width)) as (read, padded):
                    with read:
                        copy(there, image.at(row * size.x_row + column * size.x_pixel), channels)
                    with padded:
                        fill(there, channels)


def copy_padded(  # noqa: PLR0913  (an image, a row of it, and how it lies where it goes)
    code: KernelBuilder,
    size: WindowProduct,
    target: Pointer,
    image: Pointer,
    row: SSAValue,
    across: tuple[SSAValue, SSAValue],
    elements: Elements,
    write: Callable[[Pointer, Pointer, SSAValue], None],
) -> None:
    """A row of an image, which may lie outside, with the padding at both ends, to bytes from `target` on. across: its
    pixels, padding included, and bytes from one to the next there; write: copies so many pixels, from the second
    pointer to the first."""
    pixels, pitch = across
    each = pitch / elements.itemsize
    begin = smaller(size.pad_left, pixels)
    inner = larger(smaller(size.width, pixels - begin), 0)
    with code.if_else((row >= 0) & (row < size.height)) as (inside, outside):
        with inside:
            elements.fill(target, begin * each)
            write(target.at(begin * pitch), image.at(row * size.x_row), inner)
            elements.fill(target.at((begin + inner) * pitch), (pixels - begin - inner) * each)
        with outside:
            elements.fill(target, pixels * each)
