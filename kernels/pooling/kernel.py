"""Pooling kernels: for every output pixel, the window's pixels are folded, several vectors of channels at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Variable, each_vector, larger, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.half import unwiden_bfloat16_apart, widen_bfloat16_apart
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.pooling.fold import root, step
from jitonnx.kernels.pooling.planes import Planes
from jitonnx.kernels.pooling.spec import (
    LONGEST_STRIDE_BY_COLUMNS,
    PoolBuffers,
    PoolPlanesSpec,
    PoolSizes,
    PoolSpec,
)
from jitonnx.support.records import NamedTuple

_AXES = ("depth", "height", "width")
_STEPS = ("plane", "row", "pixel")


class Window(NamedTuple):
    """A window's place on one axis: the first tap that falls on x, how many do, how many fall on the padded
    x."""

    start: SSAValue
    taps: SSAValue
    padded_taps: SSAValue


def build(spec: PoolSpec | PoolPlanesSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for float32 vectors of `lanes`; an epilogue needs float32 elements and no indices."""
    if isinstance(spec, PoolPlanesSpec):
        return lambda code, begin, end: Planes(code, spec, lanes, epilogue).emit(begin, end)
    if epilogue is not None and (spec.element != "float32" or spec.with_indices):
        raise ValueError(f"{spec} takes no epilogue")
    element = types.uint16 if spec.element == "bfloat16" else getattr(types, spec.element)
    lanes = lanes * 4 // spec.itemsize

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        pixel = (
            _PixelWithIndices(code, element, lanes)
            if spec.with_indices
            else _Pixel(code, spec, element, lanes, epilogue)
        )
        out_depth, out_height, out_width = (_size(code, f"out_{axis}") for axis in _AXES)
        with code.loop(end, begin) as task:
            image, row = task / (out_depth * out_height), remainder(task, out_height)
            depth = remainder(task / out_height, out_depth)
            outer = [_window(code, spec, "depth", depth), _window(code, spec, "height", row)]
            target = _offset(code, "y", image, depth, row)
            first_output = (depth * out_height + row) * out_width
            run_start, run = _run(code) if pixel.takes_runs else (code.integer(0), code.integer(1))
            with code.loop(out_width - run + 1) as piece:
                column = piece + select(piece > run_start, run - 1, 0)
                windows = [*outer, _window(code, spec, "width", column)]
                place = target + column * _size(code, "y_pixel")
                channels = _size(code, "channels") * select(piece.equals(run_start), run, 1)
                pixel.emit(image, windows, place, first_output + column, channels)

    return body


def _run(code: KernelBuilder) -> tuple[SSAValue, SSAValue]:
    """(first column, columns) of a row of outputs that may be made as one long pixel; no column: (0, 1).

    With stride 1 and dense pixels, windows that lie within x add up as shifted rows of x do, whatever the channels.
    """
    channels, kernel, pad = (_size(code, name) for name in ("channels", "kernel_width", "pad_width"))
    dense = _size(code, "x_pixel").equals(channels) & _size(code, "y_pixel").equals(channels)
    reach = (kernel - 1) * _size(code, "dilation_width")
    run = smaller(_size(code, "out_width"), _size(code, "width") + pad - reach) - pad
    possible = dense & _size(code, "stride_width").equals(1) & (run > 1)
    return select(possible, pad, 0), select(possible, run, 1)


def _size(code: KernelBuilder, name: str) -> SSAValue:
    return code.size(PoolSizes.place(name))


def _offset(code: KernelBuilder, tensor: str, image: SSAValue, *coordinates: SSAValue) -> SSAValue:
    """The offset in x or y, in elements, of a pixel that is given by its coordinates in the order of the axes."""
    offset = image * _size(code, f"{tensor}_image")
    for coordinate, name in zip(coordinates, _STEPS, strict=False):
        offset = offset + coordinate * _size(code, f"{tensor}_{name}")
    return offset


