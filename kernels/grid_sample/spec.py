"""What the kernels that read images between their pixels are, without compiling them.

Both take coordinates, in elements along each spatial axis, and find out once for all channels which elements a place
reads (its taps) and with which weights.
"""

from __future__ import annotations

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, Sizes, computed, each, result
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Taps along each axis, by mode."""
OUTSIDES = ("zeros", "border", "reflection")
MAX_AXES = 3
"""Spatial axes; 4 ** 3 taps are the most that are written out."""
FLOATS = ("float32", "float64")
WORDS = ("uint8", "uint16", "uint32", "uint64")
"""Elements that are merely copied, mode nearest."""
VECTOR = 16
"""Places whose taps are found at once, at most."""


class SampleBuffers(Arguments):
    x: Buffer
    coordinates: Buffer
    factors: Buffer
    y: Buffer = result()


class SampleSizes(Arguments):
    images: Size
    channels: Size
    places: Size
    x_image: Size
    x_channel: Size
    y_image: Size
    y_channel: Size
    y_place: Size
    c_image: Size
    c_axis: Size
    f_image: Size
    extents: Sizes = each(MAX_AXES, fill=0)
    x_steps: Sizes = each(MAX_AXES, fill=0)
    """How far apart elements of x lie along each spatial axis."""
    task_places: Size = computed()


@dataclass(frozen=True)
class _SampleSpec(KernelSpec):
    """y[n, c, p] = factors[n, p] * Σ weights * x[n, c, taps of coordinates[n, :, p]].

    Element (n, c, i…) of x lies at n * x_image + c * x_channel + the sum of i * x_steps[i], and (n, c, p) of y at
    n * y_image + c * y_channel + p * y_place; coordinate a of place p at n * c_image + a * c_axis + p; the factor at
    n * f_image + p. The places of an image's channel are told apart in 32 bits: x_steps * extents are below 2**31.
    Coordinates are whole numbers where the mode is nearest, and within what they are reflected at where outside is
    reflection.

    Task: task_places places of an image.
    """

    mode: str
    outside: str
    axes: int
    aligned: bool = False
    """Whether elements are reflected at the centres of the outermost ones, and not at their edges."""
    element: str = "float32"
    """The element type of x and y, and of coordinates and factors, too; where it is one of WORDS, theirs is float32."""
    weighted: bool = False
    """Whether there are factors; else their pointer goes unread."""

    BUFFERS = SampleBuffers
    SIZES = SampleSizes

    def __post_init__(self) -> None:
        if self.mode not in TAPS or self.outside not in OUTSIDES or not 0 < self.axes <= MAX_AXES:
            raise ValueError(f"no kernel reads {self.axes} axes by {self.mode!r} with {self.outside!r} outside")
        if self.element not in (*FLOATS, *(WORDS if self.mode == "nearest" else ())):
            raise ValueError(f"no kernel samples {self.element} by {self.mode!r}")
        if self.weighted and self.element in WORDS:
            raise ValueError(f"{self.element} is not multiplied by factors")

    @property
    def coordinate(self) -> str:
        """The type of coordinates and factors."""
        return "float32" if self.element in WORDS else self.element

    def complete(self, sizes: SampleSizes) -> SampleSizes:
        places = tuning.INTERPOLATED_TASK_ELEMENTS // max(1, sizes.channels) // VECTOR * VECTOR
        return SampleSizes.following(sizes, task_places=max(VECTOR, places))

    def tasks(self, sizes: SampleSizes) -> int:
        return sizes.images * -(-sizes.places // sizes.task_places) if sizes.channels else 0

    def work(self, sizes: SampleSizes) -> Work:
        outputs, size = sizes.images * sizes.channels * sizes.places, np.dtype(self.element).itemsize
        return Work(2 * outputs * TAPS[self.mode] ** self.axes, 2 * outputs * size)


@dataclass(frozen=True)
class SamplePlanesSpec(_SampleSpec):
    """Vectors lie along places: elements are gathered, channel after channel. For few channels. y_place is 1."""


@dataclass(frozen=True)
class SamplePixelsSpec(_SampleSpec):
    """Vectors lie along channels, which are side by side in x and y (x_channel and y_channel are 1): each place reads
    whole pixels. For many channels."""

    def scratch_bytes(self, sizes: SampleSizes) -> int:
        """A pixel of zeros, which places outside read."""
        return np.dtype(self.element).itemsize * sizes.channels if self.outside == "zeros" else 0


def prefers_pixels(channels: int) -> bool:
    """Whether so many channels are better side by side. A gather takes longer for an element than copying it twice."""
    return channels >= 8
