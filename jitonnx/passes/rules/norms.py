"""Normalisations and softmax that exporters spell out, recognised."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dims import known
from jitonnx.ir.graph import Node, Value
from jitonnx.ops.onnx.arithmetic import Div, Exp, Mul
from jitonnx.ops.onnx.normalization import (
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RMSNormalization,
)
from jitonnx.ops.onnx.reduction import ReduceMax, ReduceMean, ReduceSum
from jitonnx.ops.onnx.shape import Reshape
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.passes.pattern import Match, Number, any_, call, pattern_rule
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Level, Result, array, producer, ranked, rule

x = any_("x")
scale = any_("scale", lambda value: value.constant is not None and value.constant.size > 1)
exp = call(Exp)
epsilon = Number("epsilon")

mean = call(ReduceMean)(x)
deviation = x - mean
variance = call(ReduceMean)(deviation**2)
deviation_scale = (variance + epsilon) ** -0.5

mean_square = call(ReduceMean)(x**2)
root_mean_square_scale = (mean_square + epsilon) ** -0.5

shifted = exp(x - call(ReduceMax)(x))
total = call(ReduceSum)(shifted)


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes of a reduction that keeps them. Decline where they are not known or not kept."""
    axes = array(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if axes is None or not axes.size or not node.operator.keepdims:  # type: ignore[attr-defined]
        raise Decline(Reason.ATTRIBUTE, f"{node.operator.name} over axes that are not named, or not kept")
    rank = len(node.output.shape)
    return tuple(sorted({int(axis) % rank for axis in axes.reshape(-1)}))


def _trailing(axes: tuple[int, ...], value: Value) -> int:
    """The first of axes that are the last ones. Decline if they are not, or a size is not known."""
    rank = len(value.shape)
    if axes != tuple(range(axes[0], rank)):
        raise Decline(Reason.SHAPE, f"axes {list(axes)} are not the last ones")
    if not known(value.shape[axes[0] :]):
        raise Decline(Reason.UNKNOWN_SHAPE, str(value.type))
    return axes[0]


def _ones(value: Value, axis: int, edit: Edit) -> Value:
    return edit.constant(np.ones(value.shape[axis:], value.dtype.numpy))  # type: ignore[arg-type]


@pattern_rule(
    "layer normalization",
    deviation * deviation_scale,
    deviation * scale * deviation_scale,
    anchors=(Mul, Div),
    equation="(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) = LayerNormalization(x)",
)
def layer_normalization(match: Match, edit: Edit) -> Result:
    """Spelled with two means; a scale and a bias behind are taken up by `absorb`."""
    axes = reduced_axes(match.node(mean))
    if reduced_axes(match.node(variance)) != axes:
        raise Decline(Reason.SHAPE, "mean and variance over different axes")
    axis = _trailing(axes, match["x"])
    factor = match.values.get(scale) or _ones(match["x"], axis, edit)
    return edit.add(LayerNormalization(axis=axis, epsilon=match.numbers["epsilon"]), match["x"], factor)


@pattern_rule(
    "rms normalization",
    x * root_mean_square_scale,
    x * scale * root_mean_square_scale,
    anchors=(Mul, Div),
    equation="x / sqrt(mean(x^2) + eps) = RMSNormalization(x)",
)
def rms_normalization(match: Match, edit: Edit) -> Result:
    """The same without a mean taken off."""
    axis = _trailing(reduced_axes(match.node(mean_square)), match["x"])
    factor = match.values.get(scale) or _ones(match["x"], axis, edit)
    return edit.add(RMSNormalization(axis=axis, epsilon=match.numbers["epsilon"]), match["x"], factor)


@pattern_rule(
    "softmax", shifted / total, anchors=(Div, Mul), equation="exp(x - max(x)) / sum(exp(x - max(x))) = Softmax(x)"
)
def softmax(match: Match, edit: Edit) -> Result:
    """Spelled out with the maximum taken off."""
    maximum = next(node for node in match.nodes if isinstance(node.operator, ReduceMax))
    axes = reduced_axes(maximum)
    if reduced_axes(match.node(total)) != axes or len(axes) != 1:
        raise Decline(Reason.SHAPE, "maximum and sum over different axes, or over several")
    return edit.add(Softmax(axis=axes[0]), match["x"])


@rule(
    "group normalization",
    Reshape,
    equation="R'(InstanceNormalization(R(x))), R: channels to groups = GroupNormalization(x)",
    level=Level.EXTENDED,
)
def group_normalization(node: Node, edit: Edit) -> Result:
    """Recognise it as it is exported where the operator set lacks it; a scale and a bias behind are taken up by
    `absorb`.

    before: Reshape [1,32,128,128] -> [1,8,262144], InstanceNormalization, Reshape -> [1,32,128,128]
    after:  GroupNormalization(num_groups=8)
    """
    inner = producer(node.inputs[0], InstanceNormalization)
    regroup = producer(inner.inputs[0], Reshape) if inner is not None else None
    if inner is None or regroup is None or not all(map(ranked, (node, inner, regroup))):
        return None
    source, grouped = regroup.inputs[0], regroup.output
    if source is None or source.shape != node.output.shape or len(source.shape) < 3:
        return None
    groups, channels = grouped.shape[1], source.shape[1]
    if source.shape[0] != grouped.shape[0] or not isinstance(groups, int) or not isinstance(channels, int):
        raise Decline(Reason.UNKNOWN_SHAPE, f"{source.type} in groups as {grouped.type}")
    if not groups or channels % groups:
        raise Decline(Reason.SHAPE, f"{channels} channels in {groups} groups")
    parameters = [array(value) for value in inner.inputs[1:] if value is not None]
    if any(parameter is None for parameter in parameters):
        raise Decline(Reason.NOT_CONSTANT, "scale and bias of InstanceNormalization")
    edit.consume([inner, regroup])
    assert isinstance(inner.operator, InstanceNormalization)
    by_channel = [edit.constant(np.repeat(p, channels // groups)) for p in parameters if p is not None]
    return edit.add(GroupNormalization(num_groups=groups, epsilon=inner.operator.epsilon), source, *by_channel)


RULES = (layer_normalization, rms_normalization, softmax, group_normalization)
