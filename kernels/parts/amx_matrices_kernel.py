"""What the kernels of products of two computed matrices in AMX's tile registers share, whatever the operands are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder, Pointer, remainder, smaller
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.parts.amx_kernel import AmxKernel
from jitonnx.kernels.parts.amx_matrices import AmxMatricesSizes, OfMatrices, PackingSizes
from jitonnx.kernels.parts.amx_packing import Packing
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning


class MatricesKernel(AmxKernel):
    """Goes from matrix to matrix, and packs the right ones where that is left to tasks."""

    def begin(self, code: KernelBuilder, spec: OfMatrices, w: Pointer) -> None:
        """w: the right matrices as they lie."""
        self.matrices, self.places, self._right = spec, code.sizes(AmxMatricesSizes), w
        self.packed = code.scratch(types.uint8).at(spec.packed_at(self.size)) if spec.packs else self.w
        self.parts = (self.places.out_height + (self.places.task_rows - 1)) / self.places.task_rows
        """Tasks of a matrix, by rows."""

    def part(self, number: SSAValue) -> tuple[SSAValue, SSAValue]:
        matrix = number / self.parts
        return matrix, number - matrix * self.parts

    def left(self, matrix: SSAValue) -> Pointer:
        return self._matrix(self.x, matrix, "x")

    def right(self, matrix: SSAValue) -> Pointer:
        return self.packed if self.matrices.packs else self._matrix(self.w, matrix, "w")

    def result(self, matrix: SSAValue) -> Pointer:
        return self._matrix(self.y, matrix, "y")

    def _matrix(self, first: Pointer, matrix: SSAValue, name: str) -> Pointer:
        outer, inner = matrix / self.places.inner, remainder(matrix, self.places.inner)
        return first.at(outer * getattr(self.places, f"{name}_outer") + inner * getattr(self.places, f"{name}_inner"))

    def fetch(self, matrix: SSAValue, column: SSAValue) -> None:
        if not self.matrices.packs:
            super().fetch(matrix, column)

    def prepare(self, matrix: SSAValue, number: SSAValue, first_call: SSAValue) -> None:
        """Packs a matrix of w besides, with the first task of it here."""
        super().prepare(matrix, number, first_call)
        if self.matrices.packs:
            with self.code.if_then(first_call | number.equals(0)):
                self.pack(self._matrix(self._right, matrix, "w"), matrix)

    def pack(self, w: Pointer, matrix: SSAValue) -> None:
        """Packs one matrix of w to `packed`."""
        spec, size = self.matrices, self.places
        packing = Packing(
            self.code,
            by_column=spec.by_column,
            width=spec.width,
            extents=(size.channels, size.out_channels),
            apart=size.w_step,
            across=spec.ACROSS,
        )
        packing.panels(w, self.packed, self.code.integer(0), size.out_channels)


class PackedPart(NamedTuple):
    """The columns that a task of a kernel which only packs goes through."""

    matrix: SSAValue
    at: SSAValue
    """The elements of the matrix begin there."""
    first: SSAValue
    end: SSAValue


@contextmanager
def each_packed_part(
    code: KernelBuilder, size: PackingSizes, width: int, begin: SSAValue, end: SSAValue
) -> Iterator[PackedPart]:
    """The block for each task, of AMX_TASK_PANELS of `width` columns."""
    together = width * tuning.AMX_TASK_PANELS
    tasks = (size.n + (together - 1)) / together
    with code.loop(end, begin) as task:
        matrix, first = task / tasks, remainder(task, tasks) * together
        outer, inner = matrix / size.inner, remainder(matrix, size.inner)
        at = outer * size.x_outer + inner * size.x_inner
        yield PackedPart(matrix, at, first, smaller(first + together, size.n))
