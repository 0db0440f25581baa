"""What the kernel that adds up blocks of an image is, without compiling it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np

from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

MAX_AXES = 3
ELEMENTS = ("float32", "float64", "int8", "int16", "int32", "int64")
_TASK_ELEMENTS = 1 << 13


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

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "y")
    GIVEN: ClassVar[tuple[str, ...]] = (
        "planes",
        *(
            f"{what}_{axis}"
            for what in ("extent", "blocks", "kernel", "step", "dilation", "before")
            for axis in range(MAX_AXES)
        ),
    )
    """The last axis is number axes - 1."""
    SIZES: ClassVar[tuple[str, ...]] = (*GIVEN, "task_rows")

    def __post_init__(self) -> None:
        if not 0 < self.axes <= MAX_AXES or self.element not in ELEMENTS:
            raise ValueError(f"no kernel folds {self.axes} axes of {self.element}")
        if min(self.kernel, self.step, self.dilation) < 1:
            raise ValueError(f"{self.kernel} taps, {self.step} and {self.dilation} apart: each is at least 1")

    def taps(self, place: int) -> list[tuple[int, int]]:
        """Of elements at a place within a step of the last axis: the taps, and how many blocks further than the
        elements' step the blocks are that they read."""
        away = ((tap, place + self.before - tap * self.dilation) for tap in range(self.kernel))
        return [(tap, distance // self.step) for tap, distance in away if distance % self.step == 0]

    def _by_axis(self, sizes: Sequence[int], number: int) -> Sequence[int]:
        first = 1 + number * MAX_AXES
        return sizes[first : first + self.axes]

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """GIVEN -> SIZES."""
        given = sizes[: len(self.GIVEN)]
        each = self._by_axis(given, 0)[-1] * prod(self._by_axis(given, 2))
        return [*given, max(1, _TASK_ELEMENTS // max(1, each))]

    @property
    def size_count(self) -> int:
        return len(self.SIZES)

    def tasks(self, sizes: Sequence[int]) -> int:
        *outer, inner = self._by_axis(sizes, 0)
        return -(-sizes[0] * prod(outer) // sizes[len(self.GIVEN)]) if inner else 0

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        """A number for each tap along the other axes."""
        return 8 * prod(self._by_axis(sizes, 2)[:-1])

    def work(self, sizes: Sequence[int]) -> Work:
        extents, blocks, kernel = (prod(self._by_axis(sizes, number)) for number in range(3))
        read = sizes[0] * blocks * kernel
        return Work(read, np.dtype(self.element).itemsize * (read + sizes[0] * extents))
