"""What the specs of all kinds of convolution share."""

from __future__ import annotations

from jitonnx.emit.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.parts.layouts import Windows
from jitonnx.support.records import dataclass


@dataclass(frozen=True)
class ConvolutionShape:
    """What a kernel is chosen by: a convolution of images, (height, width), without its data. Channels are those of
    all groups; sizes and padding are None where only a run tells them."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    groups: int
    channels: int
    out_channels: int
    out_size: tuple[int | None, int | None]
    in_size: tuple[int | None, int | None] = (None, None)
    pads: tuple[int | None, int | None] = (0, 0)
    """Before rows and columns; for ONNX's ConvTranspose what is cut off there."""

    @property
    def columns(self) -> tuple[int, int, int]:
        """Kernel size, stride and dilation along the rows."""
        return self.kernel[1], self.strides[1], self.dilations[1]

    def text(self) -> str:
        """The layer in words, as far as its kernel is chosen by that: `3x3 64->128 to 56x56, strides 2x2`."""
        size = "x".join("any" if extent is None else str(extent) for extent in self.out_size)
        text = f"{self.kernel[0]}x{self.kernel[1]} {self.channels}->{self.out_channels} to {size}"
        for name, steps in (("strides", self.strides), ("dilations", self.dilations)):
            text += f", {name} {steps[0]}x{steps[1]}" if steps != (1, 1) else ""
        return text + (f", {self.groups} groups" if self.groups != 1 else "")


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
