"""The kernel of products and convolutions in bfloat16: rows and weights in 16 bits, sums in float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Variable, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.bfloat16.matrices import HEIGHTS, Sums
from jitonnx.kernels.bfloat16.spec import STRIP, Bfloat16Buffers, Bfloat16Spec, BfmmlaSpec
from jitonnx.kernels.parts.amx_kernel import AmxKernel, Block
from jitonnx.kernels.parts.amx_packing import rounded_step
from jitonnx.kernels.parts.amx_rows import Copying
from jitonnx.kernels.parts.layouts import LINE, TILE


def build(spec: Bfloat16Spec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    by_matrices = isinstance(spec, BfmmlaSpec)
    if not by_matrices and lanes * 4 != LINE:
        raise ValueError(f"Bug: CPUs with tiles have vectors of {LINE} bytes, not of {lanes} float32")
    if epilogue is None and spec.result != "float32":
        raise ValueError(f"Bug: sums are float32, not {spec.result}, without an epilogue")

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        (_Matrices if by_matrices else Bfloat16Kernel)(code, spec, applied_to(code, spec, lanes, epilogue)).emit(
            begin, end
        )

    return body


def applied_to(code: KernelBuilder, spec: Bfloat16Spec, lanes: int, epilogue: Stage | None) -> Epilogue:
    """An epilogue as kernels apply it. What is rounded to bfloat16 fills a cache line where tiles are stored."""
    whole = spec.result == "bfloat16" and not isinstance(spec, BfmmlaSpec)
    most = spec.width if whole else lanes
    return Epilogue.widest(code, epilogue, types.float32, lanes, most, ELEMENTS[spec.result])


ELEMENTS = {"bfloat16": types.uint16, "float32": types.float32}
"""As which kernels see the types of x and y."""


class Bfloat16Kernel(AmxKernel):
    """Emits one kernel of tiles."""

    PRODUCT = "tdpbf16ps"

    def __init__(self, code: KernelBuilder, spec: Bfloat16Spec, epilogue: Epilogue) -> None:
        x, w, y = code.buffers(Bfloat16Buffers, ELEMENTS[spec.x_type], w=types.uint8, y=ELEMENTS[spec.result])
        super().__init__(code, spec, x, w, y, epilogue)
        self._bfloat = spec

    def inner(self, code: KernelBuilder) -> Bfloat16Kernel:
        return type(self)(code, self._bfloat, self.epilogue)

    def copying(self, matrix: SSAValue) -> Copying:
        outside = self.code.number(types.uint16, 0, self.spec.step)
        return Copying(self.code, self.size, self.left(matrix), outside, rounded_step, self.spec.planes)


class _Matrices(Bfloat16Kernel):
    """Sums in vector registers, of a strip of columns of some rows at a time."""

    TILES = False
    TOGETHER = 1

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    def sum_block(
        self,
        tiles: int,
        old: Block[SSAValue],
        new: Block[SSAValue],
        count: SSAValue,
        fetches: SSAValue,
        pace: SSAValue,
    ) -> Variable:
        self.finish_rest(old, self.code.variable(self.code.integer(0)))
        code, size, spec, r, column = self.code, self.size, self.spec, new.row, new.column
        w = self.right(new.matrix).at(column / spec.width * (self.steps * (spec.width * LINE)))
        columns = smaller(size.out_channels - column, spec.width)
        most, least = HEIGHTS

        def strips(height: int, first: SSAValue) -> None:
            within = remainder(first, code.integer(TILE))
            tile, pitch = self.tile(new.matrix, new.pixel, r + (first - within), count)
            x = tile.at(within * pitch)
            with code.loop(columns, 0, STRIP) as strip:
                sums = Sums(code, height)
                panel = w.at(strip * (self.steps * LINE))
                done = code.variable(code.integer(0))

                with self.each_step() as offset:
                    at = done.get()
                    sums.add(x.at(offset), pitch, panel.at(at * (STRIP * LINE)))
                    done.set(at + 1)
                sums.store(self.sums.to(types.float32).at(first * spec.width + strip), spec.width)

        with code.loop(new.active, 0, most) as first, code.if_else(new.active - first > least) as (many, few):
            with many:
                strips(most, first)
            with few:
                strips(least, first)
        return code.variable(old.active)

    def put_sums(self) -> None:
        """Sums are in memory."""