def _window(code: KernelBuilder, spec: PoolSpec, axis: str, out: SSAValue) -> Window:
    """The window of output coordinate `out`."""
    dilation, kernel, extent = (_size(code, name) for name in (f"dilation_{axis}", f"kernel_{axis}", axis))
    before, after = _size(code, f"pad_{axis}"), _size(code, f"pad_{axis}_after")
    padded_start = out * _size(code, f"stride_{axis}")
    start = padded_start - before
    first, taps = _clip(code, start, dilation, kernel, extent)
    padded_taps = taps
    if spec.count_include_pad:
        _, padded_taps = _clip(code, padded_start, dilation, kernel, extent + before + after)
    # A window that lies in the padding altogether still names a pixel of x, which may be read.
    inside = larger(smaller(start + first * dilation, extent - 1), 0)
    return Window(inside, taps, padded_taps)


def _clip(
    code: KernelBuilder, start: SSAValue, dilation: SSAValue, kernel: SSAValue, extent: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """(first, count) of the taps 0 <= i < kernel with 0 <= start + i * dilation < extent."""
    first, count = code.variable(code.integer(0)), code.variable(kernel)
    # Two divisions would cost as much as a small window: most windows lie within x.
    with code.if_then((start < 0) | (start + (kernel - 1) * dilation >= extent)):
        skipped = larger((dilation - 1 - start) / dilation, 0)
        stop = smaller((extent - start + dilation - 1) / dilation, kernel)
        first.set(skipped)
        count.set(larger(stop - skipped, 0))
    return first.get(), count.get()


class _Pixel:
    """Emits one output pixel of a kind that folds values."""

    def __init__(
        self, code: KernelBuilder, spec: PoolSpec, element: types.ElementType, lanes: int, epilogue: Any
    ) -> None:
        self.code, self.spec, self.element, self.lanes = code, spec, element, lanes
        self.epilogue = Epilogue(code, epilogue, element, lanes)
        self.takes_runs = epilogue is None or spec.long_pixels
        # Half precision is summed in single, as onnxruntime does it.
        self.total = types.float32 if element == types.float16 and spec.kind != "max" else element
        if spec.element == "bfloat16":
            self.total = types.float32
        self.x, self.y, _ = code.buffers(PoolBuffers, element)

    def emit(self, image: SSAValue, windows: list[Window], target: SSAValue, row: SSAValue, channels: SSAValue) -> None:
        """The pixel at index `target` of y, number `row` of its image."""
        code, lanes = self.code, self.lanes
        source = _offset(code, "x", image, *(window.start for window in windows))

        def piece(channel: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
            value = self._fold(source + channel, windows, width, mask)
            for first in range(0, width, lanes):
                part, rest = code.part(value, first, lanes), None if mask is None else active - first
                y = self.epilogue(code, part, image, row, channel + first, lanes if rest is None else rest)
                self.y.store(target + channel + first, y, rest)

        each_vector(code, channels, lanes, piece)

    def _divisor(self, windows: list[Window]) -> SSAValue:
        """What an average divides by: the number of taps."""
        depth, height, width = (
            window.padded_taps if self.spec.count_include_pad else window.taps for window in windows
        )
        count = depth * height * width
        return SSAValue(count.builder, self.total, count.builder.sitofp(count.value, self.zero(None).value.type))

    def zero(self, lanes: int | None) -> SSAValue:
        return self.code.number(self.total, 0, lanes)

    def _fold(self, source: SSAValue, windows: list[Window], lanes: int, mask: Mask | None) -> SSAValue:
        """`lanes` channels of a window, from index `source` of x on, folded to the result."""
        kind = self.spec.kind
        start = self.zero(lanes) if kind != "max" else _first_tap(self.code, self._loaded(source, lanes, mask), windows)
        total = self.code.variable(start)

        def take(index: SSAValue) -> None:
            total.set(step(kind, self.spec.power, total.get(), self._loaded(index, lanes, mask)))

        if self.spec.by_columns:
            stride = _size(self.code, f"stride_{_AXES[-1]}")
            with self.code.if_else(stride <= LONGEST_STRIDE_BY_COLUMNS) as (by_columns, by_rows):
                with by_columns:
                    self._sum_columns(source, windows, total, take)
                with by_rows:
                    _each_tap(self.code, windows, [(source, "x")], take)
        else:
            _each_tap(self.code, windows, [(source, "x")], take)
        result = total.get()
        if kind == "average":
            result = result / self.code.splat(self._divisor(windows), lanes)
        elif kind == "lp":
            result = root(self.code, result, self.spec.power)
        return unwiden_bfloat16_apart(result) if self.spec.element == "bfloat16" else convert(result, self.element)

    def _sum_columns(
        self, source: SSAValue, windows: list[Window], total: Variable, take: Callable[[SSAValue], None]
    ) -> None:
        """Add up a window column by column, and the sums of these, in the order in which onnxruntime does: the last
        place decides where means of integers lie half way between two."""
        code, across = self.code, windows[-1]
        step_across = _size(code, f"dilation_{_AXES[-1]}") * _size(code, f"x_{_STEPS[-1]}")
        sum_of_columns = code.variable(total.get())
        zero = total.get()
        with code.loop(across.taps) as tap:
            total.set(zero)
            column = [*windows[:-1], across._replace(taps=code.integer(1))]
            _each_tap(code, column, [(source + tap * step_across, "x")], take)
            sum_of_columns.set(sum_of_columns.get() + total.get())
        total.set(sum_of_columns.get())

    def _loaded(self, index: SSAValue, lanes: int, mask: Mask | None) -> SSAValue:
        """`lanes` elements as they are folded."""
        x = self.x.load(index, lanes, mask)
        return widen_bfloat16_apart(x) if self.spec.element == "bfloat16" else convert(x, self.total)


def _first_tap(code: KernelBuilder, x: SSAValue, windows: list[Window]) -> SSAValue:
    """What a maximum starts from: the first tap's x, or where no tap falls on x the lowest number."""
    lowest = x.element.minval if isinstance(x.element, types.Integer) else -np.inf
    depth, height, width = (window.taps for window in windows)
    return select(depth * height * width > 0, x, x.constant(lowest))


def _each_tap(
    code: KernelBuilder,
    windows: list[Window],
    places: Sequence[tuple[SSAValue, str]],
    take: Callable[..., None],
    axis: int = 0,
) -> None:
    """Loops over the taps in row-major order: take(*indices).

    places: (index of the first tap, prefix of the sizes that say what a pixel's step along an axis adds to it).
    """
    if axis == len(_AXES):
        take(*(place for place, _ in places))
        return
    dilation = _size(code, f"dilation_{_AXES[axis]}")
    steps = [dilation * _size(code, f"{prefix}_{_STEPS[axis]}") for _, prefix in places]
    with code.loop(windows[axis].taps) as tap:
        moved = [(place + tap * step, prefix) for (place, prefix), step in zip(places, steps, strict=True)]
        _each_tap(code, windows, moved, take, axis + 1)


class _PixelWithIndices:
    """Emits one output pixel of MaxPool with its second output: vectors of maxima beside vectors of their places."""

    takes_runs = False  # indices tell channels apart

    def __init__(self, code: KernelBuilder, element: types.ElementType, lanes: int) -> None:
        self.code, self.lanes = code, lanes
        self.x, self.y, self.indices = code.buffers(PoolBuffers, element, indices=types.int64)

    def emit(self, image: SSAValue, windows: list[Window], target: SSAValue, row: SSAValue, channels: SSAValue) -> None:
        """The pixel at index `target` of y and of indices."""
        code, lanes = self.code, self.lanes
        starts = [window.start for window in windows]
        source, index = _offset(code, "x", image, *starts), _offset(code, "index", image, *starts)
        index_step = _size(code, "index_channel")
        with code.loop(channels, step=lanes) as channel:
            mask = code.active(channels - channel, lanes)
            best = code.variable(_first_tap(code, self.x.load(source + channel, lanes, mask), windows))
            best_place = code.variable(code.splat(index, lanes))

            def take(at: SSAValue, place: SSAValue) -> None:
                x = self.x.load(at, lanes, mask)
                better = x > best.get()
                best.set(select(better, x, best.get()))
                best_place.set(select(better, code.splat(place, lanes), best_place.get()))

            _each_tap(code, windows, [(source + channel, "x"), (index, "index")], take)
            channel_index = (code.splat(channel, lanes) + code.iota(lanes)) * code.splat(index_step, lanes)
            self.y.store(target + channel, best.get(), mask)
            self.indices.store(target + channel, best_place.get() + channel_index, mask)
