"""The pooling kernel for planes of pixels, as `spec.PoolPlanesSpec` describes it."""

from __future__ import annotations

import functools
import operator
from typing import Any

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer, Variable, gathered, larger, remainder, shuffled, smaller
from jitonnx.emit.epilogue import Epilogue
from jitonnx.emit.ssa import SSAValue, narrow, select, to_float
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.parts.planes import each_block_of_rows
from jitonnx.kernels.pooling.fold import root, step
from jitonnx.kernels.pooling.spec import PoolPlanesSizes, PoolPlanesSpec


class Planes:
    """Emits the kernel: vectors of output pixels, along some rows at a time."""

    def __init__(self, code: KernelBuilder, spec: PoolPlanesSpec, lanes: int, epilogue: Any) -> None:
        self.code, self.spec, self.lanes = code, spec, lanes
        self.epilogue = Epilogue(code, epilogue, types.float32, lanes)
        self.size = code.sizes(PoolPlanesSizes)
        self.x, self.y = code.buffers(UnaryBuffers, types.float32)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, size, together = self.code, self.size, self.spec.rows
        if self.spec.kind != "max":
            rows = (size.rows_each - 1) * size.stride_height + size.kernel_height
            self._fill(code.scratch(types.float32), rows * size.pitch, code.integer(0), self._zero(None))
        with each_block_of_rows(code, begin, end, size.out_height, size.rows_each, size.channels) as block:
            place, start, stop = (block.image, block.channel), block.start, block.stop
            origin, pitch = self._source(*place, start, stop)
            y = self.y.at(place[0] * size.y_image + place[1] * size.y_channel)
            whole = stop - remainder(stop - start, code.integer(together))
            with code.loop(whole, start, together) as row:
                self._rows(origin, pitch, y, row, together, place)
            if together > 1:
                with code.loop(stop, whole) as row:
                    self._rows(origin, pitch, y, row, 1, place)

    # ------------------------------------------------------------ what a task reads

    def _source(self, image: SSAValue, channel: SSAValue, start: SSAValue, stop: SSAValue) -> tuple[Pointer, SSAValue]:
        """The address of output (0, 0)'s window, and the step to the next row, for output rows start … stop -
        1."""
        code, size = self.code, self.size
        plane = image * size.x_image + channel * size.x_channel
        top = start * size.stride_height - size.pad_height
        bottom = (stop - 1) * size.stride_height - size.pad_height + size.kernel_height
        steps = [(size.images - 1) * size.x_image, (size.channels - 1) * size.x_channel]
        end_of_x = steps[0] + steps[1] + (size.height - 1) * size.x_row + size.width
        beyond_end = plane + (bottom - 1) * size.x_row + size.reach > end_of_x
        copied = (size.padded > 0) | (top < 0) | (bottom > size.height) | beyond_end
        x, scratch = self.x.at(plane), code.scratch(types.float32)
        with code.if_then(copied), code.loop(bottom, top) as row:
            self._copy(x, row, scratch.at((row - top) * size.pitch + size.margin))
        pitch = select(copied, size.pitch, size.x_row)
        chosen = code.builder.select(copied.value, scratch.value, x.value)
        # Row `top` is the first in scratch memory; nothing is padded where nothing is copied.
        first = select(copied, size.margin - (top + size.pad_height) * size.pitch - size.pad_width, 0)
        return Pointer(code, types.float32, chosen).at(first), pitch

    def _copy(self, x: Pointer, row: SSAValue, target: Pointer) -> None:
        """Row `row` of the plane x and its padding, to where its first element is to lie."""
        code, size = self.code, self.size
        if self.spec.kind == "max":  # of values that are compared, one may be there twice
            source = x.at(larger(smaller(row, size.height - 1), 0) * size.x_row)
            self._fill(target, code.integer(0), -size.margin, source.load(0))
            whole = size.width - remainder(size.width, code.integer(self.lanes))
            self._fill(target, size.pitch - size.margin, whole, source.load(size.width - 1))
            self._copy_row(source, target)
            return
        with code.if_else((row >= 0) & (row < size.height)) as (within, padding):
            with within:
                self._copy_row(x.at(row * size.x_row), target)  # zeros lie around it already
            with padding:
                self._fill(target, size.width, code.integer(0), self._zero(None))

    def _copy_row(self, x: Pointer, target: Pointer) -> None:
        code, size, lanes = self.code, self.size, self.lanes
        whole = size.width - remainder(size.width, code.integer(lanes))
        with code.loop(whole, step=lanes) as at:
            target.store(at, x.load(at, lanes))
        with code.if_then(whole < size.width):
            active = code.active(size.width - whole, lanes)
            target.store(whole, x.load(whole, lanes, active), active)

    def _fill(self, target: Pointer, stop: SSAValue, start: SSAValue, value: SSAValue) -> None:
        with self.code.loop(stop, start, self.lanes) as at:
            target.store(at, self.code.splat(value, self.lanes))

    # ------------------------------------------------------------ what it makes of that

    def _rows(
        self, origin: Pointer, pitch: SSAValue, y: Pointer, row: SSAValue, count: int, place: tuple[SSAValue, SSAValue]
    ) -> None:
        """Output rows `row` … row + count - 1; place: their image and channel."""
        code, size, lanes = self.code, self.size, self.lanes
        windows = origin.at(row * size.stride_height * pitch)
        taps = [self._row_taps(row + number) for number in range(count)] if self.spec.kind == "average" else []

        def vectors(column: SSAValue, active: SSAValue | None) -> None:
            folded = self._fold(windows.at(column * self.spec.stride), pitch, count)
            columns = self._column_taps(column) if self.spec.kind == "average" else None
            for number, value in enumerate(folded):
                if columns is not None:
                    value = value / (columns * to_float(code.splat(narrow(taps[number]), lanes)))
                elif self.spec.kind == "lp":
                    value = root(code, value, self.spec.power)
                pixel = (row + number) * size.out_width + column
                value = self.epilogue(code, value, *place, pixel, lanes if active is None else active)
                y.store((row + number) * size.y_row + column, value, active)

        whole = size.out_width - remainder(size.out_width, code.integer(lanes))
        with code.loop(whole, step=lanes) as column:
            vectors(column, None)
        with code.if_then(whole < size.out_width):
            vectors(whole, size.out_width - whole)

    def _fold(self, window: Pointer, pitch: SSAValue, count: int) -> list[SSAValue]:
        """A vector of outputs in each of `count` rows; the first window of the first row starts at `window`."""
        spec = self.spec
        height, width = spec.window
        if not height:
            return [self._fold_of_any_size(window, pitch)]
        if spec.kind == "max":
            totals = [[self._tap(window.at(number * pitch), 0, {})] for number in range(count)]
        else:
            totals = [[self._zero(self.lanes)] * (width if self.spec.by_columns else 1)] * count
        for row in range(height + count - 1):  # where rows are made together, windows move by one
            loaded: dict[int, list[SSAValue]] = {}
            taps = [self._tap(window.at(row * pitch), tap, loaded) for tap in range(width)]
            for number in range(max(0, row - height + 1), min(count, row + 1)):
                totals[number] = self._with_row(totals[number], taps)
        return [functools.reduce(operator.add, total) for total in totals]

    def _fold_of_any_size(self, window: Pointer, pitch: SSAValue) -> SSAValue:
        """A vector of outputs whose first window starts at `window`, where the sizes tell how large windows are."""
        code, size, zero = self.code, self.size, self._zero(self.lanes)

        def take(total: Variable, down: SSAValue, across: SSAValue) -> None:
            x = self._tap(window.at(down * pitch + across), 0, {})
            total.set(step(self.spec.kind, self.spec.power, total.get(), x))

        total = code.variable(self._tap(window, 0, {}) if self.spec.kind == "max" else zero)
        if not self.spec.by_columns:
            with code.loop(size.kernel_height) as down, code.loop(size.kernel_width) as across:
                take(total, down, across)
            return total.get()
        column = code.variable(zero)
        with code.loop(size.kernel_width) as across:
            column.set(zero)
            with code.loop(size.kernel_height) as down:
                take(column, down, across)
            total.set(total.get() + column.get())
        return total.get()

    def _with_row(self, totals: list[SSAValue], taps: list[SSAValue]) -> list[SSAValue]:
        """What is folded so far, with a row of the window: one value, or one of each column."""
        fold = functools.partial(step, self.spec.kind, self.spec.power)
        if len(totals) == 1:
            return [functools.reduce(fold, taps, totals[0])]
        return [fold(total, x) for total, x in zip(totals, taps, strict=True)]

    def _tap(self, row: Pointer, tap: int, loaded: dict[int, list[SSAValue]]) -> SSAValue:
        """Tap number `tap` of each window: every stride-th element. `loaded`: of this row, vectors and earlier taps.

        A tap that lies a stride behind another is that one moved by a lane, with an element more.
        """
        stride, lanes = self.spec.stride, self.lanes
        if stride == 1:
            return row.load(tap, lanes)
        moved, phase = divmod(tap, stride)
        if not loaded:
            loaded[-1] = [row.load(part * lanes, lanes) for part in range(stride)]
        if phase not in loaded:
            loaded[phase] = [gathered(loaded[-1], range(phase, stride * lanes, stride))]
        result = loaded[phase][0]
        for number in range(moved):
            behind = self.code.splat(row.load(stride * (lanes + number) + phase), lanes)
            result = shuffled(result, behind, range(1, lanes + 1))
        return result

    # ------------------------------------------------------------ what averages divide by

    def _row_taps(self, row: SSAValue) -> SSAValue:
        """How many rows of the windows of an output row count."""
        start = row * self.size.stride_height - self.size.pad_height
        low, high = self._counted("height")
        return smaller(start + self.size.kernel_height, high) - larger(start, low)

    def _column_taps(self, column: SSAValue) -> SSAValue:
        """How many columns of the windows of outputs `column` … count, as floats."""
        code, size, lanes, stride = self.code, self.size, self.lanes, self.spec.stride
        numbers = llvm_ir.Constant(
            llvm_ir.VectorType(llvm_ir.IntType(32), lanes), [number * stride for number in range(lanes)]
        )
        first = code.splat(narrow(column * stride - size.pad_width), lanes)
        first = first + first.like(numbers)
        kernel, low, high = (code.splat(narrow(value), lanes) for value in (size.kernel_width, *self._counted("width")))
        return to_float(smaller(first + kernel, high) - larger(first, low))

    def _counted(self, axis: str) -> tuple[SSAValue, SSAValue]:
        """Taps on these coordinates, from the first to before the second, count."""
        if not self.spec.count_include_pad:
            return self.code.integer(0), getattr(self.size, axis)
        before, after = getattr(self.size, f"pad_{axis}"), getattr(self.size, f"pad_{axis}_after")
        return -before, getattr(self.size, axis) + after

    def _zero(self, lanes: int | None) -> SSAValue:
        return self.code.number(types.float32, 0, lanes)
