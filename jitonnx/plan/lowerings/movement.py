"""Data movement: copies, concatenation, padding, gathering."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jitonnx.ir import computation as c
from jitonnx.ir import expr as e
from jitonnx.ir.dims import DimLike, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.lowering import Statement
from jitonnx.kernels.gather.spec import MAX_RANK as GATHER_AXES
from jitonnx.kernels.gather.spec import GatherElementsSpec, GatherRowsSpec
from jitonnx.plan.calls import KernelCall
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


def gather(planner: Planner, group: Group, statement: Statement) -> None:
    """Runs of elements copied by index: Gather."""
    computation = statement.computation
    assert isinstance(computation, c.Gather)
    data, indices, out = _gather_operands(planner, statement)
    axis, itemsize = computation.axis, data.dtype.itemsize
    run = product(data.shape[axis + 1 :]) * itemsize
    count = indices.elements
    counts = [product(data.shape[:axis]), count, run, 1]
    place = [data.shape[axis] * run, 0, 1, count * run, run]
    _gather_rows(planner, statement, [data, indices, out], [*counts, *place], [data.shape[axis]], [run])


def gather_nd(planner: Planner, group: Group, statement: Statement) -> None:
    """Runs of elements copied by tuples of indices: GatherND."""
    computation = statement.computation
    assert isinstance(computation, c.GatherND)
    data, indices, out = _gather_operands(planner, statement)
    first, itemsize = computation.batch_dims, data.dtype.itemsize
    width = indices.shape[-1]
    if not isinstance(width, int) or width > GATHER_AXES:
        planner.unplannable(f"its index tuples have {width} elements")
    extents = data.shape[first : first + width]
    strides = [product(data.shape[first + i + 1 :]) * itemsize for i in range(width)]
    run = product(data.shape[first + width :]) * itemsize
    batch, count = product(data.shape[:first]), product(indices.shape[first:-1])
    place = [product(data.shape[first:]) * itemsize, count * width, width, count * run, run]
    _gather_rows(planner, statement, [data, indices, out], [batch, count, run, width, *place], extents, strides)


def _gather_rows(
    planner: Planner,
    statement: Statement,
    tensors: Sequence[Tensor],
    head: Sequence[DimLike],
    extents: Sequence[DimLike],
    strides: Sequence[DimLike],
) -> None:
    data, indices, out = tensors
    padding = [0] * (GATHER_AXES - len(extents))
    sizes = [*head, *extents, *padding, *strides, *padding]
    spec = GatherRowsSpec(indices.dtype.numpy.name)
    error = planner.flag(_OUT_OF_RANGE.format(*(value.name for value in statement.inputs[:2] if value)))
    call = KernelCall(spec, [data, indices, out, error], sizes, 2, 2, label="gather", reason="rows copied by index")
    planner.call(call)


_OUT_OF_RANGE = "an index in {1!r} is outside the axis of {0!r} that it selects from"


def gather_elements(planner: Planner, group: Group, statement: Statement) -> None:
    """Single elements copied by index: GatherElements."""
    computation = statement.computation
    assert isinstance(computation, c.GatherElements)
    data, indices, out = _gather_operands(planner, statement)
    if data.rank > GATHER_AXES:
        planner.unplannable(f"it has more than {GATHER_AXES} axes")
    axis, padding = computation.axis, [0] * (GATHER_AXES - data.rank)
    others = [0 if i == axis else stride for i, stride in enumerate(data.strides)]
    sizes = [
        *indices.shape,
        *(1 for _ in padding),
        *others,
        *padding,
        *indices.strides,
        *padding,
        *out.strides,
        *padding,
    ]
    sizes += [data.shape[axis], data.strides[axis]]
    spec = GatherElementsSpec(indices.dtype.numpy.name, data.dtype.itemsize)
    error = planner.flag(_OUT_OF_RANGE.format(*(value.name for value in statement.inputs[:2] if value)))
    call = KernelCall(spec, [data, indices, out, error], sizes, 2, 2, label="gather elements")
    call.reason = "elements copied by index"
    planner.call(call)


def _gather_operands(planner: Planner, statement: Statement) -> tuple[Tensor, Tensor, Tensor]:
    """Data and indices, dense, and a dense place for the result."""
    data, indices = statement.inputs[:2]
    assert data is not None and indices is not None
    if data.dtype is DType.STRING:
        planner.unplannable("strings are gathered by NumPy")
    value = statement.outputs[0]
    out = planner.place(value)
    if not out.contiguous:
        out = planner.move(value, tuple(range(out.rank)))
    return planner.dense(data), planner.dense(indices), out


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
