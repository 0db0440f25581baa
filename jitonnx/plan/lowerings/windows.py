"""Windows over images: convolution, resizing, normalisation over channels. Kernels read and write channels-last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from jitonnx.ir import computation as c
from jitonnx.ir import expr as e
from jitonnx.ir.dims import DimLike, concrete, integers, known, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.lowering import Statement
from jitonnx.ir.types import TensorType
from jitonnx.kernels.convolution.choose import choose_convolution, choose_depthwise_planes, choose_transposed
from jitonnx.kernels.convolution.spec import DepthwisePlanesSpec, DepthwiseSpec, DirectSpec
from jitonnx.kernels.convolution.taps import live_taps
from jitonnx.kernels.convolution.transforms import WinogradSpec
from jitonnx.kernels.lrn.spec import LRNSpec
from jitonnx.kernels.resize.spec import (
    OUTSIDE,
    REPEATS,
    RepeatPlanesSpec,
    ResizeAxisSpec,
    ResizePlanesSpec,
    Table,
    Windows,
    pack_table,
    pack_windows,
)
from jitonnx.kernels.resize.spec import choose as choose_resize
from jitonnx.ops.resampling import axis_table
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.lowerings.products import gemm
from jitonnx.plan.lowerings.volumes import (
    depth_as_channels,
    gather_slices,
    slice_strides,
    slices_as_images,
    without_depth,
)
from jitonnx.plan.region import region_call
from jitonnx.plan.tensor import (
    Tensor,
    channels_last_order,
    is_channels_last,
    pixel_strides,
    pixels_as_rows,
    plane_strides,
)
from jitonnx.records import dataclass

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner, RowStrides

_D = TypeVar("_D")
_Direct = TypeVar("_Direct", bound=DirectSpec)


def local_response_normalize(planner: Planner, group: Group, statement: Statement) -> None:
    """LRN: windows over neighbouring channels."""
    computation = statement.computation
    assert isinstance(computation, c.LocalResponseNormalize) and statement.inputs[0] is not None
    assert group.output is not None
    if statement.inputs[0].dtype is not DType.FLOAT or len(statement.inputs[0].shape) not in (3, 4):
        planner.unplannable(f"LRN of {statement.inputs[0].type}")
    x = planner.channels_last(statement.inputs[0])
    y = planner.place(group.output, channels_last_order(x.rank), strict=True)
    geometry = _Geometry.of(x, y)
    spec = LRNSpec(computation.size, computation.alpha, computation.beta, computation.bias)
    sizes = [x.shape[0], *geometry.size, x.shape[1], *geometry.x, *geometry.y]
    call = KernelCall(spec, [x, y], list(sizes), 1, 1, label=f"LRN {computation.size}", reason="; ".join(group.reasons))
    planner.epilogue(group, call, pixel_strides)
    planner.call(call)


def resize(planner: Planner, group: Group, statement: Statement) -> None:
    """Resize: both spatial axes of an image in one kernel, other axes one after the other."""
    computation = statement.computation
    assert isinstance(computation, c.Resize) and statement.inputs[0] is not None and group.output is not None
    source, shape = planner.tensor(statement.inputs[0]), computation.shape
    changing = _resampled_axes(computation, source.shape)
    planner.need_concrete([source.shape[axis] for axis in changing] + [shape[axis] for axis in changing])
    if source.dtype is not DType.FLOAT and computation.mode != "nearest":
        planner.unplannable(f"resampling of {source.dtype.text}")
    if _is_image_resize(computation, source.shape):
        if (factors := _repeats(planner, group, computation, source)) is not None:
            _repeat_pixels(planner, group, source, *factors)
            return
        if _in_planes(planner, group, computation, source):
            _resize_planes(planner, group, computation, source)
            return
        _resize_image(planner, group, computation, planner.channels_last(statement.inputs[0]))
        return
    assert group.expr is None, "Bug: resampling axis by axis has no epilogue"
    if source.dtype is not DType.FLOAT:
        planner.unplannable(f"resampling of axes {changing} of {source.dtype.text}")
    tensor = planner.dense(statement.inputs[0])
    lengths, outputs = (integers([dims[axis] for axis in changing]) for dims in (source.shape, shape))
    growth = {axis: output / max(length, 1) for axis, length, output in zip(changing, lengths, outputs, strict=True)}
    for axis in sorted(changing, key=lambda axis: growth[axis]):  # the one that shrinks most first
        tensor = _resize_axis(planner, computation, source, tensor, axis)
    out = planner.place(statement.outputs[0])
    planner.copy_into(tensor, out, "resampled axis by axis")


def resizes_images(statement: Statement) -> bool:
    """Whether a Resize is done by the kernel for images, which takes an epilogue."""
    assert isinstance(statement.computation, c.Resize) and statement.inputs[0] is not None
    return _is_image_resize(statement.computation, statement.inputs[0].shape)


def _is_image_resize(computation: c.Resize, shape: Sequence[DimLike]) -> bool:
    return len(shape) == 4 and set(_resampled_axes(computation, shape)) <= {2, 3}


def _resampled_axes(computation: c.Resize, shape: Sequence[DimLike]) -> list[int]:
    """The axes that are not copied as they are; one that keeps its size may yet be scaled or cut to a region."""
    rank = len(shape)
    scales, roi = computation.scales or (1.0,) * rank, computation.roi or ((0.0, 1.0),) * rank
    return [
        axis
        for axis in range(rank)
        if shape[axis] != computation.shape[axis] or scales[axis] != 1.0 or roi[axis] != (0.0, 1.0)
    ]


def _repeats(planner: Planner, group: Group, computation: c.Resize, x: Tensor) -> tuple[int, int] | None:
    """(rows, columns) that each pixel becomes, if planes of pixels become larger ones by mere repetition."""
    assert group.output is not None
    target = planner.destination(group.output)
    if computation.mode != "nearest" or group.expr is not None or target is None or not target.contiguous:
        return None
    if not known([*x.shape[2:], *target.shape[2:]]):
        return None
    factors = []
    for axis in (2, 3):
        length, output = integers([x.shape[axis], target.shape[axis]])
        factor, rest = divmod(output, max(length, 1))
        table = _packed_table(planner, computation, x, axis, 1)
        if rest or not factor or not np.array_equal(table.positions[:, 0], np.arange(output) // factor):
            return None
        factors.append(factor)
    return (factors[0], factors[1]) if _is_planar(x) and max(factors) > 1 and factors[1] in REPEATS else None


def _repeat_pixels(planner: Planner, group: Group, x: Tensor, down: int, across: int) -> None:
    assert group.output is not None
    y = planner.place(group.output)
    sizes = [*x.shape, down, *x.strides[:3]]
    call = KernelCall(RepeatPlanesSpec(x.dtype.itemsize, across), [x, y], sizes, 1, 1, label="resize nearest")
    call.reason = f"each pixel {down} x {across} times"
    planner.call(call)


_GROWTH_FOR_PLANES = 4
"""An image that grows so much is better copied to planes first than copied when it is large."""


def _in_planes(planner: Planner, group: Group, computation: c.Resize, source: Tensor) -> bool:
    """Whether an image is to be resized in planes of pixels, for which its columns need `Windows`."""
    assert group.output is not None
    target = planner.destination(group.output)
    if computation.mode not in ("nearest", "linear") or computation.antialias or computation.roi is not None:
        return False
    if source.dtype is not DType.FLOAT or target is None or not _is_planar(target):
        return False
    pixels = [concrete(product(image.shape[2:])) for image in (source, target)]
    if None in pixels or (not _is_planar(source) and pixels[1] < _GROWTH_FOR_PLANES * pixels[0]):  # type: ignore[operator]
        return False
    return _windows(planner, computation, source) is not None


def _is_planar(image: Tensor) -> bool:
    return image.strides[3] == 1 and (image.shape[1] == 1 or not is_channels_last(image))


def _windows(planner: Planner, computation: c.Resize, x: Tensor) -> Windows | None:
    taps = 2 if computation.mode == "linear" else 1
    width = integers(x.shape[3:])[0]
    return pack_windows(_packed_table(planner, computation, x, 3, taps), width, planner.target.lanes(4))


def _resize_planes(planner: Planner, group: Group, computation: c.Resize, x: Tensor) -> None:
    assert group.output is not None
    if not _is_planar(x):
        x = planner.copy(x, tuple(range(4)), "grows much, and is bound for planes of pixels")
    y = planner.place(group.output)
    rows, taps, _ = _table(planner, computation, x, 2, 2 if computation.mode == "linear" else 1)
    windows = _windows(planner, computation, x)
    assert windows is not None
    columns = [planner.constant(array) for array in windows]
    sizes = [*x.shape[:2], x.shape[3], *y.shape[2:], *x.strides[:3], *y.strides[:3]]
    call = KernelCall(ResizePlanesSpec(taps), [x, *rows, *columns, y], sizes, 1, 6)
    call.label = f"resize {computation.mode} in planes"
    call.reason = "tables of positions and weights made with the plan"
    planner.epilogue(group, call, plane_strides, (0, 1, 2, 3))
    planner.call(call)


def _table(
    planner: Planner, computation: c.Resize, source: Tensor, axis: int, taps: int
) -> tuple[list[Tensor], int, bool]:
    """The table of an axis as constants (positions, weights), its taps, and whether some outputs lie outside."""
    packed = _packed_table(planner, computation, source, axis, taps)
    constants = [planner.constant(packed.positions), planner.constant(packed.weights)]
    outside = packed.positions.size > 0 and packed.positions[:, 0].min() == OUTSIDE
    return constants, packed.positions.shape[1], bool(outside)


def _packed_table(planner: Planner, computation: c.Resize, source: Tensor, axis: int, taps: int) -> Table:
    """The table of an axis, filled up to `taps` taps."""
    length, output = source.shape[axis], computation.shape[axis]
    planner.need_concrete([length, output])
    assert isinstance(length, int) and isinstance(output, int)
    table = axis_table(
        length,
        output,
        computation.scales[axis] if computation.scales is not None else output / max(length, 1),
        computation.roi[axis] if computation.roi is not None else None,
        mode=computation.mode,
        coordinates=computation.coordinates,
        nearest=computation.nearest,
        cubic_coefficient=computation.cubic_coefficient,
        exclude_outside=computation.exclude_outside,
        antialias=computation.antialias,
    )
    return pack_table(table.indices, table.weights, table.outside, max(taps, table.indices.shape[1]))


def _resize_image(planner: Planner, group: Group, computation: c.Resize, x: Tensor) -> None:
    assert group.output is not None
    y = planner.place(group.output, channels_last_order(4), strict=True)
    taps = 2 if computation.mode == "linear" else 1
    rows, row_taps, rows_outside = _table(planner, computation, x, 2, taps)
    columns, column_taps, columns_outside = _table(planner, computation, x, 3, taps)
    outside = computation.extrapolation if rows_outside or columns_outside else None
    spec = choose_resize(computation.mode, row_taps, column_taps, x.dtype.itemsize, outside)
    sizes = [x.shape[0], x.shape[3], x.shape[1], *y.shape[2:], row_taps, column_taps]
    sizes += [x.strides[0], *x.strides[2:], y.strides[0], *y.strides[2:]]
    call = KernelCall(spec, [x, *rows, *columns, y], list(sizes), 1, 5, label=f"resize {computation.mode}")
    call.reason = "tables of positions and weights made with the plan"
    planner.epilogue(group, call, pixel_strides)
    planner.call(call)


def _resize_axis(planner: Planner, computation: c.Resize, source: Tensor, x: Tensor, axis: int) -> Tensor:
    """A dense tensor with one axis resampled."""
    table, taps, outside = _table(planner, computation, source, axis, 1)
    shape = [*x.shape[:axis], computation.shape[axis], *x.shape[axis + 1 :]]
    y = planner.temporary(shape, x.dtype)
    inner = product(shape[axis + 1 :])
    sizes = [product(shape[:axis]), shape[axis], inner, taps, x.shape[axis] * inner, inner, shape[axis] * inner, inner]
    spec = ResizeAxisSpec(computation.extrapolation if outside else None)
    planner.call(KernelCall(spec, [x, *table, y], sizes, 1, 3, label=f"resize axis {axis}", reason=computation.mode))
    return y


def convolution(planner: Planner, group: Group, statement: Statement) -> None:
    """Conv over one to three spatial axes: a GEMM where it is one, else a kernel for images."""
    computation = statement.computation
    assert isinstance(computation, c.Convolution)
    image, kernel, bias = (*statement.inputs, None)[:3]
    assert image is not None and kernel is not None and group.output is not None
    if image.dtype is not DType.FLOAT:
        planner.unplannable(f"a convolution of {image.dtype.text}")
    factors = None
    if group.scaling is not None:
        image, factors = group.scaling.operands
    weights = planner.tensor(kernel)
    array = weights.constant
    if array is None:
        planner.unplannable("its weights are computed at run time")
    if array.ndim not in (3, 4, 5):
        planner.unplannable(f"a convolution over {array.ndim - 2} spatial axes")
    x = planner.tensor(image)
    if factors is None and _is_matrix_product(computation, array) and _stays_planar(planner, group, x):
        _planar_product(planner, group, weights, x, bias)
        return
    if spec := _depthwise_in_planes(planner, group, computation, array, x):
        _planar_depthwise(planner, group, computation, spec, weights, x, bias)
        return
    y = planner.place(group.output, channels_last_order(x.rank), strict=True)
    if bias is not None:
        _add_bias(planner, group, bias, x.rank)
    computation, weights = _without_dead_taps(computation, weights, x, y)
    array = weights.constant
    assert array is not None
    if group.scaling is not None or (_is_matrix_product(computation, array) and not _has_few_channels(x, computation)):
        x = planner.channels_last(image)
    if _is_matrix_product(computation, array):
        matrix, out = pixels_as_rows(x), pixels_as_rows(y)
        if matrix is not None and out is not None:
            planner.note("a 1x1 convolution is a product of pixels and weights")
            swapped = replace(weights, shape=weights.shape[1::-1], strides=weights.strides[1::-1])
            rows = None if factors is None else _by_channel(planner.tensor(factors))
            gemm(planner, group, matrix, swapped, out, pixels_as_rows, rows)
            return
    if group.scaling is not None:
        x = _scaled_image(planner, group.scaling, x)
    if array.ndim == 5:
        _volume(planner, group, computation, x, weights, y)
    else:
        _direct(planner, group, computation, x, weights, y)


COPY_COST = 0.4  # of a multiply-add of vectors: what an element costs that is copied to another layout


def _stays_planar(planner: Planner, group: Group, x: Tensor) -> bool:
    """Whether an image lies in planes of pixels, its 1x1 convolution is wanted so, and is cheaper so.

    Two copies are spared, but then vectors are of pixels, not of output channels: 49 pixels fill 64 lanes. An unknown
    number of pixels is taken for many.
    """
    target = _between_planes(planner, group, x)
    if target is None:
        return False
    pixels, lanes = concrete(product(target.shape[2:])), planner.target.lanes(4)
    channels, outputs = integers([x.shape[1], target.shape[1]])
    if pixels is None:
        return True
    copies = COPY_COST * pixels * (channels + outputs)
    return -(-pixels // lanes) * outputs * channels <= pixels * -(-outputs // lanes) * channels + copies


def _between_planes(planner: Planner, group: Group, x: Tensor) -> Tensor | None:
    """Where a result is bound for, if that and x lie in planes of pixels."""
    assert group.output is not None
    target = planner.destination(group.output)
    if target is None or not all(
        not is_channels_last(image) and (planes := plane_strides(image)) is not None and planes[2] == 1
        for image in (x, target)
    ):
        return None
    return target


def _planar_product(planner: Planner, group: Group, weights: Tensor, x: Tensor, bias: Value | None) -> None:
    """A 1x1 convolution as weights times planes: [M, C] @ [N, C, pixels]."""
    assert group.output is not None
    y = planner.place(group.output)
    if bias is not None:
        _add_bias(planner, group, bias, x.rank)
    matrix, planes = replace(weights, shape=weights.shape[:2], strides=weights.strides[:2]), _planes(x)
    out = _planes(y)
    assert planes is not None and out is not None
    planner.note("a 1x1 convolution is a product of weights and planes of pixels")
    gemm(planner, group, matrix, planes, out, _planes, order=tuple(range(x.rank)))


def _depthwise_in_planes(
    planner: Planner, group: Group, computation: c.Convolution, weights: np.ndarray, x: Tensor
) -> DepthwisePlanesSpec | None:
    """The kernel of a depthwise convolution from planes of pixels to such, where that is faster; else None."""
    outputs, own_channels, *kernel = weights.shape
    if len(kernel) != 2 or (own_channels, computation.group) != (1, outputs) or outputs == 1:
        return None
    target = _between_planes(planner, group, x)
    if target is None:
        return None
    strides, dilations = _pair(computation.strides), _pair(computation.dilations)
    return choose_depthwise_planes(_pair(kernel), strides, dilations, concrete(target.shape[3]), planner.target)


def _planar_depthwise(
    planner: Planner,
    group: Group,
    computation: c.Convolution,
    spec: DepthwisePlanesSpec,
    weights: Tensor,
    x: Tensor,
    bias: Value | None,
) -> None:
    """Calls the kernel that `_depthwise_in_planes` chose."""
    assert group.output is not None
    y = planner.place(group.output)
    if bias is not None:
        _add_bias(planner, group, bias, x.rank)
    sizes = [x.shape[0], *x.shape[2:], x.shape[1], *y.shape[2:], *computation.pads_before]
    sizes += [*x.strides[:3], *y.strides[:3]]
    call = KernelCall(spec, [x, planner.packed(weights, spec.pack_weights, spec), y], sizes, 1, 2)
    call.label = f"depthwise {'x'.join(map(str, spec.kernel))} {x.shape[1]}->{x.shape[1]}"
    call.reason = "; ".join(["from planes of pixels to such", *group.reasons])
    planner.epilogue(group, call, plane_strides, (0, 1, 2, 3))
    planner.call(call)


def _planes(tensor: Tensor) -> Tensor | None:
    """An image [N, C, spatial...] as matrices [N, C, pixels]; None if its pixels are not evenly spaced."""
    matrix = pixels_as_rows(tensor)
    if matrix is None:
        return None
    (images, pixels, channels), (image, pixel, channel) = matrix.shape, matrix.strides
    return replace(matrix, shape=(images, channels, pixels), strides=(image, channel, pixel))


_SCALED_PIXELS = 4  # for each output channel


def takes_scaling(statement: Statement, factors: Value) -> bool:
    """Whether a convolution is a product whose weights can be multiplied by `factors` instead of its image.

    They have a number for each channel of an image, or of all. Each image then has weights of its own. That pays where
    it has several times as many pixels as they have columns, the output channels, since it was just written and lies
    in a cache, and weights often in memory: 24 us against 10 were measured for 196 pixels, 672 channels and 112
    outputs. An unknown number of pixels is taken for many.
    """
    image, kernel = statement.inputs[:2]
    assert isinstance(statement.computation, c.Convolution) and image is not None and kernel is not None
    array = kernel.constant
    if array is None or array.ndim not in (3, 4) or image.dtype is not DType.FLOAT or factors.constant is not None:
        return False
    shape = factors.shape
    by_channel = len(shape) == len(image.shape) and shape[1] == image.shape[1] and all(dim == 1 for dim in shape[2:])
    pixels = concrete(product(image.shape[2:]))
    fewer = pixels is None or pixels > _SCALED_PIXELS * array.shape[0]
    return by_channel and fewer and _is_matrix_product(statement.computation, array)


def _by_channel(factors: Tensor) -> Tensor:
    """Factors [images or 1, channels, 1...] as a matrix."""
    return replace(factors, shape=factors.shape[:2], strides=factors.strides[:2])


def _scaled_image(planner: Planner, scaling: Group, x: Tensor) -> Tensor:
    """The image multiplied, where the product behind it cannot do that: its pixels are not evenly spaced."""
    assert scaling.expr is not None
    target = planner.temporary(x.shape, x.dtype, channels_last_order(x.rank))
    operands = [x, planner.tensor(scaling.operands[1])]
    label, reason = f"region {scaling.maps[-1].node.operator.name}", "; ".join(scaling.reasons)
    planner.call(region_call([scaling.expr], operands, [target], label=label, origin=scaling.origin, reason=reason))
    return target


def _without_dead_taps(
    computation: c.Convolution, weights: Tensor, x: Tensor, y: Tensor
) -> tuple[c.Convolution, Tensor]:
    """The convolution without taps that read only padding: widely dilated kernels on small images have such."""
    shape, strides, offset = list(weights.shape), list(weights.strides), weights.offset
    before = list(computation.pads_before)
    for axis, (pad, stride, dilation) in enumerate(
        zip(computation.pads_before, computation.strides, computation.dilations, strict=True)
    ):
        sizes = (weights.shape[2 + axis], pad, x.shape[2 + axis], y.shape[2 + axis])
        if not known(sizes) or 0 in sizes[2:]:
            continue
        kernel, before_it, size, outputs = integers(sizes)
        taps = live_taps(kernel, stride, dilation, before_it, size, outputs)
        offset = offset + taps.start * strides[2 + axis]
        shape[2 + axis], before[axis] = taps.stop - taps.start, pad - taps.start * dilation
    pruned = replace(weights, offset=offset, shape=tuple(shape))
    if pruned.shape == weights.shape or 0 in shape:
        return computation, weights
    return replace(computation, pads_before=tuple(before), pads_after=(0,) * len(before)), pruned


def _without_steps(computation: c.Convolution, weights: Tensor, x: Tensor) -> tuple[c.Convolution, Tensor]:
    """The convolution of the pixels that are read alone: along an axis of one tap, strides can be x's instead. Where
    pixels lie side by side they stay so, for kernels that read planes."""
    strides, shape, steps = list(computation.strides), list(x.shape), list(x.strides)
    for axis, (step, pad) in enumerate(zip(strides, computation.pads_before, strict=True)):
        if (
            weights.shape[axis - len(strides)] != 1
            or pad != 0
            or (axis == len(strides) - 1 and not is_channels_last(x))
        ):
            continue
        shape[2 + axis] = (shape[2 + axis] + step - 1) // step
        strides[axis], steps[2 + axis] = 1, steps[2 + axis] * step
    return replace(computation, strides=tuple(strides)), replace(x, shape=tuple(shape), strides=tuple(steps))


PLANAR_CHANNELS = 4
"""Up to so many input channels, an image in channel order is read as it is: the first layer of most models."""


def _has_few_channels(x: Tensor, computation: c.Convolution) -> bool:
    return isinstance(x.shape[1], int) and x.shape[1] <= PLANAR_CHANNELS and computation.group == 1


def _volume(planner: Planner, group: Group, computation: c.Convolution, x: Tensor, weights: Tensor, y: Tensor) -> None:
    """A convolution over three axes as one of images."""
    assert group.output is not None
    taps = weights.shape[2]
    assert isinstance(taps, int)
    x = gather_slices(planner, computation, x, taps, y.shape[2])
    out = slices_as_images(y)
    if out is None:
        out = slices_as_images(planner.move(group.output, channels_last_order(y.rank)))
        assert out is not None
    planner.note(f"{taps} depth taps as channels of images")
    _direct(planner, group, without_depth(computation), x, weights, out, slice_strides)


def _direct(
    planner: Planner,
    group: Group,
    computation: c.Convolution,
    x: Tensor,
    weights: Tensor,
    y: Tensor,
    rows: RowStrides = pixel_strides,
) -> None:
    """Calls the kernel for images x and y; `rows`: how its epilogue addresses tensors of the result's shape."""
    computation, x = _without_steps(computation, weights, x)
    out_channels, own_channels, *kernel_size = _image_shape(weights.shape)
    kernel, strides, dilations = _pair(kernel_size), _pair(computation.strides), _pair(computation.dilations)
    channels = own_channels * computation.group
    height, width = (dim if isinstance(dim, int) else None for dim in _pair(y.shape[2:]))
    other_order = not is_channels_last(x) and not _has_few_channels(x, computation)
    spec = choose_convolution(
        kernel,
        strides,
        dilations,
        computation.group,
        channels,
        out_channels,
        (height, width),
        planner.target,
        is_channels_last(x) or other_order,
        planner.choices.winograd,
        _concrete_pair(x.shape[2:]),
        _concrete_pair(computation.pads_before, 0),
    )
    if isinstance(spec, DirectSpec):
        spec, y = _writing(planner, group, spec, y)
        spec, x = _reading(planner, spec, x)
    elif other_order:
        x = planner.copy(x, channels_last_order(x.rank), "needed channels-last")
    geometry = _Geometry.of(x, y)
    pads = _pair(computation.pads_before, 0)
    sizes = [x.shape[0], *geometry.size, channels, *geometry.out_size]
    if isinstance(spec, DepthwiseSpec):
        sizes += [*pads, *geometry.x, *geometry.y]
    else:
        sizes += [out_channels, computation.group, *kernel, *strides, *dilations, *pads]
        sizes += [*geometry.x, x.strides[1], *geometry.y]
        sizes += [y.strides[1]] if isinstance(spec, DirectSpec) else []
    packed = planner.packed(weights, lambda w: _pack(spec, _square(w), computation.group), spec)
    call = KernelCall(spec, [x, packed, y], list(sizes), 1, 2)
    call.label = f"{_ALGORITHMS[type(spec)]} {kernel[0]}x{kernel[1]}"
    call.label += f" {channels}->{out_channels}"
    call.reason = "; ".join(group.reasons)
    planner.epilogue(group, call, rows)
    planner.call(call)


