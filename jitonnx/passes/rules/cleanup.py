"""What does nothing, or what is done twice, taken out."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Abs, Add, Ceil, Floor, Max, Mean, Min, Neg, Round, Sign, Sum
from jitonnx.ops.onnx.cast import Cast, CastLike
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.dropout import Dropout
from jitonnx.ops.onnx.logic import Not
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.pooling import AveragePool, MaxPool
from jitonnx.ops.onnx.reduction import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from jitonnx.ops.onnx.resize import Resize
from jitonnx.ops.onnx.shape import Expand
from jitonnx.ops.onnx.tile import Tile
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Result, array, producer, ranked, rule, scalar

MERGED = 4096
"""Constants of up to so many bytes are compared by their elements."""


@rule("dropout", Dropout, equation="Dropout(x) = x, outside of training")
def dropout(node: Node, edit: Edit) -> Result:
    """Dropout keeps everything in inference, if nobody asks which elements it kept."""
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if training is not None and scalar(training) is None:
        raise Decline(Reason.NOT_CONSTANT, "training_mode")
    if training is not None and scalar(training):
        raise Decline(Reason.ATTRIBUTE, "training_mode")
    if any(value.users or value in edit.graph.results for value in node.outputs[1:]):
        raise Decline(Reason.OTHER_USES, "the mask")
    return [node.inputs[0], *node.outputs[1:]]  # type: ignore[list-item]


@rule("cast", Cast, equation="Cast(x) to its own type = x; Cast(Cast(x)) = Cast(x), where the first loses nothing")
def cast(node: Node, edit: Edit) -> Result:
    """A conversion that changes nothing, and two in a row of which the first keeps every value."""
    x = node.inputs[0]
    if x is None or x.dtype is None:
        return None
    if x.dtype is node.output.dtype:
        return x
    above = producer(x, Cast)
    source = above.inputs[0] if above is not None else None
    if above is None or source is None or source.dtype is None or not lossless(source.dtype, x.dtype):
        return None
    edit.shares([above])
    return source if source.dtype is node.output.dtype else edit.add(node.operator, source)


@rule("cast like", CastLike, equation="CastLike(x, y) = Cast(x, type of y)")
def cast_like(node: Node, edit: Edit) -> Result:
    """The functions that ONNX defines operators by use it where the type is known after all."""
    x, like = node.inputs
    assert isinstance(node.operator, CastLike)
    if like is None or like.dtype is None:
        return None
    how = node.operator
    return edit.add(Cast(to=int(like.dtype), saturate=how.saturate, round_mode=how.round_mode), x)


@rule("sum of two", Sum, equation="Sum(a, b, c) = (a + b) + c")
def sum_of_two(node: Node, edit: Edit) -> Result:
    """A variadic sum as the sums that other rewrites know."""
    if len(node.inputs) < 2 or any(value is None for value in node.inputs):
        return None
    total, *others = node.inputs
    for value in others:
        total = edit.add(Add(), total, value)
    return total


def lossless(narrow: DType, wide: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`, among the types for which that is plain."""
    if DType.STRING in (narrow, wide):
        return False
    if narrow is DType.BOOL:
        return wide.is_integer or wide.is_float
    if narrow.is_integer and wide.is_integer:
        return bool(np.can_cast(narrow.numpy, wide.numpy, "safe"))
    exact = {
        DType.FLOAT: (DType.DOUBLE,),
        DType.FLOAT16: (DType.FLOAT, DType.DOUBLE),
        DType.BFLOAT16: (DType.FLOAT, DType.DOUBLE),
    }
    if narrow.is_integer:
        return wide is DType.DOUBLE and narrow.itemsize < 8
    return wide in exact.get(narrow, ())


@rule("involution", Neg, Not, equation="-(-x) = x, not not x = x")
def involution(node: Node, edit: Edit) -> Result:
    """Done twice, it is not done."""
    above = producer(node.inputs[0], type(node.operator))
    if above is None:
        return None
    edit.shares([above])
    return above.inputs[0]


@rule("idempotent", Relu, Abs, Ceil, Floor, Round, Sign, equation="f(f(x)) = f(x)")
def idempotent(node: Node, edit: Edit) -> Result:
    """Done a second time, it does nothing."""
    return node.inputs[0] if producer(node.inputs[0], type(node.operator)) is not None else None


@rule("single operand", Concat, Sum, Mean, Max, Min, equation="Concat(x) = x, Sum(x) = x, …")
def single_operand(node: Node, edit: Edit) -> Result:
    """A variadic operator with one operand."""
    return node.inputs[0] if len(node.inputs) == 1 else None


PARTS = 64
"""Inputs up to which a Concat goes into another: a chain of thousands would be written anew at each of them."""


@rule("concat of concat", Concat, equation="Concat(Concat(a, b), c) = Concat(a, b, c)")
def concat_of_concat(node: Node, edit: Edit) -> Result:
    """Concatenations along one axis, made at once."""
    if not ranked(node):
        return None
    axis = node.operator.axis % len(node.output.shape)  # type: ignore[attr-defined]
    inner = [
        above
        for value in node.inputs
        if (above := producer(value, Concat)) is not None
        and node.inputs.count(value) == 1
        and len(above.inputs) <= PARTS
        and above.operator.axis % len(node.output.shape) == axis  # type: ignore[attr-defined]
        and above.output.users == [node]
        and above.output not in edit.graph.results
    ]
    if not inner:
        return None
    edit.shares(inner)
    inputs: list[Value | None] = []
    for value in node.inputs:
        inputs.extend(value.producer.inputs if value is not None and value.producer in inner else [value])
    return edit.add(node.operator, *inputs)


