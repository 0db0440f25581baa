"""Data movement: copies, concatenation, padding."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from jitonnx.ir import computation as c
from jitonnx.ir import expr as e
from jitonnx.ir.dims import DimLike
from jitonnx.ir.lowering import Statement
from jitonnx.plan.copies import copy_call
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import region_call
from jitonnx.plan.tensor import Tensor

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def concat(planner: Planner, group: Group, statement: Statement) -> None:
    """Operands whose producers wrote into the result already cost nothing; the others are copied."""
    assert isinstance(statement.computation, c.Concat)
    axis = statement.computation.axis
    value = statement.outputs[0]
    whole = planner.place(value, planner.order(value))
    start = whole.offset
    for operand in statement.inputs:
        assert operand is not None
        part = replace(whole, offset=start, shape=operand.shape)
        start = start + operand.shape[axis] * whole.strides[axis]
        source = planner.tensor(operand)
        if (source.buffer, source.offset) != (part.buffer, part.offset) or source.strides != part.strides:
            planner.copy_into(source, part, f"{operand.name} is not written into the concatenation by its producer")


def pad(planner: Planner, group: Group, statement: Statement) -> None:
    """The result is made of boxes: the operand's own, and around it copies of its edges, mirrored or filled."""
    computation, value = statement.computation, statement.outputs[0]
    assert isinstance(computation, c.Pad) and statement.inputs[0] is not None
    source = planner.tensor(statement.inputs[0])
    target = planner.place(value, planner.order(value))
    if computation.mode == "constant":
        _fill(planner, statement, target)
    axes = [_pieces(computation, axis, dim) for axis, dim in enumerate(source.shape)]
    for box in itertools.product(*axes):
        piece_from, piece_to = source, target
        for axis, (to_start, from_start, step, length) in enumerate(box):
            piece_from = _stretch(piece_from, axis, from_start, step, length)
            piece_to = _stretch(piece_to, axis, to_start, 1, length)
        planner.call(copy_call(piece_from, piece_to, label=f"pad {value.name}", reason=computation.mode))


def _fill(planner: Planner, statement: Statement, target: Tensor) -> None:
    """Every element of `target` set to the padding value."""
    given = statement.inputs[1] if len(statement.inputs) > 1 else None
    if given is None:
        expr, operands = e.constant(0, target.dtype), []
    else:
        expr, operands = e.operand(0, target.dtype), [planner.tensor(given)]
    planner.call(region_call([expr], operands, [target], label="pad fill", origin=(), reason="padding value"))


_Piece = tuple[DimLike, DimLike, int, DimLike]  # start in the result, start in the operand, step, length


def _pieces(computation: c.Pad, axis: int, dim: DimLike) -> list[_Piece]:
    """How one axis of the result is put together from stretches of the operand's axis."""
    before, after = computation.before[axis], computation.after[axis]
    cut_before, cut_after = (max(0, -amount) if isinstance(amount, int) else 0 for amount in (before, after))
    start = before + cut_before
    middle: _Piece = (start, cut_before, 1, dim - cut_before - cut_after)
    pieces = [middle]
    if computation.mode == "constant":
        return pieces
    end = start + middle[3]
    last = dim - 1
    around = {
        "edge": ((0, 0, 0, start), (end, last, 0, after)),
        "reflect": ((0, start, -1, start), (end, last - 1, -1, after)),
        "wrap": ((0, dim - start, 1, start), (end, 0, 1, after)),
    }[computation.mode]
    return pieces + [piece for piece in around if not (isinstance(piece[3], int) and piece[3] <= 0)]


def _stretch(tensor: Tensor, axis: int, start: DimLike, step: int, length: DimLike) -> Tensor:
    """`length` elements along one axis from `start` on, `step` apart."""
    strides, shape = list(tensor.strides), list(tensor.shape)
    offset = tensor.offset + start * strides[axis]
    strides[axis], shape[axis] = strides[axis] * step, length
    return Tensor(tensor.buffer, offset, tuple(shape), tuple(strides))
