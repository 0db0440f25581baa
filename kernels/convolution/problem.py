"""What the specs of all kinds of convolution share."""

from __future__ import annotations

from jitonnx.kernels.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.parts.layouts import Pixels

CHANNEL_BLOCK = 16
"""Input channels that lie side by side in scratch memory: one cache line."""


class ConvolutionBuffers(Arguments):
    """Those of every convolution."""

    x: Buffer
    w: Buffer
    y: Buffer = result()


class Problem(Pixels):
    """The sizes that the planner gives of any convolution but a depthwise one. Channels are those of all groups."""

    out_height: Size
    out_width: Size
    out_channels: Size
    groups: Size
    kernel_height: Size
    kernel_width: Size
    stride_height: Size
    stride_width: Size
    dilation_height: Size
    dilation_width: Size
    pad_top: Size
    pad_left: Size
    x_channel: Size
    y_channel: Size
