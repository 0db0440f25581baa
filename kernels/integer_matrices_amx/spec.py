"""What the kernels of products of two computed matrices of 8-bit integers in tile registers are; without LLVM."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.kernels.integer_matrices.spec import MatricesBuffers
from jitonnx.kernels.parts.amx_matrices import (
    AmxMatricesSizes,
    OfMatrices,
    PackingSizes,
    blocks_of_matrices,
    packing_tasks,
)
from jitonnx.kernels.parts.amx_products import SLACK_ROWS, RowsWay
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target.products import INTEGERS


@dataclass(frozen=True)
class IntegerMatricesAmxSpec(OfMatrices):
    """c[matrix] = epilogue((a[matrix] - a_zero) @ (b[matrix] - b_zero)), in int32; to the epilogue, batch is the number
    of the matrix. Rows are those of `AmxMatricesSizes`, with a for x, b for w, c for y.

    A packed matrix has the sums of its columns, int32, behind its panels.
    """

    signed: bool = False
    """a holds int8, otherwise uint8."""
    shifted: bool = True
    """a has a zero point; otherwise it is 0, and `a_zero` goes unread."""
    b_signed: bool = False
    b_shifted: bool = True
    """The same of b."""
    packs_b: bool = False
    """Tasks pack b, otherwise `PackingSpec` has done so."""
    by_column: bool = False
    """The elements of a column of b lie side by side, otherwise those of a row."""
    result: str = "int32"
    """Element type of c."""

    BUFFERS = MatricesBuffers
    SIZES = AmxMatricesSizes
    ITEM_BYTES = 1

    @property
    def features(self) -> tuple[str, ...]:
        return INTEGERS["tiles"].features

    @property
    def packs(self) -> bool:
        return self.packs_b

    @property
    def x_bytes(self) -> int:
        return 1

    @property
    def y_bytes(self) -> int:
        return np.dtype(self.result).itemsize

    def packed_bytes(self, k: Any, n: Any) -> Any:
        return super().packed_bytes(k, n) + self.sums_bytes(n)

    def sums_bytes(self, n: Any) -> Any:
        """Bytes of the sums of a packed matrix's columns."""
        return -(-n // self.width) * self.width * 4

    def row_terms_bytes(self, given: Any) -> Any:
        """Bytes of a number for each row of a task."""
        return (given.task_rows + SLACK_ROWS) * 4

    def packed_at(self, given: Any) -> Any:
        """Numbers for the rows of two tasks are before: the second one begins while the first one is not at its end."""
        return super().packed_at(given) + 2 * self.row_terms_bytes(given)

    def scratch_bytes(self, sizes: Any) -> Any:
        n, size = sizes.out_channels, self.packed_at(sizes)
        return size + self.packed_bytes(sizes.channels, n) + self.sums_bytes(n) if self.packs else size

    def work(self, sizes: Any) -> Work:
        matrices, m, n, k = sizes.images, sizes.out_height, sizes.out_channels, sizes.channels
        return Work(2 * matrices * m * n * k, matrices * (m * k + n * k + m * n * self.y_bytes))


@dataclass(frozen=True)
class IntegerPackingSpec(KernelSpec):
    """y[matrix] = x[matrix], packed as `IntegerMatricesAmxSpec` has it, one after the other. A task is some panels."""

    width: int
    signed: bool
    by_column: bool
    """Whether a column's elements lie side by side, as in `IntegerMatricesAmxSpec`."""

    BUFFERS = UnaryBuffers
    SIZES = PackingSizes
    PRESCHEDULED = True

    @property
    def features(self) -> tuple[str, ...]:
        return INTEGERS["tiles"].features

    def tasks(self, sizes: PackingSizes) -> int:
        return packing_tasks(sizes, self.width)

    def work(self, sizes: PackingSizes) -> Work:
        elements = sizes.outer * sizes.inner * sizes.k * sizes.n
        return Work(elements, 2 * elements)


def choose_tile_matrices(  # noqa: PLR0913  (what decides, by name)
    way: RowsWay,
    extents: tuple[int, int, int],
    columns: int | None,
    *,
    packs: bool,
    signed: tuple[bool, bool],
    shifted: tuple[bool, bool],
    by_column: bool,
    result: str,
) -> IntegerMatricesAmxSpec:
    """The kernel for products of (rows, columns, elements that are summed up), as far as these are known, else as they
    usually are.

    columns: as far as they are known. packs: whether tasks pack b. signed, shifted: of a and of b.
    """
    m, n, k = extents
    blocks = blocks_of_matrices(way, m, columns, n * k, packs=packs)
    return IntegerMatricesAmxSpec(
        way,
        signed=signed[0],
        shifted=shifted[0],
        b_signed=signed[1],
        b_shifted=shifted[1],
        packs_b=packs,
        by_column=by_column,
        result=result,
        **blocks,
    )
