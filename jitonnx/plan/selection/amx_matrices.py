"""What selection of products of two computed matrices in AMX's tile registers shares, whatever their operands are."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.dims import DimLike, concrete, integers, known, usual
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.parts.amx_matrices import AmxMatricesSizes, PackingSizes
from jitonnx.kernels.parts.amx_products import RowsWay
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.amx_rows import way_of_rows
from jitonnx.plan.selection.products import Matrices, matrix_rows, size_text, two_loops
from jitonnx.plan.selection.windows import rows_as_windows
from jitonnx.plan.tensor import StridedTensor, broadcast_to
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def along_an_axis(b: StridedTensor) -> bool:
    """Whether the elements of its rows, or those of its columns, lie side by side."""
    return any(b.strides[axis] == 1 or b.shape[axis] == 1 for axis in (-1, -2))


@dataclass(frozen=True)
class ComputedProduct:
    """The product out = a @ b of computed matrices in at most two loops, as kernels read and write them: rows of a, and
    rows or columns of b, have their elements side by side."""

    a: StridedTensor
    b: StridedTensor
    out: StridedTensor
    shape: Matrices

    @classmethod
    def of(cls, planner: Planner, group: Group, left: Value, right: Value) -> ComputedProduct:
        """That of a group's anchor, whose result is placed; operands are copied where they have to be."""
        out = planner.place(group.output, tuple(range(len(group.output.shape))), strict=True)
        (*batch, m, n), k = out.shape, left.shape[-1]
        a, b = planner.unit_inner(left), planner.tensor(right)
        if not along_an_axis(b):
            b = planner.copy(b, tuple(range(b.rank)), "neither its rows nor its columns lie side by side")
        a, b, shape = two_loops(planner, broadcast_to(a, (*batch, m, k)), broadcast_to(b, (*batch, k, n)), out)
        return cls(a, b, out, shape)

    @property
    def by_column(self) -> bool:
        """Whether the elements of b's columns lie side by side, and not those of its rows."""
        return self.b.strides[-1] != 1 and self.b.shape[-1] != 1

    @property
    def extents(self) -> tuple[DimLike, DimLike, DimLike]:
        """Rows, columns, and elements that are summed up."""
        return self.shape.m, self.out.shape[-1], self.a.shape[-1]

    @property
    def text(self) -> str:
        """The extents, for labels."""
        return size_text(self.shape.batch, *self.extents)

    def usual_extents(self) -> tuple[int, int, int]:
        """The extents as they usually are."""
        m, n, k = map(usual, self.extents)
        return m, n, k

    def packs(self, itemsize: int) -> bool:
        """Whether tasks pack b, with elements of so many bytes, rather than a call for all of them."""
        m, n, k = self.extents
        if all(stride == 0 for stride in self.shape.b_batch):
            products = concrete(m * n * k)
            return products is not None and products <= tuning.AMX_ONE_TASK
        size = concrete(n * k)
        return size is None or size * itemsize <= tuning.AMX_PACKED_BYTES

    def way(self, step: int, *, as_taken: bool) -> RowsWay:
        """How rows of a are read: all matrices begin where a cache line does, or none is read in place."""
        lines = known(self.shape.a_batch) and not any(stride % step for stride in integers(self.shape.a_batch))
        return way_of_rows(self.a, self.shape.a_row, step, as_taken=as_taken) if lines else "copied"

    def given(self, w_batch: tuple[DimLike, DimLike]) -> AmxMatricesSizes:
        """The kernel's sizes. w_batch: what is between right matrices along both loops."""
        shape, (m, n, k) = self.shape, self.extents
        return AmxMatricesSizes(
            **rows_as_windows(m, n, k, shape.a_row) | {"images": shape.outer * shape.inner},
            y_pixel=shape.c_row,
            inner=shape.inner,
            w_step=self._step,
            **by_name("x_outer x_inner", shape.a_batch),
            **by_name("w_outer w_inner", w_batch),
            **by_name("y_outer y_inner", shape.c_batch),
        )

    def packed(
        self, planner: Planner, spec: KernelSpec, size: DimLike, key: Hashable
    ) -> tuple[StridedTensor, tuple[DimLike, DimLike]]:
        """b packed by a call of `spec` for all, each matrix once, and the bytes between matrices along both loops.

        size: bytes of a packed matrix; key: all that their layout depends on."""
        shape, (_, n, k) = self.shape, self.extents
        loops = zip((shape.outer, shape.inner), shape.b_batch, strict=True)
        outer, inner = (dim if stride != 0 else 1 for dim, stride in loops)

        def pack() -> tuple[StridedTensor, ...]:
            target = planner.temporary((outer * inner * size,), DType.UINT8)
            batch = by_name("x_outer x_inner", shape.b_batch)
            sizes = PackingSizes(outer=outer, inner=inner, k=k, n=n, x_step=self._step, **batch)
            call = KernelCall(spec, UnaryBuffers(x=self.b, y=target), sizes)
            call.label = f"pack {size_text(concrete(outer * inner), k, n, 1).removesuffix('x1')}"
            call.reason = "a computed matrix, as products of it read it"
            planner.call(call)
            return (target,)

        (target,) = planner.prepared(self.b, pack, ("tiles", key, outer, inner))
        return target, (inner * size if outer != 1 else 0, size if inner != 1 else 0)

    def call(self, planner: Planner, group: Group, call: KernelCall, *, packs: bool) -> None:
        """Adds the call of the product with its epilogue."""
        call.reason = "; ".join([call.reason, *group.reasons])
        call.notes.append("b packed as it is used" if packs else "b packed before")
        planner.epilogue(group, call, lambda tensor: matrix_rows(tensor, self.shape))
        planner.call(call)

    @property
    def _step(self) -> DimLike:
        """Rows of b, or its columns, lie so far apart."""
        return self.b.strides[-1 if self.by_column else -2]
