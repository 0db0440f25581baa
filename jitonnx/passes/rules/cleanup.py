"""What does nothing, or what is done twice, taken out: conversions, elementwise operators, concatenations."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Abs, Add, Ceil, Floor, Max, Mean, Min, Neg, Round, Sign, Sum
from jitonnx.ops.onnx.cast import Cast, CastLike
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.logic import Not
from jitonnx.passes.rewriting import Edit, Result, producer, ranked, rule


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


@rule("copied tensor", Identity, equation="Identity(x) = x")
def copied_tensor(node: Node, edit: Edit) -> Result:
    """A copy that nobody could tell from what it copies."""
    (x,) = node.inputs
    return x if x is not None and isinstance(x.type, TensorType) else None


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


RULES = (
    cast,
    copied_tensor,
    cast_like,
    sum_of_two,
    involution,
    idempotent,
    single_operand,
    concat_of_concat,
    concat_of_split,
)
