"""Prologues and epilogues: a plan's stages as functions that kernels apply to their vectors.

Operands stand behind the kernel's own buffers, and behind its sizes two strides of each: a residual is read at
batch * stride + row * stride + column, a bias at column alone.
"""

from __future__ import annotations

from jitonnx.codegen.expression import ELEMENTS, emit_expr
from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.epilogue import Stage as StageFunction
from jitonnx.emit.ssa import SSAValue, at_least, at_most
from jitonnx.ir.computation import expressions as e
from jitonnx.plan.calls import Stage


def stage_function(stage: Stage | None) -> StageFunction | None:
    """The function of a stage; None for none."""
    if stage is None:
        return None

    def apply(
        code: KernelBuilder, x: SSAValue, batch: SSAValue, row: SSAValue, column: SSAValue, active: SSAValue
    ) -> SSAValue:
        used = e.operands(stage.expr)
        values = {0: x}
        for number in range(1, 1 + len(stage.dtypes)):
            if number in used:
                values[number] = _load(code, stage, number, (batch, row, column, active), x.lanes)
        (result,) = emit_expr(code, [stage.expr], x.lanes, lambda leaf: values[leaf.value])
        return _cut_off(code, stage, result) if stage.bounded else result

    return apply


def _cut_off(code: KernelBuilder, stage: Stage, x: SSAValue) -> SSAValue:
    bounds = code.buffer(stage.first_buffer + len(stage.dtypes), types.float32)
    least, largest = (code.fixed(bounds, index).splat(x.lanes) for index in range(2))
    return at_most(at_least(x, least), largest)


def _load(
    code: KernelBuilder, stage: Stage, number: int, place: tuple[SSAValue, SSAValue, SSAValue, SSAValue], lanes: int
) -> SSAValue:
    """A vector of an operand."""
    batch, row, column, active = place
    pointer = code.buffer(stage.first_buffer + number - 1, ELEMENTS[stage.dtypes[number - 1]])
    where = code.integer(0)
    if stage.rows[number - 1]:
        first = stage.first_size + 2 * (number - 1)
        where = batch * code.size(first) + row * code.size(first + 1)
    if stage.columns[number - 1]:
        return pointer.load(where + column, lanes, active)
    return pointer.load(where).splat(lanes)
