"""Windows that slide over the spatial axes of [N, C, spatial...]: where they lie, for convolution and pooling alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from jitonnx.ir.dims import DimLike, ceil_divide, floor_divide, maximum, minimum
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError
from jitonnx.support.records import NamedTuple

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


class Windows(NamedTuple):
    """One entry a spatial axis. Output element o covers input elements o * stride - before + tap * dilation.

    Kernel, padding and output hold dimensions (DimLike); for evaluation all of them are integers.
    """

    kernel: tuple[Any, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    output: tuple[Any, ...]

    def taps(self) -> list[tuple[int, ...]]:
        """The positions in a window, row-major; the sizes must be known."""
        return list(product(*(range(size) for size in self.kernel)))


class WindowAttributes(NamedTuple):
    """ONNX's attributes of windows. None stands for 1 along each axis, and for no padding."""

    strides: Sequence[int] | None = None
    dilations: Sequence[int] | None = None
    pads: Sequence[int] | None = None
    auto_pad: str = "NOTSET"

    @classmethod
    def of(cls, operator: Any) -> WindowAttributes:
        """Those of an operator that has all of them."""
        return cls(operator.strides, operator.dilations, operator.pads, operator.auto_pad)

    def steps(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Strides and dilations with an entry for each spatial axis. InferenceError if they do not fit."""
        return per_axis(self.strides, rank, 1, "strides"), per_axis(self.dilations, rank, 1, "dilations")


def spatial_rank(x: Value) -> int:
    """How many spatial axes [N, C, spatial...] has. InferenceError if none."""
    rank = len(x.shape) - 2
    if rank < 1:
        raise InferenceError(f"{x} has no spatial axes: [N, C, spatial...] expected")
    return rank


def per_axis(values: Sequence[int] | None, rank: int, default: int, name: str, least: int = 1) -> tuple[int, ...]:
    """An attribute with one entry a spatial axis, or its default. InferenceError for too few or too small ones."""
    if values is None:
        return (default,) * rank
    if len(values) != rank or any(value < least for value in values):
        raise InferenceError(f"{name} {list(values)}: {rank} entries of at least {least} expected, one a spatial axis")
    return tuple(values)


def split_pads(pads: Sequence[int] | None, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """ONNX's pads [begin..., end...] as (before, after)."""
    both = per_axis(pads, 2 * rank, 0, "pads", least=0)
    return both[:rank], both[rank:]


def extent(kernel: Sequence[Any], dilations: Sequence[int]) -> tuple[Any, ...]:
    """Count from a window's first element to behind its last, along each axis."""
    return tuple((size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True))


def slide(
    context: InferenceContext,
    size: Sequence[DimLike],
    kernel: Sequence[Any],
    attributes: WindowAttributes,
    *,
    ceil_mode: bool = False,
    pooling: bool = False,
    pads_overhang: bool = False,
) -> Windows:
    """The windows of Conv and the pools over an input of spatial size `size`.

    With ceil_mode the last window may reach over the end, but must start before the padding behind the input (as
    onnxruntime and ONNX's shape inference do, for auto_pad VALID too).

    pooling: as onnxruntime's pools have them (PoolAttributes). For auto_pad SAME_UPPER and SAME_LOWER, dilated windows
    get the padding of those without dilation, and there are as many as fit; where a stride is longer than a window the
    padding is negative: elements are left out. ONNX's text pads for dilated windows, and has one for each stride. And
    a first window that reaches over the end by less than a stride counts, see `_overhanging`.

    pads_overhang: what such a window reaches over the end becomes padding.
    """
    rank, pads, auto_pad = len(size), attributes.pads, attributes.auto_pad
    strides, dilations = attributes.steps(rank)
    covers = extent(kernel, dilations)
    before: tuple[DimLike, ...]
    after: tuple[DimLike, ...]
    output: tuple[DimLike, ...]
    if pooling and auto_pad.startswith("SAME") and _pads_unlike_text(kernel, strides, dilations):
        before, after = _undilated_pads(size, kernel, strides, lower=auto_pad == "SAME_LOWER")
        output, reached = _fitting(
            context, size, covers, strides, (before, after), ceil_mode=ceil_mode, pooling=pooling
        )
        after = reached if pads_overhang else after
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output = tuple(ceil_divide(length, stride) for length, stride in zip(size, strides, strict=True))
        totals = [
            maximum((out - 1) * stride + cover - length, 0)
            for out, stride, cover, length in zip(output, strides, covers, size, strict=True)
        ]
        less, more = _halves(totals)
        before, after = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    else:
        check_auto_pad(auto_pad)
        before, after = split_pads(None if auto_pad == "VALID" else pads, rank)
        output, reached = _fitting(
            context, size, covers, strides, (before, after), ceil_mode=ceil_mode, pooling=pooling
        )
        after = reached if pads_overhang else after
    return Windows(tuple(kernel), strides, dilations, before, after, output)


def _fitting(
    context: InferenceContext,
    size: Sequence[DimLike],
    covers: Sequence[DimLike],
    strides: Sequence[int],
    pads: tuple[Sequence[DimLike], Sequence[DimLike]],
    *,
    ceil_mode: bool,
    pooling: bool,
) -> tuple[tuple[DimLike, ...], tuple[DimLike, ...]]:
    """How many windows there are along each axis, and the padding behind with what the first reaches over the end.
    InferenceError where there are less than none.

    pads: before and after.
    """
    before, after = pads
    output: list[DimLike] = []
    reached: list[DimLike] = []
    for length, cover, stride, less, more in zip(size, covers, strides, before, after, strict=True):
        room = length + less + more - cover
        if ceil_mode:
            count = minimum(ceil_divide(room, stride) + 1, ceil_divide(length + less, stride))
        elif pooling and not _fits(context, room):
            count, more = _overhanging(context, room, stride), more - room
        else:
            count = floor_divide(room, stride) + 1
        if not context.demand_equal(maximum(count, 0), count):
            raise InferenceError(
                f"a window of extent {list(covers)} is larger than the padded input {list(size)}, padded by "
                f"{list(before)} and {list(after)}"
            )
        output.append(count)
        reached.append(more)
    return tuple(output), tuple(reached)


def _fits(context: InferenceContext, room: DimLike) -> bool:
    """Whether a first window, behind which there is so much room, ends in the padded input; what is not certain is
    assumed, or demanded where nothing may be."""
    decide = context.demand_equal if context.assumptions.demands_only else context.assume_equal
    return decide(maximum(room, 0), room)


def _overhanging(context: InferenceContext, room: DimLike, stride: int) -> DimLike:
    """How many windows there are of which the first reaches over the end, `room` being negative: one if it does so by
    less than a stride.

    ONNX's text rounds down, to none; its shape inference and onnxruntime divide towards 0 as C++ does. Models of images
    that shrink rely on it: of a single pixel, windows of 2 with strides of 2 are one.
    """
    context.assume_equal(minimum(room, -1), room)  # the sizes at hand are such
    if context.assume_equal(maximum(room, 1 - stride), room):
        return 1
    return 1 - floor_divide(0 - room, stride)


def _pads_unlike_text(kernel: Sequence[Any], strides: Sequence[int], dilations: Sequence[int]) -> bool:
    """Whether `_undilated_pads` differs from what ONNX's text says for some size."""
    return any(step != 1 or stride > taps for taps, stride, step in zip(kernel, strides, dilations, strict=True))


def _undilated_pads(
    size: Sequence[DimLike], kernel: Sequence[Any], strides: Sequence[int], *, lower: bool
) -> tuple[tuple[DimLike, ...], tuple[DimLike, ...]]:
    """The padding before and after that windows without dilation want; lower: the odd element lies in front. Halves of
    negative ones are cut off towards 0, as in C."""
    totals = [
        (ceil_divide(length, stride) - 1) * stride + taps - length
        for length, taps, stride in zip(size, kernel, strides, strict=True)
    ]
    odd = [total + int(lower) for total in totals]
    before = tuple(floor_divide(maximum(n, 0), 2) - floor_divide(maximum(0 - n, 0), 2) for n in odd)
    return before, tuple(total - half for total, half in zip(totals, before, strict=True))


def _halves(totals: Sequence[DimLike]) -> tuple[tuple[DimLike, ...], tuple[DimLike, ...]]:
    less = tuple(floor_divide(total, 2) for total in totals)
    return less, tuple(total - half for total, half in zip(totals, less, strict=True))


def check_auto_pad(auto_pad: str) -> None:
    """InferenceError for what ONNX does not know."""
    if auto_pad not in AUTO_PADS:
        raise InferenceError(f"auto_pad {auto_pad!r}: one of {', '.join(AUTO_PADS)} expected")


def spread(
    size: Sequence[DimLike],
    kernel: Sequence[Any],
    attributes: WindowAttributes,
    output_padding: Sequence[int] | None,
    output_shape: Sequence[int] | None,
) -> Windows:
    """The windows of ConvTranspose: `output` is the spatial size of its result, `before` what is cut off in front.

    SAME_UPPER and SAME_LOWER cut the result to the input's size times the strides, and add nothing to one that is
    smaller (a kernel that covers less than a stride): so do onnxruntime and ONNX's shape inference, whose padding is
    never negative. Where the padding follows from the output's size and is odd, SAME_UPPER cuts more behind and
    everything else more in front: ONNX since version 11, and onnxruntime in all versions.
    """
    rank, pads, auto_pad = len(size), attributes.pads, attributes.auto_pad
    strides, dilations = attributes.steps(rank)
    extra = per_axis(output_padding, rank, 0, "output_padding", least=0)
    check_auto_pad(auto_pad)
    covers = extent(kernel, dilations)
    full = [
        (n - 1) * stride + cover + more for n, stride, cover, more in zip(size, strides, covers, extra, strict=True)
    ]
    before: tuple[DimLike, ...]
    after: tuple[DimLike, ...]
    output: tuple[DimLike, ...]
    if output_shape is None and not auto_pad.startswith("SAME"):
        before, after = split_pads(None if auto_pad == "VALID" else pads, rank)
        output = tuple(n - a - b for n, a, b in zip(full, before, after, strict=True))
        return Windows(tuple(kernel), strides, dilations, before, after, output)
    if output_shape is not None:
        output = per_axis(output_shape[-rank:], rank, 0, "output_shape")  # some exporters put N and C in front
    else:
        output = tuple(minimum(n * stride, whole) for n, stride, whole in zip(size, strides, full, strict=True))
    less, more = _halves([maximum(n - out, 0) for n, out in zip(full, output, strict=True)])
    before, after = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    return Windows(tuple(kernel), strides, dilations, before, after, output)


def padded(x: np.ndarray, windows: Windows, value: Any) -> np.ndarray:
    """x with everything that the windows reach around it, filled with `value`."""
    covers = extent(windows.kernel, windows.dilations)
    widths, read = [(0, 0), (0, 0)], [slice(None), slice(None)]
    for length, out, stride, cover, before in zip(
        x.shape[2:], windows.output, windows.strides, covers, windows.before, strict=True
    ):
        widths.append((max(before, 0), max((out - 1) * stride + cover - length - before, 0)))
        read.append(slice(max(-before, 0), None))
    return np.pad(x[tuple(read)], widths, constant_values=value)


def tap_slices(windows: Windows, tap: Sequence[int]) -> tuple[slice, ...]:
    """The slices of the padded input's spatial axes that hold position `tap` of every window."""
    return tuple(
        slice(position * dilation, position * dilation + (out - 1) * stride + 1 if out else 0, stride)
        for position, dilation, out, stride in zip(tap, windows.dilations, windows.output, windows.strides, strict=True)
    )


def fold(x: np.ndarray, windows: Windows, blocks: Sequence[int]) -> np.ndarray:
    """x [N, C, kernel..., blocks...] with each tap of each block added in its place, to [N, C, output...]."""
    covers = extent(windows.kernel, windows.dilations)
    reach = [
        max((count - 1) * stride + cover, before + out)
        for count, stride, cover, before, out in zip(
            blocks, windows.strides, covers, windows.before, windows.output, strict=True
        )
    ]
    nothing: Any = "" if x.dtype == object else 0  # strings are added by joining them
    canvas = np.full((*x.shape[:2], *reach), nothing, x.dtype)
    for tap in windows.taps():
        place: tuple[Any, ...] = (..., *tap_slices(windows._replace(output=tuple(blocks)), tap))
        part: tuple[Any, ...] = (slice(None), slice(None), *tap)
        canvas[place] += x[part]
    cuts = (slice(before, before + out) for before, out in zip(windows.before, windows.output, strict=True))
    kept: tuple[Any, ...] = (..., *cuts)
    return canvas[kept]
