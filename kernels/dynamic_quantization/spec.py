"""What the kernels of DynamicQuantizeLinear are, without compiling them."""

from __future__ import annotations

from typing import Any, ClassVar

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.parts.sizes import below, larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

_PARTS = 16
PARTS_MOST = 2 * _PARTS
"""Parts of x at most, each done by a task."""
_LINE_ELEMENTS = 16


class ExtremesBuffers(Arguments):
    x: Buffer
    extremes: Buffer = result()


class QuantiseBuffers(Arguments):
    x: Buffer
    extremes: Buffer
    y: Buffer = result()
    scale: Buffer = result()
    zero: Buffer = result()


class RowsSizes(Arguments):
    """Rows of `length` elements side by side, and the elements from one row to the next."""

    rows: Size
    length: Size
    x_row: Size
    y_row: Size
    task_rows: Size = computed()
    task_length: Size = computed()


class _Parts(KernelSpec):
    """Kernels whose tasks are parts of x: some rows, or a part of a long one."""

    SIZES: ClassVar[type[RowsSizes]] = RowsSizes
    PRESCHEDULED: ClassVar[bool] = True

    def complete(self, sizes: RowsSizes) -> RowsSizes:
        rows, length = larger(sizes.rows, 1), larger(sizes.length, 1)
        wanted = larger(smaller(rows * length // tuning.TASK_ELEMENTS, _PARTS), 1)
        long = below(rows - wanted, 0)  # fewer rows than parts: rows are parted, too
        each = -(-(rows * length) // (wanted * _LINE_ELEMENTS)) * _LINE_ELEMENTS
        task_rows = long + (1 - long) * -(-rows // wanted)
        return RowsSizes.following(sizes, task_rows=task_rows, task_length=long * each + (1 - long) * length)

    def tasks(self, sizes: RowsSizes) -> int:
        return parts(sizes)

    def work(self, sizes: RowsSizes) -> Work:
        elements = sizes.rows * sizes.length
        return Work(2 * elements, 4 * elements)


def parts(sizes: RowsSizes) -> Any:
    """How many parts x has: none where it is empty."""
    return -(-sizes.rows // sizes.task_rows) * -(-sizes.length // sizes.task_length)


@dataclass(frozen=True)
class ExtremesSpec(_Parts):
    """extremes[part] = the least element of a part of x, float32, and 0; extremes[PARTS_MOST + part] the largest."""

    BUFFERS: ClassVar[type[ExtremesBuffers]] = ExtremesBuffers


@dataclass(frozen=True)
class QuantiseSpec(_Parts):
    """y = x as uint8, with the scale and zero point that its extremes ask for.

    Each task finds the extremes of all parts, of which there are few, and quantises its own; the first one tells scale
    and zero point, also where x is empty.
    """

    alone: bool = False
    """One task does it all: `extremes` goes unread, x is read twice."""

    BUFFERS: ClassVar[type[QuantiseBuffers]] = QuantiseBuffers

    def complete(self, sizes: RowsSizes) -> RowsSizes:
        if not self.alone:
            return super().complete(sizes)
        rows, length = larger(sizes.rows, 1), larger(sizes.length, 1)
        return RowsSizes.following(sizes, task_rows=rows, task_length=length)

    def tasks(self, sizes: RowsSizes) -> int:
        return larger(parts(sizes), 1)

    def work(self, sizes: RowsSizes) -> Work:
        elements = sizes.rows * sizes.length
        return Work(8 * elements, 5 * elements)
