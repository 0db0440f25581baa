"""Convolution: products where it is one, else kernels for windows over images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Statement
from jitonnx.ir.dims import (
    COMMON_SIZES,
    DimLike,
    concrete,
    floor_divide,
    integers,
    known,
    minimum,
    product,
    usual,
)
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.convolution.choose import (
    choose_convolution,
    choose_depthwise_planes,
    least_planar_width,
    outruns_bfloat16,
    parting,
)
from jitonnx.kernels.convolution.problem import ConvolutionBuffers, ConvolutionShape, Problem
from jitonnx.kernels.convolution.spec import (
    DepthwisePlanesSizes,
    DepthwisePlanesSpec,
    DepthwiseSizes,
    DepthwiseSpec,
    DirectSpec,
    GroupedSpec,
)
from jitonnx.kernels.convolution.taps import live_taps
from jitonnx.kernels.convolution.transforms import WinogradSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import region_call
from jitonnx.plan.selection.narrow import narrow_convolution
from jitonnx.plan.selection.patches import patches_product
from jitonnx.plan.selection.planes import planes_to_planes
from jitonnx.plan.selection.products import GemmResult, gemm
from jitonnx.plan.selection.volumes import (
    gather_slices,
    has_depth_taps_alone,
    rows_as_images,
    slice_strides,
    slices_as_images,
    slices_as_rows,
    without_depth,
    without_width,
)
from jitonnx.plan.selection.windows import (
    Geometry,
    add_bias,
    concrete_pair,
    every_step,
    is_by_channel,
    reading,
    square,
    window_steps,
    writing,
)
from jitonnx.plan.tensor import (
    StridedTensor,
    broadcast_to,
    channels_last_order,
    is_channels_last,
    pair,
    pixel_strides,
    pixels_as_rows,
    plane_strides,
)
from jitonnx.target import tuning

if TYPE_CHECKING:
    from jitonnx.plan.choices import Choices
    from jitonnx.plan.planner import Planner, RowStrides
    from jitonnx.target.machine import Target


def convolution(
    planner: Planner, group: Group, computation: c.Convolution, image: Value, kernel: Value, bias: Value | None = None
) -> None:
    """Conv over one to three spatial axes: a GEMM where it is one, else a kernel for images."""
    if image.dtype is not DType.FLOAT:
        # The operators give double, weights of the run and more axes to products of unfolded images instead.
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
    if factors is None and _is_pixelwise(computation, array):
        least = _planar_pixels(planner, group, x)
        if least is not None:
            _planar_product(planner, group, weights, _read_pixels(planner, computation, x), bias, least)
            return
    if factors is None and narrow_convolution(planner, group, computation, weights, x, bias):
        return
    if spec := _depthwise_in_planes(planner, group, computation, array, x):
        y = planner.place(group.output)
        if bias is not None:
            add_bias(planner, group, bias, x.rank)
        x, y = _narrow_depthwise(planner, group, computation, weights, x, y)
        _planar_depthwise(planner, group, computation, spec, weights, x, y)
        return
    y = planner.place(group.output, channels_last_order(x.rank), strict=True)
    if bias is not None:
        add_bias(planner, group, bias, x.rank)
    computation, weights = _without_dead_taps(computation, weights, x, y)
    array = weights.constant
    assert array is not None
    is_product = _is_matrix_product(computation, array) or (_is_pixelwise(computation, array) and is_channels_last(x))
    if group.scaling is not None or (is_product and not _has_few_channels(x, computation)):
        x = planner.channels_last(image)
    if is_product and (out := pixels_as_rows(y)) is not None:
        matrix = pixels_as_rows(_read_pixels(planner, computation, x))
        if matrix is not None:
            planner.note("a 1x1 convolution is a product of pixels and weights")
            swapped = replace(weights, shape=weights.shape[1::-1], strides=weights.strides[1::-1])
            rows = None if factors is None else _by_channel(planner.tensor(factors))
            gemm(planner, group, matrix, swapped, GemmResult(out, pixels_as_rows), rows)
            return
    if group.scaling is not None:
        x = _scaled_image(planner, group.scaling, x)
    if patches_product(planner, group, computation, weights, x, y):
        return
    if array.ndim == 5:
        _volume(planner, group, computation, x, weights, y)
    else:
        _direct(planner, group, computation, x, weights, y)


def _planar_pixels(planner: Planner, group: Group, x: StridedTensor) -> int | None:
    """The number of pixels from which on an image that lies in planes of pixels, and whose 1x1 convolution is wanted
    so, is cheaper so; None where none is.

    Two copies are spared, one if not all pixels are read, but then vectors are of pixels, not of output channels: 49
    pixels fill 64 lanes. With an unknown number of pixels and one way for all runs (`_parted`), what costs least where
    it costs most, compared with the other, for usual numbers.
    """
    target = _between_planes(planner, group, x)
    if target is None:
        return None
    lanes, (channels, outputs) = planner.target.lanes(4), integers([x.shape[1], target.shape[1]])
    copied = tuning.COPY_COST * (outputs + (channels if target.shape[2:] == x.shape[2:] else 0))

    def gain(pixels: int) -> float:
        """What it takes channels-last over what it takes in planes, in multiply-adds of vectors."""
        last = pixels * (-(-outputs // lanes) * channels + copied)
        return last / max(1, -(-pixels // lanes) * outputs * channels)

    pixels = concrete(product(target.shape[2:]))
    if pixels is not None:
        return 0 if gain(pixels) >= 1 else None
    if _reads_planes(planner, group):
        gains = [gain(pixels) for pixels in _USUAL_PIXELS]
        return 0 if max(gains) * min(gains) >= 1 else None
    return parting([gain(pixels) >= 1 for pixels in range(1, 16 * lanes)])


_USUAL_PIXELS = (7 * 7, 14 * 14, 56 * 56)


def _reads_planes(planner: Planner, group: Group) -> bool:
    """Whether an epilogue has operands in planes, which a result that is channels-last had to have copied."""
    operands = (broadcast_to(planner.tensor(one), group.output.shape) for one in group.operands)
    return any((rows := pixel_strides(one)) is None or rows[2] not in (0, 1) for one in operands)


def _between_planes(planner: Planner, group: Group, x: StridedTensor) -> StridedTensor | None:
    """The place that a result is bound for, if that and x are planes of pixels; else None."""
    target = planner.destination(group.output)
    if target is None or not all(
        not is_channels_last(image) and (planes := plane_strides(image)) is not None and planes[2] == 1
        for image in (x, target)
    ):
        return None
    return target


def _planar_product(
    planner: Planner, group: Group, weights: StridedTensor, x: StridedTensor, bias: Value | None, least: int
) -> None:
    """A 1x1 convolution as weights times planes: [M, C] @ [N, C, pixels]; in runs in which planes have less pixels than
    `least`, channels-last, between copies."""
    y = planner.place(group.output)
    if bias is not None:
        add_bias(planner, group, bias, x.rank)
    parts = _parted(planner, group, x, y, product(y.shape[2:]), least)
    if parts is not None:
        (small_x, small_y), (x, y) = parts
        pixels, result = _channels_last_between(planner, small_x, small_y, f"for less than {least} pixels")
        swapped = replace(weights, shape=weights.shape[1::-1], strides=weights.strides[1::-1])
        rows, out = pixels_as_rows(pixels), pixels_as_rows(result)
        assert rows is not None and out is not None
        gemm(planner, group, rows, swapped, GemmResult(out, _of_images(small_x, pixels_as_rows)))
        planner.copy_into(result, small_y, f"for less than {least} pixels, made channels-last")
        planner.note(f"for {least} pixels or more")
    matrix, planes = replace(weights, shape=weights.shape[:2], strides=weights.strides[:2]), _planes(x)
    out = _planes(y)
    assert planes is not None and out is not None
    planner.note("a 1x1 convolution is a product of weights and planes of pixels")
    gemm(planner, group, matrix, planes, GemmResult(out, _of_images(x, _planes), tuple(range(x.rank))))


def _of_images(
    x: StridedTensor, as_matrix: Callable[[StridedTensor], StridedTensor | None]
) -> Callable[[StridedTensor], StridedTensor | None]:
    """`as_matrix` for as many images as x has, which may be a part of a result's (`_parted`)."""
    return lambda tensor: as_matrix(replace(tensor, shape=(x.shape[0], *tensor.shape[1:])))


