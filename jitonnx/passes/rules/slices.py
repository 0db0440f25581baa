"""Products of the slices of a tensor with one matrix as one: of recurrent layers whose steps are written one by one."""

from __future__ import annotations

from collections.abc import Iterator

from jitonnx.ir.graph import Node, Value
from jitonnx.ops.onnx.arithmetic import Add
from jitonnx.ops.onnx.concat_split import Split
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.shape import Reshape, Squeeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.passes.rewriting import Edit, Result, array, producer, ranked, rule, scalar
from jitonnx.support.records import NamedTuple


class Place(NamedTuple):
    """An element of a tensor along an axis: which one it is."""

    source: Value
    axis: int
    number: int


@rule("products of slices", Gemm, MatMul, equation="x[0] W, x[1] W, … = (x W)[0], (x W)[1], …")
def products_of_slices(node: Node, edit: Edit) -> Result:
    """Each of them would read the matrix anew, and one row or few are no work for it.

    before: x[0], x[1], … along an axis, each in a Gemm of the same weights and bias
    after:  Gemm of all of x -> its elements along that axis
    """
    place = _place(node)
    if place is None:
        return None
    source, axis = place.source, place.axis
    alike: dict[Node, Place] = {}
    for product in _products(source):
        other = _place(product)
        if other is not None and other[:2] == place[:2] and _same_but_rows(product, node):
            alike[product] = other
    count, size = len({one.number for one in alike.values()}), source.shape[axis]
    if next(iter(alike), None) is not node or count < 2 or not isinstance(size, int) or 2 * count < size:
        return None
    edit.shares(alike)
    done = _product(node, source, edit)
    parts = {index: _element(done, axis, index, edit) for index in {one.number for one in alike.values()}}
    for product, one in alike.items():
        if product is not node:
            edit.substitute(product, [parts[one.number]])
    return parts[place.number]


def _product(node: Node, x: Value, edit: Edit) -> Value:
    """A product like `node` of more rows than Gemm takes."""
    weights, *bias = node.inputs[1:]
    if not isinstance(node.operator, Gemm):
        return edit.add(MatMul(), x, weights)
    assert weights is not None
    matrix, added = array(weights), array(bias[0]) if bias and bias[0] is not None else None
    assert matrix is not None
    if node.operator.transB:
        matrix = matrix.T
    if node.operator.alpha != 1:
        matrix = matrix * matrix.dtype.type(node.operator.alpha)
    done = edit.add(MatMul(), x, edit.constant(matrix))
    if added is None or node.operator.beta == 0:
        return done
    return edit.add(Add(), done, edit.constant(added * added.dtype.type(node.operator.beta)))


def _element(x: Value, axis: int, index: int, edit: Edit) -> Value:
    bounds = (edit.dims([number]) for number in (index, index + 1, axis))
    return edit.reshape(edit.add(Slice(), x, *bounds), [size for n, size in enumerate(x.shape) if n != axis])


def _products(source: Value) -> Iterator[Node]:
    """The products that read a tensor by way of its elements along an axis."""
    for user in source.users:
        for value in user.outputs:
            for reader in value.users:
                if isinstance(reader.operator, Gemm | MatMul):
                    yield reader
                elif isinstance(reader.operator, Reshape | Squeeze):
                    yield from (one for one in reader.output.users if isinstance(one.operator, Gemm | MatMul))


def _same_but_rows(a: Node, b: Node) -> bool:
    return a.operator == b.operator and a.inputs[1:] == b.inputs[1:]


def _place(product: Node) -> Place | None:
    """What a product with a constant matrix has on its left, if that is an element of a tensor."""
    x, weights, *bias = product.inputs
    if not ranked(product) or x is None or weights is None or array(weights) is None or len(weights.shape) != 2:
        return None
    if isinstance(product.operator, Gemm):
        added = bias[0] if bias else None
        if product.operator.transA or (added is not None and (array(added) is None or len(added.shape) > 1)):
            return None
    gather, view = producer(x, Gather), producer(x, Reshape, Squeeze)
    if gather is not None:
        source, position = gather.inputs
        number = scalar(position)
        if source is None or number is None or position is None or position.type.shape != ():
            return None
        assert isinstance(gather.operator, Gather)
        return _inner(source, gather.operator.axis, int(number), x)
    cut = producer(view.inputs[0], Slice, Split) if view is not None else None
    source = cut.inputs[0] if cut is not None else None
    if cut is None or view is None or source is None or not ranked(cut):
        return None
    if isinstance(cut.operator, Split):
        axis = cut.operator.axis
        sizes = [part.shape[axis] for part in cut.outputs]
        return _inner(source, axis, cut.outputs.index(view.inputs[0]), x) if set(sizes) == {1} else None
    starts, _, axes, *steps = (*cut.inputs[1:], None, None)[:4]
    start, axis_number = scalar(starts), scalar(axes)
    if start is None or axis_number is None or (steps[0] is not None and scalar(steps[0]) != 1):
        return None
    return _inner(source, int(axis_number), int(start), x)


def _inner(source: Value, axis: int, index: int, x: Value) -> Place | None:
    """The place, if `x` is the element of one size less there, and the axis is none of those that products go along."""
    rank = len(source.shape)
    axis %= rank
    size = source.shape[axis]
    if axis == rank - 1 or not isinstance(size, int) or not -size <= index < size:
        return None
    rest = tuple(one for n, one in enumerate(source.shape) if n != axis)
    return Place(source, axis, index % size) if x.shape == rest and len(rest) >= 2 else None


RULES = (products_of_slices,)
