"""Computations along rows: softmax, normalisations, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jitonnx.ir import computation as c
from jitonnx.ir.dims import DimLike, product
from jitonnx.ir.lowering import Statement
from jitonnx.kernels.softmax.spec import choose as choose_softmax
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import memory_order
from jitonnx.plan.tensor import Tensor, reshape_strides

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


class Loops(NamedTuple):
    """A tensor as outer x length x inner elements: what lies outside of some axes in memory, they themselves, inside."""

    outer: DimLike
    length: DimLike
    inner: DimLike
    strides: tuple[tuple[DimLike, DimLike, DimLike], ...]
    """Of each tensor: by outer, along the axes, by inner."""


def three_loops(axes: Sequence[int], *tensors: Tensor) -> Loops | None:
    """Tensors of one shape as three nested loops, `axes` the middle one; None if their memory does not allow it.

    The order is the first tensor's in memory. The innermost loop that is not trivial has stride 1 in all of them.
    """
    first = tensors[0]
    order = [axis for axis in memory_order(first) if first.shape[axis] != 1]
    middle = [position for position, axis in enumerate(order) if axis in axes]
    if middle and middle[-1] - middle[0] != len(middle) - 1:
        return None
    begin, end = (middle[0], middle[-1] + 1) if middle else (len(order), len(order))
    groups = [order[:begin], order[begin:end], order[end:]]
    extents = [product(first.shape[axis] for axis in group) for group in groups]
    strides = []
    for tensor in tensors:
        merged = [_merge(tensor, group, extent) for group, extent in zip(groups, extents, strict=True)]
        if None in merged:
            return None
        strides.append((merged[0], merged[1], merged[2]))
    if any((inside if groups[2] else along) != 1 for _, along, inside in strides):
        return None
    return Loops(extents[0], extents[1], extents[2], tuple(strides))  # type: ignore[arg-type]


def _merge(tensor: Tensor, axes: Sequence[int], extent: DimLike) -> DimLike | None:
    """The stride of some axes walked as one; None if there is none."""
    merged = reshape_strides([tensor.shape[axis] for axis in axes], [tensor.strides[axis] for axis in axes], (extent,))
    return None if merged is None else merged[0]


def softmax(planner: Planner, group: Group, statement: Statement) -> None:
    """Softmax or LogSoftmax along one axis."""
    computation = statement.computation
    assert isinstance(computation, c.Softmax) and statement.inputs[0] is not None
    x = planner.tensor(statement.inputs[0])
    value = statement.outputs[0]
    loops = three_loops([computation.axis], x)
    if loops is None:
        x = planner.copy(x, tuple(range(x.rank)), "needed as rows")
    y = planner.place(value, memory_order(x))
    loops = three_loops([computation.axis], x, y)
    if loops is None:
        y = planner.move(value, memory_order(x))
        loops = three_loops([computation.axis], x, y)
        assert loops is not None, "Bug: a dense tensor is not three loops"
    known = [dim if isinstance(dim, int) else None for dim in loops[:3]]
    spec = choose_softmax(*known, "log_softmax" if computation.log else "softmax", x.dtype.numpy.name)
    (x_outer, x_step, _), (y_outer, y_step, _) = loops.strides
    sizes = [loops.outer, loops.length, loops.inner, x_outer, x_step, y_outer, y_step]
    planner.call(KernelCall(spec, [x, y], sizes, 1, 1, label=spec.kind, reason="; ".join(group.reasons)))
