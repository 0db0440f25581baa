"""Rows gathered from a constant table and multiplied by constant weights, as rows gathered from the product.

A decoder looks up the embedding of its last token, and multiplies it by the weights of its first layer: for a
vocabulary of some hundred or thousand tokens all products are a table, of which a token reads one row in the place of
all weights. What lies between and goes row by row (a layer norm, factors) is done to the table, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.operator import attributes_of, evaluate_arrays
from jitonnx.ops.base import factor
from jitonnx.ops.fused import ProjectedLayer
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.normalization import LayerNormalization, RMSNormalization
from jitonnx.ops.onnx.recurrent import GRU, LSTM, RNN
from jitonnx.ops.onnx.shape import Reshape, Squeeze, Unsqueeze
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Level, Result, array, producer, ranked, rule

TABLE_BYTES = 16 << 20
"""A table of products takes no more."""
GROWTH = 4
"""It takes no more than so many times what it is made of, either."""


@rule("products of a table", MatMul, equation="E[i] W = (E W)[i]", level=Level.EXTENDED)
def gathered_products(node: Node, edit: Edit) -> Result:
    """A product of gathered rows with constant weights."""
    x, weights = node.inputs
    matrix = None if weights is None else array(weights)
    if x is None or weights is None or matrix is None or matrix.ndim != 2 or not ranked(node):
        return None
    found = _gathered(x)
    if found is None:
        return None
    rows = _products(found, matrix, edit)
    return edit.reshape(rows, node.output.shape)


@rule("layers of a table", LSTM, GRU, RNN, equation="X W of a recurrent layer = (E W)[i]", level=Level.EXTENDED)
def projected_layers(node: Node, edit: Edit) -> Result:
    """A recurrent layer of gathered rows."""
    x, w, *others = node.inputs
    weights = None if w is None else array(w)
    layer = node.operator
    assert isinstance(layer, LSTM | GRU | RNN)
    if x is None or w is None or weights is None or not ranked(node) or layer.layout:
        return None
    found = _gathered(x)
    if found is None:
        return None
    rows = _products(found, weights.reshape(-1, weights.shape[2]).T, edit)
    steps, batch, _ = x.shape
    given = edit.reshape(rows, (steps, batch, weights.shape[0] * weights.shape[1]))
    return list(edit.add_many(ProjectedLayer(layer=layer), [given, *others], len(node.outputs)))


def _gathered(x: Value) -> tuple[Node, list[Node]] | None:
    """The gather of a constant table's rows that x comes from, and what is done to each row in between, in order."""
    between: list[Node] = []
    width = x.shape[-1]
    value: Value | None = x
    while value is not None and value.dtype in (DType.FLOAT, DType.DOUBLE):
        node = producer(value)
        if node is None or not ranked(node) or node.outputs[0] is not value or value.shape[-1:] != (width,):
            return None
        operator = node.operator
        if isinstance(operator, Gather):
            table, indices = node.inputs
            constant = None if table is None else array(table)
            fits = constant is not None and constant.ndim == 2 and operator.axis % 2 == 0 and indices is not None
            return (node, between[::-1]) if fits else None
        if isinstance(operator, Reshape | Squeeze | Unsqueeze | Identity):
            value = node.inputs[0]
            continue
        place = _row_by_row(node)
        if place is None:
            return None
        between.append(node)
        value = node.inputs[place]
    return None


def _row_by_row(node: Node) -> int | None:
    """Which input of a node that computes each row of its output from a row of this one; None for other nodes."""
    operator = node.operator
    known = [value is None or array(value) is not None for value in node.inputs]
    if known.count(False) != 1 or not operator.deterministic:
        return None
    place = known.index(False)
    flat = [value for number, value in enumerate(node.inputs) if number != place and value is not None]
    if any(len(value.shape) > 1 for value in flat):
        return None
    if isinstance(operator, LayerNormalization | RMSNormalization):
        given = node.inputs[0]
        whole = given is not None and operator.axis in (-1, len(given.shape) - 1)
        return place if place == 0 and whole else None
    return place if operator.elementwise else None


def _products(found: tuple[Node, Sequence[Node]], matrix: np.ndarray, edit: Edit) -> Value:
    """The rows of the table's product with a matrix. Decline where it is too large."""
    gather, between = found
    source, indices = gather.inputs
    assert source is not None and indices is not None
    table = array(source)
    assert table is not None
    needed = len(table) * matrix.shape[1] * table.itemsize
    made_of = table.nbytes + matrix.nbytes
    if needed > min(TABLE_BYTES, GROWTH * made_of):
        raise Decline(Reason.TOO_LARGE, f"{needed} bytes from {made_of}")
    for node in between:
        place, operator = _row_by_row(node), node.operator
        given = [table if n == place else value and array(value) for n, value in enumerate(node.inputs)]
        if isinstance(operator, LayerNormalization | RMSNormalization):
            operator = type(operator)(**{**attributes_of(operator), "axis": -1})
        table, *_ = evaluate_arrays(operator, given)
    product = np.matmul(factor(table), factor(matrix)).astype(table.dtype, copy=False)
    return edit.add(Gather(axis=0), edit.constant(product), indices)


RULES = (gathered_products, projected_layers)
