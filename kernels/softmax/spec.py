"""What the softmax kernels are, without compiling them."""

from __future__ import annotations

import numpy as np

from jitonnx.kernels.parts.layouts import KeptAxis, UnaryBuffers
from jitonnx.kernels.parts.sharing import units_per_task
from jitonnx.kernels.spec import KernelSpec, Work, only
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

KINDS = ("softmax", "log_softmax")
COLUMNS = 64
"""Columns of a unit of work when the axis is not the last one."""


@dataclass(frozen=True)
class SoftmaxSpec(KernelSpec):
    """ONNX's Softmax or LogSoftmax over `length` elements, outer x inner times.

    Element (o, k, i) of x lies at o * x_outer + k * x_step + i, y's likewise. With `last`, inner and both steps are 1
    and go unread, the axis itself is vectorised; otherwise the inner extent is, whose stride is 1.

    prologue(value, buffers, sizes, batch, row, column, live) -> Vector is applied to x as it is read, the epilogue, of
    the same form, to y. With `last`, batch is 0, row is o and column k; otherwise batch is o, row is k and column i.
    y may be x itself. A slice that holds a NaN, +inf or nothing but -inf gives NaN, as in onnxruntime.
    """

    kind: str = "softmax"
    last: bool = True
    element: str = "float32"
    """"float32" or "float64"."""
    together: int = 1
    """So many slices, a power of two, are done at a time with `last`."""
    result: str = ""
    """Element type of y where it is not `element`: of bytes that the epilogue quantises to."""

    BUFFERS = UnaryBuffers
    SIZES = KeptAxis
    PRESCHEDULED = True
    ALLOWED = only(kind=KINDS, element=("float32", "float64"))

    def tasks(self, sizes: KeptAxis) -> int:
        outer, length, inner = sizes.outer, sizes.length, sizes.inner
        if self.last:
            return -(-outer // units_per_task(length)) if length else 0
        units = outer * -(-inner // COLUMNS)
        return -(-units // units_per_task(length * COLUMNS)) if length else 0

    def scratch_bytes(self, sizes: KeptAxis) -> int:
        """Away from the last axis, a vector (of at most 64 bytes) for every element of a slice. Exponentials that y has
        no room for."""
        if not self.last:
            return 64 * sizes.length
        return self.together * sizes.length * np.dtype(self.element).itemsize if self.result else 0

    def work(self, sizes: KeptAxis) -> Work:
        outer, length, inner = sizes.outer, sizes.length, sizes.inner
        elements = outer * length * (1 if self.last else inner)
        read, written = (np.dtype(kind).itemsize for kind in (self.element, self.result or self.element))
        return Work(20 * elements, elements * (read + written))


def choose(
    outer: int | None, length: int | None, inner: int | None, kind: str, element: str = "float32", result: str = ""
) -> SoftmaxSpec:
    """The kernel for a softmax over the middle one of [outer, length, inner]; None: known only at run time.

    Several slices at a time hide each other's latency; a long one has enough to do of its own.
    """
    several = inner == 1 and outer != 1 and length is not None and length <= tuning.SOFTMAX_SHORT
    return SoftmaxSpec(kind, inner == 1, element, 4 if several else 1, result)