_Images: TypeAlias = "tuple[StridedTensor, StridedTensor]"


def _parted(
    planner: Planner, group: Group, x: StridedTensor, y: StridedTensor, size: DimLike, least: int
) -> tuple[_Images, _Images] | None:
    """x and y for runs in which `size` is below `least`, and for others: in each run one of both has no images. None
    where all runs are done alike: the size is known, or an operand of the epilogue would be copied in all of them.
    """
    if isinstance(size, int) or least < 2 or _reads_planes(planner, group):
        return None
    large = minimum(floor_divide(size, least), 1)

    def share(image: StridedTensor, of: DimLike) -> StridedTensor:
        return replace(image, shape=(image.shape[0] * of, *image.shape[1:]))

    return (share(x, 1 - large), share(y, 1 - large)), (share(x, large), share(y, large))


def _channels_last_between(planner: Planner, x: StridedTensor, y: StridedTensor, why: str) -> _Images:
    """A channels-last copy of x, and a place for what y is to be copied from."""
    order = channels_last_order(x.rank)
    return planner.copy(x, order, f"{why}, needed channels-last"), planner.temporary(y.shape, y.dtype, order)


def _read_pixels(planner: Planner, computation: c.Convolution, x: StridedTensor) -> StridedTensor:
    """The pixels that a 1x1 convolution with strides reads: those of planes side by side, others evenly spaced.

    With their copy, a product takes 0.9 to 0.96 of the time of a kernel for windows.
    """
    if all(step == 1 for step in computation.strides):
        return x
    read = every_step(x, computation.strides, (0,) * len(computation.strides))
    order = tuple(range(x.rank))
    if is_channels_last(x):
        order = channels_last_order(x.rank)
        if pixels_as_rows(read) is not None:
            return read
    return planner.copy(read, order, "the pixels that a convolution with strides reads")


