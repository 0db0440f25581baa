"""What kernel selection shares for windows over images: how images lie, how direct convolutions read and write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import DimLike, concrete
from jitonnx.ir.graph import Value
from jitonnx.ir.types import TensorType
from jitonnx.kernels.convolution.spec import DirectSpec
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import memory_order
from jitonnx.plan.selection.volumes import depth_as_channels
from jitonnx.plan.tensor import (
    StridedTensor,
    apart,
    as_rows,
    channels_last_order,
    is_channels_last,
    pair,
    pixels_as_rows,
)
from jitonnx.support.records import dataclass

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner

_Direct = TypeVar("_Direct", bound=DirectSpec)


def writing(planner: Planner, group: Group, spec: _Direct, y: StridedTensor) -> tuple[_Direct, StridedTensor]:
    """The spec that writes the result, and where: planes of pixels if it is bound for such."""
    target = planner.destination(group.output)
    if target is None or target.shape != y.shape or is_channels_last(target) or target.strides[-1] != 1:
        # Where rows do not follow each other (a concatenation along the width) no tile runs from one to the next.
        return (replace(spec, tile_rows=1) if spec.spans_rows and pixels_as_rows(y) is None else spec), y
    return replace(spec, y_planes=True), planner.place(group.output)


def reading(planner: Planner, spec: _Direct, x: StridedTensor) -> tuple[_Direct, StridedTensor]:
    """The spec that reads x, which is copied if there is none."""
    if is_channels_last(x) or spec.layout == "planar":
        return spec, x
    if spec.layout == "blocked" and x.strides[-1] == 1:
        return replace(spec, x_planes=True), x
    return spec, planner.copy(x, channels_last_order(x.rank), "needed channels-last")


def every_step(image: StridedTensor, steps: Sequence[int], first: Sequence[int]) -> StridedTensor:
    """The pixels `first`, first + steps, … of an image."""
    axes = list(zip(image.shape[2:], image.strides[2:], steps, first, strict=True))
    return replace(
        image,
        offset=image.offset + sum((at * stride for _, stride, _, at in axes), 0),
        shape=(*image.shape[:2], *((dim - at + step - 1) // step for dim, _, step, at in axes)),
        strides=(*image.strides[:2], *(stride * step for _, stride, step, _ in axes)),
    )


def is_by_channel(image: StridedTensor) -> bool:
    """Whether all pixels of all images are the same, and channels lie side by side or are the same, too."""
    others = (dim == 1 or stride == 0 for dim, stride in zip(image.shape, image.strides, strict=True))
    return image.strides[1] in (0, 1) and all(alike for axis, alike in enumerate(others) if axis != 1)


@dataclass(frozen=True)
class Geometry:
    """Height and width of x and y, and their strides by image, row and pixel; one axis is a height of 1."""

    size: tuple[DimLike, DimLike]
    out_size: tuple[DimLike, DimLike]
    x: tuple[DimLike, DimLike, DimLike]
    y: tuple[DimLike, DimLike, DimLike]

    @classmethod
    def of(cls, x: StridedTensor, y: StridedTensor) -> Geometry:
        strides = [(tensor.strides[0], *pair(tensor.strides[2:], 0)) for tensor in (x, y)]
        return cls(pair(x.shape[2:]), pair(y.shape[2:]), strides[0], (y.strides[0], *_row_strides(y)))

    def named(self) -> dict[str, DimLike]:
        """Them by the names that kernels have."""
        return {
            **by_name("height width", self.size),
            **by_name("out_height out_width", self.out_size),
            **by_name("x_image x_row x_pixel", self.x),
            **by_name("y_image y_row y_pixel", self.y),
        }


def _row_strides(tensor: StridedTensor) -> tuple[DimLike, DimLike]:
    """Strides by row and pixel; a single row is as long as its pixels, which is what kernels expect of dense rows."""
    if tensor.rank == 3 or tensor.shape[2] == 1:
        return tensor.shape[-1] * tensor.strides[-1], tensor.strides[-1]
    return tensor.strides[2], tensor.strides[3]


def concrete_pair(values: Sequence[DimLike], fill: int = 1) -> tuple[int | None, int | None]:
    """What `pair` gives, with None for what only a run tells."""
    height, width = pair(values, fill)
    return concrete(height), concrete(width)


def square(weights: np.ndarray) -> np.ndarray:
    """Weights with two spatial axes."""
    if weights.ndim == 5:
        return depth_as_channels(weights)
    return weights if weights.ndim == 4 else weights[:, :, None, :]


def add_bias(planner: Planner, group: Group, bias: Value, rank: int) -> None:
    """Put `+ bias`, one number a channel, in front of the group's epilogue."""
    channels = bias.shape[0]
    column = Value(f"{bias.name} by channel", TensorType(bias.dtype, (channels, *(1,) * (rank - 2))))
    tensor = planner.tensor(bias)
    planner.bind(column, replace(tensor, shape=column.shape, strides=(tensor.strides[0], *(0,) * (rank - 2))))
    biased = e.operand(0, bias.dtype) + e.operand(1, bias.dtype)
    if group.expr is not None:
        biased = e.substitute(
            group.expr,
            lambda leaf: (
                None if leaf.op != "operand" else e.operand(leaf.value + 1, leaf.dtype) if leaf.value else biased
            ),
        )
    group.expr, group.operands = biased, [column, *group.operands]


