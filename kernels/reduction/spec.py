"""What the reduction kernels are, without compiling them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jitonnx.kernels.sharing import units_per_task
from jitonnx.kernels.spec import KernelSpec, Work

ELEMENTS = ("float32", "float64", "int32", "int64")
KINDS = ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp")
FLOAT_KINDS = ("l2", "log_sum", "log_sum_exp")
ARG_KINDS = ("arg_max", "arg_min")
COLUMNS = 64
"""Columns of a unit of work when the axis is not the last one."""


@dataclass(frozen=True)
class ReductionSpec(KernelSpec):
    """ONNX's Reduce… operators, ArgMax and ArgMin over `length` elements, outer x inner times.

    Element (o, k, i) of x lies at o * x_outer + k * x_step + i, element (o, i) of y at o * y_outer + i. With `last`,
    inner and x_step are 1 and go unread, the axis itself is vectorised; otherwise the inner extent is. Neighbouring
    axes are one axis; a mean over the pixels of a channels-last image is outer = images, length = pixels, inner =
    channels. One slice with `last` is one task: cut a long one into rows, and reduce their results again.

    prologue(value, buffers, sizes, batch, row, column, live) -> Vector is applied to x as it is read: with `last`,
    batch is 0, row is o and column k; otherwise batch is o, row k and column i. The epilogue, of the same form, is
    applied to y: with `last`, batch and row are 0, column is o and one lane is live; otherwise batch is o, row is 0 and
    column i.

    Sums keep several partial ones; integers wrap around, and their mean is rounded towards zero. max and min of a slice
    with a NaN are NaN; the index of an extreme is then that of a NaN, as in NumPy. An empty slice gives what the
    operation starts from: 0, 1, or the extreme of the type (floats: infinity).
    """

    kind: str
    last: bool = True
    element: str = "float32"
    """Element type of x, and of y but for arg_max and arg_min, whose y is int64."""
    select_last_index: bool = False
    """arg_max and arg_min: of equal extremes take the last one, not the first."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "y")
    SIZES: ClassVar[tuple[str, ...]] = ("outer", "length", "inner", "x_outer", "x_step", "y_outer")

    def __post_init__(self) -> None:
        known = self.kind in KINDS + ARG_KINDS and self.element in ELEMENTS
        if not known or (self.kind in FLOAT_KINDS and not self.element.startswith("float")):
            raise ValueError(f"no reduction kernel of kind {self.kind!r} for {self.element!r}")

    @property
    def is_index(self) -> bool:
        return self.kind in ARG_KINDS

    def tasks(self, sizes: Sequence[int]) -> int:
        outer, length, inner = sizes[:3]
        if self.is_index and not length:
            return 0
        if self.last:
            return -(-outer // units_per_task(length))
        return -(-outer * -(-inner // COLUMNS) // units_per_task(length * COLUMNS))

    def work(self, sizes: Sequence[int]) -> Work:
        outer, length, inner = sizes[:3]
        results = outer * (1 if self.last else inner)
        itemsize = np.dtype(self.element).itemsize
        each = {"log_sum_exp": 20, "arg_max": 2, "arg_min": 2}.get(self.kind, 1)
        return Work(each * results * length, results * (length * itemsize + (8 if self.is_index else itemsize)))


def choose(kind: str, inner: int | None, element: str = "float32", select_last_index: bool = False) -> ReductionSpec:
    """The kernel for a reduction of the middle one of [outer, length, inner]; inner None: known only at run time."""
    return ReductionSpec(kind, inner == 1, element, select_last_index)