def _depthwise_in_planes(
    planner: Planner, group: Group, computation: c.Convolution, weights: np.ndarray, x: StridedTensor
) -> DepthwisePlanesSpec | None:
    """The kernel of a depthwise convolution from planes of pixels to such, where that is faster; else None."""
    outputs, own_channels, *kernel = weights.shape
    if len(kernel) != 2 or (own_channels, computation.group) != (1, outputs) or outputs == 1:
        return None
    target = _between_planes(planner, group, x)
    if target is None or target.dtype is not DType.FLOAT:
        return None
    strides, dilations = pair(computation.strides), pair(computation.dilations)
    return choose_depthwise_planes(pair(kernel), strides, dilations, concrete_pair(target.shape[2:]), planner.target)


def _planar_depthwise(
    planner: Planner,
    group: Group,
    computation: c.Convolution,
    spec: DepthwisePlanesSpec,
    weights: StridedTensor,
    x: StridedTensor,
    y: StridedTensor,
) -> None:
    """Calls the kernel that `_depthwise_in_planes` chose."""
    sizes = DepthwisePlanesSizes(**planes_to_planes(x, y), **by_name("pad_top pad_left", computation.pads_before))
    packed = planner.packed(weights, spec.pack_weights, spec)
    call = KernelCall(spec, ConvolutionBuffers(x=x, w=packed, y=y), sizes)
    call.label = f"depthwise {'x'.join(map(str, spec.kernel))} {x.shape[1]}->{x.shape[1]}"
    call.reason = "; ".join(["from planes of pixels to such", *group.reasons])
    planner.epilogue(group, call, plane_strides, (0, 1, 2, 3))
    planner.call(call)


