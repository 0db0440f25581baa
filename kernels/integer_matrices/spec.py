"""What the kernel of products of two computed matrices of 8-bit integers is: attention's scores and what they weigh;
without LLVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.gemm.spec import GemmGiven
from jitonnx.kernels.integer.spec import STEP, IntegerSpec
from jitonnx.kernels.integer.spec import choose as choose_integer
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning
from jitonnx.target.products import IntegerProducts

if TYPE_CHECKING:
    from jitonnx.target.machine import Target


class MatricesBuffers(Arguments):
    a: Buffer
    a_zero: Buffer
    b: Buffer
    b_zero: Buffer
    c: Buffer = result()


class IntegerMatricesSizes(GemmGiven):
    task_rows: Size = computed()
    row_bytes: Size = computed()
    panel_at: Size = computed()
    """The packed panel begins there in scratch memory, in bytes."""


@dataclass(frozen=True)
class IntegerMatricesSpec(KernelSpec):
    """c[batch, m, n] = epilogue((a[batch, m, k] - a_zero) @ (b[batch, k, n] - b_zero)), in int32.

    Matrices lie as GemmSpec has it; a_column is 1, and so is b_row with `by_column`, otherwise b_column. To the
    epilogue, batch is the number of the matrix.

    A task does some rows of one matrix: it gathers them into scratch memory, and for each panel of columns packs the
    panel there, as IntegerSpec has its weights, with the panel's sums, and multiplies. b is packed as int8, with its
    sign bits flipped where it is uint8.
    """

    multiply: IntegerProducts
    """As IntegerSpec has it; so are the following five, of a and c."""
    rows: tuple[int, ...]
    width: int
    signed: bool
    shifted: bool
    result: str
    b_signed: bool
    b_shifted: bool
    """b has a zero point; otherwise it is 0, and `b_zero` goes unread."""
    by_column: bool
    """The elements of a column of b lie side by side, otherwise those of a row."""

    BUFFERS: ClassVar[type[MatricesBuffers]] = MatricesBuffers
    SIZES: ClassVar[type[IntegerMatricesSizes]] = IntegerMatricesSizes
    PRESCHEDULED: ClassVar[bool] = True

    @property
    def product(self) -> IntegerSpec:
        """How rows are multiplied with a packed panel."""
        return IntegerSpec(
            self.multiply, self.rows, self.width, self.signed, self.shifted, windows=False, result=self.result
        )

    @property
    def features(self) -> tuple[str, ...]:
        return self.product.features

    @property
    def sums_rows(self) -> bool:
        """Whether the rows of a are summed: for b's zero point, that of bytes with flipped sign bits among them."""
        return self.b_shifted or not self.b_signed

    def complete(self, sizes: GemmGiven) -> IntegerMatricesSizes:
        row_bytes = self.product.row_bytes(sizes.k)
        rows = self._task_rows(sizes, row_bytes)
        behind = (rows + 1) * row_bytes + 4 * self.product.width + 4 * (rows + STEP)
        panel = -(-behind // STEP) * STEP
        return IntegerMatricesSizes.following(sizes, task_rows=rows, row_bytes=row_bytes, panel_at=panel)

    def _task_rows(self, sizes: GemmGiven, row_bytes: Any) -> Any:
        """Rows of a task, in whole tiles: all of a matrix, or some where there are fewer matrices than tasks pay."""
        height = self.product.rows[0]
        tiles = larger(-(-sizes.m // height), 1)
        matrices = larger(sizes.outer * sizes.inner, 1)
        wanted = larger(
            smaller(matrices * sizes.m * sizes.n * sizes.k // tuning.INTEGER_MATRICES_TASK_PRODUCTS, tuning.TASKS), 1
        )
        most = larger(tuning.INTEGER_MATRICES_ROWS_BYTES // (row_bytes * height), 1)
        parts = larger(smaller(tiles, -(-wanted // matrices)), -(-tiles // most))
        return -(-tiles // parts) * height

    def tasks(self, sizes: IntegerMatricesSizes) -> int:
        return sizes.outer * sizes.inner * -(-sizes.m // sizes.task_rows)

    def scratch_bytes(self, sizes: IntegerMatricesSizes) -> int:
        """The task's gathered rows; what zero points take off of each column of a panel, a row of ones,
        what they take off of each row, also of a last tile's rows that are not there; a panel."""
        return sizes.panel_at + self.product.panel_elements(sizes.k)

    def work(self, sizes: IntegerMatricesSizes) -> Work:
        matrices = sizes.outer * sizes.inner
        m, n, k = sizes.m, sizes.n, sizes.k
        bytes_each = m * k + n * k + m * n * np.dtype(self.product.result).itemsize
        return Work(2 * matrices * m * n * k, matrices * bytes_each)


def choose_matrices(
    m: int | None,
    n: int | None,
    target: Target,
    *,
    signed: tuple[bool, bool],
    shifted: tuple[bool, bool],
    by_column: bool,
    result: str,
) -> IntegerMatricesSpec:
    """The kernel for m x n results (None: known only at run time) on a CPU; signed, shifted: of a and of b."""
    columns = STEP if n is None else n
    product = choose_integer(
        columns, m, target, signed=signed[0], shifted=shifted[0], windows=False, result=result, tiles=False
    )
    how = (product.multiply, product.rows, product.width)
    return IntegerMatricesSpec(*how, signed[0], shifted[0], result, signed[1], shifted[1], by_column)
