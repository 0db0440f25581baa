"""Bodies of which it is known before the run that they are run, and how often: their nodes stand in the graph."""

from __future__ import annotations

import math

import numpy as np

from jitonnx.ir.dims import floor_divide
from jitonnx.ir.graph import Node, Value
from jitonnx.ops.onnx.arithmetic import Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.control_flow import If
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.shape import Transpose
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.ops.preview.attention import FlexAttention
from jitonnx.passes.rewriting import Edit, Result, array, ranked, rule


@rule("settled if", If, equation="If(true, then_branch, else_branch) = then_branch")
def settled_if(node: Node, edit: Edit) -> Result:
    """A choice that is known before the run: the nodes of one branch stand in the place of the node."""
    condition = None if node.inputs[0] is None else array(node.inputs[0])
    if condition is None or condition.size != 1:
        return None
    return edit.inline(node.bodies[0 if condition.item() else 1], node.captured)


@rule(
    "flex attention",
    FlexAttention,
    equation="FlexAttention(Q, K, V) = prob_mod(Softmax(score_mod(scale Q Kᵀ))) V",
)
def flex_attention(node: Node, edit: Edit) -> Result:
    """Products, and between them the nodes of the two graphs: recognition sees an attention where it is one."""
    operator = node.operator
    assert isinstance(operator, FlexAttention)
    q, k, v = (value for value in node.arguments if value is not None)
    depth = q.shape[3] if ranked(node) else None
    if not isinstance(depth, int) or any(value.type.shape is None for body in node.bodies for value in body.outputs):
        return None
    scores = operator.scores(q, k, v)
    scale = 1 / math.sqrt(max(depth, 1)) if operator.scale is None else operator.scale
    products = edit.add(MatMul(), *_by_shared_head(edit, q, edit.add(Transpose(perm=(0, 1, 3, 2)), k)))
    raw = edit.reshape(products, scores.shape or ())
    scaled = edit.add(Mul(), raw, edit.constant(np.asarray(scale, q.dtype.numpy)))
    (changed,) = edit.inline(node.bodies[0], [_cast(edit, scaled, scores.dtype), *node.captured])
    (weights,) = edit.inline(node.bodies[1], [edit.add(Softmax(axis=-1), changed), *node.captured])
    y = edit.add(MatMul(), *_by_shared_head(edit, weights, _cast(edit, v, scores.dtype)))
    return _cast(edit, edit.reshape(y, node.output.shape), q.dtype)


def _by_shared_head(edit: Edit, a: Value, b: Value) -> tuple[Value, Value]:
    """Two factors by head, of which several heads of `a` share one of `b`: with the heads of `a` in groups, if so."""
    if a.shape[1] == b.shape[1]:
        return a, b
    batch, shared, rows, columns = b.shape
    groups = floor_divide(a.shape[1], shared)
    by_group = edit.reshape(a, (a.shape[0], shared, groups, *a.shape[2:]))
    return by_group, edit.reshape(b, (batch, shared, 1, rows, columns))


def _cast(edit: Edit, x: Value, dtype: object) -> Value:
    return x if x.dtype is dtype else edit.add(Cast(to=int(dtype)), x)  # type: ignore[call-overload]


RULES = (settled_if, flex_attention)
