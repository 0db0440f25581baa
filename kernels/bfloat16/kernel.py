"""The kernel of products and convolutions in bfloat16: rows and weights in 16 bits, sums in float32."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, Variable, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.bfloat16.dots import in_vectors, row_sums
from jitonnx.kernels.bfloat16.matrices import HEIGHTS, Sums
from jitonnx.kernels.bfloat16.spec import STRIP, Bfloat16Buffers, Bfloat16Spec, BfmmlaSpec, DotsSpec
from jitonnx.kernels.parts.amx_kernel import AmxKernel, Block, Strip
from jitonnx.kernels.parts.amx_packing import rounded_step
from jitonnx.kernels.parts.amx_rows import Copying
from jitonnx.kernels.parts.layouts import LINE, TILE
from jitonnx.kernels.parts.microkernel import CHAINED_OPERATIONS, TileResult, emit_finish
from jitonnx.support.records import NamedTuple


def build(spec: Bfloat16Spec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    kernel = kernel_of(spec)
    if kernel is not _Matrices and lanes * 4 != LINE:
        raise ValueError(f"Bug: CPUs of x86 with products of bfloat16 have vectors of {LINE} bytes, not {4 * lanes}")
    return lambda code, begin, end: kernel(code, spec, applied_to(code, spec, lanes, epilogue)).emit(begin, end)


def kernel_of(spec: Bfloat16Spec) -> type[Bfloat16Kernel]:
    """What emits the kernel of a spec."""
    if isinstance(spec, DotsSpec):
        return DotsKernel
    return _Matrices if isinstance(spec, BfmmlaSpec) else Bfloat16Kernel


def applied_to(code: KernelBuilder, spec: Bfloat16Spec, lanes: int, epilogue: Stage | None) -> Epilogue:
    """An epilogue as kernels apply it. What is rounded to bfloat16 fills a cache line where it can."""
    whole = spec.result == "bfloat16" and not isinstance(spec, BfmmlaSpec) and spec.width % (2 * lanes) == 0
    most = 2 * lanes if whole else lanes
    made = Epilogue.widest(code, epilogue, types.float32, lanes, most, ELEMENTS[spec.result])
    if isinstance(spec, DotsSpec) and made.lanes > lanes and made.operations >= CHAINED_OPERATIONS:
        return Epilogue(
            code, epilogue, types.float32, lanes, ELEMENTS[spec.result]
        )  # of many rows, in single registers
    return made


ELEMENTS = {"bfloat16": types.uint16, "float32": types.float32}
"""The elements as which kernels see the types of x and y."""


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


class _Tile(NamedTuple):
    """Rows times a panel of columns."""

    matrix: SSAValue
    """The number of the product, where there are several."""
    row: SSAValue
    """The first, of y."""
    live: SSAValue
    """Rows that count."""
    column: SSAValue
    x: Pointer
    """Its rows, `pitch` bytes apart."""
    pitch: SSAValue
    w: Pointer
    """The panel."""


class DotsKernel(Bfloat16Kernel):
    """Sums in vector registers, of a few rows and a panel of columns at a time, which go to the epilogue from there."""

    TILES = False

    def __init__(self, code: KernelBuilder, spec: DotsSpec, epilogue: Epilogue) -> None:
        super().__init__(code, spec, epilogue)
        self._dots, self.together = spec, spec.heights[0]

    def inner(self, code: KernelBuilder) -> DotsKernel:
        return type(self)(code, self._dots, self.epilogue)

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    def finish_last(self, before: Block[Variable]) -> None:
        """Tiles are finished as they come."""

    def within_group(self, r: SSAValue) -> SSAValue:
        return remainder(r, self.code.integer(self._dots.near_rows))

    def emit_panel(self, before: Block[Variable], strip: Strip) -> None:
        """The highest tiles, then those for what remains."""
        code, heights, done, last, column = self.code, self._dots.heights, strip.first, strip.last, strip.column
        panel_bytes = self.steps * (self.spec.width * LINE)
        w = self.right(strip.matrix).at(column / self.spec.width * panel_bytes)
        for number, height in enumerate(heights):
            high = (last - done + (height - 1 - heights[-1])) / height * height
            end = last if number == len(heights) - 1 else done + high
            with code.loop(end, done, height) as r:
                x, pitch = self.tile(strip.matrix, strip.pixel, r, strip.rows)
                tile = _Tile(strip.matrix, strip.pixel + r, last - r, column, x, pitch, w)
                ahead = [] if self.spec.prefetch_distance else self._next_panel(w, r - strip.first, last - strip.first)
                code.subroutine(f"tile.{height}", [*tile, *ahead], self._writing(height), inline=False)
            done = end

    def _next_panel(self, w: Pointer, r: SSAValue, count: SSAValue) -> tuple[Pointer, SSAValue]:
        """The part of the panel behind this one that the tile of rows from `r` on, of `count`, asks for, and how many
        bytes of it with each word: all tiles share it."""
        spec = self._dots
        each = (count + (4 * spec.width * spec.heights[0] - 1)) / count
        words = self.steps * (LINE // 4)
        return w.at(words * (4 * spec.width) + r / spec.heights[0] * (words * each)), each

    def _writing(self, height: int) -> Callable[..., None]:
        def write(code: KernelBuilder, *arguments: Any) -> None:
            tile, ahead = _Tile(*arguments[: len(_Tile._fields)]), arguments[len(_Tile._fields) :]
            self.inner(code)._write_tile(height, tile, ahead)

        return write

    def _write_tile(self, height: int, tile: _Tile, ahead: tuple[Any, ...]) -> None:
        """A tile: its sums, the epilogue, and into y. ahead: what `_next_panel` told, if anything."""
        code, size, lanes = self.code, self.size, self.epilogue.lanes
        matrix, row, live, column, x, pitch, w = tile
        sums = row_sums(code, (height, self.spec.width), x, pitch, w, (self.elements + 1) / 2, ahead)
        emit_finish(
            code,
            self.epilogue,
            shape=(height, self.spec.width // lanes),
            sums=in_vectors(code, sums, lanes),
            result=TileResult(
                self.result(matrix).at(row * size.y_pixel + column).value, size.y_pixel.value, (matrix, row, column)
            ),
            active=(size.out_channels - column).value,
            rows_live=live.value,
        )


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