def _writing(planner: Planner, group: Group, spec: _Direct, y: Tensor) -> tuple[_Direct, Tensor]:
    """The spec that writes the result, and where: planes of pixels if it is bound for such."""
    assert group.output is not None
    target = planner.destination(group.output)
    if target is None or target.shape != y.shape or is_channels_last(target) or target.strides[-1] != 1:
        # Where rows do not follow each other (a concatenation along the width) no tile runs from one to the next.
        return (replace(spec, tile_rows=1) if spec.spans_rows and pixels_as_rows(y) is None else spec), y
    return replace(spec, y_planes=True), planner.place(group.output)


def _reading(planner: Planner, spec: _Direct, x: Tensor) -> tuple[_Direct, Tensor]:
    """The spec that reads x, which is copied if there is none."""
    if is_channels_last(x) or spec.layout == "planar":
        return spec, x
    if spec.layout == "blocked" and x.strides[-1] == 1:
        return replace(spec, x_planes=True), x
    return spec, planner.copy(x, channels_last_order(x.rank), "needed channels-last")


_ALGORITHMS = {DirectSpec: "convolution", DepthwiseSpec: "depthwise", WinogradSpec: "Winograd"}


def _pack(spec: DirectSpec | DepthwiseSpec | WinogradSpec, weights: np.ndarray, groups: int) -> np.ndarray:
    """Weights as the kernel of `spec` reads them."""
    return spec.pack_weights(weights, groups) if isinstance(spec, DirectSpec) else spec.pack_weights(weights)


