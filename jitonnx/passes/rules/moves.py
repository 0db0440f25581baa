"""Transposes, reshapes and expansions moved down through what does not mind them, towards others that cancel them.

They always move from producers to users, so moving comes to an end: at a matrix product, a reduction that mixes the
axes concerned, another view, or the graph's output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitonnx.ir.dims import DimLike, exact_divide, integers, known, matched_axes, product
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.inference import inferring
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.reduction import REDUCTIONS
from jitonnx.ops.onnx.shape import Expand, Reshape, Transpose
from jitonnx.passes.rewriting import Edit, Result, array, producer, rank, ranked, rule, scalar


@rule("transpose below elementwise", equation="f(T(a), T(b), c) = T(f(a, b, T'(c)))")
def transpose_below_elementwise(node: Node, edit: Edit) -> Result:
    """An elementwise operator on what was transposed alike, before the transpose instead of behind.

    Where channels come last before the transpose, what a convolution gives counts as transposed, too: it lies so in
    memory, and a residual sum becomes a product's epilogue.

    before: Transpose (0,3,1,2) -> Mul by a constant [96,1,1]
    after:  Mul by the constant as [1,1,1,96] -> Transpose (0,3,1,2)
    """
    if not node.operator.elementwise or len(node.outputs) != 1 or not ranked(node):
        return None
    transposes = [found for value in node.inputs if (found := producer(value, Transpose)) is not None]
    permutations = {_permutation(one) for one in transposes}
    if len(permutations) != 1 or all(_read_elsewhere(one, node, edit) for one in transposes):
        return None
    (permutation,) = permutations
    if rank(node.output) != len(permutation):
        return None
    inputs = [_before_transpose(value, permutation, edit) for value in node.inputs]
    if any(new is None for new, old in zip(inputs, node.inputs, strict=False) if old is not None):
        return None
    edit.shares(transposes)
    return edit.add(Transpose(perm=permutation), edit.add(node.operator, *inputs))


def _permutation(node: Node) -> tuple[int, ...]:
    assert isinstance(node.operator, Transpose)
    return node.operator.permutation(rank(node.output))


def _read_elsewhere(view: Node, node: Node, edit: Edit) -> bool:
    return view.output in edit.graph.results or any(user is not node for user in view.output.users)


def _before_transpose(value: Value | None, permutation: Sequence[int], edit: Edit) -> Value | None:
    """What has to be transposed by `permutation` to give `value`: the input of a Transpose, or a constant."""
    if value is None or rank(value) == 0 or (scalar(value) is not None and rank(value) <= len(permutation)):
        return value
    if (found := producer(value, Transpose)) is not None:
        return found.inputs[0]
    count = len(permutation)
    if producer(value, Conv) is not None and permutation == (0, count - 1, *range(1, count - 1)) and count > 2:
        return edit.add(Transpose(perm=tuple(int(axis) for axis in np.argsort(permutation))), value)
    elements = array(value)
    if elements is None or elements.ndim > len(permutation):
        return None
    full = elements.reshape((1,) * (len(permutation) - elements.ndim) + elements.shape)
    return edit.constant(full.transpose(np.argsort(permutation)))


@rule("transpose below reduction", *REDUCTIONS, equation="reduce(T(x), axes) = T(reduce(x, T'(axes)))")
def transpose_below_reduction(node: Node, edit: Edit) -> Result:
    """A reduction over constant axes before the transpose instead of behind.

    before: Transpose (0,3,1,2) -> ReduceMean over 2, 3 with keepdims
    after:  ReduceMean over 1, 2 with keepdims -> Transpose (0,3,1,2)
    """
    if not ranked(node):
        return None
    above = producer(node.inputs[0], Transpose)
    if above is None or _read_elsewhere(above, node, edit):
        return None
    permutation = _permutation(above)
    axes = _reduced_axes(node, len(permutation))
    if axes is None:
        return None
    edit.consume([above])
    moved = sorted(permutation[axis] for axis in axes)
    reduced = edit.add(node.operator, above.inputs[0], edit.constant(np.asarray(moved, np.int64)))
    assert isinstance(node.operator, REDUCTIONS)
    if node.operator.keepdims:
        return edit.add(Transpose(perm=permutation), reduced)
    left = [axis for axis in permutation if axis not in moved]
    order = tuple(int(place) for place in np.argsort(np.argsort(left)))
    return edit.add(Transpose(perm=order), reduced)


def _reduced_axes(node: Node, rank_: int) -> list[int] | None:
    """The axes that a reduction names; None where they are not known, or none are named."""
    if len(node.inputs) < 2 or node.inputs[1] is None or (axes := array(node.inputs[1])) is None or not axes.size:
        return None
    return sorted({int(axis) % rank_ for axis in axes.reshape(-1)})


@rule("transpose below concat", Concat, equation="concat(T(a), T(b)) = T(concat(a, b))")
def transpose_below_concat(node: Node, edit: Edit) -> Result:
    """A concatenation of what was transposed alike, before the transpose.

    before: Concat on axis 1 of two Transposes (0,3,1,2)
    after:  Concat on axis 3 -> Transpose (0,3,1,2)
    """
    if not ranked(node) or not node.inputs:
        return None
    transposes = [producer(value, Transpose) for value in node.inputs]
    if any(one is None or _read_elsewhere(one, node, edit) for one in transposes):
        return None
    found = [one for one in transposes if one is not None]
    permutations = {_permutation(one) for one in found}
    if len(permutations) != 1:
        return None
    (permutation,) = permutations
    assert isinstance(node.operator, Concat)
    edit.consume(found)
    axis = permutation[node.operator.axis % len(permutation)]
    return edit.add(Transpose(perm=permutation), edit.add(Concat(axis=axis), *(one.inputs[0] for one in found)))


@rule("transposes around products", Transpose, equation="T(f(T(x) W)) = T(f)(W' x)")
def transposes_around_products(node: Node, edit: Edit) -> Result:
    """A product with a constant matrix between two swaps of the last axes becomes one with the matrix on its left.

    Elementwise operators with constants, and further products, may stand between.

    before: Transpose (0,2,1) -> MatMul by [196,256] -> Add of a constant [256] -> Transpose (0,2,1)
    after:  MatMul of the matrix as [256,196] with what was transposed -> Add of the constant as [256,1]
    """
    if not ranked(node) or not _swaps_last(node):
        return None
    steps: list[tuple[Node, int]] = []
    above = producer(node.inputs[0])
    while above is not None and not isinstance(above.operator, Transpose):
        place = _passed_by_swap(above)
        if place is None or len(above.output.users) != 1:
            return None
        steps.append((above, place))
        above = producer(above.inputs[place])
    if above is None or not _swaps_last(above) or not any(isinstance(step.operator, MatMul) for step, _ in steps):
        return None
    edit.consume([step for step, _ in steps])
    edit.shares([above])
    result = above.inputs[0]
    for step, place in reversed(steps):
        others = [None if value is None else _swapped(value, rank(step.output), edit) for value in step.inputs]
        if isinstance(step.operator, MatMul):
            result = edit.add(MatMul(), others[1], result)
        else:
            result = edit.add(step.operator, *others[:place], result, *others[place + 1 :])
    return result


def _swaps_last(node: Node) -> bool:
    """Whether a Transpose exchanges the last two axes and no others."""
    count = rank(node.output) if ranked(node) else 0
    return count >= 2 and _permutation(node) == (*range(count - 2), count - 1, count - 2)


def _passed_by_swap(node: Node) -> int | None:
    """Which input a swap of the last axes may pass to, all others being constants; None if it may not pass."""
    if not ranked(node) or len(node.outputs) != 1:
        return None
    if isinstance(node.operator, MatMul):
        weight = node.inputs[1]
        constant = weight is not None and array(weight) is not None and rank(weight) == 2
        return 0 if constant and node.output.dtype.is_float and rank(node.output) >= 2 else None
    varying = [(place, x) for place, x in enumerate(node.inputs) if x is not None and array(x) is None]
    if not node.operator.elementwise or len(varying) != 1:
        return None
    ((place, x),) = varying
    return place if x.shape == node.output.shape else None


def _swapped(value: Value, count: int, edit: Edit) -> Value:
    """A constant with its last two axes exchanged, as an operand of a result of `count` axes; others as they are."""
    elements = array(value)
    if elements is None or elements.ndim == 0 or (elements.size == 1 and elements.ndim <= count):
        return value
    full = elements.reshape((1,) * (2 - elements.ndim) + elements.shape)
    return edit.constant(np.ascontiguousarray(np.swapaxes(full, -1, -2)))


# ---------------------------------------------------------------- reshapes


@rule("reshape below elementwise", equation="f(R(a), R(b), c) = R(f(a, b, R'(c)))")
def reshape_below_elementwise(node: Node, edit: Edit) -> Result:
    """An elementwise operator on what was reshaped alike, before the reshape instead of behind.

    Further operands may be single numbers, or constants that are as large as the result, or 1, along whole groups of
    axes that the reshape regroups.

    before: Reshape [64,3,49,49] to [1,64,3,49,49] -> Add of a constant [1,64,1,49,49]
    after:  Add of the constant as [64,1,49,49] -> Reshape to [1,64,3,49,49]
    """
    if not node.operator.elementwise or len(node.outputs) != 1 or not ranked(node):
        return None
    reshapes = [found for value in node.inputs if (found := producer(value, Reshape)) is not None]
    if not reshapes or any(not ranked(one) or one.output.shape != node.output.shape for one in reshapes):
        return None
    source = reshapes[0].inputs[0]
    assert source is not None
    if all(_read_elsewhere(one, node, edit) for one in reshapes):
        return None
    inputs = [_before_reshape(value, source.shape, node.output.shape, edit) for value in node.inputs]
    if any(new is None for new, old in zip(inputs, node.inputs, strict=False) if old is not None):
        return None
    edit.shares(reshapes)
    return edit.reshape(edit.add(node.operator, *inputs), node.output.shape)


def _before_reshape(
    value: Value | None, source: Sequence[DimLike], shape: Sequence[DimLike], edit: Edit
) -> Value | None:
    """What broadcasts against `source` as `value` does against `shape`; None if nothing of its size does."""
    if value is None or (scalar(value) is not None and rank(value) <= min(len(source), 1)):
        return value
    if (found := producer(value, Reshape)) is not None and found.inputs[0] is not None:
        return found.inputs[0] if found.inputs[0].shape == tuple(source) else None
    contents = value.contents if value.producer is None else None
    if contents is None or rank(value) > len(shape):
        return None
    before = _regrouped((1,) * (len(shape) - contents.ndim) + contents.shape, shape, source)
    if before is None:
        return None
    while len(before) > 1 and before[0] == 1:
        before = before[1:]
    if before == contents.shape:
        return value
    elements = array(value)
    return None if elements is None else edit.constant(elements.reshape(before))


def _regrouped(shape: Sequence[int], behind: Sequence[DimLike], before: Sequence[DimLike]) -> tuple[int, ...] | None:
    """The shape of a constant of `shape`, which broadcasts to `behind`, in front of a reshape of `before` to `behind`.

    Axes are taken in the smallest groups that the reshape keeps to itself. In each the constant has to be full, or one
    element.
    """
    groups = matched_axes(before, behind)
    if groups is None:
        return None
    found: list[int] = []
    for first, second in groups:
        given = [shape[axis] for axis in second]
        if all(size == 1 for size in given):
            found += [1] * len(first)
        elif all(size == behind[axis] for size, axis in zip(given, second, strict=True)):
            sizes = [before[axis] for axis in first]
            if not known(sizes):
                return None
            found += integers(sizes)
        else:
            return None
    return tuple(found)


@rule("reshape below matmul", MatMul, equation="R(x) W = R'(x W), where R keeps the last axis")
def reshape_below_matmul(node: Node, edit: Edit) -> Result:
    """Leading axes regrouped behind a product with a constant matrix instead of before it.

    What the reshape does to the last axis (heads put side by side) stays before the product.

    before: Reshape [1,64,12,64] -> [64,768], MatMul by [768,768]
    after:  Reshape [1,64,12,64] -> [1,64,768], MatMul, Reshape -> [64,768]
    """
    x, weight = node.inputs
    above = producer(x, Reshape)
    if above is None or x is None or weight is None or not ranked(node) or not ranked(above):
        return None
    source = above.inputs[0]
    if (
        array(weight) is None
        or rank(weight) != 2
        or rank(x) < 2
        or source is None
        or _read_elsewhere(above, node, edit)
    ):
        return None
    lead = _leading(source.shape, x.shape[-1])
    if lead is None or len(lead) == 0 or lead == x.shape[:-1]:
        return None
    edit.consume([above])
    result = edit.add(MatMul(), edit.reshape(source, (*lead, x.shape[-1])), weight)
    return edit.reshape(result, node.output.shape)


def _leading(shape: Sequence[DimLike], last: DimLike) -> tuple[DimLike, ...] | None:
    """The axes in front of those whose product is `last`."""
    for count in range(len(shape), 0, -1):
        if product(shape[count - 1 :]) == last and (last == 1 or shape[count - 1] != 1):
            return tuple(shape[: count - 1])
        if exact_divide(last, product(shape[count - 1 :])) is None:
            return None
    return None


# ---------------------------------------------------------------- expansions


@rule("expand below elementwise", equation="f(Expand(a), b) = f(a, b), or Expand(f(a, b)) where b is as small")
def expand_below_elementwise(node: Node, edit: Edit) -> Result:
    """Operands are broadcast by the operator itself; where all of them are small, the result is expanded instead.

    before: Expand [2,1,1,9] -> [2,1,9,9], Where by it between two numbers
    after:  Where between the numbers -> Expand [2,1,9,9]
    """
    if not node.operator.elementwise or len(node.outputs) != 1 or not ranked(node):
        return None
    expansions = [found for value in node.inputs if (found := producer(value, Expand)) is not None]
    if not expansions or not all(ranked(one) for one in expansions):
        return None
    inputs = [found.inputs[0] if (found := producer(value, Expand)) is not None else value for value in node.inputs]
    with inferring(edit.graph.assumptions.apart()) as context:
        shape = context.broadcast_shapes(*(value.shape for value in inputs if value is not None))
    edit.shares(expansions)
    result = edit.add(node.operator, *inputs)
    return result if shape == node.output.shape else edit.add(Expand(), result, edit.dims(node.output.shape))


@rule("expand of expand", Expand, equation="Expand(Expand(x, a), b) = Expand(x, b)")
def expand_of_expand(node: Node, edit: Edit) -> Result:
    """One expansion instead of two, none instead of one that changes nothing."""
    x = node.inputs[0]
    if x is None or not ranked(node):
        return None
    if x.shape == node.output.shape:
        return x
    above = producer(x, Expand)
    if above is None:
        return None
    edit.shares([above])
    return edit.add(Expand(), above.inputs[0], edit.dims(node.output.shape))


RULES = (
    transpose_below_elementwise,
    transpose_below_reduction,
    transpose_below_concat,
    transposes_around_products,
    reshape_below_elementwise,
    reshape_below_matmul,
    expand_below_elementwise,
    expand_of_expand,
)
