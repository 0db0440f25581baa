"""The GEMM kernel: driver loops, copies of operands that lie otherwise than tiles read them, and tiles; all LLVM IR.

The loops of a task, outermost first:

    for each panel of b (widths[0] columns)            the panel, [k][width], stays in the second-level cache
        for each tile of rows                          its rows of a stay in the first-level cache
            for p in range(k)                          rows x vectors sums in registers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ir
from numba.core import types

from jitonnx.kernels.code import Code, Pointer, emitted, remainder, smaller
from jitonnx.kernels.gemm.copy import emit_copy
from jitonnx.kernels.gemm.spec import LONGEST_VECTOR, GemmSpec
from jitonnx.kernels.simd import Vector
from jitonnx.kernels.tile import Epilogue, emit_accumulate, emit_finish
from jitonnx.kernels.trace import Traced, select

_I64 = ir.IntType(64)


def build(spec: GemmSpec, lanes: int, epilogue: Callable[..., Any] | None = None) -> Callable[..., None]:
    """The kernel of `spec` for vectors of `lanes` elements (of spec.element).

    epilogue(x, buffers, sizes, batch, row, column, live) finds its own operands behind BUFFERS and SIZES.
    """
    if any(width % lanes for width in spec.widths):
        raise ValueError(f"Bug: tiles {spec.widths} wide are not made of vectors of {lanes}")
    element = getattr(types, spec.element)

    def body(code: Code, begin: Traced, end: Traced) -> None:
        _Gemm(code, spec, element, lanes, Epilogue(epilogue, Vector(element, lanes))).emit(begin, end)

    return emitted(body)


class _Gemm:
    """Emits one kernel."""

    def __init__(self, code: Code, spec: GemmSpec, element: types.Type, lanes: int, epilogue: Epilogue) -> None:
        self.code, self.spec, self.element, self.lanes, self.epilogue = code, spec, element, lanes, epilogue
        self.size = {name: code.size(number) for number, name in enumerate(spec.SIZES)}
        self.a, self.b, self.c = (code.buffer(number, element) for number in range(3))
        self.scratch = code.scratch(element)

    def emit(self, begin: Traced, end: Traced) -> None:
        """Tasks in order: all blocks of a matrix, and of those first the ones that share a block of the larger operand."""
        size = self.size
        row_blocks = (size["m"] + size["task_rows"] - 1) / size["task_rows"]
        column_blocks = (size["n"] + size["task_columns"] - 1) / size["task_columns"]
        blocks = row_blocks * column_blocks
        b_is_larger = size["n"] > size["m"]
        fast = select(b_is_larger, row_blocks, column_blocks)
        with self.code.loop(end, begin) as task:
            batch, block = task / blocks, remainder(task, blocks)
            slow_number, fast_number = block / fast, remainder(block, fast)
            first_row = select(b_is_larger, fast_number, slow_number) * size["task_rows"]
            first_column = select(b_is_larger, slow_number, fast_number) * size["task_columns"]
            self._task(batch, first_row, first_column)

    def _task(self, batch: Traced, first_row: Traced, first_column: Traced) -> None:
        size = self.size
        o, i = batch / size["inner"], remainder(batch, size["inner"])
        a, b, c = (
            matrix.at(o * size[f"{name}_outer"] + i * size[f"{name}_inner"])
            for name, matrix in (("a", self.a), ("b", self.b), ("c", self.c))
        )
        rows = smaller(size["task_rows"], size["m"] - first_row)
        end = smaller(first_column + size["task_columns"], size["n"])
        a, a_row = self._rows_of_a(a.at(first_row * size["a_row"]), rows)
        c = c.at(first_row * size["c_row"])
        with self.code.loop(end, first_column, self.spec.widths[0]) as column:
            live = end - column
            for condition, width in self._width_cases(live):
                with self.code.when(condition):
                    panel = self._panel_of_b(b, column, live, width)
                    self._strip(width, a, a_row, panel, c.at(column), live, rows, (batch, first_row, column))

    def _width_cases(self, live: Traced) -> list[tuple[Traced, int]]:
        """For each tile width, whether it is the narrowest that suffices for `live` columns (or the widest there is)."""
        widths = self.spec.widths
        cases = [(live > below, width) for width, below in zip(widths, (*widths[1:], 0), strict=True)]
        return [cases[0], *((condition & (live <= width), width) for condition, width in cases[1:])]

    def _rows_of_a(self, a: Pointer, rows: Traced) -> tuple[Pointer, Traced]:
        """The task's rows with unit column stride, and their row stride."""
        size = self.size
        if self.spec.a_in_place:
            return a, size["a_row"]
        padded = (size["k"] + (self.lanes - 1)) & -self.lanes
        behind_panel = 0 if self.spec.b_packed else (size["k"] + LONGEST_VECTOR) * self.spec.widths[0]
        copy = self.scratch.at(behind_panel)
        emit_copy(self.code, a, (size["a_row"], size["a_column"]), (rows, size["k"]), copy, padded, self.lanes)
        return copy, padded

    def _panel_of_b(self, b: Pointer, column: Traced, live: Traced, width: int) -> Pointer:
        """Columns `column` … as [k][width]."""
        size = self.size
        if self.spec.b_packed:
            return b.at(column * size["k"])
        shape = (size["k"], smaller(live, width))
        source = b.at(column * size["b_column"])
        padded = self.code.integer(width)
        emit_copy(self.code, source, (size["b_row"], size["b_column"]), shape, self.scratch, padded, self.lanes)
        return self.scratch

    def _strip(
        self,
        width: int,
        a: Pointer,
        a_row: Traced,
        panel: Pointer,
        c: Pointer,
        live: Traced,
        rows: Traced,
        place: tuple[Traced, Traced, Traced],
    ) -> None:
        """All rows times one panel, in a function of its own: there the stores of tiles stand in fewer loops, which
        LLVM would search for what it can move out of them."""
        size, code = self.size, self.code
        arguments = [a, a_row, panel, size["k"], c, size["c_row"], live, rows, *place]
        code.subroutine(f"strip.{width}", arguments, lambda inner, *values: self._write_strip(inner, width, *values))

    def _write_strip(
        self,
        code: Code,
        width: int,
        a: Pointer,
        a_row: Traced,
        panel: Pointer,
        k: Traced,
        c: Pointer,
        c_row: Traced,
        live: Traced,
        rows: Traced,
        batch: Traced,
        first_row: Traced,
        column: Traced,
    ) -> None:
        done = code.integer(0)
        for height in self.spec.rows:
            end = done + (rows - done) / height * height
            with code.loop(end, done, height) as r:
                arguments = [a.at(r * a_row), a_row, panel, k, c.at(r * c_row), c_row, live, batch, first_row + r, column]
                code.subroutine(
                    f"tile.{height}.{width}", arguments, lambda inner, *values: self._write_tile(inner, height, width, *values), inline=False
                )
            done = end

    def _write_tile(self, code, height, width, a, a_row, panel, k, c, c_row, live, batch, row, column):
        tile = self._product(code, height, width, a, a_row, panel, k)
        shape = (height, width // self.lanes)
        place = code.place(batch, row, column)
        emit_finish(
            code.context, code.builder, self.epilogue, shape, tile, c.value, c_row.value, live.value, place
        )

    def _product(
        self, code: Code, height: int, width: int, a: Pointer, a_row: Traced, panel: Pointer, k: Traced
    ) -> list[ir.Value]:
        """A tile of rows of a times a panel of b, from zero."""
        zero = code.number(self.element, 0, self.lanes).value
        sums = [zero] * (height * width // self.lanes)
        offsets = [(a_row * r).value for r in range(height)]
        steps = {"a_step": _I64(1), "b_step": _I64(width)}
        return emit_accumulate(code.builder, self.element, sums, a.value, offsets, b=panel.value, k=k.value, **steps)
