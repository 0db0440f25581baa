"""The kernels of products of two computed matrices of 8-bit integers in tile registers.

Zero points take off of a product: a's times the sum of the column of b, b's times the sum of the row of a, less the
number of elements times a's.
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.instructions import add_dot_products
from jitonnx.emit.simd import convert, reduce_add
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.integer_matrices.spec import MatricesBuffers
from jitonnx.kernels.integer_matrices_amx.spec import IntegerMatricesAmxSpec, IntegerPackingSpec
from jitonnx.kernels.parts.amx_kernel import Block
from jitonnx.kernels.parts.amx_matrices import PackingSizes
from jitonnx.kernels.parts.amx_matrices_kernel import MatricesKernel, each_packed_part
from jitonnx.kernels.parts.amx_packing import Packing, step_of_bytes
from jitonnx.kernels.parts.amx_rows import Copying
from jitonnx.kernels.parts.layouts import LINE, TILE, UnaryBuffers

_PRODUCTS = {
    (True, True): "tdpbssd",
    (True, False): "tdpbsud",
    (False, True): "tdpbusd",
    (False, False): "tdpbuud",
}
"""The instruction, by whether rows and columns are signed."""


def build(spec: IntegerMatricesAmxSpec | IntegerPackingSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` int32."""
    if lanes * 4 != LINE:
        raise ValueError(f"Bug: CPUs with tiles have vectors of {LINE} bytes, not of {lanes} int32")
    if isinstance(spec, IntegerPackingSpec):
        if epilogue is not None:
            raise ValueError("Bug: packing has no epilogue")
        return _packing(spec)
    result = getattr(types, spec.result)

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        applied = Epilogue.widest(code, epilogue, types.int32, lanes, spec.width, result)
        _Matrices(code, spec, applied).emit(begin, end)

    return body


def _element(*, signed: bool) -> types.ElementType:
    return types.int8 if signed else types.uint8


class _Matrices(MatricesKernel):
    """Emits one kernel of products."""

    def __init__(self, code: KernelBuilder, spec: IntegerMatricesAmxSpec, epilogue: Epilogue) -> None:
        of_a, of_b = _element(signed=spec.signed), _element(signed=spec.b_signed)
        buffers = code.buffers(MatricesBuffers, of_a, b=of_b, b_zero=of_b, c=getattr(types, spec.result))
        super().__init__(code, spec, buffers.a, buffers.b, buffers.c, epilogue)
        self._spec, self._buffers = spec, buffers
        self.begin(code, spec, buffers.b if spec.packs else self.w)
        self.adds, self.adds_to_rows = spec.shifted, spec.b_shifted
        self.PRODUCT = _PRODUCTS[spec.signed, spec.b_signed]
        each, terms = spec.row_terms_bytes(self.places), code.scratch(types.uint8).at(spec.packed_at(self.places))
        self._row_terms, self._row_terms_each = terms.at(each * -2).to(types.int32), each / 4
        panels = (self.places.out_channels + (spec.width - 1)) / spec.width
        self._panels_bytes, self._columns = panels * (self.steps * (spec.width * LINE)), panels * spec.width

    def inner(self, code: KernelBuilder) -> _Matrices:
        return _Matrices(code, self._spec, self.epilogue)

    def copying(self, matrix: SSAValue) -> Copying:
        outside = self.code.number(self.x.element, 0, LINE)
        return Copying(self.code, self.size, self.left(matrix), outside, step_of_bytes)

    def pack(self, w: Pointer, matrix: SSAValue) -> None:
        super().pack(w, matrix)
        spec = self._spec
        if spec.shifted:
            first, end = self.code.integer(0), self.places.out_channels
            sums, packed = self._sums_of(matrix), self.packed.to(w.element)
            _sum_columns(self.code, packed, sums, first, end, spec.width, self.steps)

    def _sums_of(self, matrix: SSAValue) -> Pointer:
        """Sums of the columns of a matrix. A task packs the next matrix before the epilogue of the one before is at its
        end: two of them are there."""
        behind = self.right(matrix).at(self._panels_bytes).to(types.int32)
        turn = remainder(matrix, self.code.integer(2))
        return behind.at(turn * self._columns) if self._spec.packs else behind

    # ------------------------------------------------------------ rows

    def prepare(self, matrix: SSAValue, number: SSAValue, first_call: SSAValue) -> None:
        super().prepare(matrix, number, first_call)
        if self._spec.b_shifted and self._spec.way == "in place":
            first = number * self.size.task_rows
            self._sum_rows(matrix, first, smaller(self.size.task_rows, self.size.out_height - first))

    def copy(self, matrix: SSAValue, first: SSAValue, count: SSAValue) -> None:
        super().copy(matrix, first, count)
        if self._spec.b_shifted:
            self._sum_rows(matrix, first, count)

    def _terms_of(self, matrix: SSAValue, row: SSAValue) -> Pointer:
        """The numbers for rows of a matrix from `row` on."""
        number = row / self.size.task_rows
        turn = remainder(matrix * self.parts + number, self.code.integer(2))
        return self._row_terms.at(turn * self._row_terms_each + (row - number * self.size.task_rows))

    def _sum_rows(self, matrix: SSAValue, first: SSAValue, count: SSAValue) -> None:
        """What b's zero point takes off of the products of `count` rows from number `first` on."""
        code, size = self.code, self.size
        a_zero = code.number(types.int32, 0)
        if self._spec.shifted:
            a_zero = convert(self._buffers.a_zero.load(0), types.int32)
        less = convert(size.channels, types.int32) * a_zero
        negative = -convert(self._buffers.b_zero.load(0), types.int32)
        x, terms = self.left(matrix).at(first * size.x_pixel), self._terms_of(matrix, first)
        whole = size.channels - remainder(size.channels, code.integer(LINE))
        with code.loop(count) as r:
            row = x.at(r * size.x_pixel)
            total = code.variable(code.number(types.int32, 0, TILE))
            with code.loop(whole, step=LINE) as at:
                total.set(_plus_bytes(code, total.get(), row.load(at, LINE)))
            with code.if_then(size.channels > whole):
                total.set(_plus_bytes(code, total.get(), step_of_bytes(row, whole, size.channels - whole)))
            terms.store(r, (reduce_add(total.get()) - less) * negative)

    # ------------------------------------------------------------ epilogue

    def begin_epilogue(self, block: Block[SSAValue]) -> None:
        if self.adds:
            minus = -convert(self._buffers.a_zero.load(0), types.int32)
            sums = self._sums_of(block.matrix)
            for at in range(0, self.spec.width, TILE):
                self.row.store(at, sums.load(block.column + at, TILE) * minus.splat(TILE))
        if self.adds_to_rows:
            terms = self._terms_of(block.matrix, block.pixel).at(block.row)
            for at in range(0, 2 * TILE, TILE):
                self.of_rows.store(at, terms.load(at, TILE))


