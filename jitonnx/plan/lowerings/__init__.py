"""Computations to kernel calls: one function each, found by the computation's type.

This is the only place that knows which computation is done by which kernels. A function gets the planner, the group and
its anchor statement, and adds calls to the plan; UnplannableError where no kernel fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitonnx.ir import computation as c
from jitonnx.ir.lowering import Statement
from jitonnx.plan.lowerings import movement, products, recurrent, rows, windows

LOWERINGS: dict[type[c.Computation], Callable[..., Any]] = {
    c.Concat: movement.concat,
    c.Pad: movement.pad,
    c.Gather: movement.gather,
    c.GatherElements: movement.gather_elements,
    c.GatherND: movement.gather_nd,
    c.MatMul: products.matmul,
    c.Attention: products.attention,
    c.Pool: windows.pool,
    c.LocalResponseNormalize: windows.local_response_normalize,
    c.Resize: windows.resize,
    c.Softmax: rows.softmax,
    c.Reduce: rows.reduce,
    c.ArgReduce: rows.arg_reduce,
    c.Normalize: rows.normalize,
    c.GroupNormalize: rows.group_normalize,
    c.Recurrent: recurrent.recurrent,
    c.Convolution: windows.convolution,
    c.TransposedConvolution: windows.transposed_convolution,
}

_EPILOGUE = (c.MatMul, c.Convolution, c.TransposedConvolution, c.Pool, c.GroupNormalize)
_PROLOGUE: tuple[type[c.Computation], ...] = ()


def takes_epilogue(statement: Statement) -> bool:
    """Whether elementwise statements behind this one can run in its kernel."""
    if isinstance(statement.computation, c.Resize):
        return windows.resizes_images(statement)
    return isinstance(statement.computation, _EPILOGUE) and len(statement.outputs) == 1


def takes_prologue(statement: Statement) -> bool:
    """Whether elementwise statements in front of this one can run in its kernel."""
    return isinstance(statement.computation, _PROLOGUE)