def _narrow_depthwise(
    planner: Planner,
    group: Group,
    computation: c.Convolution,
    weights: StridedTensor,
    x: StridedTensor,
    y: StridedTensor,
) -> _Images:
    """Plans a depthwise convolution of planes of open width for runs in which they are narrow: channels-last, between
    copies. Returns x and y as they are for other runs.
    """
    kernel, strides, dilations = map(pair, (integers(weights.shape[2:]), computation.strides, computation.dilations))
    least = least_planar_width(kernel, strides, dilations, planner.target)
    parts = _parted(planner, group, x, y, y.shape[-1], least)
    if parts is None:
        return x, y
    (narrow_x, narrow_y), wide = parts
    why = f"for results of less than {least} columns"
    pixels, result = _channels_last_between(planner, narrow_x, narrow_y, why)
    _direct(planner, group, computation, pixels, weights, result)
    planner.copy_into(result, narrow_y, f"{why}, made channels-last")
    planner.note(f"for results of {least} columns or more")
    return wide


def _planes(tensor: StridedTensor) -> StridedTensor | None:
    """An image [N, C, spatial...] as matrices [N, C, pixels]; None if its pixels are not evenly spaced."""
    matrix = pixels_as_rows(tensor)
    if matrix is None:
        return None
    (images, pixels, channels), (image, pixel, channel) = matrix.shape, matrix.strides
    return replace(matrix, shape=(images, channels, pixels), strides=(image, channel, pixel))


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
    fewer = pixels is None or pixels > tuning.SCALED_PIXELS * array.shape[0]
    return by_channel and fewer and _is_matrix_product(statement.computation, array)


def _by_channel(factors: StridedTensor) -> StridedTensor:
    """Factors [images or 1, channels, 1...] as a matrix."""
    return replace(factors, shape=factors.shape[:2], strides=factors.strides[:2])


def _scaled_image(planner: Planner, scaling: Group, x: StridedTensor) -> StridedTensor:
    """The image multiplied, where the product behind it cannot do that: its pixels are not evenly spaced."""
    assert scaling.expr is not None
    target = planner.temporary(x.shape, x.dtype, channels_last_order(x.rank))
    operands = [x, planner.tensor(scaling.operands[1])]
    label, reason = f"region {scaling.maps[-1].node.operator.name}", "; ".join(scaling.reasons)
    planner.call(region_call([scaling.expr], operands, [target], label=label, origin=scaling.origin, reason=reason))
    return target


def _without_dead_taps(
    computation: c.Convolution, weights: StridedTensor, x: StridedTensor, y: StridedTensor
) -> tuple[c.Convolution, StridedTensor]:
    """The convolution without taps that read only padding: widely dilated kernels on small images have such."""
    shape, strides, offset = list(weights.shape), list(weights.strides), weights.offset
    before, after = list(computation.pads_before), list(computation.pads_after)
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
        reach = (outputs - 1) * stride + (taps.stop - taps.start - 1) * dilation + 1  # of all windows that are left
        after[axis] = max(0, reach - before_it - size + taps.start * dilation)
    pruned = replace(weights, offset=offset, shape=tuple(shape))
    if pruned.shape == weights.shape or 0 in shape:
        return computation, weights
    return replace(computation, pads_before=tuple(before), pads_after=tuple(after)), pruned


def _without_steps(
    computation: c.Convolution, weights: StridedTensor, x: StridedTensor
) -> tuple[c.Convolution, StridedTensor]:
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


def _has_few_channels(x: StridedTensor, computation: c.Convolution) -> bool:
    return isinstance(x.shape[1], int) and x.shape[1] <= tuning.PLANAR_CHANNELS and computation.group == 1


