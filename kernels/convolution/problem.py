"""What the specs of all kinds of convolution share."""

from __future__ import annotations

from typing import NamedTuple

CHANNEL_BLOCK = 16
"""Input channels that lie side by side in scratch memory: one cache line."""


class Problem(NamedTuple):
    """The sizes that the planner gives of any convolution but a depthwise one. Channels are those of all groups."""

    images: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    groups: int
    kernel_height: int
    kernel_width: int
    stride_height: int
    stride_width: int
    dilation_height: int
    dilation_width: int
    pad_top: int
    pad_left: int
    x_image: int
    x_row: int
    x_pixel: int
    x_channel: int
    y_image: int
    y_row: int
    y_pixel: int
    y_channel: int = 1
