"""What the kernel of determinants is, without compiling it."""

from __future__ import annotations

import numpy as np

from jitonnx.emit.arguments import Arguments, Size, computed
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.spec import KernelSpec, Work, only
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

ELEMENTS = ("float32", "float64")


class DeterminantSizes(Arguments):
    matrices: Size
    size: Size
    task_matrices: Size = computed()


@dataclass(frozen=True)
class DeterminantSpec(KernelSpec):
    """y[m] = the determinant of the matrix x[m], size by size: the product of the pivots of Gauss' elimination.

    In each column the largest element left is the pivot. x and y are dense. Task: task_matrices matrices.
    """

    element: str = "float32"

    BUFFERS = UnaryBuffers
    SIZES = DeterminantSizes
    ALLOWED = only(element=ELEMENTS)

    def complete(self, sizes: DeterminantSizes) -> DeterminantSizes:
        return DeterminantSizes.following(
            sizes, task_matrices=max(1, tuning.DETERMINANT_TASK_FLOPS // max(1, sizes.size**3))
        )

    def tasks(self, sizes: DeterminantSizes) -> int:
        return -(-sizes.matrices // sizes.task_matrices)

    def scratch_bytes(self, sizes: DeterminantSizes) -> int:
        """A matrix, which is changed on the way."""
        return np.dtype(self.element).itemsize * sizes.size**2

    def work(self, sizes: DeterminantSizes) -> Work:
        matrices, size = sizes.matrices, sizes.size
        return Work(matrices * size**3 * 2 // 3, matrices * (size**2 + 1) * np.dtype(self.element).itemsize)
