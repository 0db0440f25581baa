"""Scaled dot-product attention, recognised in the many ways in which exporters spell it.

before: MatMul(q * s, kᵀ * s) -> Add mask -> Softmax -> Where(IsNaN(p), 0, p) -> MatMul v
after:  Attention(q, k, v, mask; scale = s * s, masked_rows_zero)
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from jitonnx.ir import dims
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.inference import inferring
from jitonnx.ir.operator import Operator
from jitonnx.ops.fused import Attention
from jitonnx.ops.onnx.arithmetic import Add, IsNaN
from jitonnx.ops.onnx.logic import And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Not, Where
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.reduction import ReduceMax
from jitonnx.ops.onnx.shape import Expand, Reshape, Transpose
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.passes.index_functions import Affine, Analysis
from jitonnx.passes.pattern import flatten_product, flatten_sum
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Level, Result, array, producer, ranked, rule, scalar
from jitonnx.support.records import dataclass

BLOCKED = -1e30
"""A mask that adds this or less makes a weight exactly 0, whatever (sane) score it is added to."""


@dataclass
class Found:
    """The parts of an attention, as far as they are found."""

    product: Node
    """The MatMul of q and k transposed."""
    scale: float
    lead: tuple[DimLike, ...]
    """The leading axes of the scores where masks are added; those of the product may be grouped otherwise."""
    masks: list[Value] = field(default_factory=list)
    """Added to the scores; a boolean one blocks where it is false."""
    causal: bool = False


@rule(
    "attention",
    MatMul,
    equation="softmax(s q kT + mask) v = Attention(q, k, v, mask; s)",
    level=Level.EXTENDED,
)
def attention(node: Node, edit: Edit) -> Result:
    """The whole of an attention as one operator; see the module for before and after."""
    weights, v = node.inputs
    if weights is None or v is None or not ranked(node):
        return None
    inner, regrouped = _above_regrouping(weights)
    zeroed = _zeroed_rows(inner)
    softmax = producer(zeroed[0].inputs[2] if zeroed else inner, Softmax)
    if softmax is None or not ranked(softmax):
        return None
    assert softmax.inputs[0] is not None and isinstance(softmax.operator, Softmax)
    scores, around = _above_regrouping(softmax.inputs[0])
    found, nodes = _scores(scores, edit)
    if found is None:
        return None
    edit.consume([*regrouped, *zeroed, softmax, *around, *nodes, found.product])
    rank = len(softmax.output.shape)
    if softmax.operator.flatten or softmax.operator.axis % rank != rank - 1:
        raise Decline(Reason.ATTRIBUTE, f"softmax over axis {softmax.operator.axis}")
    if not node.output.dtype.is_float or node.output.dtype is DType.DOUBLE:  # the kernel has none; its parts have
        raise Decline(Reason.DTYPE, node.output.dtype.text)
    q, k = _operands(found, edit)
    masks = _remaining_masks(found, scores, edit)
    q, k = (_regroup(value, found.product.output.shape[:-2], found.lead, edit) for value in (q, k))
    v = _regroup(v, weights.shape[:-2], found.lead, edit)
    q, k, v, masks = _four_axes(q, k, v, masks, edit)
    operator = Attention(scale=found.scale, causal=found.causal, masked_rows_zero=bool(zeroed))
    result = edit.add(operator, q, k, v, *masks)
    return edit.reshape(result, node.output.shape)


# ---------------------------------------------------------------- leading axes


def _above_regrouping(value: Value) -> tuple[Value, list[Node]]:
    """What lies above the reshapes of a value that keep its last two axes, and these: [B, H, S, T] as [B H, S, T]."""
    reshapes: list[Node] = []
    while (reshape := producer(value, Reshape)) is not None and ranked(reshape):
        source = reshape.inputs[0]
        if source is None or len(source.shape) < 3 or len(value.shape) < 3 or source.shape[-2:] != value.shape[-2:]:
            break
        reshapes.append(reshape)
        value = source
    return value, reshapes


def _regroup(value: Value, before: tuple[DimLike, ...], behind: tuple[DimLike, ...], edit: Edit) -> Value:
    """An operand of a product with the leading axes `before`, which become `behind`."""
    if before == behind:
        return value
    if value.shape[:-2] != before:
        raise Decline(Reason.SHAPE, f"{value.type} is broadcast to {before} before that becomes {behind}")
    return edit.reshape(value, (*behind, *value.shape[-2:]))


def _regrouped_mask(mask: Value, before: tuple[DimLike, ...], behind: tuple[DimLike, ...], edit: Edit) -> Value:
    """What `_regroup` gives, for a mask: along axes that are put together or split it is whole, or the same."""
    given = (1,) * (len(before) + 2 - len(mask.shape)) + mask.shape[:-2]
    groups = dims.matched_axes(before, behind)
    lead: list[DimLike] = []
    for first, second in groups or []:
        sizes = [given[axis] for axis in first]
        if all(size == 1 for size in sizes):
            lead += [1] * len(second)
        elif sizes == [before[axis] for axis in first]:
            lead += [behind[axis] for axis in second]
        else:
            groups = None
    if groups is None:
        raise Decline(
            Reason.SHAPE, f"the mask {mask.type} is broadcast within the axes {before}, which become {behind}"
        )
    return edit.reshape(mask, (*lead, *mask.shape[-2:]))


# ---------------------------------------------------------------- the scores


def _zeroed_rows(value: Value | None) -> list[Node]:
    """The nodes that set blocked rows to 0: Where(IsNaN(p), 0, p), or Where(ReduceMax(mask) = -inf, 0, p)."""
    where = producer(value, Where)
    if where is None or scalar(where.inputs[1]) != 0:
        return []
    is_nan = producer(where.inputs[0], IsNaN)
    if is_nan is not None:
        return [where, is_nan] if is_nan.inputs[0] is where.inputs[2] else []
    softmax, equal = producer(where.inputs[2], Softmax), producer(where.inputs[0], Equal)
    if softmax is None or equal is None:
        return []
    for operand, other in (equal.inputs, equal.inputs[::-1]):
        largest = producer(operand, ReduceMax)
        if largest is not None and scalar(other) == -np.inf and _over_rows(largest, softmax):
            return [where, equal, largest]
    return []


def _over_rows(largest: Node, softmax: Node) -> bool:
    """Whether a ReduceMax is over the last axis of what a Softmax takes, or of a summand of that, and keeps it."""
    scores, of = softmax.inputs[0], largest.inputs[0]
    axes = array(largest.inputs[1]) if len(largest.inputs) > 1 and largest.inputs[1] is not None else None
    if scores is None or of is None or axes is None or axes.size != 1 or not ranked(largest):
        return False
    if of is not scores and all(of is not summand for summand, _ in flatten_sum(scores).summands):
        return False
    assert isinstance(largest.operator, ReduceMax)
    return bool(largest.operator.keepdims) and int(axes.reshape(-1)[0]) in (-1, len(of.shape) - 1)


def _scores(value: Value, edit: Edit) -> tuple[Found | None, list[Node]]:
    """Scores as scale * MatMul + masks, or as a choice between such and a number that blocks."""
    above, reshapes = _above_regrouping(value)
    if reshapes:
        found, nodes = _scores(above, edit)
        if found is None or above.shape[:-2] != found.lead:
            return None, []
        lead = value.shape[:-2]
        found.masks = [_regrouped_mask(mask, found.lead, lead, edit) for mask in found.masks]
        found.lead = lead
        return found, [*reshapes, *nodes]
    where = producer(value, Where)
    if where is not None:
        return _blocked_scores(where, edit)
    flat = flatten_sum(value)
    products = [(summand, sign) for summand, sign in flat.summands if _scaled_product(summand) is not None]
    if flat.constant != 0:
        return None, []
    if not products:
        return _masked_scores(value, edit)
    if len(products) != 1:
        return None, []
    (summand, sign), nodes = products[0], list(flat.nodes)
    scaled = _scaled_product(summand)
    assert scaled is not None
    product, scale, through = scaled
    masks = [other for other, _ in flat.summands if other is not summand]
    if any(other_sign < 0 for other, other_sign in flat.summands if other is not summand):
        return None, []
    return Found(product, scale * sign, product.output.shape[:-2], masks), nodes + through


def _masked_scores(value: Value, edit: Edit) -> tuple[Found | None, list[Node]]:
    """Scores whose leading axes are regrouped before masks are added."""
    flat = flatten_sum(value)
    regrouped = [(summand, sign) for summand, sign in flat.summands if _above_regrouping(summand)[1]]
    for summand, sign in regrouped:
        if sign < 0 or summand.shape != value.shape or summand is value:
            continue
        found, nodes = _scores(summand, edit)
        others = [(other, other_sign) for other, other_sign in flat.summands if other is not summand]
        if found is not None and all(other_sign > 0 for _, other_sign in others):
            found.masks += [other for other, _ in others]
            return found, [*flat.nodes, *nodes]
    return None, []


def _scaled_product(value: Value) -> tuple[Node, float, list[Node]] | None:
    """A MatMul times a number, and the nodes that multiply."""
    flat = flatten_product(value)
    if len(flat.factors) != 1:
        return None
    ((factor, exponent),) = flat.factors.items()
    product = producer(factor, MatMul)
    return (product, flat.coefficient, flat.nodes) if product is not None and exponent == 1 else None


def _blocked_scores(where: Node, edit: Edit) -> tuple[Found | None, list[Node]]:
    """Where(condition, scores, -inf), or with the branches exchanged."""
    condition, a, b = where.inputs
    assert condition is not None and a is not None and b is not None
    inverted = scalar(a) is not None
    number, scores = (scalar(a), b) if inverted else (scalar(b), a)
    if number is None or scores.shape != where.output.shape:
        return None, []
    found, nodes = _scores(scores, edit)
    if found is None:
        return None, []
    if number > BLOCKED:
        raise Decline(Reason.NOT_EXACT, f"blocked scores become {number:g}, which does not surely make a weight 0")
    found.masks.append(condition)
    nodes.append(where)
    kept = edit.add(Not(), condition) if inverted else condition
    if number != -np.inf and not _causal(kept, where.output.shape, edit):
        zero, low = (edit.constant(np.asarray(entry, where.output.dtype.numpy)) for entry in (0, number))
        kept = edit.add(Where(), kept, zero, low)
    found.masks[-1] = kept
    return found, nodes


# ---------------------------------------------------------------- masks


def _remaining_masks(found: Found, scores: Value, edit: Edit) -> list[Value]:
    """One mask or none, after those are taken out that block nothing or are the causal one."""
    left: list[Value] = []
    for mask in found.masks:
        with inferring(edit.graph.assumptions.apart()) as context:
            shape = context.broadcast_shapes((*found.lead, *found.product.output.shape[-2:]), mask.shape)
        if shape != (*found.lead, *found.product.output.shape[-2:]):
            raise Decline(Reason.SHAPE, f"the mask {mask.type} is larger than the scores {scores.type}")
        while (expanded := producer(mask, Expand)) is not None and expanded.inputs[0] is not None:
            mask = expanded.inputs[0]
        element = edit.facts(Analysis).uniform(mask)
        if element is not None and (bool(element) if element.dtype == bool else element == 0):
            continue
        if _causal(mask, scores.shape, edit):
            found.causal = True
        else:
            left.extend(_without_causal(mask, found, scores, edit))
    booleans = [mask for mask in left if mask.dtype is DType.BOOL]
    floats = [mask for mask in left if mask.dtype is not DType.BOOL]
    if booleans and floats:
        low, zero = (edit.constant(np.asarray(entry, scores.dtype.numpy)) for entry in (-np.inf, 0))
        floats = [*floats, *(edit.add(Where(), mask, zero, low) for mask in booleans)]
        booleans = []
    for operator, masks in ((And(), booleans), (Add(), floats)):
        if masks:
            total = masks[0]
            for mask in masks[1:]:
                total = edit.add(operator, total, mask)
            return [total]
    return []


def _without_causal(mask: Value, found: Found, scores: Value, edit: Edit) -> list[Value]:
    """The two sides of a boolean And, of which one may be causal; otherwise the mask itself."""
    both = producer(mask, And)
    if both is None:
        return [mask]
    sides = [value for value in both.inputs if value is not None]
    left = [value for value in sides if not _causal(value, scores.shape, edit)]
    if len(left) == len(sides):
        return [mask]
    found.causal = True
    return left


def _causal(mask: Value, scores: tuple[DimLike, ...], edit: Edit) -> bool:
    """Whether a mask lets row i see columns up to i and no others."""
    while (expanded := producer(mask, Expand)) is not None and expanded.inputs[0] is not None:
        mask = expanded.inputs[0]
    if len(mask.shape) < 2 or mask.shape[-2:] != scores[-2:] or any(size != 1 for size in mask.shape[:-2]):
        return False
    elements = array(mask)
    if elements is not None:
        return _is_triangle(elements.reshape(elements.shape[-2:]))
    where = producer(mask, Where)
    if where is not None:
        kept, blocked = scalar(where.inputs[1]), scalar(where.inputs[2])
        return kept == 0 and blocked is not None and blocked <= BLOCKED and _lower_left(where.inputs[0], edit)
    return _lower_left(mask, edit)


def _is_triangle(elements: np.ndarray) -> bool:
    lower = np.tri(*elements.shape) > 0
    if elements.dtype == bool:
        return bool((elements == lower).all())
    if elements.dtype.kind != "f":
        return False
    return bool(((elements == 0) == lower).all() and (elements[~lower].astype(np.float64) <= BLOCKED).all())


def _lower_left(condition: Value | None, edit: Edit) -> bool:
    """Whether a comparison of coordinates says: column <= row."""
    comparison = producer(condition, LessOrEqual, GreaterOrEqual, Less, Greater)
    if comparison is None:
        return False
    difference = edit.facts(Analysis).difference(comparison)
    if difference is None:
        return False
    leading = (0,) * (len(difference.coefficients) - 2)
    columns_minus_rows, rows_minus_columns = (*leading, -1, 1), (*leading, 1, -1)
    wanted: dict[type[Operator], Affine] = {
        LessOrEqual: Affine(0, columns_minus_rows),
        Less: Affine(-1, columns_minus_rows),
        GreaterOrEqual: Affine(0, rows_minus_columns),
        Greater: Affine(1, rows_minus_columns),
    }
    return difference == wanted[type(comparison.operator)]


# ---------------------------------------------------------------- q, k and v


def _operands(found: Found, edit: Edit) -> tuple[Value, Value]:
    """q and k, with the numbers that multiply them moved to the scale."""
    q, transposed = (_unscaled(value, found, edit) for value in found.product.inputs if value is not None)
    rank = len(transposed.shape)
    if rank < 2:
        raise Decline(Reason.SHAPE, f"k transposed is {transposed.type}")
    swap = (*range(rank - 2), rank - 1, rank - 2)
    above = producer(transposed, Transpose)
    if above is not None and above.operator == Transpose(perm=swap) and above.inputs[0] is not None:
        return q, above.inputs[0]
    turned = _turned_as_one(transposed, edit)
    return q, edit.add(Transpose(perm=swap), transposed) if turned is None else turned


def _turned_as_one(transposed: Value, edit: Edit) -> Value | None:
    """k of a k transposed with its leading axes put together meanwhile, as exporters write it: Reshape to three axes,
    Transpose, Reshape back."""
    apart = producer(transposed, Reshape)
    turn = producer(apart.inputs[0], Transpose) if apart is not None else None
    if turn is None or turn.operator != Transpose(perm=(0, 2, 1)) or turn.inputs[0] is None or not ranked(turn):
        return None
    *lead, columns, rows = transposed.shape
    if turn.output.shape != (dims.product(lead), columns, rows):
        return None
    together = producer(turn.inputs[0], Reshape)
    source = turn.inputs[0] if together is None or together.inputs[0] is None else together.inputs[0]
    return edit.reshape(source, (*lead, rows, columns))


def _unscaled(value: Value, found: Found, edit: Edit) -> Value:
    """A value without the numbers that multiply it, which the scale takes; views may have moved behind them."""
    views: list[Node] = []
    inner = value
    while (view := producer(inner, Transpose, Reshape)) is not None and len(inner.users) == 1 and ranked(view):
        views.append(view)
        assert view.inputs[0] is not None
        inner = view.inputs[0]
    flat = flatten_product(inner)
    factors = list(flat.factors.items())
    if len(factors) != 1 or factors[0][1] != 1 or not flat.nodes or factors[0][0].shape != inner.shape:
        return value
    edit.shares([*flat.nodes, *views])
    found.scale *= flat.coefficient
    result = factors[0][0]
    for view in reversed(views):
        result = edit.add(view.operator, result, *view.inputs[1:])
    return result


def _four_axes(q: Value, k: Value, v: Value, masks: list[Value], edit: Edit) -> tuple[Value, Value, Value, list[Value]]:
    """All of them as [batch, heads, rows, columns]; without heads each entry of the batch has one."""
    rank, lead = len(q.shape), q.shape[:-2]
    if rank < 3 or len(k.shape) != rank or len(v.shape) != rank:
        raise Decline(Reason.SHAPE, f"q {q.type}, k {k.type}, v {v.type}")
    shared = rank > 3 and k.shape[:-2] == (*lead[:-1], 1)
    if not (k.shape[:-2] == lead or shared) or k.shape[:-1] != v.shape[:-1]:
        raise Decline(Reason.SHAPE, f"q {q.type}, k {k.type} and v {v.type} are broadcast against each other")
    if rank == 4:
        shared_k, shared_v = _shared_heads(k, edit), _shared_heads(v, edit)
        if shared_k.shape[:2] == shared_v.shape[:2]:  # else one of them is repeated in a way that is not seen
            k, v = shared_k, shared_v
        return q, k, v, masks
    q, k, v = (edit.reshape(value, (*_two_axes(value.shape[:-2]), *value.shape[-2:])) for value in (q, k, v))
    return q, k, v, [_four_axes_of_mask(mask, lead, edit) for mask in masks]


def _two_axes(lead: tuple[DimLike, ...]) -> tuple[DimLike, DimLike]:
    """Leading axes as those of batch and heads: the last of several is that of the heads."""
    return (lead[0], 1) if len(lead) == 1 else (dims.product(lead[:-1]), lead[-1])


def _four_axes_of_mask(mask: Value, lead: tuple[DimLike, ...], edit: Edit) -> Value:
    """A mask for scores of one, or more than two, leading axes, as one for [batch, heads, rows, columns]."""
    if len(mask.shape) <= 2:
        return mask
    given = (1,) * (len(lead) + 2 - len(mask.shape)) + mask.shape[:-2]
    count = max(1, len(lead) - 1)
    if any(size != 1 for size in given[:count]) and given[:count] != lead[:count]:
        given = (*lead[:count], *given[count:])
        mask = edit.add(Expand(), mask, edit.dims((*given, *mask.shape[-2:])))
    return edit.reshape(mask, (*_two_axes(given), *mask.shape[-2:]))


def _shared_heads(value: Value, edit: Edit) -> Value:
    """Keys or values before they are repeated for groups of heads: [B, Hkv, 1, T, D] expanded and put together."""
    together = producer(value, Reshape)
    expanded = producer(together.inputs[0], Expand) if together is not None else None
    source = expanded.inputs[0] if expanded is not None else None
    if expanded is None or source is None or len(source.shape) != 5:
        return value
    batch, heads, one, rows, columns = source.shape
    wide = expanded.output.shape
    if one != 1 or (wide[0], wide[1], wide[3], wide[4]) != (batch, heads, rows, columns):
        return value
    if value.shape != (batch, heads * wide[2], rows, columns):
        return value
    return edit.reshape(source, (batch, heads, rows, columns))


@rule("expanded mask", Attention, equation="Attention(q, k, v, Expand(mask)) = Attention(q, k, v, mask)")
def expanded_mask(node: Node, edit: Edit) -> Result:
    """A mask needs no expanding: attention broadcasts it."""
    expanded = producer(node.inputs[3], Expand) if len(node.inputs) > 3 else None
    if expanded is None:
        return None
    edit.shares([expanded])
    return edit.add(node.operator, *node.inputs[:3], expanded.inputs[0])


RULES = (attention, expanded_mask)