def transposed_convolution(planner: Planner, group: Group, statement: Statement) -> None:
    """ConvTranspose over one or two spatial axes."""
    computation = statement.computation
    assert isinstance(computation, c.TransposedConvolution)
    image, kernel, bias = (*statement.inputs, None)[:3]
    assert image is not None and kernel is not None and group.output is not None
    weights = planner.tensor(kernel)
    array = weights.constant
    if array is None or array.ndim not in (3, 4) or image.dtype is not DType.FLOAT:
        planner.unplannable(
            "a transposed convolution of computed weights, over more than two axes, or of another type than float"
        )
    x = planner.tensor(image)
    y = planner.place(group.output, channels_last_order(x.rank), strict=True)
    if bias is not None:
        _add_bias(planner, group, bias, x.rank)
    kernel_size, strides, dilations = _pair(array.shape[2:]), _pair(computation.strides), _pair(computation.dilations)
    out_channels = array.shape[1] * computation.group
    height, width = (dim if isinstance(dim, int) else None for dim in _pair(y.shape[2:]))
    spec = choose_transposed(strides, computation.group, out_channels, (height, width), planner.target)
    spec, y = _writing(planner, group, spec, y)
    spec, x = _reading(planner, spec, x)
    packed = planner.packed(
        weights, lambda w: spec.pack_weights(_square(w), computation.group, dilations), (spec, dilations)
    )
    geometry = _Geometry.of(x, y)
    sizes = [x.shape[0], *geometry.size, array.shape[0], *geometry.out_size, out_channels, computation.group]
    sizes += [*kernel_size, *strides, *dilations, *_pair(computation.pads_before, 0)]
    sizes += [*geometry.x, x.strides[1], *geometry.y, y.strides[1]]
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


def _concrete_pair(values: Sequence[DimLike], fill: int = 1) -> tuple[int | None, int | None]:
    """As `_pair`, None for what only a run tells."""
    height, width = _pair(values, fill)
    return concrete(height), concrete(width)


def _square(weights: np.ndarray) -> np.ndarray:
    """Weights with two spatial axes."""
    if weights.ndim == 5:
        return depth_as_channels(weights)
    return weights if weights.ndim == 4 else weights[:, :, None, :]


def _image_shape(weights: Sequence[DimLike]) -> list[int]:
    """The shape of weights, those over three axes as weights of images."""
    outputs, channels, *kernel = integers(weights)
    return [outputs, channels, *kernel] if len(kernel) < 3 else [outputs, kernel[0] * channels, *kernel[1:]]


def _is_matrix_product(computation: c.Convolution, weights: np.ndarray) -> bool:
    """A 1x1 convolution that neither strides nor pads nor groups."""
    ones = (*weights.shape[2:], *computation.strides, computation.group)
    return all(value == 1 for value in ones) and not any((*computation.pads_before, *computation.pads_after))


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
