"""The kernel of convolutions and products of 8-bit integers in tile registers."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.integer.spec import IntegerBuffers
from jitonnx.kernels.integer_amx.spec import IntegerAmxSpec
from jitonnx.kernels.parts.amx_kernel import AmxKernel, Block
from jitonnx.kernels.parts.amx_packing import step_of_bytes
from jitonnx.kernels.parts.amx_rows import Copying
from jitonnx.kernels.parts.layouts import LINE


def build(spec: IntegerAmxSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` int32."""
    if lanes * 4 != LINE:
        raise ValueError(f"Bug: CPUs with tiles have vectors of {LINE} bytes, not of {lanes} int32")
    result = getattr(types, spec.result)

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        applied = Epilogue.widest(code, epilogue, types.int32, lanes, spec.width, result)
        _IntegerTiles(code, spec, applied).emit(begin, end)

    return body


class _IntegerTiles(AmxKernel):
    def __init__(self, code: KernelBuilder, spec: IntegerAmxSpec, epilogue: Epilogue) -> None:
        self._integers = spec
        self._element = types.int8 if spec.signed else types.uint8
        x, self._zeros, w, self._columns, y = code.buffers(
            IntegerBuffers, self._element, w=types.uint8, sums=types.int32, y=getattr(types, spec.result)
        )
        super().__init__(code, spec, x, w, y, epilogue)
        self.adds = spec.shifted or spec.begun
        self.PRODUCT = "tdpbssd" if spec.signed else "tdpbusd"

    def inner(self, code: KernelBuilder) -> _IntegerTiles:
        return _IntegerTiles(code, self._integers, self.epilogue)

    def copying(self, matrix: SSAValue) -> Copying:
        return Copying(self.code, self.size, self.x, self._zero().splat(LINE), step_of_bytes)

    def begin_epilogue(self, block: Block[SSAValue]) -> None:
        """- zero * column sums, and a bias."""
        if self._integers.begun:
            for at in range(0, self.spec.width, LINE // 4):
                self.row.store(at, self._columns.load(block.column + at, LINE // 4))
        elif self.adds:
            minus, lanes = -convert(self._zero(), types.int32), LINE // 4
            for at in range(0, self.spec.width, lanes):
                self.row.store(at, self._columns.load(block.column + at, lanes) * minus.splat(lanes))

    def _zero(self) -> SSAValue:
        return self._zeros.load(0) if self._integers.shifted else self.code.number(self._element, 0)
