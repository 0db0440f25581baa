"""Convolutions with an addition and an activation behind them, and transposed ones whose padding is computed."""

from __future__ import annotations

from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError, shared_attributes
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, activated
from jitonnx.ops.onnx.arithmetic import Add, Sub
from jitonnx.ops.onnx.convolution import Conv, ConvolutionAttributes, ConvTranspose
from jitonnx.ops.onnx.shape import Shape
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.parts import numbers


class FusedConv(ConvolutionAttributes, Contributed):
    """Conv, plus Z, and then an activation."""

    activation: str | None = None
    activation_params: tuple[float, ...] | None = None

    def compose(self, parts: Parts, x: Value, w: Value, b: Value | None = None, z: Value | None = None) -> Value:
        conv = Conv(**shared_attributes(self, Conv))
        y = parts.add(conv, x, w, *([] if b is None else [b]))
        if z is not None:
            y = parts.add(Add(), y, z)
        return activated(parts, y, self.activation, self.activation_params or ()) if self.activation else y


class ConvTransposeWithDynamicPads(Contributed):
    """ConvTranspose, of whose results Pads (those at the begin of each axis, then those at the end) are cut off."""

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    output_padding: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def compose(self, parts: Parts, x: Value, w: Value, pads: Value | None = None, bias: Value | None = None) -> Value:
        axes = len(x.shape) - 2
        if self.auto_pad != "NOTSET":
            raise InferenceError(f"auto_pad is {self.auto_pad!r}; Pads say what is cut off")
        operator = ConvTranspose(**shared_attributes(self, ConvTranspose))
        y = parts.add(operator, x, w, *([] if bias is None else [bias]))
        if pads is None:
            return y
        if len(pads.shape) != 1 or not parts.context.demand_equal(pads.shape[0], 2 * axes):
            raise InferenceError(f"Pads is {pads.type}; [{2 * axes}], two for each axis, is needed")
        begins, behind = (
            parts.add(Slice(), pads, numbers(parts, first), numbers(parts, first + axes)) for first in (0, axes)
        )
        ends = parts.add(Sub(), parts.add(Shape(start=2), y), behind)
        return parts.add(Slice(), y, begins, ends, numbers(parts, *range(2, axes + 2)))
