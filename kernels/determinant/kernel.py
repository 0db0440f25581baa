"""The kernel of determinants."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, each_vector, smaller
from jitonnx.emit.ssa import SSAValue, absolute, fma, select
from jitonnx.kernels.determinant.spec import DeterminantSizes, DeterminantSpec
from jitonnx.kernels.parts.layouts import UnaryBuffers


def build(spec: DeterminantSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    element = getattr(types, spec.element)

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        eliminate = _Elimination(code, element, lanes * 4 // (element.bitwidth // 8))
        matrices, size, together = code.sizes(DeterminantSizes)
        x, y = code.buffers(UnaryBuffers, element)
        with code.loop(smaller(end * together, matrices), begin * together) as matrix:
            y.store(matrix, eliminate.determinant(x.at(matrix * size * size), size))

    return body


class _Elimination:
    """Emits Gauss' elimination of one matrix."""

    def __init__(self, code: KernelBuilder, element: types.ElementType, lanes: int) -> None:
        self.code, self.element, self.lanes = code, element, lanes

    def determinant(self, x: Pointer, size: SSAValue) -> SSAValue:
        """The determinant of the matrix at x."""
        code, rows = self.code, self.code.scratch(self.element)

        def copy(first: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
            rows.store(first, x.load(first, width, mask), mask)

        each_vector(code, size * size, self.lanes, copy)
        product = code.variable(code.number(self.element, 1.0))
        with code.loop(size) as column:
            best, pivot = self._pivot(rows, column, size)
            top = rows.at(column * size)
            with code.if_then(best > column):
                self._swap(top, rows.at(best * size), size, column)
                product.set(-product.get())
            product.set(product.get() * pivot)
            with code.if_then(pivot.differs(0.0)):
                self._eliminate(rows, column, pivot, size)
        return product.get()

    def _pivot(self, rows: Pointer, column: SSAValue, size: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The row of the largest element of a column from its diagonal on, and that element."""
        code = self.code
        best, pivot = code.variable(column), code.variable(rows.load(column * size + column))
        with code.loop(size, column + 1) as row:
            value, before = rows.load(row * size + column), pivot.get()
            larger = absolute(value) > absolute(before)
            best.set(select(larger, row, best.get()))
            pivot.set(select(larger, value, before))
        return best.get(), pivot.get()

    def _swap(self, a: Pointer, b: Pointer, size: SSAValue, first: SSAValue) -> None:
        with self.code.loop(size, first, self.lanes) as at:
            active = size - at
            of_a, of_b = a.load(at, self.lanes, active), b.load(at, self.lanes, active)
            a.store(at, of_b, active)
            b.store(at, of_a, active)

    def _eliminate(self, rows: Pointer, column: SSAValue, pivot: SSAValue, size: SSAValue) -> None:
        """Take the row of `column` off those below as often as leaves nothing in that column; pivot: its element.

        How often is put in its place: a quotient, as 1 over a denormal pivot would be infinite. Then vectors go down
        the columns behind it.
        """
        code, top = self.code, rows.at(column * size)
        with code.loop(size, column + 1) as row:
            often = row * size + column
            rows.store(often, -(rows.load(often) / pivot))
        behind = column + 1

        def piece(first: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
            at = first + behind
            pivots = top.load(at, width, mask)
            with code.loop(size, behind) as row:
                line = rows.at(row * size)
                often = line.load(column).splat(width)
                line.store(at, fma(pivots, often, line.load(at, width, mask)), mask)

        each_vector(code, size - behind, self.lanes, piece)