def window_steps(
    kernel: Sequence[DimLike], strides: Sequence[DimLike], dilations: Sequence[DimLike], pads_before: Sequence[DimLike]
) -> dict[str, DimLike]:
    """How windows lie over one or two axes, by the names that kernels have for it."""
    return {
        **by_name("kernel_height kernel_width", pair(kernel)),
        **by_name("stride_height stride_width", pair(strides)),
        **by_name("dilation_height dilation_width", pair(dilations)),
        **by_name("pad_top pad_left", pair(pads_before, 0)),
    }


def window_sizes(
    x: StridedTensor,
    y: StridedTensor,
    kernel: Sequence[DimLike],
    computation: c.Bfloat16Convolution | c.IntegerConvolution,
) -> dict[str, DimLike]:
    """The sizes of a product of windows, but y_pixel, by the names of `WindowProduct`. kernel: of one or two axes."""
    return {
        **by_name("images channels", x.shape[:2]),
        **by_name("height width", pair(x.shape[2:])),
        **by_name("out_height out_width", pair(y.shape[2:])),
        "out_channels": y.shape[1],
        **window_steps(kernel, computation.strides, computation.dilations, computation.pads_before),
        **by_name("x_image x_row x_pixel", (x.strides[0], *pair(x.strides[2:], 0))),
    }


def rows_as_windows(m: DimLike, n: DimLike, k: DimLike, a_row: DimLike) -> dict[str, DimLike]:
    """The same of a product of m rows, a_row apart, of k elements with n columns: as windows of one pixel."""
    return {
        **{"images": 1, "height": m, "width": 1, "channels": k, "out_height": m, "out_width": 1, "out_channels": n},
        **window_steps((1, 1), (1, 1), (1, 1), (0, 0)),
        **{"x_image": 0, "x_row": 0, "x_pixel": a_row},
    }


def evenly_spaced(planner: Planner, a: StridedTensor) -> tuple[StridedTensor, DimLike]:
    """A tensor whose leading axes, joined, are rows evenly spaced, copied if they are not; how far apart these are."""
    axes = tuple(range(a.rank))
    row = apart(a, axes[:-1])
    if row is None:
        a = planner.copy(a, axes, "its rows are not evenly spaced")
        row = apart(a, axes[:-1])
    assert row is not None, "Bug: the rows of a copy are not evenly spaced"
    return a, row


def place_rows(
    planner: Planner, value: Value, order: Sequence[int], rows: Sequence[int]
) -> tuple[StridedTensor, DimLike]:
    """Place a result whose axes `rows`, joined, are to be rows evenly spaced; tell how far apart these are, too."""
    return planner.place_as(value, order, lambda y: apart(y, rows), strict=True)


def rows_in_memory(
    planner: Planner, source: Value, result: Value
) -> tuple[StridedTensor, StridedTensor, tuple[DimLike, DimLike, tuple[DimLike, ...]]]:
    """An operand, copied if it has gaps, and a place for a result of its shape: both as `as_rows` tells of them, in the
    order that the operand lies in."""
    x = planner.tensor(source)
    order = memory_order(x)
    if as_rows(order, x) is None:
        x = planner.copy(x, order, "needed without gaps")
        order = memory_order(x)
    y, rows = planner.place_as(result, order, lambda y: as_rows(order, x, y))
    return x, y, rows


def row_strides(rows: Sequence[int]) -> Callable[[StridedTensor], tuple[DimLike, DimLike, DimLike] | None]:
    """The strides of an epilogue's operand by batch, row and column, where the axes `rows` are joined to rows and one
    axis has columns; None for one whose rows are not evenly spaced."""

    def strides(tensor: StridedTensor) -> tuple[DimLike, DimLike, DimLike] | None:
        row = apart(tensor, rows)
        column = next(axis for axis in range(tensor.rank) if axis not in rows)
        return None if row is None else (0, row, tensor.strides[column])

    return strides
