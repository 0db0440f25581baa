"""What the kernel of local response normalisation is, without compiling it."""

from __future__ import annotations

from jitonnx.kernels.parts.layouts import Pixels, UnaryBuffers
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass


@dataclass(frozen=True)
class LRNSpec(KernelSpec):
    """ONNX's LRN on float32: y[c] = x[c] / (bias + alpha / size * Σ x[i]**2) ** beta, i the `size` channels around c.

    These go from c - (size - 1) // 2 to c + size // 2, as far as there are such.

    x and y are channels-last: element (n, h, w, c) of x lies at n * x_image + h * x_row + w * x_pixel + c, and y's
    likewise; other spatial axes than two are merged or have extent 1. Task: a row of pixels, n * height + h. The
    epilogue's row is the linear pixel h * width + w.
    """

    size: int
    alpha: float
    beta: float
    bias: float

    BUFFERS = UnaryBuffers
    SIZES = Pixels

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"LRN: size must be at least 1, not {self.size}")

    def tasks(self, sizes: Pixels) -> int:
        return sizes.images * sizes.height if sizes.width * sizes.channels else 0

    def scratch_bytes(self, sizes: Pixels) -> int:
        """The squares of a pixel, between zeros for the neighbours that are not there, in whole vectors."""
        return 4 * (sizes.channels + self.size + 4 * LONGEST_VECTOR)

    def work(self, sizes: Pixels) -> Work:
        elements = sizes.images * sizes.height * sizes.width * sizes.channels
        return Work(elements * (self.size + 8), 8 * elements)


LONGEST_VECTOR = 16
"""float32 elements of the longest vector of any target."""
