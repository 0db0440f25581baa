"""Operators whose derivative is that of simpler ones, in which they are spelled out here.

A function is given the tape, the node and its inputs, and returns what stands for the node's outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import DimLike, floor_divide
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.errors import GraphError
from jitonnx.ir.graph import Node, Value, describe
from jitonnx.ir.operator import Operator
from jitonnx.ops.base import normalize_axis
from jitonnx.ops.gradient.tape import Tape
from jitonnx.ops.onnx.arithmetic import Abs, Log, Sqrt
from jitonnx.ops.onnx.gather import Gather, GatherElements
from jitonnx.ops.onnx.loss import NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss
from jitonnx.ops.onnx.matmul import Gemm
from jitonnx.ops.onnx.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    LpNormalization,
    RMSNormalization,
)
from jitonnx.ops.onnx.pooling import GlobalAveragePool, GlobalMaxPool
from jitonnx.ops.onnx.reduction import (
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceMax,
    ReduceMean,
    ReduceSum,
    ReduceSumSquare,
)
from jitonnx.ops.onnx.shape import Squeeze, Unsqueeze
from jitonnx.ops.onnx.softmax import LogSoftmax

Spelling: TypeAlias = Callable[..., "Value | Sequence[Value]"]


def _refused(node: Node, why: str) -> NoReturn:
    raise GraphError(f"{describe(node)} has no derivative: {why}")


# ---------------------------------------------------------------------------------------------- products, reductions


def _gemm(tape: Tape, node: Node, a: Value, b: Value, c: Value | None = None) -> Value:
    operator = node.operator
    assert isinstance(operator, Gemm)
    left, right = (tape.swapped(x) if turned else x for x, turned in ((a, operator.transA), (b, operator.transB)))
    y = tape.matmul(left, right)
    if operator.alpha != 1:
        y = tape.times(y, operator.alpha)
    if c is None or operator.beta == 0:
        return y
    return tape.plus(y, c if operator.beta == 1 else tape.times(c, operator.beta))


def _summed(tape: Tape, node: Node, x: Value, axes: Value | None) -> Value:
    operator: Any = node.operator
    options = {name: getattr(operator, name) for name in ("keepdims", "noop_with_empty_axes")}
    return tape.add(ReduceSum(**options), x, axes)


def _reduced(tape: Tape, node: Node, x: Value, axes: Value | None = None) -> Value:
    operator = node.operator
    if isinstance(operator, ReduceL1):
        return _summed(tape, node, tape.add(Abs(), x), axes)
    if isinstance(operator, ReduceLogSum):
        return tape.add(Log(), _summed(tape, node, x, axes))
    squares = _summed(tape, node, tape.times(x, x), axes)
    return tape.add(Sqrt(), squares) if isinstance(operator, ReduceL2) else squares


def _global_pool(tape: Tape, node: Node, x: Value) -> Value:
    reduce: type[Operator] = ReduceMean if isinstance(node.operator, GlobalAveragePool) else ReduceMax
    return tape.add(reduce(keepdims=1), x, tape.axes(range(2, len(x.shape))))


# ---------------------------------------------------------------------------------------------- normalisations


def _by_channel(tape: Tape, value: Value, like: Value) -> Value:
    """A vector of channels along axis 1 of an image."""
    return tape.reshape(value, (value.shape[0], *(1,) * (len(like.shape) - 2)))


def _scaled(tape: Tape, x: Value, centre: Value | None, square: Value, epsilon: float) -> Value:
    """(x - centre) / sqrt(square + epsilon)."""
    a, b = e.operand(0, x.dtype), e.operand(1, x.dtype)
    root = tape.map(1 / e.sqrt(e.operand(0, x.dtype) + epsilon), square)
    deviation = x if centre is None else tape.map(a - b, x, centre)
    return tape.times(deviation, root)


def _normal(tape: Tape, x: Value, axes: Sequence[int], epsilon: float, *, centred: bool = True) -> Value:
    """x over the root of its mean square over axes, taken off its mean before if `centred`."""
    places = tape.axes(axes)
    mean = tape.add(ReduceMean(), x, places) if centred else None
    deviation = x if mean is None else tape.minus(x, mean)
    square = tape.add(ReduceMean(), tape.times(deviation, deviation), places)
    return _scaled(tape, deviation, None, square, epsilon)


def _wide(tape: Tape, *values: Value | None) -> list[Any]:
    """Half precision as float."""
    return [x if x is None or x.dtype not in HALVES else tape.cast(x, DType.FLOAT) for x in values]


def _batch_normalization(tape: Tape, node: Node, *inputs: Value) -> Value:
    operator = node.operator
    assert isinstance(operator, BatchNormalization)
    if not operator.spatial:
        _refused(node, "known is that with statistics by channel")
    if operator.training_mode:
        if any(value.users for value in node.outputs[1:]):
            _refused(node, "its statistics are read")
        return _by_own_statistics(tape, inputs[:3], (0, *range(2, len(inputs[0].shape))), operator.epsilon)
    x, scale, bias, mean, variance = _wide(tape, *inputs)
    scale, bias, mean, variance = (_by_channel(tape, value, x) for value in (scale, bias, mean, variance))
    y = tape.plus(tape.times(_scaled(tape, x, mean, variance, operator.epsilon), scale), bias)
    return tape.cast(y, inputs[0].dtype)


def _instance_normalization(tape: Tape, node: Node, *inputs: Value) -> Value:
    assert isinstance(node.operator, InstanceNormalization)
    return _by_own_statistics(tape, inputs, range(2, len(inputs[0].shape)), node.operator.epsilon)


def _by_own_statistics(tape: Tape, inputs: Sequence[Value], axes: Sequence[int], epsilon: float) -> Value:
    """The first input normalised over axes, then scaled and shifted by channel."""
    x, scale, bias = _wide(tape, *inputs)
    normal = _normal(tape, x, axes, epsilon)
    y = tape.plus(tape.times(normal, _by_channel(tape, scale, x)), _by_channel(tape, bias, x))
    return tape.cast(y, inputs[0].dtype)


def _group_normalization(tape: Tape, node: Node, *inputs: Value) -> Value:
    operator = node.operator
    assert isinstance(operator, GroupNormalization)
    if operator.by_group:
        _refused(node, "its scale and bias are those of groups (version 18)")
    x, scale, bias = _wide(tape, *inputs)
    size: DimLike = floor_divide(x.shape[1], operator.num_groups)
    parted = tape.reshape(x, (x.shape[0], operator.num_groups, size, *x.shape[2:]))
    normal = tape.reshape(_normal(tape, parted, range(2, len(x.shape) + 1), operator.epsilon), x.shape)
    y = tape.plus(tape.times(normal, _by_channel(tape, scale, x)), _by_channel(tape, bias, x))
    return tape.cast(y, inputs[0].dtype)


def _layer_normalization(tape: Tape, node: Node, *inputs: Value | None) -> Value:
    operator = node.operator
    assert isinstance(operator, LayerNormalization | RMSNormalization) and inputs[0] is not None
    if len(node.outputs) > 1 and any(value.users for value in node.outputs[1:]):
        _refused(node, "its statistics are read")
    x, scale, bias = _wide(tape, *(*inputs, None)[:3])
    axis = normalize_axis(operator.axis, len(x.shape))
    centred = isinstance(operator, LayerNormalization)
    y = tape.times(_normal(tape, x, range(axis, len(x.shape)), operator.epsilon, centred=centred), scale)
    return tape.cast(y if bias is None else tape.plus(y, bias), inputs[0].dtype)


def _lp_normalization(tape: Tape, node: Node, x: Value) -> Value:
    operator = node.operator
    assert isinstance(operator, LpNormalization)
    axes = tape.axes([operator.axis])
    if operator.p == 1:
        norm = tape.add(ReduceSum(), tape.add(Abs(), x), axes)
    else:
        norm = tape.add(Sqrt(), tape.add(ReduceSum(), tape.times(x, x), axes))
    return tape.over(x, norm)


# ---------------------------------------------------------------------------------------------- losses


def _loss(tape: Tape, node: Node, x: Value, target: Value, weight: Value | None = None) -> Value:
    """The negative logarithms x of the right classes, times weights: none, summed up or averaged."""
    operator = node.operator
    assert isinstance(operator, NegativeLogLikelihoodLoss | SoftmaxCrossEntropyLoss)
    label, classes, axis = e.operand(0, target.dtype), target, tape.axes([1])
    if operator.ignore_index is not None:
        classes = tape.map(e.where(e.equal(label, operator.ignore_index), 0, label), target)
    picked = tape.add(Squeeze(), tape.add(GatherElements(axis=1), x, tape.add(Unsqueeze(), classes, axis)), axis)
    factors = tape.full(1, target.shape, x.dtype) if weight is None else tape.add(Gather(axis=0), weight, classes)
    if operator.ignore_index is not None:
        kept = e.where(e.equal(label, operator.ignore_index), 0.0, e.operand(1, x.dtype))
        factors = tape.map(kept, target, factors)
    losses = tape.negative(tape.times(picked, factors))
    axes = list(range(len(target.shape)))
    if operator.reduction == "none":
        return losses
    total = tape.sum(losses, axes, keepdims=False)
    return total if operator.reduction == "sum" else tape.over(total, tape.sum(factors, axes, keepdims=False))


def _cross_entropy(tape: Tape, node: Node, scores: Value, labels: Value, weights: Value | None = None) -> list[Value]:
    logarithms = tape.add(LogSoftmax(axis=1), scores)
    return [_loss(tape, node, logarithms, labels, weights), logarithms]


SPELLED: dict[type[Operator], Spelling] = {
    BatchNormalization: _batch_normalization,
    Gemm: _gemm,
    GlobalAveragePool: _global_pool,
    GlobalMaxPool: _global_pool,
    GroupNormalization: _group_normalization,
    InstanceNormalization: _instance_normalization,
    LayerNormalization: _layer_normalization,
    LpNormalization: _lp_normalization,
    NegativeLogLikelihoodLoss: _loss,
    RMSNormalization: _layer_normalization,
    ReduceL1: _reduced,
    ReduceL2: _reduced,
    ReduceLogSum: _reduced,
    ReduceSumSquare: _reduced,
    SoftmaxCrossEntropyLoss: _cross_entropy,
}
