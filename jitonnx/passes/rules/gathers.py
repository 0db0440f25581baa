"""Gathers whose indices are known functions of coordinates, written as views: slices, transposes, expansions. Scatters
with such indices write a box, and become the box joined with slices of what is around it.

before: GatherND(mask [batch, seq], grid [batch, 1, 1, seq, 2]) with grid[b, 0, 0, s] = (b, s)
after:  Reshape(mask, [batch, 1, 1, seq])

before: ScatterND(scores [h, 50, 50], grid [h, 50, 49, 3], updates) with grid[h, q, k] = (h, q, k + 1)
after:  Concat(scores[:, :, :1], updates, axis=2)
"""

from __future__ import annotations

from collections.abc import Sequence

from jitonnx.ir.dims import DimLike, concrete, not_negative, product
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.inference import inferring
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather, GatherElements, GatherND
from jitonnx.ops.onnx.scatter import ScatterND
from jitonnx.ops.onnx.shape import Expand
from jitonnx.passes.index_functions import Affine, Analysis, fit
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Result, array, producer, ranked, rule
from jitonnx.passes.views import slice_node


@rule("gather of coordinates", Gather, equation="data[i + offset] = a slice of data")
def gather(node: Node, edit: Edit) -> Result:
    """Gather by a Range, by one index, by equal indices: a Slice, expanded where indices repeat."""
    if (indexed := _indexed(node, edit)) is None:
        return None
    data, indices, function = indexed
    assert isinstance(node.operator, Gather)
    axis, rank = node.operator.axis % len(data.shape), len(node.output.shape)
    behind = len(indices.shape) - 1
    functions = [coordinate(k if k < axis else k + behind, rank) for k in range(len(data.shape))]
    functions[axis] = _placed(function, axis, rank)
    return as_view(data, functions, node.output.shape, edit)


@rule("gather elements of coordinates", GatherElements, equation="data[i, g(i, j)] = a slice of data")
def gather_elements(node: Node, edit: Edit) -> Result:
    """GatherElements by a function of coordinates: a Slice."""
    if (indexed := _indexed(node, edit)) is None:
        return None
    data, _, function = indexed
    assert isinstance(node.operator, GatherElements)
    rank = len(data.shape)
    functions = [coordinate(k, rank) for k in range(rank)]
    functions[node.operator.axis % rank] = function
    return as_view(data, functions, node.output.shape, edit)


def _indexed(node: Node, edit: Edit) -> tuple[Value, Value, Affine] | None:
    """What is gathered from, the indices, and these as a function of coordinates; None where they are no such."""
    data, indices = node.inputs
    if data is None or indices is None or not ranked(node):
        return None
    function = edit.facts(Analysis).affine(indices)
    return None if function is None else (data, indices, function)


@rule("gather nd of coordinates", GatherND, equation="data[g(i), h(i)] = a view of data")
def gather_nd(node: Node, edit: Edit) -> Result:
    """GatherND by a grid of coordinates: a Slice, a Transpose, an expansion."""
    data, indices = node.inputs
    if data is None or indices is None or not ranked(node) or not isinstance(indices.shape[-1], int):
        return None
    columns = _columns(indices, edit.facts(Analysis))
    if columns is None:
        return None
    assert isinstance(node.operator, GatherND)
    batch, rank = node.operator.batch_dims, len(node.output.shape)
    functions = [coordinate(k, rank) for k in range(batch)]
    functions += [_placed(column, 0, rank) for column in columns]
    first = len(indices.shape) - 1
    functions += [coordinate(first + k, rank) for k in range(len(data.shape) - len(functions))]
    return as_view(data, functions, node.output.shape, edit)


@rule("scatter nd of coordinates", ScatterND, equation="data with data[i + offset] = updates = pieces joined")
def scatter_nd(node: Node, edit: Edit) -> Result:
    """ScatterND by a grid of coordinates that writes most of data: its updates and what is around them, joined.

    Where little is written, it is written in place.
    """
    data, indices, updates = node.inputs
    assert isinstance(node.operator, ScatterND)
    if data is None or indices is None or updates is None or node.operator.reduction != "none" or not ranked(node):
        return None
    columns = _columns(indices, edit.facts(Analysis)) if isinstance(indices.shape[-1], int) else None
    if columns is None:
        return None
    grid = indices.shape[:-1]
    sources = [_source(column, grid) for column in columns]
    moving = [axis for axis in sources if axis is not None]
    if moving != [axis for axis, size in enumerate(grid) if size != 1]:
        raise Decline(Reason.SHAPE, "updates lie in another order, or several at the same place")
    if any(axis is not None and column.coefficients[axis] != 1 for column, axis in zip(columns, sources, strict=True)):
        raise Decline(Reason.SHAPE, "what is written has gaps")
    depth = len(columns)
    starts = [*map(_start, columns, [grid] * depth, data.shape), *[0] * (len(data.shape) - depth)]
    sizes = (*(1 if axis is None else grid[axis] for axis in sources), *data.shape[depth:])
    if not all(not_negative(dim - size - start) for dim, size, start in zip(data.shape, sizes, starts, strict=True)):
        raise Decline(Reason.UNDECIDED, "whether all indices lie in data")
    written, whole = concrete(product(sizes)), concrete(product(data.shape))
    if written is None or whole is None or 2 * written < whole:
        raise Decline(Reason.UNDECIDED if written is None else Reason.TOO_SMALL, f"of {data.type}")
    return _surrounded(edit.reshape(updates, sizes), starts, data, edit)


