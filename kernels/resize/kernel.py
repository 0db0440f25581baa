"""The resampling kernels: weighted sums of pixels, several vectors of channels at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, each_vector, remainder
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, fma, select
from jitonnx.kernels.parts.memory import copy_bytes
from jitonnx.kernels.resize.planes import Planes
from jitonnx.kernels.resize.repeat import Repeat
from jitonnx.kernels.resize.spec import (
    RepeatPlanesSpec,
    ResizeAxisBuffers,
    ResizeAxisSizes,
    ResizeAxisSpec,
    ResizeBuffers,
    ResizePlanesSpec,
    ResizeSizes,
    ResizeSpec,
)


def build(
    spec: ResizeSpec | ResizePlanesSpec | RepeatPlanesSpec | ResizeAxisSpec, lanes: int, epilogue: Stage | None = None
) -> Kernel:
    """The kernel of `spec` for float32 vectors of `lanes`. A ResizeSpec of float32 and planes take an epilogue."""
    if isinstance(spec, ResizePlanesSpec):
        return lambda code, begin, end: Planes(code, spec, lanes, epilogue).emit(begin, end)
    if epilogue is not None and (isinstance(spec, ResizeAxisSpec | RepeatPlanesSpec) or spec.itemsize != 4):
        raise ValueError(f"{spec} takes no epilogue")
    if isinstance(spec, ResizeAxisSpec):
        return lambda code, begin, end: _Axis(code, spec, lanes).emit(begin, end)
    if isinstance(spec, RepeatPlanesSpec):
        return lambda code, begin, end: Repeat(code, spec, lanes).emit(begin, end)
    return lambda code, begin, end: _MODES[spec.mode](code, spec, lanes, epilogue).emit(begin, end)


class _Rows:
    """What the modes share: the loops over rows and pixels of y, and extrapolation."""

    def __init__(self, code: KernelBuilder, spec: ResizeSpec, lanes: int, epilogue: Any) -> None:
        self.code, self.spec, self.lanes = code, spec, lanes
        self.plain = epilogue is None
        self.epilogue = Epilogue(code, epilogue, types.float32, lanes)
        self.size = code.sizes(ResizeSizes)
        self.buffer = code.buffers(ResizeBuffers, types.float32, rows=types.int32, columns=types.int32)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, size = self.code, self.size
        with code.loop(end, begin) as task:
            self.image, self.row = task / size.out_height, remainder(task, size.out_height)
            first = convert(self.buffer.rows.load(self.row * size.row_taps), types.int64)
            self._within(first, self._row, self._outside_row)

    def _row(self) -> None:
        size = self.size
        with self.code.loop(size.out_width) as column:
            first = convert(self.buffer.columns.load(column * size.column_taps), types.int64)
            self._within(first, lambda: self._pixel(column), lambda: self._outside_pixel(column))

    def _within(self, first: SSAValue, inside: Callable[[], None], outside: Callable[[], None]) -> None:
        """inside() if the first position of a table's row is one, else outside()."""
        if self.spec.extrapolation is None:
            inside()
            return
        with self.code.if_else(first >= 0) as (yes, no):
            with yes:
                inside()
            with no:
                outside()

    def _outside_row(self) -> None:
        with self.code.loop(self.size.out_width) as column:
            self._outside_pixel(column)

    def _outside_pixel(self, column: SSAValue) -> None:
        value = self.spec.extrapolation
        self._write(column, lambda channel, width, mask: self.code.number(types.float32, value or 0.0, width))

    def _pixel(self, column: SSAValue) -> None:
        """Emits one pixel of y."""
        raise NotImplementedError

    def _write(self, column: SSAValue, compute: Callable[[SSAValue, int, Mask | None], SSAValue]) -> None:
        """A pixel of y from compute(first channel, width, mask)."""
        code, size, lanes = self.code, self.size, self.lanes
        target = self.buffer.y.at(self.image * size.y_image + self.row * size.y_row + column * size.y_pixel)
        number = self.row * size.out_width + column

        def piece(channel: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
            value = compute(channel, width, mask)
            for first in range(0, width, lanes):
                part, rest = code.part(value, first, lanes), None if mask is None else active - first
                here = code.integer(lanes) if rest is None else rest
                y = self.epilogue(code, part, self.image, number, channel + first, here)
                target.store(channel + first, y, rest)

        each_vector(code, size.channels, lanes, piece)

    def _x_row(self, tap: SSAValue | int) -> Pointer:
        """The row of x that is a tap of this row of y."""
        size = self.size
        position = convert(self.buffer.rows.load(self.row * size.row_taps + tap), types.int64)
        return self.buffer.x.at(self.image * size.x_image + position * size.x_row)

    def _column(self, column: SSAValue, tap: SSAValue | int) -> SSAValue:
        return convert(self.buffer.columns.load(column * self.size.column_taps + tap), types.int64)

    def _weights(self, axis: str, output: SSAValue, tap: SSAValue | int) -> SSAValue:
        return getattr(self.buffer, f"{axis}_weights").load(output * getattr(self.size, f"{axis}_taps") + tap)


class _Nearest(_Rows):
    """One tap, no weights."""

    def _row(self) -> None:
        size = self.size
        position = convert(self.buffer.rows.load(self.row * size.row_taps), types.int64)
        self.source = self.image * size.x_image + position * size.x_row
        super()._row()

    def _pixel(self, column: SSAValue) -> None:
        size, spec = self.size, self.spec
        source = self.source + self._column(column, 0) * size.x_pixel
        if not self.plain or spec.extrapolation is not None:
            x = self.buffer.x.at(source)
            self._write(column, lambda channel, width, mask: x.load(channel, width, mask))
            return
        target = self.image * size.y_image + self.row * size.y_row + column * size.y_pixel
        x, y = (
            getattr(self.buffer, name).as_bytes().at(at * spec.itemsize) for name, at in (("x", source), ("y", target))
        )
        copy_bytes(self.code, y, x, size.channels * spec.itemsize, 4 * self.lanes)


class _Linear(_Rows):
    """Two taps each way: four products."""

    def _row(self) -> None:
        self.above, self.below = self._x_row(0), self._x_row(1)
        self.row_weights = [self._weights("row", self.row, tap) for tap in (0, 1)]
        super()._row()

    def _pixel(self, column: SSAValue) -> None:
        offsets = [self._column(column, tap) * self.size.x_pixel for tap in (0, 1)]
        column_weights = [self._weights("column", column, tap) for tap in (0, 1)]
        corners = [
            (x_row.at(offset), row_weight * column_weight)
            for x_row, row_weight in zip((self.above, self.below), self.row_weights, strict=True)
            for offset, column_weight in zip(offsets, column_weights, strict=True)
        ]

        def blend(channel: SSAValue, width: int, mask: Mask | None) -> SSAValue:
            (first, weight), *others = corners
            total = first.load(channel, width, mask) * self.code.splat(weight, width)
            for corner, weight in others:
                total = fma(corner.load(channel, width, mask), self.code.splat(weight, width), total)
            return total

        self._write(column, blend)


class _Separable(_Rows):
    """Any number of taps: the rows summed to scratch as a row of dense pixels, then its columns."""

    def _row(self) -> None:
        code, size = self.code, self.size
        blended = code.scratch(types.float32)
        # A row without gaps between its pixels is one long pixel.
        dense = size.x_pixel.equals(size.channels)
        pixels = select(dense, 1, size.width)
        elements = select(dense, size.width * size.channels, size.channels)
        with code.loop(pixels) as pixel:

            def piece(first: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
                def tap(t: SSAValue) -> tuple[SSAValue, SSAValue]:
                    x = self._x_row(t).load(pixel * size.x_pixel + first, width, mask)
                    return x, self._weights("row", self.row, t)

                blended.store(pixel * elements + first, _weighted_sum(code, size.row_taps, width, tap), mask)

            each_vector(code, elements, self.lanes, piece)
        super()._row()

    def _pixel(self, column: SSAValue) -> None:
        code, size, blended = self.code, self.size, self.code.scratch(types.float32)

        def compute(channel: SSAValue, width: int, mask: Mask | None) -> SSAValue:
            def tap(t: SSAValue) -> tuple[SSAValue, SSAValue]:
                x = blended.load(self._column(column, t) * size.channels + channel, width, mask)
                return x, self._weights("column", column, t)

            return _weighted_sum(code, size.column_taps, width, tap)

        self._write(column, compute)


class _Axis:
    """One axis of a tensor [outer, axis, inner]."""

    def __init__(self, code: KernelBuilder, spec: ResizeAxisSpec, lanes: int) -> None:
        self.code, self.spec, self.lanes = code, spec, lanes
        self.size = code.sizes(ResizeAxisSizes)
        self.x, self.positions, self.weights, self.y = code.buffers(
            ResizeAxisBuffers, types.float32, positions=types.int32
        )

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, size = self.code, self.size
        with code.loop(end, begin) as task:
            outer, output = task / size.outputs, remainder(task, size.outputs)
            x, y = self.x.at(outer * size.x_outer), self.y.at(outer * size.y_outer + output * size.y_step)

            def piece(first: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
                y.store(first, self._sum(x, output, first, width, mask), mask)

            each_vector(code, size.inner, self.lanes, piece)

    def _sum(self, x: Pointer, output: SSAValue, first: SSAValue, width: int, mask: Mask | None) -> SSAValue:
        code, size, table = self.code, self.size, output * self.size.taps
        position = convert(self.positions.load(table), types.int64)
        outside = position < 0

        def tap(t: SSAValue) -> tuple[SSAValue, SSAValue]:
            position = convert(self.positions.load(table + t), types.int64)
            return x.load(position * size.x_step + first, width, mask), self.weights.load(table + t)

        if self.spec.extrapolation is None:
            return _weighted_sum(code, size.taps, width, tap)
        total = _weighted_sum(code, select(outside, 0, size.taps), width, tap)
        return select(outside, total.constant(self.spec.extrapolation), total)


def _weighted_sum(
    code: KernelBuilder, taps: SSAValue, lanes: int, tap: Callable[[SSAValue], tuple[SSAValue, SSAValue]]
) -> SSAValue:
    """Σ x * weight over (x, weight) = tap(t), t < taps."""
    total = code.variable(code.number(types.float32, 0.0, lanes))
    with code.loop(taps) as t:
        x, weight = tap(t)
        total.set(fma(x, code.splat(weight, lanes), total.get()))
    return total.get()


_MODES: dict[str, type[_Rows]] = {"nearest": _Nearest, "linear": _Linear, "separable": _Separable}
