"""Prologues and epilogues: a plan's stages as device functions that kernels call on their vectors.

For `x + bias` under a GEMM with three buffers and eight sizes of its own:

    def stage(x, buffers, sizes, batch, row, column, live):
        x1 = load_part(pointer(buffers, 3, float32), column, live, LANES)
        t2 = x + x1
        return t2

and for a residual, which has rows too: batch * sizes[8] + row * sizes[9] + column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitonnx.codegen.source import NUMBA_TYPES, Source, compile_source, emit_expr, namespace
from jitonnx.ir import expr as e
from jitonnx.kernels.jit import device
from jitonnx.plan.calls import Stage


def stage_source(stage: Stage) -> str:
    """The source of a stage's function."""
    source = Source()
    with source.block("def stage(x, buffers, sizes, batch, row, column, live):"):
        used = e.operands(stage.expr)
        for number, dtype in enumerate(stage.dtypes, 1):
            if number in used:
                _emit_load(source, stage, number, str(NUMBA_TYPES[dtype]))
        (result,) = emit_expr(source, [stage.expr], lambda leaf: "x" if leaf.value == 0 else f"x{leaf.value}")
        source.line(f"return {result}")
    return source.text


def _emit_load(source: Source, stage: Stage, number: int, element: str) -> None:
    first = stage.first_size + 2 * (number - 1)
    pointer = f"pointer(buffers, {stage.first_buffer + number - 1}, {element})"
    row = f"batch * sizes[{first}] + row * sizes[{first + 1}]" if stage.rows[number - 1] else ""
    if stage.columns[number - 1]:
        where = f"{row} + column" if row else "column"
        source.line(f"x{number} = load_part({pointer}, {where}, live, LANES)")
    else:
        source.line(f"x{number} = broadcast({pointer}[{row or 0}], LANES)")


def stage_function(stage: Stage | None, lanes: int) -> Callable[..., Any] | None:
    """The device function of a stage; None for none."""
    if stage is None:
        return None
    return device(compile_source(stage_source(stage), "stage", namespace(lanes)))  # type: ignore[no-any-return]
