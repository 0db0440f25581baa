"""What the reduction kernels are, without compiling them."""

from __future__ import annotations

import numpy as np

from jitonnx.emit.arguments import Size
from jitonnx.kernels.parts.layouts import ReducedAxis, UnaryBuffers
from jitonnx.kernels.parts.sharing import units_per_task
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

ELEMENTS = ("float32", "float64", "int32", "int64")
BYTES = ("int8", "uint8")
"""Elements that are widened, to int32 or int64, as they are read."""
KINDS = ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp")
FLOAT_KINDS = ("l2", "log_sum", "log_sum_exp")
ARG_KINDS = ("arg_max", "arg_min")
COLUMNS = 128
"""Columns of a unit of work when the axis is not the last one: of each row 512 bytes or more lie together. Half of that
takes 1.4 times as long for 1024 x 1024 floats, whose rows lie on a page each."""

_PARTS = 16
_OF_PARTS = {"mean": "sum", "log_sum": "sum"}
_OF_TOTALS = {"l1": "sum", "sum_square": "sum"}


class ReductionSizes(ReducedAxis):
    """count: the elements that a mean divides by."""

    count: Size


@dataclass(frozen=True)
class ReductionSpec(KernelSpec):
    """ONNX's Reduce… operators, ArgMax and ArgMin over `length` elements, outer x inner times.

    Element (o, k, i) of x lies at o * x_outer + k * x_step + i, element (o, i) of y at o * y_outer + i. With `last`,
    inner and x_step are 1 and go unread, the axis itself is vectorised; otherwise the inner extent is. Neighbouring
    axes are one axis; a mean over the pixels of a channels-last image is outer = images, length = pixels, inner =
    channels.

    A slice is done by one task (with COLUMNS others, not `last`). Where slices are few and long, `parts` of each are
    reduced for themselves: part p of slice (o, i), of ceil(length / parts) elements or what is left, has its result at
    y[o * y_outer + p * inner + i], and a second call reduces these, with `count` the length of the whole: what a mean
    divides by.

    prologue(value, buffers, sizes, batch, row, column, live) -> Vector is applied to x as it is read: with `last`,
    batch is 0, row is o and column k; otherwise batch is o, row k and column i. The epilogue, of the same form, is
    applied to y: with `last`, batch and row are 0 and the lanes are the slices from o = column on; otherwise
    batch is o, row is 0 and column i.

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
    parts: int = 1
    packed: int = 0
    """Slices have so many elements, if it is not 0, and lie one right behind the other, with `last`. Vectors are then
    read whole, whatever slices their elements belong to."""
    stored: str = ""
    """Element type of x where it is not `element`: bytes, which are widened as they are read."""

    BUFFERS = UnaryBuffers
    SIZES = ReductionSizes
    PRESCHEDULED = True

    def __post_init__(self) -> None:
        known = self.kind in KINDS + ARG_KINDS and self.element in ELEMENTS
        if not known or (self.kind in FLOAT_KINDS and not self.element.startswith("float")):
            raise ValueError(f"no reduction kernel of kind {self.kind!r} for {self.element!r}")

    @property
    def is_index(self) -> bool:
        return self.kind in ARG_KINDS

    def tasks(self, sizes: ReductionSizes) -> int:
        outer, length, inner = sizes.outer, sizes.length, sizes.inner
        if self.is_index and not length:
            return 0
        slices, each = outer * self.parts, -(-length // self.parts)
        if self.last:
            return -(-slices // units_per_task(each))
        return -(-slices * -(-inner // COLUMNS) // units_per_task(each * COLUMNS))

    def work(self, sizes: ReductionSizes) -> Work:
        outer, length, inner = sizes.outer, sizes.length, sizes.inner
        results = outer * (1 if self.last else inner)
        itemsize, stored = (np.dtype(kind).itemsize for kind in (self.element, self.stored or self.element))
        each = {"log_sum_exp": 20, "arg_max": 2, "arg_min": 2}.get(self.kind, 1)
        return Work(each * results * length, results * (length * stored + (8 if self.is_index else itemsize)))


def _few(length: int | None) -> bool:
    """Whether slices of `length` neighbours are better reduced packed: up to 16, in halves as long as these are even,
    and then up to 5, which takes 20 shuffles of a vector."""
    return length is not None and 1 < length <= 16 and length // (length & -length) <= 5


def choose(
    kind: str,
    inner: int | None,
    element: str = "float32",
    *,
    select_last_index: bool = False,
    outer: int | None = None,
    length: int | None = None,
    x_outer: int | None = None,
) -> list[ReductionSpec]:
    """The kernels for a reduction of the middle one of [outer, length, inner]; None: known only at run time. Bytes are
    reduced to int32.

    One, or two where there are few long slices: the first reduces parts of them, the second what came of these. With
    fewer than 8 units of work threads would wait for each other; an unknown length is taken for long.
    """
    stored, element = (element, "int32") if element in BYTES else ("", element)
    last = inner == 1
    is_packed = last and length == x_outer and kind != "log_sum_exp" and _few(length)
    packed = (length or 0) if is_packed else 0
    whole = ReductionSpec(kind, last, element, select_last_index, packed=packed, stored=stored)
    if whole.is_index or outer is None or inner is None:
        return [whole]
    units = outer * -(-inner // COLUMNS)
    if units >= tuning.REDUCTION_ENOUGH_UNITS or (
        length is not None and outer * length * inner < tuning.REDUCTION_LONG
    ):
        return [whole]
    parts = ReductionSpec(_OF_PARTS.get(kind, kind), last, element, parts=_PARTS, stored=stored)
    return [parts, ReductionSpec(_OF_TOTALS.get(kind, kind), last, element)]
