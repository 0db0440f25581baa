"""What the kernel of determinants is, without compiling it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

ELEMENTS = ("float32", "float64")
_TASK_FLOPS = 1 << 14


@dataclass(frozen=True)
class DeterminantSpec(KernelSpec):
    """y[m] = the determinant of the matrix x[m], size by size: the product of the pivots of Gauss' elimination.

    In each column the largest element left is the pivot. x and y are dense. Task: task_matrices matrices.
    """

    element: str = "float32"

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "y")
    SIZES: ClassVar[tuple[str, ...]] = ("matrices", "size", "task_matrices")

    def __post_init__(self) -> None:
        if self.element not in ELEMENTS:
            raise ValueError(f"no kernel makes determinants of {self.element}")

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """(matrices, size) -> SIZES."""
        return [*sizes[:2], max(1, _TASK_FLOPS // max(1, sizes[1] ** 3))]

    def tasks(self, sizes: Sequence[int]) -> int:
        return -(-sizes[0] // sizes[2])

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        """A matrix, which is changed on the way."""
        return np.dtype(self.element).itemsize * sizes[1] ** 2

    def work(self, sizes: Sequence[int]) -> Work:
        matrices, size = sizes[:2]
        return Work(matrices * size**3 * 2 // 3, matrices * (size**2 + 1) * np.dtype(self.element).itemsize)
