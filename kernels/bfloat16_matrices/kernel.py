"""The kernels of products of two computed matrices in bfloat16: that of constant weights, matrix by matrix, and the
packing of their right matrices."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.bfloat16.kernel import ELEMENTS, Bfloat16Kernel, DotsKernel, applied_to
from jitonnx.kernels.bfloat16_matrices.spec import Bfloat16MatricesSpec, Bfloat16PackingSpec, DotMatricesSpec
from jitonnx.kernels.parts.amx_matrices import PackingSizes
from jitonnx.kernels.parts.amx_matrices_kernel import MatricesKernel, each_packed_part
from jitonnx.kernels.parts.amx_packing import Packing
from jitonnx.kernels.parts.layouts import LINE, UnaryBuffers


def build(spec: Bfloat16MatricesSpec | Bfloat16PackingSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    if lanes * 4 != LINE:
        raise ValueError(f"Bug: CPUs of x86 with products of bfloat16 have vectors of {LINE} bytes, not {4 * lanes}")
    if isinstance(spec, Bfloat16PackingSpec):
        if epilogue is not None:
            raise ValueError("Bug: packing has no epilogue")
        return _packing(spec)

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        kernel = _DotMatrices if isinstance(spec, DotMatricesSpec) else _Matrices
        kernel(code, spec, applied_to(code, spec, lanes, epilogue)).emit(begin, end)

    return body


class _Matrices(MatricesKernel, Bfloat16Kernel):
    """Emits one kernel of products in tile registers."""

    def __init__(self, code: KernelBuilder, spec: Bfloat16MatricesSpec, epilogue: Epilogue) -> None:
        super().__init__(code, spec, epilogue)
        self.begin(code, spec, self.w.to(ELEMENTS[spec.w_type]) if spec.packs else self.w)


class _DotMatrices(_Matrices, DotsKernel):
    """The same by dot products of pairs."""


def _packing(spec: Bfloat16PackingSpec) -> Kernel:
    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        size = code.sizes(PackingSizes)
        x, y = code.buffers(UnaryBuffers, ELEMENTS[spec.x_type], y=types.uint8)
        panels = (size.n + (spec.width - 1)) / spec.width
        across = spec.products == "dots"
        extents = size.k, size.n
        packing = Packing(
            code, by_column=spec.by_column, width=spec.width, extents=extents, apart=size.x_step, across=across
        )
        with each_packed_part(code, size, spec.width, begin, end) as part:
            target = y.at(part.matrix * (panels * packing.panel_bytes(x.element)))
            packing.panels(x.at(part.at), target, part.first, part.end)

    return body
