"""Products of matrices that are both computed, in AMX's tile registers: sizes, and what specs share; without LLVM.

The kernel is that of constant weights. The right matrix is packed as such are: by each task in scratch memory, where it
stays in the second-level cache, or before, by a kernel of its own.
"""

from __future__ import annotations

from typing import Any

from jitonnx.emit.arguments import Arguments, Size, computed
from jitonnx.kernels.parts.amx_products import AmxSpec, RowsWay, chosen, whole
from jitonnx.kernels.parts.layouts import TILE, WindowProduct
from jitonnx.target import tuning


class AmxMatricesSizes(WindowProduct):
    """Products of rows, as windows of one pixel: `images` of `out_height` rows each, numbered (o, i), i < inner.

    The rows of x lie x_pixel apart, from o * x_outer + i * x_inner on, those of y likewise. Strides of w are those of
    elements, w_step the distance of its rows or columns, or, if it was packed before, w_outer and w_inner of bytes.
    """

    inner: Size
    x_outer: Size
    x_inner: Size
    w_outer: Size
    w_inner: Size
    w_step: Size
    y_outer: Size
    y_inner: Size
    task_rows: Size = computed()
    task_columns: Size = computed()
    group_rows: Size = computed()
    row_bytes: Size = computed()
    line_bytes: Size = computed()
    """These are as in `AmxSizes`."""


class PackingSizes(Arguments):
    """Matrices of k rows and n columns, numbered (o, i), i < inner; strides as `AmxMatricesSizes` has them of w."""

    outer: Size
    inner: Size
    k: Size
    n: Size
    x_outer: Size
    x_inner: Size
    x_step: Size


def packing_tasks(sizes: PackingSizes, width: int) -> int:
    """How many tasks pack matrices to panels of `width` columns, AMX_TASK_PANELS each."""
    return sizes.outer * sizes.inner * -(-sizes.n // (width * tuning.AMX_TASK_PANELS))


def blocks_of_matrices(way: RowsWay, m: int, columns: int | None, right_bytes: int, *, packs: bool) -> dict[str, Any]:
    """The blocks that `chosen` gives for m rows by `columns` (None: not known); matrices that tasks pack are near,
    and not asked for."""
    blocks = chosen(way, 2 * TILE if columns is None else columns, 0 if packs else right_bytes, m)
    return blocks | {"fetched": 0} if packs else blocks


class OfMatrices(AmxSpec):
    """The part of specs that is the same for all operands. The way is "in place" or "copied"."""

    by_column: bool
    """The elements of a column of the right matrix lie side by side, otherwise those of a row."""

    def products(self, given: Any) -> Any:
        return given.images

    def product_rows(self, given: Any) -> Any:
        return given.out_height

    def packed_at(self, given: Any) -> Any:
        """What a task packs begins there in scratch memory, in bytes."""
        return super().scratch_bytes(given)

    def packed_bytes(self, k: Any, n: Any) -> Any:
        """Bytes of a matrix of k rows and n columns, packed."""
        return whole(k, self.step) * (-(-n // self.width)) * self.width * self.ITEM_BYTES