def _volume(
    planner: Planner,
    group: Group,
    computation: c.Convolution,
    x: StridedTensor,
    weights: StridedTensor,
    y: StridedTensor,
) -> None:
    """A convolution over three axes as one of images."""
    if has_depth_taps_alone(computation, weights.shape) and _depth_alone(planner, group, computation, x, weights, y):
        return
    taps = weights.shape[2]
    assert isinstance(taps, int)
    x = gather_slices(planner, computation, x, taps, y.shape[2])
    out = slices_as_images(y)
    if out is None:
        out = slices_as_images(planner.move(group.output, channels_last_order(y.rank)))
        assert out is not None
    planner.note(f"{taps} depth taps as channels of images")
    _direct(planner, group, without_depth(computation), x, weights, out, slice_strides)


def _depth_alone(
    planner: Planner,
    group: Group,
    computation: c.Convolution,
    x: StridedTensor,
    weights: StridedTensor,
    y: StridedTensor,
) -> bool:
    """A convolution that has depth taps alone, of the volume as images; False if its slices are copied instead.

    Rows of all pixels of a slice are for kernels that read rows in place. Others copy the rows that a task needs: those
    of a single volume then have the width of a slice, which leaves an epilogue no linear pixel.
    """
    flat = replace(weights, shape=weights.shape[:4], strides=weights.strides[:4])
    computation = without_width(computation)
    image, out = slices_as_rows(x), slices_as_rows(y)
    if image is not None and out is not None:
        spec = _kernel_spec(planner, computation, image, flat, out)
        if isinstance(spec, WinogradSpec | DepthwiseSpec):
            planner.note("depth taps alone: slices are the rows of an image")
            _direct(planner, group, computation, image, flat, out)
            return True
    if y.shape[0] != 1 or not all(is_by_channel(broadcast_to(planner.tensor(v), y.shape)) for v in group.operands):
        return False
    planner.note("depth taps alone: rows are images, of which slices are the rows")
    _direct(
        *(planner, group, computation, rows_as_images(x), flat, rows_as_images(y)),
        lambda operand: pixel_strides(rows_as_images(operand)),
    )
    return True


def _kernel_spec(
    planner: Planner, computation: c.Convolution, x: StridedTensor, weights: StridedTensor, y: StridedTensor
) -> DirectSpec | DepthwiseSpec | WinogradSpec:
    """The kernel for images x and y."""
    other_order = not is_channels_last(x) and not _has_few_channels(x, computation)
    return choose_convolution(
        _convolution_shape(computation, x.shape, weights.shape, y.shape),
        planner.target,
        channels_last=is_channels_last(x) or other_order,
        winograd=planner.choices.winograd and not computation.exact,
        usual_sizes=[pair([usual(dim, size) for dim in y.shape[2:]]) for size in COMMON_SIZES],
    )


def _convolution_shape(
    computation: c.Convolution, x_shape: Sequence[DimLike], w_shape: Sequence[DimLike], y_shape: Sequence[DimLike]
) -> ConvolutionShape:
    """What a kernel for images is chosen by."""
    out_channels, own_channels, *kernel = _image_shape(w_shape)
    return ConvolutionShape(
        *(pair(kernel), pair(integers(computation.strides)), pair(integers(computation.dilations))),
        *(computation.group, own_channels * computation.group, out_channels),
        concrete_pair(y_shape[2:]),
        concrete_pair(x_shape[2:]),
        concrete_pair(computation.pads_before, 0),
    )


def outruns_dots(statement: Statement, target: Target, choices: Choices) -> bool:
    """Whether a convolution takes less time in float32 than in bfloat16, on a CPU that sums pairs of products of these
    at some times the rate of float32: for all usual sizes of the output, if it is open."""
    computation, (x, weights) = statement.computation, statement.inputs[:2]
    assert isinstance(computation, c.Convolution) and x is not None and weights is not None
    if target.bfloat16_products != "dots" or len(weights.shape) > 4:
        return False
    out_shape, winograd = statement.outputs[0].shape, choices.winograd and not computation.exact
    shape = _convolution_shape(computation, x.shape, weights.shape, out_shape)
    return all(
        outruns_bfloat16(shape, pair([usual(dim, size) for dim in out_shape[2:]]), target, winograd=winograd)
        for size in COMMON_SIZES
    )


