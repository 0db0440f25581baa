"""What the kernel is that looks bytes up in a table, without compiling it."""

from __future__ import annotations

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.parts.sizes import larger
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning


class LookupBuffers(Arguments):
    x: Buffer
    table: Buffer
    y: Buffer = result()


class LookupSizes(Arguments):
    """Rows of `length` bytes side by side, and the bytes from one row to the next."""

    rows: Size
    length: Size
    x_row: Size
    y_row: Size
    task_rows: Size = computed()
    task_length: Size = computed()


@dataclass(frozen=True)
class LookupSpec(KernelSpec):
    """y[row, i] = table[x[row, i]] for bytes, as which int8 counts, too, and a table of 256.

    A task does some rows, or a part of a long one.
    """

    BUFFERS = LookupBuffers
    SIZES = LookupSizes
    PRESCHEDULED = True

    def complete(self, sizes: LookupSizes) -> LookupSizes:
        rows = larger(tuning.LOOKUP_TASK_BYTES // larger(sizes.length, 1), 1)
        return LookupSizes.following(sizes, task_rows=rows, task_length=tuning.LOOKUP_TASK_BYTES)

    def tasks(self, sizes: LookupSizes) -> int:
        return -(-sizes.rows // sizes.task_rows) * -(-sizes.length // sizes.task_length)

    def work(self, sizes: LookupSizes) -> Work:
        return Work(0, 2 * sizes.rows * sizes.length)
