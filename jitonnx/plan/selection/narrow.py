"""Convolutions and transposed convolutions to few output channels, by vectors of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import concrete
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.convolution.choose import choose_narrow
from jitonnx.kernels.convolution.narrow_spec import NarrowSizes
from jitonnx.kernels.convolution.problem import ConvolutionBuffers, ConvolutionShape
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.windows import add_bias, concrete_pair, square
from jitonnx.plan.tensor import StridedTensor, in_planes, is_channels_last, pair, plane_strides

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


_PRODUCT_OUTPUTS = 4
"""A 1x1 convolution of a channels-last image to more is left a product of rows, which may go in bands with others."""


def narrow_convolution(
    planner: Planner,
    group: Group,
    computation: c.Convolution | c.TransposedConvolution,
    weights: StridedTensor,
    x: StridedTensor,
    bias: Value | None,
) -> bool:
    """Plan a convolution over one or two axes to few output channels; False if another kernel is better for it."""
    array = weights.constant
    assert array is not None
    y_type = group.output
    if array.ndim not in (3, 4) or not x.dtype is y_type.dtype is DType.FLOAT or 0 in array.shape:
        return False
    transposed = isinstance(computation, c.TransposedConvolution)
    outputs = array.shape[1] * computation.group if transposed else array.shape[0]
    kernel, strides, dilations = pair(array.shape[2:]), pair(computation.strides), pair(computation.dilations)
    pads = pair(computation.pads_before, 0)
    pad = concrete(pads[1])
    if transposed and pad is None:
        return False
    planes = in_planes(x)
    if not planes and kernel == (1, 1) and outputs > _PRODUCT_OUTPUTS:
        return False
    if not planes and (computation.group > 1 or not is_channels_last(x)):
        return False
    if computation.group > 1 and not transposed and (array.ndim != 3 or not _is_for_planes(planner, group)):
        return False  # images have kernels for groups
    channels = array.shape[0] // computation.group if transposed else array.shape[1]
    shape = ConvolutionShape(
        *(kernel, strides, dilations, computation.group, channels * computation.group, outputs),
        *(concrete_pair(y_type.shape[2:]), concrete_pair(x.shape[2:]), (concrete(pads[0]), pad)),
    )
    spec = choose_narrow(shape, planner.target, planes=planes, transposed=transposed)
    if spec is None:
        return False
    y = planner.place(group.output, tuple(range(x.rank)), strict=True)
    if bias is not None:
        add_bias(planner, group, bias, x.rank)
    sizes = NarrowSizes(
        images=x.shape[0],
        groups=computation.group,
        channels=channels,
        output_blocks=outputs // computation.group // spec.outputs,
        **by_name("height width", pair(x.shape[2:])),
        **by_name("x_image x_channel", x.strides[:2]),
        **by_name("x_row x_pixel", pair(x.strides[2:], 0)),
        **by_name("out_height out_width", pair(y.shape[2:])),
        **by_name("y_image y_channel", y.strides[:2]),
        y_row=pair(y.strides[2:], 0)[0],
        kernel_height=kernel[0],
        stride_height=strides[0],
        dilation_height=dilations[0],
        **by_name("pad_top pad_left", pads),
    )
    packed = planner.packed(
        weights, lambda w: spec.pack_weights(square(w), computation.group, dilations[0]), (spec, dilations[0])
    )
    call = KernelCall(spec, ConvolutionBuffers(x=x, w=packed, y=y), sizes)
    name = "transposed convolution" if transposed else "convolution"
    call.label = f"{name} {kernel[0]}x{kernel[1]} {channels * computation.group}->{outputs}"
    call.reason = "; ".join(["vectors of pixels: few output channels", *group.reasons])
    planner.epilogue(group, call, plane_strides, tuple(range(x.rank)))
    planner.call(call)
    return True


def _is_for_planes(planner: Planner, group: Group) -> bool:
    """Whether a result is bound for planes of pixels."""
    target = planner.destination(group.output)
    return target is not None and in_planes(target)
