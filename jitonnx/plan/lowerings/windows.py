"""Windows over images: pooling, convolution, resizing. Kernels read and write channels-last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from jitonnx.ir import computation as c
from jitonnx.ir import expr as e
from jitonnx.ir.dims import DimLike
from jitonnx.ir.graph import Value
from jitonnx.ir.lowering import Statement
from jitonnx.ir.types import TensorType
from jitonnx.kernels.convolution.spec import DepthwiseSpec, choose_convolution, choose_transposed
from jitonnx.kernels.pooling.spec import choose as choose_pool
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.lowerings.products import gemm
from jitonnx.plan.tensor import Tensor, channels_last_order, is_channels_last, pixels_as_rows

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner

_D = TypeVar("_D")


def pool(planner: Planner, group: Group, statement: Statement) -> None:
    """MaxPool, AveragePool, LpPool over one to three spatial axes."""
    computation = statement.computation
    assert isinstance(computation, c.Pool) and statement.inputs[0] is not None
    x = planner.channels_last(statement.inputs[0])
    if x.rank > 5:
        planner.unplannable("pooling over more than three spatial axes")
    order = channels_last_order(x.rank)
    y, *indices = [planner.place(value, order, strict=True) for value in statement.outputs]
    spec = choose_pool(
        computation.kind, x.dtype.numpy.name, bool(indices), computation.count_include_pad, computation.p
    )
    sizes: list[DimLike] = [x.shape[0], *spatial(x.shape[2:], 1), x.shape[1], *spatial(y.shape[2:], 1)]
    sizes += [x.strides[0], *spatial(x.strides[2:], 0), y.strides[0], *spatial(y.strides[2:], 0)]
    for window in (computation.kernel, computation.strides, computation.dilations):
        sizes += spatial(window, 1)
    sizes += [*spatial(computation.pads_before, 0), *spatial(computation.pads_after, 0)]
    sizes += _index_strides(x, computation.storage_order)
    call = KernelCall(spec, [x, y, *(indices or [y])], sizes, 1 + len(indices), 1)
    call.label = f"{computation.kind} pool {'x'.join(map(str, computation.kernel))}"
    call.reason = "windows over channels-last pixels"
    planner.call(call)


def _index_strides(x: Tensor, storage_order: int) -> list[DimLike]:
    """What a step along image, channel and the spatial axes adds to an index into the flattened operand."""
    axes = spatial(x.shape[2:], 1)
    steps: list[DimLike] = []
    step: DimLike = 1
    for extent in axes if storage_order else reversed(axes):
        steps.append(step)
        step = step * extent
    return [step * x.shape[1], step, *(steps if storage_order else reversed(steps))]


def convolution(planner: Planner, group: Group, statement: Statement) -> None:
    """Conv over one or two spatial axes: a GEMM where it is one, else the direct or depthwise kernel."""
    computation = statement.computation
    assert isinstance(computation, c.Convolution)
    image, kernel, bias = (*statement.inputs, None)[:3]
    assert image is not None and kernel is not None and group.output is not None
    weights = planner.tensor(kernel)
    array = weights.constant
    if array is None:
        planner.unplannable("its weights are computed at run time")
    if array.ndim not in (3, 4):
        planner.unplannable(f"a convolution over {array.ndim - 2} spatial axes")
    x = planner.tensor(image)
    few_channels = isinstance(x.shape[1], int) and x.shape[1] <= PLANAR_CHANNELS and computation.group == 1
    if not few_channels:
        x = planner.channels_last(image)
    y = planner.place(group.output, channels_last_order(x.rank), strict=True)
    if bias is not None:
        _add_bias(planner, group, bias, x.rank)
    if _is_matrix_product(computation, array):
        matrix, out = pixels_as_rows(x), pixels_as_rows(y)
        if matrix is not None and out is not None:
            planner.note("a 1x1 convolution is a product of pixels and weights")
            swapped = replace(weights, shape=weights.shape[1::-1], strides=weights.strides[1::-1])
            gemm(planner, group, matrix, swapped, out, pixels_as_rows)
            return
    _direct(planner, group, computation, x, weights, y)


PLANAR_CHANNELS = 4
"""Up to so many input channels, an image in channel order is read as it is: the first layer of most models."""


def _direct(planner: Planner, group: Group, computation: c.Convolution, x: Tensor, weights: Tensor, y: Tensor) -> None:
    array = weights.constant
    assert array is not None
    kernel, strides, dilations = _pair(array.shape[2:]), _pair(computation.strides), _pair(computation.dilations)
    channels, out_channels = array.shape[1] * computation.group, array.shape[0]
    height, width = (dim if isinstance(dim, int) else None for dim in _pair(y.shape[2:]))
    spec = choose_convolution(
        kernel,
        strides,
        dilations,
        computation.group,
        channels,
        out_channels,
        (height, width),
        planner.target,
        is_channels_last(x),
    )
    geometry = _Geometry.of(x, y)
    pads = _pair(computation.pads_before, 0)
    if isinstance(spec, DepthwiseSpec):
        packed = planner.packed(weights, lambda w: spec.pack_weights(_square(w)), spec)
        sizes = [x.shape[0], *geometry.size, channels, *geometry.out_size, *pads, *geometry.x, *geometry.y]
    else:
        packed = planner.packed(weights, lambda w: spec.pack_weights(_square(w), computation.group), spec)
        sizes = [x.shape[0], *geometry.size, channels, *geometry.out_size, out_channels, computation.group]
        sizes += [*kernel, *strides, *dilations, *pads, *geometry.x, x.strides[1], *geometry.y]
    kind = "depthwise" if isinstance(spec, DepthwiseSpec) else "convolution"
    call = KernelCall(spec, [x, packed, y], list(sizes), 1, 2, label=f"{kind} {kernel[0]}x{kernel[1]}")
    call.label += f" {channels}->{out_channels}"
    call.reason = "; ".join(group.reasons)
    planner.epilogue(group, call, pixel_strides)
    planner.call(call)


def transposed_convolution(planner: Planner, group: Group, statement: Statement) -> None:
    """ConvTranspose over one or two spatial axes."""
    computation = statement.computation
    assert isinstance(computation, c.TransposedConvolution)
    image, kernel, bias = (*statement.inputs, None)[:3]
    assert image is not None and kernel is not None and group.output is not None
    weights = planner.tensor(kernel)
    array = weights.constant
    if array is None or array.ndim not in (3, 4):
        planner.unplannable("transposed convolution of computed weights, or over more than two spatial axes")
    x = planner.channels_last(image)
    y = planner.place(group.output, channels_last_order(x.rank), strict=True)
    if bias is not None:
        _add_bias(planner, group, bias, x.rank)
    kernel_size, strides, dilations = _pair(array.shape[2:]), _pair(computation.strides), _pair(computation.dilations)
    out_channels = array.shape[1] * computation.group
    height, width = (dim if isinstance(dim, int) else None for dim in _pair(y.shape[2:]))
    spec = choose_transposed(strides, computation.group, out_channels, (height, width), planner.target)
    packed = planner.packed(
        weights, lambda w: spec.pack_weights(_square(w), computation.group, dilations), (spec, dilations)
    )
    geometry = _Geometry.of(x, y)
    sizes = [x.shape[0], *geometry.size, array.shape[0], *geometry.out_size, out_channels, computation.group]
    sizes += [*kernel_size, *strides, *dilations, *_pair(computation.pads_before, 0)]
    sizes += [*geometry.x, x.strides[1], *geometry.y]
    call = KernelCall(spec, [x, packed, y], list(sizes), 1, 2)
    call.label = f"transposed convolution {kernel_size[0]}x{kernel_size[1]} {array.shape[0]}->{out_channels}"
    call.reason = "; ".join(group.reasons)
    planner.epilogue(group, call, pixel_strides)
    planner.call(call)


@dataclass(frozen=True)
class _Geometry:
    """Height and width of x and y, and their strides by image, row and pixel; one axis is a height of 1."""

    size: tuple[DimLike, DimLike]
    out_size: tuple[DimLike, DimLike]
    x: tuple[DimLike, DimLike, DimLike]
    y: tuple[DimLike, DimLike, DimLike]

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> _Geometry:
        strides = [(tensor.strides[0], *_pair(tensor.strides[2:], 0)) for tensor in (x, y)]
        return cls(_pair(x.shape[2:]), _pair(y.shape[2:]), strides[0], (y.strides[0], *_row_strides(y)))


def _row_strides(tensor: Tensor) -> tuple[DimLike, DimLike]:
    """Strides by row and pixel; a single row is as long as its pixels, which is what kernels expect of dense rows."""
    if tensor.rank == 3 or tensor.shape[2] == 1:
        return tensor.shape[-1] * tensor.strides[-1], tensor.strides[-1]
    return tensor.strides[2], tensor.strides[3]


def _pair(values: Sequence[_D], fill: int = 1) -> tuple[_D, _D]:
    """Values by height and width; an image of one axis has height `fill`."""
    return (values[0], values[1]) if len(values) == 2 else (fill, values[0])  # type: ignore[return-value]


def _square(weights: np.ndarray) -> np.ndarray:
    """Weights with two spatial axes."""
    return weights if weights.ndim == 4 else weights[:, :, None, :]


def _is_matrix_product(computation: c.Convolution, weights: np.ndarray) -> bool:
    """A 1x1 convolution that neither strides nor pads nor groups."""
    ones = (*weights.shape[2:], *computation.strides, computation.group)
    return all(value == 1 for value in ones) and not any((*computation.pads_before, *computation.pads_after))


def pixel_strides(tensor: Tensor) -> tuple[DimLike, DimLike, DimLike] | None:
    """Strides of an image by (image, linear pixel, channel): how window kernels address their epilogue's operands."""
    matrix = pixels_as_rows(tensor)
    return None if matrix is None else matrix.strides  # type: ignore[return-value]


def _add_bias(planner: Planner, group: Group, bias: Value, rank: int) -> None:
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


def spatial(values: Sequence[DimLike], fill: DimLike) -> list[DimLike]:
    """One entry each for depth, height and width: axes that an image lacks get `fill` in front."""
    return [*[fill] * (3 - len(values)), *values]
