"""The kernel of products and convolutions in bfloat16: rows and weights in 16 bits, sums in float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from jitonnx.kernels.bfloat16.matrices import HEIGHTS, Sums
from jitonnx.kernels.bfloat16.spec import STRIP, BfloatBuffers, BfloatSpec, MatricesSpec
from jitonnx.kernels.language import types
from jitonnx.kernels.language.code import Code, Kernel, Pointer, Variable, remainder, smaller
from jitonnx.kernels.language.epilogue import Epilogue, Stage
from jitonnx.kernels.language.half import narrow_for_products
from jitonnx.kernels.language.trace import Traced
from jitonnx.kernels.parts.layouts import LINE, TILE
from jitonnx.kernels.parts.tiled_kernel import Block, TiledKernel
from jitonnx.kernels.parts.tiled_rows import Copying

_LANES = 16
"""float32 that are rounded at a time: a vector of CPUs with tiles, four of AArch64."""


def build(spec: BfloatSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    by_matrices = isinstance(spec, MatricesSpec)
    if not by_matrices and lanes * 4 != LINE:
        raise ValueError(f"Bug: CPUs with tiles have vectors of {LINE} bytes, not of {lanes} float32")
    if epilogue is None and spec.result != "float32":
        raise ValueError(f"Bug: sums are float32, not {spec.result}, without an epilogue")

    def body(code: Code, begin: Traced, end: Traced) -> None:
        # What is rounded to bfloat16 fills a cache line.
        whole = spec.result == "bfloat16" and not by_matrices
        applied = Epilogue(code, epilogue, types.float32, spec.width if whole else lanes, _TYPES[spec.result])
        if not applied.unrolls:
            applied = Epilogue(code, epilogue, types.float32, lanes, _TYPES[spec.result])
        (_Matrices if by_matrices else _Bfloat)(code, spec, applied).emit(begin, end)

    return body


_TYPES = {"bfloat16": types.uint16, "float32": types.float32}


class _Bfloat(TiledKernel):
    PRODUCT = "tdpbf16ps"

    def __init__(self, code: Code, spec: BfloatSpec, epilogue: Epilogue) -> None:
        x, w, y = code.buffers(BfloatBuffers, _TYPES[spec.x_type], w=types.uint8, y=_TYPES[spec.result])
        super().__init__(code, spec, x, w, y, epilogue)
        self._bfloat = spec

    def inner(self, code: Code) -> _Bfloat:
        return type(self)(code, self._bfloat, self.epilogue)

    def copying(self) -> Copying:
        outside = self.code.number(types.uint16, 0, self.spec.step)
        return Copying(self.code, self.size, self.x, outside, _rounded, self.spec.planes)


class _Matrices(_Bfloat):
    """Sums in vector registers, of a strip of columns of some rows at a time."""

    TILES = False
    TOGETHER = 1

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    def sum_block(
        self,
        tiles: int,
        old: Block[Traced],
        new: Block[Traced],
        count: Traced,
        fetches: Traced,
        pace: Traced,
    ) -> Variable:
        self.finish_rest(old, self.code.variable(self.code.integer(0)))
        code, size, spec, r, column = self.code, self.size, self.spec, new.row, new.column
        w = self.w.at(column / spec.width * (self.steps * (spec.width * LINE)))
        columns = smaller(size.out_channels - column, spec.width)
        most, least = HEIGHTS

        def strips(height: int, first: Traced) -> None:
            within = remainder(first, code.integer(TILE))
            tile, pitch = self.tile(new.pixel, r + (first - within), count)
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

        with code.loop(new.live, 0, most) as first, code.either(new.live - first > least) as (many, few):
            with many:
                strips(most, first)
            with few:
                strips(least, first)
        return code.variable(old.live)

    def put_sums(self) -> None:
        """Sums are in memory."""


def _rounded(source: Pointer, at: Traced, live: Traced | None = None) -> Traced:
    """A step of elements as bfloat16, those from `live` on 0."""
    if source.element is types.uint16:
        return source.load(at, 2 * _LANES, live)
    first = source.load(at, _LANES, live)
    second = source.load(at + _LANES, _LANES, None if live is None else live - _LANES)
    return narrow_for_products(first, second)
