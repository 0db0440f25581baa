"""What the kernels of products of two computed matrices in bfloat16 are; without LLVM.

They are those of constant weights (`kernels.bfloat16`). The right matrix is packed as such are: by each task in scratch
memory, where it stays in the second-level cache, or before, by a kernel of its own.
"""

from __future__ import annotations

from typing import Any

from jitonnx.kernels.arguments import Arguments, Size
from jitonnx.kernels.bfloat16.spec import STEP, BfloatBuffers, BfloatSpec
from jitonnx.kernels.parts.bfloat16 import TILE_FEATURES
from jitonnx.kernels.parts.layouts import TILE, UnaryBuffers, WindowProduct
from jitonnx.kernels.parts.tiled_products import chosen, whole
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

PACKED_BYTES = 1 << 19
"""Right matrices of up to so many bytes, packed, are packed by the tasks that multiply with them, if each is multiplied
with one left matrix."""
ONE_TASK = 1 << 20
"""Products up to which that is done with a single matrix, too: they are one task."""
_BYTES = {"bfloat16": 2, "float32": 4}


class MatricesGiven(WindowProduct):
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


class MatricesSizes(MatricesGiven):
    task_rows: Size
    task_columns: Size
    group_rows: Size
    row_bytes: Size
    line_bytes: Size
    """These are as in `TiledSizes`."""


@dataclass(frozen=True)
class MatricesSpec(BfloatSpec):
    """y[matrix] = epilogue(x[matrix] @ w[matrix]); to the epilogue, batch is the number of the matrix.

    The way is "in place" or "copied".
    """

    w_type: str = ""
    """float32 or bfloat16, as which w lies, whose matrix a task packs; "": `PackingSpec` has done so."""
    by_column: bool = False
    """The elements of a column of w lie side by side, otherwise those of a row."""

    BUFFERS = BfloatBuffers
    SIZES = MatricesSizes

    @property
    def packs(self) -> bool:
        return bool(self.w_type)

    def products(self, given: Any) -> Any:
        return given.images

    def product_rows(self, given: Any) -> Any:
        return given.out_height

    def packed_at(self, given: Any) -> Any:
        """The packed matrix begins there in scratch memory, in bytes."""
        return super().scratch_bytes(given)

    def scratch_bytes(self, sizes: Any) -> int:
        size: int = super().scratch_bytes(sizes)
        return size + packed_bytes(sizes.channels, sizes.out_channels, self.width) if self.packs else size

    def work(self, sizes: Any) -> Work:
        matrices, m, n, k = sizes.images, sizes.out_height, sizes.out_channels, sizes.channels
        right = n * k * _BYTES[self.w_type or "bfloat16"]
        return Work(2 * matrices * m * n * k, matrices * (m * k * self.x_bytes + right + m * n * self.y_bytes))


class PackingSizes(Arguments):
    """Matrices of k rows and n columns, numbered (o, i), i < inner; strides as `MatricesGiven` has them of w."""

    outer: Size
    inner: Size
    k: Size
    n: Size
    x_outer: Size
    x_inner: Size
    x_step: Size


@dataclass(frozen=True)
class PackingSpec(KernelSpec):
    """y[matrix] = x[matrix], packed as `BfloatSpec.pack` does it, one matrix after the other. A task is a panel."""

    width: int
    x_type: str
    """float32 or bfloat16."""
    by_column: bool
    """As `MatricesSpec` has it."""

    BUFFERS = UnaryBuffers
    SIZES = PackingSizes
    SETTLED = True

    @property
    def features(self) -> tuple[str, ...]:
        return TILE_FEATURES

    def tasks(self, sizes: PackingSizes) -> int:
        return sizes.outer * sizes.inner * -(-sizes.n // self.width)  # type: ignore[no-any-return]

    def work(self, sizes: PackingSizes) -> Work:
        elements = sizes.outer * sizes.inner * sizes.k * sizes.n
        return Work(elements, elements * (_BYTES[self.x_type] + 2))


def packed_bytes(k: Any, n: Any, width: int) -> Any:
    """Bytes of a matrix of k rows and n columns, packed."""
    return whole(k, STEP) * (-(-n // width)) * width * 2


def choose_matrices(
    way: str,
    extents: tuple[int, int, int],
    columns: int | None,
    *,
    packs: bool,
    x_type: str,
    w_type: str,
    by_column: bool,
    result: str,
) -> MatricesSpec:
    """The kernel for products of (rows, columns, elements that are summed up), as far as these are known, else as they
    usually are.

    columns: as far as they are known. packs: whether tasks pack w, which lies as w_type.
    """
    m, n, k = extents
    blocks = chosen(way, 2 * TILE if columns is None else columns, 0 if packs else n * k * 2, m)
    if packs:
        blocks["fetched"] = 0
    return MatricesSpec(
        way, x_type=x_type, result=result, w_type=w_type if packs else "", by_column=by_column, **blocks
    )
