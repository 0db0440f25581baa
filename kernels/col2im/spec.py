"""What the kernel that adds up blocks of an image is, without compiling it."""

from __future__ import annotations

from math import prod

import numpy as np

from jitonnx.emit.arguments import Arguments, Size, Sizes, computed, each
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

MAX_AXES = 3
ELEMENTS = ("float32", "float64", "int8", "int16", "int32", "int64")


class FoldSizes(Arguments):
    """What lies along each axis; the last one is number axes - 1."""

    planes: Size
    extents: Sizes = each(MAX_AXES, fill=1)
    blocks: Sizes = each(MAX_AXES, fill=1)
    kernels: Sizes = each(MAX_AXES, fill=1)
    steps: Sizes = each(MAX_AXES, fill=1)
    dilations: Sizes = each(MAX_AXES, fill=1)
    before: Sizes = each(MAX_AXES, fill=1)
    task_rows: Size = computed()


@dataclass(frozen=True)
class FoldSpec(KernelSpec):
    """y[p, i…] = the sum of x[p, k…, l…] over taps k and blocks l with i = l * step - before + k * dilation: Col2Im.

    x and y are dense. Elements of y that are a step apart along the last axis are made of neighbours in x: for each
    place within a step there is a vector, and all of them together are put in order. What taps of the last axis read is
    part of the code; which taps and blocks of the other axes belong to a row of y is found out once a row. Integers
    wrap around, unsigned ones alike. Task: task_rows rows of y.
    """

    axes: int
    kernel: int
    """Taps along the last axis; as the next three."""
    step: int
    dilation: int
    before: int
    element: str = "float32"

    BUFFERS = UnaryBuffers
    SIZES = FoldSizes

    def __post_init__(self) -> None:
        if not 0 < self.axes <= MAX_AXES or self.element not in ELEMENTS:
            raise ValueError(f"no kernel folds {self.axes} axes of {self.element}")
        if min(self.kernel, self.step, self.dilation) < 1:
            raise ValueError(f"{self.kernel} taps, {self.step} and {self.dilation} apart: each is at least 1")

    def taps(self, place: int) -> list[tuple[int, int]]:
        """Elements at a place within a step of the last axis read these: the taps, and how many blocks further than the
        elements' step the blocks are that they read."""
        away = ((tap, place + self.before - tap * self.dilation) for tap in range(self.kernel))
        return [(tap, distance // self.step) for tap, distance in away if distance % self.step == 0]

    def complete(self, sizes: FoldSizes) -> FoldSizes:
        each_row = sizes.extents[self.axes - 1] * prod(sizes.kernels[: self.axes])
        return FoldSizes.following(sizes, task_rows=max(1, tuning.INTERPOLATED_TASK_ELEMENTS // max(1, each_row)))

    def tasks(self, sizes: FoldSizes) -> int:
        *outer, inner = sizes.extents[: self.axes]
        return -(-sizes.planes * prod(outer) // sizes.task_rows) if inner else 0

    def scratch_bytes(self, sizes: FoldSizes) -> int:
        """A number for each tap along the other axes."""
        return 8 * prod(sizes.kernels[: self.axes - 1])

    def work(self, sizes: FoldSizes) -> Work:
        extents, blocks, kernel = (prod(of) for of in (sizes.extents, sizes.blocks, sizes.kernels))
        read = sizes.planes * blocks * kernel
        return Work(read, np.dtype(self.element).itemsize * (read + sizes.planes * extents))