def _plus_bytes(code: KernelBuilder, total: SSAValue, part: SSAValue) -> SSAValue:
    """int32 sums with the bytes of a vector added to them, four to each."""
    ones, words = (
        llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(8), LINE), [1] * LINE),
        llvm_ir.VectorType(llvm_ir.IntType(32), TILE),
    )
    one, there = (SSAValue(code.builder, types.int32, code.builder.bitcast(x, words)) for x in (ones, part.value))
    left, right = (there, one) if part.element.signed else (one, there)
    return add_dot_products(total, left, right, "dot")


def _sum_columns(
    code: KernelBuilder,
    words: Pointer,
    sums: Pointer,
    first: SSAValue,
    end: SSAValue,
    width: int,
    steps: SSAValue,
) -> None:
    """Sums of columns first, …, end - 1, which begin with a panel, of a packed matrix."""
    with code.loop(end, first, TILE) as column:
        within = remainder(column, code.integer(width)) / TILE
        panel = words.at(column / width * (steps * (width * LINE)) + within * (TILE * LINE))
        total = code.variable(code.number(types.int32, 0, TILE))
        with code.loop(steps) as step:
            parts = [code.number(types.int32, 0, TILE) for _ in range(4)]
            for group in range(TILE):
                vector = panel.load(step * (width * LINE) + group * LINE, LINE)
                parts[group % 4] = _plus_bytes(code, parts[group % 4], vector)
            total.set(total.get() + parts[0] + parts[1] + parts[2] + parts[3])
        sums.store(column, total.get())


def _packing(spec: IntegerPackingSpec) -> Kernel:
    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        size = code.sizes(PackingSizes)
        x, y = code.buffers(UnaryBuffers, _element(signed=spec.signed), y=types.uint8)
        panels = (size.n + (spec.width - 1)) / spec.width
        packing = Packing(code, by_column=spec.by_column, width=spec.width, extents=(size.k, size.n), apart=size.x_step)
        panel_bytes = packing.panel_bytes(x.element)
        with each_packed_part(code, size, spec.width, begin, end) as part:
            target = y.at(part.matrix * (panels * (panel_bytes + spec.width * 4)))
            packing.panels(x.at(part.at), target, part.first, part.end)
            sums, steps = target.at(panels * panel_bytes).to(types.int32), panel_bytes / (spec.width * LINE)
            _sum_columns(code, target.to(x.element), sums, part.first, part.end, spec.width, steps)

    return body
