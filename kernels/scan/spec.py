"""What the scanning kernels are, without compiling them."""

from __future__ import annotations

import numpy as np

from jitonnx.kernels.parts.layouts import KeptAxis, UnaryBuffers
from jitonnx.kernels.parts.sharing import units_per_task
from jitonnx.kernels.spec import KernelSpec, Work, only
from jitonnx.support.records import dataclass

ELEMENTS = ("float32", "float64", "int32", "int64")
KINDS = ("sum", "prod")
COLUMNS = 64
"""Columns of a unit of work when the axis is not the last one."""


@dataclass(frozen=True)
class ScanSpec(KernelSpec):
    """y[o, k, i] = the sum or product of x[o, 0, i] … x[o, k, i]: ONNX's CumSum and CumProd.

    Element (o, k, i) of x lies at o * x_outer + k * x_step + i, that of y at o * y_outer + k * y_step + i. With `last`,
    inner and both steps are 1 and go unread, and vectors lie along the axis itself: lanes of a vector are added up by
    doubling distances, within stretches of 128 bits and then over them, then what came before. Otherwise vectors lie
    along inner, and each lane is added up in order. A result depends on the width of vectors, not on how tasks are
    split. Integers wrap around, unsigned ones alike.

    Task: rows of about as many elements as `sharing` says, or blocks of 64 columns.
    """

    kind: str
    last: bool = True
    exclusive: bool = False
    """Element k itself is left out: y[o, 0, i] is 0, or 1."""
    reverse: bool = False
    """Elements are added up from the end on."""
    element: str = "float32"

    BUFFERS = UnaryBuffers
    SIZES = KeptAxis
    ALLOWED = only(kind=KINDS, element=ELEMENTS)

    def tasks(self, sizes: KeptAxis) -> int:
        outer, length, inner = sizes.outer, sizes.length, sizes.inner
        if not length:
            return 0
        if self.last:
            return -(-outer // units_per_task(length))
        return -(-outer * -(-inner // COLUMNS) // units_per_task(length * COLUMNS))

    def work(self, sizes: KeptAxis) -> Work:
        outer, length, inner = sizes.outer, sizes.length, sizes.inner
        elements = outer * length * (1 if self.last else inner)
        return Work(elements, 2 * elements * np.dtype(self.element).itemsize)
