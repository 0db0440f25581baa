"""What the kernels of products of two computed matrices in bfloat16 are; without LLVM."""

from __future__ import annotations

from typing import Any

from jitonnx.kernels.bfloat16.spec import Bfloat16Buffers, Bfloat16Spec, DotsSpec, choose_dots
from jitonnx.kernels.parts.amx_matrices import (
    AmxMatricesSizes,
    OfMatrices,
    PackingSizes,
    blocks_of_matrices,
    packing_tasks,
)
from jitonnx.kernels.parts.amx_products import RowsWay
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target.products import BFLOAT16, Bfloat16Products

_BYTES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class Bfloat16MatricesSpec(OfMatrices, Bfloat16Spec):
    """y[matrix] = epilogue(x[matrix] @ w[matrix]); to the epilogue, batch is the number of the matrix."""

    w_type: str = ""
    """float32 or bfloat16, as which w lies, whose matrix a task packs; "": `PackingSpec` has done so."""
    by_column: bool = False
    """The elements of a column of w lie side by side, otherwise those of a row."""

    BUFFERS = Bfloat16Buffers
    SIZES = AmxMatricesSizes

    @property
    def packs(self) -> bool:
        return bool(self.w_type)

    def scratch_bytes(self, sizes: Any) -> int:
        size: int = self.packed_at(sizes)
        return size + self.packed_bytes(sizes.channels, sizes.out_channels) if self.packs else size

    def work(self, sizes: Any) -> Work:
        matrices, m, n, k = sizes.images, sizes.out_height, sizes.out_channels, sizes.channels
        right = n * k * _BYTES[self.w_type or "bfloat16"]
        return Work(2 * matrices * m * n * k, matrices * (m * k * self.x_bytes + right + m * n * self.y_bytes))


@dataclass(frozen=True)
class DotMatricesSpec(Bfloat16MatricesSpec, DotsSpec):
    """The same by dot products of pairs of numbers."""


@dataclass(frozen=True)
class Bfloat16PackingSpec(KernelSpec):
    """y[matrix] = x[matrix], packed as `Bfloat16Spec.pack` does it, one after the other. A task is some panels."""

    width: int
    x_type: str
    """float32 or bfloat16."""
    by_column: bool
    """Whether a column's elements lie side by side, as in `MatricesSpec`."""
    products: Bfloat16Products = "tiles"
    """The products that they are packed for."""

    BUFFERS = UnaryBuffers
    SIZES = PackingSizes
    PRESCHEDULED = True

    @property
    def features(self) -> tuple[str, ...]:
        return BFLOAT16[self.products].features

    def tasks(self, sizes: PackingSizes) -> int:
        return packing_tasks(sizes, self.width)

    def work(self, sizes: PackingSizes) -> Work:
        elements = sizes.outer * sizes.inner * sizes.k * sizes.n
        return Work(elements, elements * (_BYTES[self.x_type] + 2))


def choose_matrices(  # noqa: PLR0913  (what decides, by name)
    products: Bfloat16Products,
    way: RowsWay,
    extents: tuple[int, int, int],
    columns: int | None,
    *,
    packs: bool,
    x_type: str,
    w_type: str,
    by_column: bool,
    result: str,
) -> Bfloat16MatricesSpec:
    """The kernel for products of (rows, columns, elements that are summed up), as far as these are known, else as they
    usually are.

    products: "tiles" or "dots". columns: as far as they are known. packs: whether tasks pack w, which lies as w_type.
    """
    m, n, k = extents
    given: dict[str, Any] = {
        "x_type": x_type,
        "result": result,
        "w_type": w_type if packs else "",
        "by_column": by_column,
    }
    if products == "dots":
        return DotMatricesSpec(way, **given, **choose_dots(columns or n, 0 if packs else n * k * 2, m))
    return Bfloat16MatricesSpec(way, **given, **blocks_of_matrices(way, m, columns, n * k * 2, packs=packs))
