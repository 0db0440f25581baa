"""The kernel of products and convolutions in bfloat16: rows and weights in 16 bits, sums in float32."""

from __future__ import annotations

from jitonnx.kernels.bfloat16.spec import BfloatBuffers, BfloatSpec
from jitonnx.kernels.language import types
from jitonnx.kernels.language.code import Code, Kernel, Pointer
from jitonnx.kernels.language.epilogue import Epilogue, Stage
from jitonnx.kernels.language.half import narrow_for_products
from jitonnx.kernels.language.trace import Traced
from jitonnx.kernels.parts.layouts import LINE
from jitonnx.kernels.parts.tiled_kernel import TiledKernel
from jitonnx.kernels.parts.tiled_rows import Copying

_LANES = 16
"""float32 in a vector; all CPUs with tiles have vectors of 64 bytes."""


def build(spec: BfloatSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    if lanes * 4 != LINE:
        raise ValueError(f"Bug: CPUs with tiles have vectors of {LINE} bytes, not of {lanes} float32")
    if epilogue is None and spec.result != "float32":
        raise ValueError(f"Bug: sums are float32, not {spec.result}, without an epilogue")

    def body(code: Code, begin: Traced, end: Traced) -> None:
        applied = Epilogue(code, epilogue, types.float32, lanes, _TYPES[spec.result])
        _Bfloat(code, spec, applied).emit(begin, end)

    return body


_TYPES = {"bfloat16": types.uint16, "float32": types.float32}


class _Bfloat(TiledKernel):
    PRODUCT = "tdpbf16ps"

    def __init__(self, code: Code, spec: BfloatSpec, epilogue: Epilogue) -> None:
        x, w, y = code.buffers(BfloatBuffers, _TYPES[spec.x_type], w=types.uint8, y=_TYPES[spec.result])
        super().__init__(code, spec, x, w, y, epilogue)
        self._bfloat = spec

    def inner(self, code: Code) -> _Bfloat:
        return _Bfloat(code, self._bfloat, self.epilogue)

    def copying(self) -> Copying:
        return Copying(self.code, self.size, self.x, self.code.number(types.uint16, 0, self.spec.step), _rounded)


def _rounded(source: Pointer, at: Traced, live: Traced | None = None) -> Traced:
    """A step of elements as bfloat16, those from `live` on 0."""
    if source.element is types.uint16:
        return source.load(at, 2 * _LANES, live)
    first = source.load(at, _LANES, live)
    second = source.load(at + _LANES, _LANES, None if live is None else live - _LANES)
    return narrow_for_products(first, second)
