"""What the specs of all kinds of convolution share."""

from __future__ import annotations

from jitonnx.emit.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.parts.layouts import Windows

CHANNEL_BLOCK = 16
"""Input channels that lie side by side in scratch memory: one cache line."""


class ConvolutionBuffers(Arguments):
    """Those of every convolution."""

    x: Buffer
    w: Buffer
    y: Buffer = result()


class Problem(Windows):
    """The sizes that the planner gives of any convolution but a depthwise one. Channels are those of all groups."""

    groups: Size
    x_channel: Size
    y_image: Size
    y_row: Size
    y_pixel: Size
    y_channel: Size
