"""Convolutions with an addition and an activation behind them."""

from __future__ import annotations

from jitonnx.ir.graph import Value
from jitonnx.ir.operator import shared_attributes
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, activated
from jitonnx.ops.onnx.arithmetic import Add
from jitonnx.ops.onnx.convolution import Conv


class FusedConv(Contributed):
    """Conv, plus Z, and then an activation."""

    activation: str | None = None
    activation_params: tuple[float, ...] | None = None
    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def compose(self, parts: Parts, x: Value, w: Value, b: Value | None = None, z: Value | None = None) -> Value:
        conv = Conv(**shared_attributes(self, Conv))
        y = parts.add(conv, x, w, *([] if b is None else [b]))
        if z is not None:
            y = parts.add(Add(), y, z)
        return activated(parts, y, self.activation, self.activation_params or ()) if self.activation else y


OPERATORS = (FusedConv,)
