"""Several products of one tensor with constant matrices, as one product: the projections to q, k and v."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.graph import Node, Value
from jitonnx.ops.onnx.arithmetic import Add
from jitonnx.ops.onnx.concat_split import Split
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.passes.rewriting import Edit, Level, Result, array, ranked, rule


@rule(
    "merged projections",
    MatMul,
    equation="x A + a, x B + b, x C + c = Split(x [A B C] + [a b c])",
    level=Level.EXTENDED,
)
def merged_projections(node: Node, edit: Edit) -> Result:
    """Matrix products of one tensor, with their biases, as one product whose result is split.

    before: MatMul(x, A), MatMul(x, B), MatMul(x, C), each with an Add of a bias
    after:  MatMul(x, [A B C]) -> Add [a b c] -> Split
    """
    x = node.inputs[0]
    if x is None or (x.producer is None and x.contents is not None):
        return None
    products = [user for user in x.users if _is_projection(user, x)]
    if len(products) < 2 or products[0] is not node:
        return None
    weights = [array(product.inputs[1]) for product in products if product.inputs[1] is not None]
    dtypes = {weight.dtype for weight in weights if weight is not None}
    if len(dtypes) != 1:
        return None
    sums = [_bias(product, edit) for product in products]
    edit.shares([*products, *(one for one, _ in filter(None, sums))])
    joined = edit.constant(np.concatenate([w for w in weights if w is not None], axis=1))
    result = edit.add(MatMul(), x, joined)
    if any(sums):
        (dtype,) = dtypes
        widths = [weight.shape[1] for weight in weights if weight is not None]
        biases = [
            np.zeros(width, dtype) if found is None else found[1] for found, width in zip(sums, widths, strict=False)
        ]
        result = edit.add(Add(), result, edit.constant(np.concatenate(biases)))
    sizes = edit.dims([product.output.shape[-1] for product in products])
    parts = edit.add_many(Split(axis=-1), (result, sizes), len(products))
    for product, found, part in zip(products, sums, parts, strict=False):
        if found is not None:
            edit.substitute(found[0], [part])
        elif product is not node:
            edit.substitute(product, [part])
    return parts[0]


def _is_projection(user: Node, x: Value) -> bool:
    if not isinstance(user.operator, MatMul) or user.inputs[0] is not x or not ranked(user):
        return False
    weight = user.inputs[1]
    return weight is not None and array(weight) is not None and len(weight.shape) == 2 and len(x.shape) >= 2


def _bias(product: Node, edit: Edit) -> tuple[Node, np.ndarray] | None:
    """The sum with a constant vector that alone reads a product."""
    if product.output in edit.graph.results or len(product.output.users) != 1:
        return None
    (user,) = product.output.users
    if not isinstance(user.operator, Add) or user.output.shape != product.output.shape:
        return None
    other = user.inputs[1] if user.inputs[0] is product.output else user.inputs[0]
    elements = array(other) if other is not None else None
    size = product.output.shape[-1]
    if elements is None or elements.size != size or elements.shape[-1:] != (size,):
        return None
    return user, elements.reshape(-1)


RULES = (merged_projections,)
