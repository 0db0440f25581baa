"""Bodies of which it is known before the run that they are run, and small choices that are none."""

from __future__ import annotations

import math

import numpy as np

from jitonnx.ir.dims import floor_divide
from jitonnx.ir.extract import specialise
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.inference import unnoted
from jitonnx.ops.onnx.arithmetic import Div, Mod, Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.control_flow import If
from jitonnx.ops.onnx.logic import Where
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.shape import Transpose
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.ops.preview.attention import FlexAttention
from jitonnx.passes.report import Report
from jitonnx.passes.rewriting import Edit, Result, apply_rules, array, rank, ranked, rule


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
    scores = operator.scores(unnoted(), q, k, v)
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


SELECTED_ELEMENTS = 64
"""Branches that give no more elements than this are both computed."""


@rule("select", If, equation="If(c, f(x), g(x)) = Where(c, f(x), g(x))")
def select(node: Node, edit: Edit) -> Result:
    """Both branches where these are a few elementwise operators on a few elements, without a choice of code.

    Where one element is a scalar in one branch and a vector in the other, which some exporters write, it becomes a
    vector, provided that whoever reads it gives the same either way.
    """
    condition = node.inputs[0]
    if condition is None or condition.type.shape is None or not all(map(_is_cheap, node.bodies)):
        return None
    pairs = list(zip(*(body.outputs for body in node.bodies), strict=True))
    for (chosen, other), value in zip(pairs, node.outputs, strict=True):
        if chosen.dtype is not other.dtype or chosen.type.shape is None or other.type.shape is None:
            return None
        alike = chosen.shape == other.shape
        single = _elements(chosen) == _elements(other) == 1 and max(map(rank, (chosen, other))) == 1
        if not alike and not (single and _rank_is_free(value, edit.graph)):
            return None
    results = [edit.inline(_own(body), node.captured) for body in node.bodies]
    scalar_condition = edit.reshape(condition, ())
    return [edit.add(Where(), scalar_condition, *both) for both in zip(*results, strict=True)]


def _own(body: Graph) -> Graph:
    return specialise(body, [value.type for value in body.inputs])


def _elements(value: Value) -> int | None:
    count = value.type.elements if value.type.static else None
    return count if isinstance(count, int) else None


def _is_cheap(body: Graph) -> bool:
    """Whether a body is a few elementwise operators, which cannot fail, on a few elements."""
    for node in body:
        whole = any(value.dtype is None or not value.dtype.is_float for value in node.outputs)
        if not node.operator.elementwise or node.bodies or (whole and isinstance(node.operator, Div | Mod)):
            return False
    values = [*(value for node in body for value in node.outputs), *body.outputs]
    counts = [None if value.type.shape is None else _elements(value) for value in values]
    return len(body) <= 8 and all(count is not None and count <= SELECTED_ELEMENTS for count in counts)


def _rank_is_free(value: Value, graph: Graph) -> bool:
    """Whether nothing shows if an element is a scalar or a vector: another operand makes it a vector, or more."""
    if value in graph.results:
        return False
    for user in value.users:
        if not user.operator.elementwise:
            return False
        others = [one for one in user.inputs if one is not None and one is not value]
        widened = any(one.type.shape is not None and rank(one) >= 1 for one in others)
        if not widened and not all(_rank_is_free(result, graph) for result in user.outputs):
            return False
    return True


def settle(graph: Graph, report: Report) -> None:
    """Make the choices that a graph allows; the types of what is behind follow, and with them other choices."""
    while apply_rules(Edit(graph, report), RULES):
        graph.refresh()


RULES = (settled_if, select, flex_attention)
