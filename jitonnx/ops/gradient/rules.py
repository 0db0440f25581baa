"""What each operator hands back to its inputs: from the adjoints of its outputs (None: not needed) those of its inputs.

A rule is a function of the tape, the node and the adjoints; it returns one for each input, None for those that have no
derivative (indices, shapes) or that nothing depends on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import integers, known
from jitonnx.ir.dtypes import DType
from jitonnx.ir.errors import GraphError
from jitonnx.ir.graph import Node, Value, describe
from jitonnx.ir.inference import unnoted
from jitonnx.ir.operator import Operator
from jitonnx.ops.base import integers_of, normalize_axis
from jitonnx.ops.gradient.convolutions import average_pool, conv, conv_transpose, max_pool
from jitonnx.ops.gradient.tape import Tape
from jitonnx.ops.onnx.cast import Cast, CastLike
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.convolution import Conv, ConvTranspose
from jitonnx.ops.onnx.cumulative import CumProd, CumSum
from jitonnx.ops.onnx.depth_to_space import DepthToSpace, SpaceToDepth
from jitonnx.ops.onnx.dropout import Dropout
from jitonnx.ops.onnx.einsum import Einsum
from jitonnx.ops.onnx.gather import Gather, GatherElements, GatherND
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.pooling import AveragePool, MaxPool
from jitonnx.ops.onnx.reduction import ReduceLogSumExp, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from jitonnx.ops.onnx.scatter import ScatterElements, ScatterND
from jitonnx.ops.onnx.shape import Expand, Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.softmax import LogSoftmax, Softmax
from jitonnx.ops.onnx.tile import Tile
from jitonnx.ops.onnx.trilu import Trilu

Handed: TypeAlias = "Value | Sequence[Value | None]"
Rule: TypeAlias = Callable[..., Handed]


def _refused(node: Node, why: str) -> NoReturn:
    raise GraphError(f"{describe(node)} has no derivative: {why}")


def _given(node: Node, place: int = 0) -> Value:
    value = node.inputs[place]
    assert value is not None
    return value


# ---------------------------------------------------------------------------------------------- views


def _same(tape: Tape, node: Node, part: Value) -> Handed:
    return part


def _cast(tape: Tape, node: Node, part: Value) -> Handed:
    return tape.cast(part, _given(node).dtype)


def _reshaped(tape: Tape, node: Node, part: Value) -> Handed:
    return tape.reshape(part, _given(node).shape)


def _transpose(tape: Tape, node: Node, part: Value) -> Handed:
    assert isinstance(node.operator, Transpose)
    rank = len(part.shape)
    order = node.operator.perm or tuple(reversed(range(rank)))
    return tape.transpose(part, [order.index(axis) for axis in range(rank)])


def _expand(tape: Tape, node: Node, part: Value) -> Handed:
    return tape.sum_to(part, _given(node).shape)


def _tile(tape: Tape, node: Node, part: Value) -> Handed:
    x = _given(node)
    repeats = unnoted().constant_of(node.inputs[1], "repeats")
    pairs = [size for pair in zip(repeats, x.shape, strict=True) for size in pair]
    return tape.reshape(tape.sum(tape.reshape(part, pairs), range(0, len(pairs), 2), keepdims=False), x.shape)


def _dropout(tape: Tape, node: Node, part: Value | None, mask: Value | None = None) -> Handed:
    assert isinstance(node.operator, Dropout) and part is not None
    if node.operator.in_training((*node.inputs, None, None)[2]):
        _refused(node, "what it drops in training is drawn anew in each run")
    return part


def _depth(tape: Tape, node: Node, part: Value) -> Handed:
    operator = node.operator
    if getattr(operator, "mode", "DCR") != "DCR":
        _refused(node, "the mode CRD is not known backwards; Reshape and Transpose say the same")
    if isinstance(operator, DepthToSpace):
        return tape.add(SpaceToDepth(blocksize=operator.blocksize), part)
    assert isinstance(operator, SpaceToDepth)
    return tape.add(DepthToSpace(blocksize=operator.blocksize), part)


# ---------------------------------------------------------------------------------------------- pieces


def _concat(tape: Tape, node: Node, part: Value) -> Handed:
    assert isinstance(node.operator, Concat)
    axis = normalize_axis(node.operator.axis, len(part.shape))
    pieces, start = [], part.shape[axis] * 0
    for value in node.inputs:
        assert value is not None
        pieces.append(tape.slice(part, axis, start, start + value.shape[axis]))
        start = start + value.shape[axis]
    return pieces


def _split(tape: Tape, node: Node, *parts: Value | None) -> Handed:
    assert isinstance(node.operator, Split)
    filled = [tape.zeros(y) if part is None else part for part, y in zip(parts, node.outputs, strict=True)]
    return tape.add(Concat(axis=node.operator.axis), *filled)


def _slice(tape: Tape, node: Node, part: Value) -> Handed:
    x = _given(node)
    assert isinstance(node.operator, Slice)
    context = unnoted()
    bounds = (
        context.constant_of(node.inputs[1], "starts", signed=True),
        context.constant_of(node.inputs[2], "ends", signed=True),
    )
    axes, steps = (
        None if value is None else integers_of(value, "axes and steps") for value in (*node.inputs[3:], None, None)[:2]
    )
    first, step, sizes = node.operator._extents(context, x.shape, *bounds, axes, steps)
    if all(one == 1 for one in step):
        behind = [size - start - count for size, start, count in zip(x.shape, first, sizes, strict=True)]
        return tape.pad(part, first, behind)
    if not known((*first, *sizes)):
        _refused(node, "it takes steps from a place that only a run tells")
    for axis, (start, stride, count) in enumerate(zip(first, step, sizes, strict=True)):
        if stride != 1 or count != x.shape[axis]:
            places = tape.axes(integers([start + stride * k for k in range(*integers([count]))]))
            shape = (*part.shape[:axis], x.shape[axis], *part.shape[axis + 1 :])
            part = _scattered(tape, part, places, axis, shape)
    return part


def _scattered(tape: Tape, part: Value, places: Value, axis: int, shape: Sequence[Any]) -> Value:
    """Zeros of `shape`, to which slices of `part` along as many axes from `axis` on as places have are added."""
    rank, taken = len(shape), len(places.shape)
    front = tape.transpose(part, [*range(axis, axis + taken), *range(axis), *range(axis + taken, len(part.shape))])
    data = tape.full(0, (shape[axis], *shape[:axis], *shape[axis + 1 :]), part.dtype)
    added = tape.add(ScatterND(reduction="add"), data, tape.reshape(places, (*places.shape, 1)), front)
    return tape.transpose(added, [*range(1, axis + 1), 0, *range(axis + 1, rank)])


def _gather(tape: Tape, node: Node, part: Value) -> Handed:
    x = _given(node)
    assert isinstance(node.operator, Gather)
    axis = normalize_axis(node.operator.axis, len(x.shape))
    places = tape.cast(_given(node, 1), DType.INT64)
    return [_scattered(tape, part, places, axis, x.shape), None]


def _gather_elements(tape: Tape, node: Node, part: Value) -> Handed:
    assert isinstance(node.operator, GatherElements)
    scatter = ScatterElements(axis=node.operator.axis, reduction="add")
    return [tape.add(scatter, tape.zeros(_given(node)), node.inputs[1], part), None]


def _gather_nd(tape: Tape, node: Node, part: Value) -> Handed:
    assert isinstance(node.operator, GatherND)
    if node.operator.batch_dims:
        _refused(node, "batch_dims is not 0")
    return [tape.add(ScatterND(reduction="add"), tape.zeros(_given(node)), node.inputs[1], part), None]


def _scatter(tape: Tape, node: Node, part: Value) -> Handed:
    """Elements that are overwritten hand nothing back. Of several that are written to one place, all do: ONNX forbids
    such indices where nothing is added."""
    operator, indices = node.operator, node.inputs[1]
    assert isinstance(operator, ScatterElements | ScatterND)
    if operator.reduction not in ("none", "add"):
        _refused(node, f"reduction is {operator.reduction!r}")
    by_element = isinstance(operator, ScatterElements)
    read = GatherElements(axis=operator.axis) if isinstance(operator, ScatterElements) else GatherND()
    kept = part
    if operator.reduction == "none":
        write = ScatterElements(axis=operator.axis) if isinstance(operator, ScatterElements) else ScatterND()
        kept = tape.add(write, part, indices, tape.zeros(_given(node, 2)))
    assert by_element or isinstance(read, GatherND)
    return [kept, None, tape.add(read, part, indices)]


def _pad(tape: Tape, node: Node, part: Value) -> Handed:
    assert isinstance(node.operator, Pad)
    if node.operator.mode != "constant":
        _refused(node, f"mode is {node.operator.mode!r}: known is constant")
    if len(node.inputs) > 2 and node.inputs[2] is not None and node.inputs[2].constant is None:
        _refused(node, "the number that it pads with is computed")
    _, pads, _, axes = (*node.inputs, None, None)[:4]
    assert pads is not None
    before, after = node.operator._of(unnoted(), _given(node), pads, axes)
    return tape.pad(part, [-size for size in before], [-size for size in after])


# ---------------------------------------------------------------------------------------------- products


def _matmul(tape: Tape, node: Node, part: Value) -> Handed:
    a, b = _given(node), _given(node, 1)
    left = tape.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = tape.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    shape = list(part.shape)
    if len(b.shape) == 1:
        shape.append(1)
    if len(a.shape) == 1:
        shape.insert(len(shape) - 1, 1)
    full = tape.reshape(part, shape)
    by_left = tape.sum_to(tape.matmul(full, tape.swapped(right)), left.shape)
    by_right = tape.sum_to(tape.matmul(tape.swapped(left), full), right.shape)
    return [tape.reshape(by_left, a.shape), tape.reshape(by_right, b.shape)]


def _einsum(tape: Tape, node: Node, part: Value) -> Handed:
    assert isinstance(node.operator, Einsum)
    equation = node.operator.equation
    values = [_given(node, place) for place in range(len(node.inputs))]
    terms, result = node.operator._parse([len(value.shape) for value in values])
    handed: list[Value | None] = []
    for place, (value, own) in enumerate(zip(values, terms, strict=True)):
        others = [(term, other) for at, (term, other) in enumerate(zip(terms, values, strict=True)) if at != place]
        known_labels = {*result, *(label for term, _ in others for label in term)}
        if len(set(own)) < len(own) or any(label.isdigit() for term in terms for label in term):
            _refused(node, f"the equation {equation!r} repeats a label in a term, or has an ellipsis")
        kept = [label for label in own if label in known_labels]
        left = ",".join("".join(term) for term in (result, *(term for term, _ in others)))
        product = tape.add(Einsum(equation=f"{left}->{''.join(kept)}"), part, *(other for _, other in others))
        sizes = [size if label in kept else 1 for label, size in zip(own, value.shape, strict=True)]
        handed.append(tape.expand(tape.reshape(product, sizes), value.shape))
    return handed


# ---------------------------------------------------------------------------------------------- reductions


def _kept(tape: Tape, node: Node, reduced: Value) -> Value:
    """A result or its adjoint with the reduced axes as axes of size 1."""
    axes = _axes(node)
    return tape.reshape(reduced, [1 if axis in axes else size for axis, size in enumerate(_given(node).shape)])


def _axes(node: Node) -> tuple[int, ...]:
    axes: tuple[int, ...] = node.operator.axes_of(_given(node), (*node.inputs, None)[1])  # type: ignore[attr-defined]
    return axes


def _reduce_sum(tape: Tape, node: Node, part: Value) -> Handed:
    return [tape.expand(_kept(tape, node, part), _given(node).shape), None]


def _reduce_mean(tape: Tape, node: Node, part: Value) -> Handed:
    x = _given(node)
    count = tape.cast(tape.dims([math.prod([x.shape[axis] for axis in _axes(node)])]), x.dtype)
    return [tape.expand(tape.over(_kept(tape, node, part), tape.reshape(count, ())), x.shape), None]


def _reduce_extreme(tape: Tape, node: Node, part: Value) -> Handed:
    """Elements that are equally extreme share it."""
    x = _given(node)
    a, b = e.operand(0, x.dtype), e.operand(1, x.dtype)
    is_extreme = tape.map(e.where(e.equal(a, b), e.constant(1.0, x.dtype), 0.0), x, _kept(tape, node, node.outputs[0]))
    share = tape.over(_kept(tape, node, part), tape.sum(is_extreme, _axes(node)))
    return [tape.times(is_extreme, share), None]


def _reduce_log_sum_exp(tape: Tape, node: Node, part: Value) -> Handed:
    x = _given(node)
    a, b, d = (e.operand(place, x.dtype) for place in range(3))
    y = _kept(tape, node, node.outputs[0])
    return [tape.map(e.exp(a - b) * d, x, y, _kept(tape, node, part)), None]


def _reduce_prod(tape: Tape, node: Node, part: Value) -> Handed:
    """The product of all others, before and behind each element: right where some are 0, too."""
    x, axes = _given(node), _axes(node)
    others = [axis for axis in range(len(x.shape)) if axis not in axes]
    order = [*others, *axes]
    count = math.prod([x.shape[axis] for axis in axes])
    rows = tape.reshape(tape.transpose(x, order), [*(x.shape[axis] for axis in others), count])
    last = tape.constant(len(others), DType.INT64)
    before, behind = (tape.add(CumProd(exclusive=1, reverse=back), rows, last) for back in (0, 1))
    factors = tape.reshape(tape.times(before, behind), [x.shape[axis] for axis in order])
    factors = tape.transpose(factors, [order.index(axis) for axis in range(len(order))])
    return [tape.times(factors, _kept(tape, node, part)), None]


def _cumulative_sum(tape: Tape, node: Node, part: Value) -> Handed:
    assert isinstance(node.operator, CumSum)
    back = CumSum(exclusive=node.operator.exclusive, reverse=int(not node.operator.reverse))
    return [tape.add(back, part, node.inputs[1]), None]


def _softmax(tape: Tape, node: Node, part: Value) -> Handed:
    operator, y = node.operator, node.outputs[0]
    assert isinstance(operator, Softmax | LogSoftmax)
    axis = normalize_axis(operator.axis, len(y.shape))
    axes = range(axis, len(y.shape)) if operator.flatten else [axis]
    a, b, d = (e.operand(place, y.dtype) for place in range(3))
    if isinstance(operator, LogSoftmax):
        return tape.map(b - e.exp(a) * d, y, part, tape.sum(part, axes))
    return tape.map(a * (b - d), y, part, tape.sum(tape.times(part, y), axes))


def _trilu(tape: Tape, node: Node, part: Value) -> Handed:
    return [tape.add(node.operator, part, *node.inputs[1:]), None]


RULES: dict[type[Operator], Rule] = {
    AveragePool: average_pool,
    Cast: _cast,
    CastLike: lambda tape, node, part: [tape.cast(part, _given(node).dtype), None],
    Concat: _concat,
    Conv: conv,
    ConvTranspose: conv_transpose,
    CumSum: _cumulative_sum,
    DepthToSpace: _depth,
    Dropout: _dropout,
    Einsum: _einsum,
    Expand: _expand,
    Flatten: _reshaped,
    Gather: _gather,
    GatherElements: _gather_elements,
    GatherND: _gather_nd,
    Identity: _same,
    LogSoftmax: _softmax,
    MatMul: _matmul,
    MaxPool: max_pool,
    Pad: _pad,
    ReduceLogSumExp: _reduce_log_sum_exp,
    ReduceMax: _reduce_extreme,
    ReduceMean: _reduce_mean,
    ReduceMin: _reduce_extreme,
    ReduceProd: _reduce_prod,
    ReduceSum: _reduce_sum,
    Reshape: _reshaped,
    ScatterElements: _scatter,
    ScatterND: _scatter,
    Slice: _slice,
    Softmax: _softmax,
    SpaceToDepth: _depth,
    Split: _split,
    Squeeze: _reshaped,
    Tile: _tile,
    Transpose: _transpose,
    Trilu: _trilu,
    Unsqueeze: _reshaped,
}
"""The rules by operator; operators without a rule are elementwise, or spelled out in others, or have no derivative."""