@rule("concat of split", Concat, equation="Concat(Split(x)) = x")
def concat_of_split(node: Node, edit: Edit) -> Result:
    """All parts of a Split put together again."""
    first = producer(node.inputs[0], Split)
    if first is None or not ranked(node) or tuple(node.inputs) != first.outputs:
        return None
    rank = len(node.output.shape)
    same_axis = node.operator.axis % rank == first.operator.axis % rank  # type: ignore[attr-defined]
    return first.inputs[0] if same_axis else None


@rule("pad by nothing", Pad, equation="Pad(x, 0) = x")
def pad_by_nothing(node: Node, edit: Edit) -> Result:
    """A Pad whose pads are all 0."""
    pads = array(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    return node.inputs[0] if pads is not None and not pads.any() else None


@rule("tile by one", Tile, equation="Tile(x, 1) = x")
def tile_by_one(node: Node, edit: Edit) -> Result:
    """A Tile whose repeats are all 1."""
    repeats = array(node.inputs[1]) if node.inputs[1] is not None else None
    return node.inputs[0] if repeats is not None and (repeats == 1).all() else None


@rule("pool by one", MaxPool, AveragePool, equation="a pool over windows of one element, at every element = x")
def pool_by_one(node: Node, edit: Edit) -> Result:
    """A pool that looks at one element at a time (an adaptive pool to the size that the image already has)."""
    operator = node.operator
    assert isinstance(operator, MaxPool | AveragePool)
    ones = all(size == 1 for size in (*operator.kernel_shape, *(operator.strides or ())))
    if not ones or any(operator.pads or ()):
        return None
    if any(value.users or value in edit.graph.results for value in node.outputs[1:]):
        raise Decline(Reason.OTHER_USES, "the indices")
    return [node.inputs[0], *node.outputs[1:]]  # type: ignore[list-item]


@rule(
    "reduce over one",
    ReduceSum,
    ReduceMean,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    equation="a reduction over axes of size 1 = Reshape",
)
def reduce_over_one(node: Node, edit: Edit) -> Result:
    """A sum, mean, product or extremum of one element each."""
    x, axes = (*node.inputs, None)[:2]
    if x is None or axes is None or not ranked(node) or (given := array(axes)) is None or not given.size:
        return None
    if any(x.shape[int(axis)] != 1 for axis in given.reshape(-1)):
        return None
    return edit.reshape(x, node.output.shape)


@rule("resize of one", Resize, equation="Resize of axes of size 1 = Expand")
def resize_of_one(node: Node, edit: Edit) -> Result:
    """One pixel enlarged is that pixel everywhere (pooled features spread over the image again)."""
    operator, x = node.operator, node.inputs[0]
    assert isinstance(operator, Resize)
    if x is None or not ranked(node) or operator.coordinate_transformation_mode == "tf_crop_and_resize":
        return None
    if any(a != b and a != 1 for a, b in zip(x.shape, node.output.shape, strict=False)):
        return None
    if operator.mode == "cubic" and operator.exclude_outside:
        return None
    return edit.add(Expand(), x, edit.dims(node.output.shape))


RULES = (
    dropout,
    cast,
    cast_like,
    sum_of_two,
    involution,
    idempotent,
    single_operand,
    concat_of_concat,
    concat_of_split,
    pad_by_nothing,
    tile_by_one,
    pool_by_one,
    reduce_over_one,
    resize_of_one,
)


# ---------------------------------------------------------------- common subexpressions


def merge_equal(graph: Graph, edit: Edit) -> bool:
    """Nodes with equal operators and equal inputs become one; small constants count as equal by their elements.

    before: two Shape nodes of one tensor
    after:  one
    """
    merged = False
    seen: dict[object, Node] = {}
    constants: dict[object, Value] = {}
    for node in graph:
        if not node.operator.deterministic or node.bodies:
            continue
        key = _key(node, constants)
        first = seen.setdefault(key, node)
        shared = first.outputs[: len(node.outputs)]
        if first is node or not all(_alike(a, b) for a, b in zip(shared, node.outputs, strict=False)):
            continue
        if any(value in graph.outputs for value in node.outputs) and any(v in graph.outputs for v in first.outputs):
            continue  # each graph output keeps a node of its own
        edit.begin(node)
        edit.shares([first])
        name = node.operator.name
        edit.report.note_applied("merge equal", edit.origin, f"{name} {name}", name)
        edit.substitute(node, shared)
        merged = True
    return merged


def _alike(a: Value, b: Value) -> bool:
    """Whether two values have one type, but for sizes of `b` that only a run tells and `b` is the name of."""
    if a.type.shape is None or b.type.shape is None:
        return a.type == b.type
    if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
        return False
    pairs = enumerate(zip(a.shape, b.shape, strict=True))
    return all(x == y or str(y).endswith(f"{b.name}.{axis}") for axis, (x, y) in pairs)


def _key(node: Node, constants: dict[object, Value]) -> object:
    inputs = [value if value is None else _representative(value, constants) for value in node.inputs]
    if node.operator.commutative:
        inputs.sort(key=id)
    return node.operator, tuple(inputs)


def _representative(value: Value, constants: dict[object, Value]) -> Value:
    """One value for all constants with the same few elements, or the same symbolic dimensions."""
    if value.producer is not None or value.contents is None:
        return value
    contents = value.contents
    if contents.dtype == object:
        key: object = (value.dtype, contents.shape, tuple(contents.reshape(-1).tolist()))
    elif contents.nbytes <= MERGED:
        key = (value.dtype, contents.shape, contents.tobytes())
    else:
        return value
    return constants.setdefault(key, value)