def _direct(
    planner: Planner,
    group: Group,
    computation: c.Convolution,
    x: StridedTensor,
    weights: StridedTensor,
    y: StridedTensor,
    rows: RowStrides = pixel_strides,
) -> None:
    """Calls the kernel for images x and y; `rows`: how its epilogue addresses tensors of the result's shape."""
    computation, x = _without_steps(computation, weights, x)
    out_channels, own_channels, *kernel_size = _image_shape(weights.shape)
    kernel, strides, dilations = pair(kernel_size), pair(computation.strides), pair(computation.dilations)
    channels = own_channels * computation.group
    spec = _kernel_spec(planner, computation, x, weights, y)
    if isinstance(spec, DepthwiseSpec) and y.dtype is DType.BFLOAT16:
        spec = replace(spec, result="bfloat16")
    if isinstance(spec, DirectSpec):
        spec, y = writing(planner, group, spec, y)
        spec, x = reading(planner, spec, x)
    elif not is_channels_last(x) and not _has_few_channels(x, computation):
        x = planner.copy(x, channels_last_order(x.rank), "needed channels-last")
    geometry = Geometry.of(x, y)
    pads = pair(computation.pads_before, 0)
    sizes: DepthwiseSizes | Problem
    if isinstance(spec, DepthwiseSpec):
        sizes = DepthwiseSizes(
            images=x.shape[0], channels=channels, **geometry.named(), **by_name("pad_top pad_left", pads)
        )
    else:
        sizes = Problem(
            images=x.shape[0],
            channels=channels,
            out_channels=out_channels,
            groups=computation.group,
            **geometry.named(),
            **window_steps(kernel, strides, dilations, pads),
            x_channel=x.strides[1],
            y_channel=y.strides[1] if isinstance(spec, DirectSpec) else 1,
        )
    packed = planner.packed(weights, lambda w: _pack(spec, square(w), computation.group), spec)
    call = KernelCall(spec, ConvolutionBuffers(x=x, w=packed, y=y), sizes)
    call.label = f"{_ALGORITHMS[type(spec)]} {kernel[0]}x{kernel[1]}"
    call.label += f" {channels}->{out_channels}"
    call.reason = "; ".join(group.reasons)
    planner.epilogue(group, call, rows)
    planner.call(call)


_ALGORITHMS = {
    DirectSpec: "convolution",
    GroupedSpec: "grouped convolution",
    DepthwiseSpec: "depthwise",
    WinogradSpec: "Winograd",
}


def _pack(spec: DirectSpec | DepthwiseSpec | WinogradSpec, weights: np.ndarray, groups: int) -> np.ndarray:
    """Weights as the kernel of `spec` reads them."""
    return spec.pack_weights(weights, groups) if isinstance(spec, DirectSpec) else spec.pack_weights(weights)


def _image_shape(weights: Sequence[DimLike]) -> list[int]:
    """The shape of weights, those over three axes as weights of images."""
    outputs, channels, *kernel = integers(weights)
    return [outputs, channels, *kernel] if len(kernel) < 3 else [outputs, kernel[0] * channels, *kernel[1:]]


def _is_pixelwise(computation: c.Convolution, weights: np.ndarray) -> bool:
    """A 1x1 convolution that neither pads nor groups."""
    ones = (*weights.shape[2:], computation.group)
    return all(value == 1 for value in ones) and not any((*computation.pads_before, *computation.pads_after))


def _is_matrix_product(computation: c.Convolution, weights: np.ndarray) -> bool:
    """A 1x1 convolution that neither strides nor pads nor groups."""
    return _is_pixelwise(computation, weights) and all(step == 1 for step in computation.strides)
