"""Kernel calls: one step of a plan, with everything symbolic that depends on the sizes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from jitonnx.computation.expr import Expr
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.arguments import Arguments
from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.tensor import Tensor
from jitonnx.records import dataclass


@dataclass(frozen=True)
class Stage:
    """A scalar expression that a kernel applies to each vector: to what it has loaded, or is about to store.

    operand(0) is the kernel's own value; operand(i) comes from the i-th further tensor, addressed by batch, row and
    column through strides that are sizes of the call. `columns[i]` says whether it advances with the column (1) or is
    one element a row (0); `rows[i]`, whether it may differ between rows or matrices of the batch (1) or is known not to
    (0), as a bias is: its address then needs no sizes, and kernels load it once for several rows. The tensors' pointers
    start at `first_buffer`, their two strides each at `first_size`.
    """

    expr: Expr
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    dtypes: tuple[DType, ...]
    first_buffer: int
    first_size: int


@dataclass(eq=False)
class KernelCall:
    """One kernel with its operands: tensors' pointers in the order of `spec.BUFFERS`, then those of the stages."""

    spec: KernelSpec
    tensors: list[Tensor]
    sizes: Sequence[DimLike]
    writes: int
    """How many tensors, from position `first_write` on, are written; the rest are read."""
    first_write: int
    stage_sizes: list[DimLike] = field(default_factory=list)
    """The sizes of prologue and epilogue, behind the kernel's own."""
    prologue: Stage | None = None
    epilogue: Stage | None = None
    label: str = ""
    origin: tuple[str, ...] = ()
    reason: str = ""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, spec: KernelSpec, buffers: Arguments, sizes: Arguments, **others: Any) -> KernelCall:
        """The call with the arguments that its spec names."""
        if type(buffers) is not spec.BUFFERS or type(sizes) is not spec.SIZES.base():
            wanted = f"{spec.BUFFERS.__name__} and {spec.SIZES.base().__name__}"
            given = f"{type(buffers).__name__} and {type(sizes).__name__}"
            raise TypeError(f"Bug: {type(spec).__name__} is called with {wanted}, and not with {given}")
        results = buffers.results()
        assert results == [*range(results[0], results[-1] + 1)], "Bug: the buffers that a kernel writes lie apart"
        return cls(spec, [*buffers], sizes, len(results), results[0], **others)

    @property
    def written(self) -> Sequence[Tensor]:
        return self.tensors[self.first_write : self.first_write + self.writes]

    @property
    def read(self) -> Sequence[Tensor]:
        return [*self.tensors[: self.first_write], *self.tensors[self.first_write + self.writes :]]