def _surrounded(box: Value, starts: Sequence[DimLike], data: Value, edit: Edit) -> Value:
    """`box`, which begins at `starts` in data, joined with slices of data around it, axis by axis from the last."""
    sizes, steps = list(box.shape), [1] * len(starts)
    for axis in reversed(range(len(starts))):
        begin, end, dim = starts[axis], starts[axis] + sizes[axis], data.shape[axis]
        around = []
        for start, size in ((0, begin), (end, dim - end)):
            piece = [*starts[:axis], start, *[0] * (len(starts) - axis - 1)]
            shape = [*sizes[:axis], size, *data.shape[axis + 1 :]]
            around.append(slice_node(data, piece, steps, shape, edit) if size != 0 else None)
        pieces = [piece for piece in (around[0], box, around[1]) if piece is not None]
        if len(pieces) > 1:
            box = edit.add(Concat(axis=axis), *pieces)
    return box


def coordinate(axis: int, rank: int) -> Affine:
    """The function i -> i[axis] of `rank` coordinates."""
    return Affine(0, tuple(int(other == axis) for other in range(rank)))


def _placed(function: Affine, first: int, rank: int) -> Affine:
    """A function of some coordinates as one of `rank` coordinates, of which those are number `first` and following."""
    behind = rank - first - len(function.coefficients)
    return Affine(function.offset, (0,) * first + function.coefficients + (0,) * behind)


def _columns(indices: Value, analysis: Analysis) -> list[Affine] | None:
    """The function of the leading coordinates that each element along the last axis of `indices` is."""
    count = indices.shape[-1]
    assert isinstance(count, int)
    if (elements := array(indices)) is not None:
        columns = [fit(elements[..., k]) for k in range(count)]
    elif (joined := producer(indices, Concat)) is not None and _joins_last(joined):
        parts = [analysis.affine(value) for value in joined.inputs if value is not None]
        columns = [part and Affine(part.offset, part.coefficients[:-1]) for part in parts]
    else:
        whole = analysis.affine(indices)
        if whole is None:
            return None
        step = whole.coefficients[-1]
        columns = [Affine(whole.offset + k * step, whole.coefficients[:-1]) for k in range(count)]
    return None if any(column is None for column in columns) else [c for c in columns if c is not None]


def _joins_last(node: Node) -> bool:
    assert isinstance(node.operator, Concat)
    last = len(node.output.shape) - 1
    return node.operator.axis % (last + 1) == last and all(v is not None and v.shape[-1] == 1 for v in node.inputs)


def as_view(data: Value, functions: Sequence[Affine], shape: Sequence[DimLike], edit: Edit) -> Value:
    """The tensor whose element i is data[functions[0](i), functions[1](i), ...], by views alone.

    Decline where an index depends on several coordinates, two on one, or where its sign is not known.
    """
    sources = [_source(function, shape) for function in functions]
    moving = [axis for axis in sources if axis is not None]
    if len(set(moving)) < len(moving):
        raise Decline(Reason.SHAPE, "two indices run together: a diagonal")
    starts = [_start(f, shape, size) for f, size in zip(functions, data.shape, strict=False)]
    steps = [1 if axis is None else _step(f.coefficients[axis]) for f, axis in zip(functions, sources, strict=False)]
    sizes = [1 if axis is None else shape[axis] for axis in sources]
    whole = (
        all(start == 0 and step == 1 for start, step in zip(starts, steps, strict=False)) and tuple(sizes) == data.shape
    )
    value = data if whole else slice_node(data, starts, steps, sizes, edit)
    differ = [(a, b) for a, b in zip(value.shape, sizes, strict=True) if a != b]
    with inferring(edit.graph.assumptions) as context:
        if not all(context.assume_equal(a, b) for a, b in differ):
            raise Decline(Reason.REFUSED, f"indices lie outside of {data.type}")
    order = sorted(range(len(sources)), key=lambda k: -1 if sources[k] is None else sources[k])  # type: ignore[return-value,arg-type]
    small = tuple(size if axis in moving else 1 for axis, size in enumerate(shape))
    value = edit.reshape(edit.transpose(value, order), small)
    return value if small == tuple(shape) else edit.add(Expand(), value, edit.dims(shape))


def _source(function: Affine, shape: Sequence[DimLike]) -> int | None:
    """The coordinate that an index follows; None: it is constant."""
    axes = [
        axis for axis, (c, size) in enumerate(zip(function.coefficients, shape, strict=False)) if c != 0 and size != 1
    ]
    if len(axes) > 1:
        raise Decline(Reason.SHAPE, "an index depends on several coordinates")
    return axes[0] if axes else None


def _step(coefficient: DimLike) -> int:
    if not isinstance(coefficient, int):
        raise Decline(Reason.UNDECIDED, f"step {coefficient}")
    return coefficient


def _start(function: Affine, shape: Sequence[DimLike], size: DimLike) -> DimLike:
    """The first index, counted from the front."""
    bounds = function.bounds(shape)
    if bounds is not None and not_negative(bounds[0], shape):
        return function.offset
    if bounds is not None and not_negative(-1 * bounds[1] - 1, shape):
        return function.offset + size
    raise Decline(Reason.UNDECIDED, f"whether index {function.offset} + … counts from the end")


RULES = (gather, gather_elements, gather_nd, scatter_nd)
