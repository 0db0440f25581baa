"""The kernels of products of two computed matrices in bfloat16: that of constant weights, matrix by matrix, and the
packing of their right matrices."""

from __future__ import annotations

from jitonnx.kernels.bfloat16.kernel import ELEMENTS, Bfloat, applied_to
from jitonnx.kernels.bfloat16_matrices.spec import MatricesSizes, MatricesSpec, PackingSizes, PackingSpec
from jitonnx.kernels.language import types
from jitonnx.kernels.language.code import Code, Kernel, Pointer, remainder
from jitonnx.kernels.language.epilogue import Epilogue, Stage
from jitonnx.kernels.language.trace import Traced
from jitonnx.kernels.parts.layouts import LINE, UnaryBuffers
from jitonnx.kernels.parts.tiled_packing import Packing


def build(spec: MatricesSpec | PackingSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    if lanes * 4 != LINE:
        raise ValueError(f"Bug: CPUs with tiles have vectors of {LINE} bytes, not of {lanes} float32")
    if isinstance(spec, PackingSpec):
        if epilogue is not None:
            raise ValueError("Bug: packing has no epilogue")
        return _packing(spec)
    if epilogue is None and spec.result != "float32":
        raise ValueError(f"Bug: sums are float32, not {spec.result}, without an epilogue")

    def body(code: Code, begin: Traced, end: Traced) -> None:
        _Matrices(code, spec, applied_to(code, spec, lanes, epilogue)).emit(begin, end)

    return body


class _Matrices(Bfloat):
    """Emits one kernel of products."""

    def __init__(self, code: Code, spec: MatricesSpec, epilogue: Epilogue) -> None:
        super().__init__(code, spec, epilogue)
        self._matrices, self._places = spec, code.sizes(MatricesSizes)
        self._packed = code.scratch(types.uint8).at(spec.packed_at(self.size)) if spec.packs else self.w

    def part(self, number: Traced) -> tuple[Traced, Traced]:
        parts = (self.size.out_height + (self.size.task_rows - 1)) / self.size.task_rows
        matrix = number / parts
        return matrix, number - matrix * parts

    def left(self, matrix: Traced) -> Pointer:
        return self._matrix(self.x, matrix, "x")

    def right(self, matrix: Traced) -> Pointer:
        return self._packed if self._matrices.packs else self._matrix(self.w, matrix, "w")

    def result(self, matrix: Traced) -> Pointer:
        return self._matrix(self.y, matrix, "y")

    def _matrix(self, first: Pointer, matrix: Traced, name: str) -> Pointer:
        size = self._places
        outer, inner = matrix / size.inner, remainder(matrix, size.inner)
        return first.at(outer * getattr(size, f"{name}_outer") + inner * getattr(size, f"{name}_inner"))

    def fetch(self, matrix: Traced, column: Traced) -> None:
        if not self._matrices.packs:
            super().fetch(matrix, column)

    def prepare(self, matrix: Traced, number: Traced, first_call: Traced) -> None:
        """Packs a matrix of w besides, with the first task of it here."""
        super().prepare(matrix, number, first_call)
        spec, size = self._matrices, self._places
        if not spec.packs:
            return
        with self.code.when(first_call | number.equals(0)):
            w = self._matrix(self.w.to(ELEMENTS[spec.w_type]), matrix, "w")
            packing = Packing(self.code, spec.by_column, spec.width, (size.channels, size.out_channels), size.w_step)
            packing.panels(w, self._packed, self.code.integer(0), size.out_channels)


def _packing(spec: PackingSpec) -> Kernel:
    def body(code: Code, begin: Traced, end: Traced) -> None:
        size = code.sizes(PackingSizes)
        x, y = code.buffers(UnaryBuffers, ELEMENTS[spec.x_type], y=types.uint8)
        panels = (size.n + (spec.width - 1)) / spec.width
        packing = Packing(code, spec.by_column, spec.width, (size.k, size.n), size.x_step)
        with code.loop(end, begin) as task:
            matrix, panel = task / panels, remainder(task, panels)
            outer, inner = matrix / size.inner, remainder(matrix, size.inner)
            source = x.at(outer * size.x_outer + inner * size.x_inner)
            target = y.at(matrix * (panels * packing.panel_bytes))
            packing.panels(source, target, panel * spec.width, (panel + 1) * spec.width)

    return body
