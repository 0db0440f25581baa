"""Everything that is known before the run, made a constant: arithmetic on constants, shapes, coordinates.

Shapes with symbolic dimensions are known too: they become vectors of dimension expressions, which the program evaluates
when it is made for concrete sizes.
"""

from __future__ import annotations

import math

import numpy as np

from jitonnx.ir.dims import DimLike, known
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.operator import Operator, evaluate_arrays
from jitonnx.ops.onnx.arithmetic import Add, Div, Mul, Pow, Sub
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.generators import ConstantOfShape
from jitonnx.ops.onnx.logic import And, Not, Or, Where, Xor
from jitonnx.ops.onnx.quantization import DequantizeLinear
from jitonnx.ops.onnx.shape import Expand, Reshape
from jitonnx.passes.index_functions import Analysis
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Result, array, producer, ranked, rule
from jitonnx.support.mapped_files import release_pages

SMALL = 1 << 20
"""Constants of up to so many bytes are always worth having."""

GROWTH = 4
"""A larger constant may be made if it takes at most so many times the memory of what the graph has it made of: a chain
of nodes that double what they are given ends there."""


@rule("constants", equation="f(constants) = constant")
def constants(node: Node, edit: Edit) -> Result:
    """A deterministic operator on constants is evaluated once, unless the result is far larger than its inputs."""
    return None if isinstance(node.operator, DequantizeLinear) else _evaluated(node, edit)


@rule("dequantised constants", DequantizeLinear, equation="DequantizeLinear(constants) = constant")
def dequantised_constants(node: Node, edit: Edit) -> Result:
    """A rewrite of its own, as other runtimes want integers where weights are quantised."""
    return _evaluated(node, edit)


def _evaluated(node: Node, edit: Edit) -> Result:
    inputs = [None if value is None else array(value) for value in node.inputs]
    if any(given is None and value is not None for given, value in zip(inputs, node.inputs, strict=False)):
        return None
    if not node.operator.deterministic or node.bodies:
        return None
    if isinstance(node.operator, ConstantOfShape) and node.output.type.static:
        # One element seen under strides of 0: no memory, whatever the size. Weights of test models are made so.
        if _bytes(node.output) >= 1 << 63:
            raise Decline(Reason.TOO_LARGE, f"{_bytes(node.output)} bytes")
        return [edit.constant(np.broadcast_to(node.operator.value.array.reshape(()), node.output.shape))]  # type: ignore[arg-type]
    given_values = dict.fromkeys(value for value in node.inputs if value is not None)
    limit = max(SMALL, GROWTH * edit.sources(given_values))
    needed = sum(_bytes(value) for value in node.outputs)
    if needed > limit:
        raise Decline(Reason.TOO_LARGE, f"{needed} bytes from {edit.sources(given_values)}")
    try:
        results = evaluate_arrays(node.operator, inputs)
    except (ValueError, IndexError, ArithmeticError, TypeError) as error:
        # Such a node fails in a run too, with its name, if a run ever comes to it.
        raise Decline(Reason.REFUSED, str(error)) from error
    for given in inputs:
        if given is not None and given.nbytes > SMALL:
            release_pages(given)
    given_out = results[: len(node.outputs)]
    if any(not isinstance(result, np.ndarray | np.generic) for result in given_out):
        return None
    return [edit.computed(np.asarray(result), given_values) for result in given_out]


def _bytes(value: Value) -> int:
    if not value.type.static or value.dtype is None or value.dtype is DType.STRING:
        return 0
    return int(math.prod(value.shape) * value.dtype.itemsize)


@rule("shape arithmetic", equation="what follows from sizes alone = a constant of dimension expressions")
def shape_arithmetic(node: Node, edit: Edit) -> Result:
    """A result whose elements are known without looking at any tensor's elements.

    before: Shape -> Slice -> Concat, for x [batch, seq, 384]
    after:  the vector (batch, seq, -1)
    """
    if len(node.outputs) != 1 or (contents := node.output.contents) is None or node.output.dtype is None:
        return None
    if node.output.measured or isinstance(node.operator, DequantizeLinear):
        return None  # a run has to compute what the others follow from
    if (elements := array(node.output)) is not None:
        return edit.constant(elements)
    if isinstance(node.operator, Reshape | Cast) and _is_dims(node.inputs[0]):
        return None
    value = edit.dims(contents.reshape(-1).tolist())
    if node.output.dtype is not DType.INT64:
        value = edit.add(Cast(to=int(node.output.dtype)), value)
    return edit.reshape(value, contents.shape)


def _is_dims(value: Value | None) -> bool:
    """Whether a value is a vector of dimensions, or a Cast of one."""
    if (cast := producer(value, Cast)) is not None:
        value = cast.inputs[0]
    return value is not None and value.producer is None


# ---------------------------------------------------------------- uniform tensors


@rule("uniform", equation="a tensor of equal, known elements = Expand(element)")
def uniform(node: Node, edit: Edit) -> Result:
    """A comparison of coordinates that holds everywhere, arithmetic on one repeated number, …

    before: Unsqueeze(Range(seq)) >= 0
    after:  Expand(true)
    """
    if not node.operator.elementwise or len(node.outputs) != 1 or not ranked(node):
        return None
    analysis = edit.facts(Analysis)
    if (element := analysis.uniform(node.output)) is None:
        return None
    return _repeated(element, node.output.shape, edit)


def _repeated(element: np.ndarray, shape: tuple[DimLike, ...], edit: Edit) -> Value:
    if known(shape) and math.prod(shape) * element.itemsize <= SMALL:  # type: ignore[operator]
        return edit.constant(np.full(shape, element))  # type: ignore[arg-type]
    return edit.add(Expand(), edit.constant(element.reshape((1,) * bool(shape))), edit.dims(shape))


_NEUTRAL: dict[type[Operator], int | bool] = {
    Add: 0,
    Sub: 0,
    Mul: 1,
    Div: 1,
    Pow: 1,
    And: True,
    Or: False,
    Xor: False,
}
"""What changes nothing as second operand; as first one too where the operator is commutative."""

_ABSORBING: dict[type[Operator], bool] = {And: False, Or: True}
"""What alone decides the result."""


@rule("neutral operand", *_NEUTRAL, equation="x + 0 = x, x * 1 = x, x and true = x, …")
def neutral_operand(node: Node, edit: Edit) -> Result:
    """An operand that changes nothing. Only what is exact: x * 0 is not 0 for infinities."""
    if not ranked(node) or len(node.inputs) != 2:
        return None
    analysis, kind = edit.facts(Analysis), type(node.operator)
    for position in (1, 0) if node.operator.commutative else (1,):
        element, other = analysis.uniform(node.inputs[position]), node.inputs[1 - position]
        if element is None or other is None:
            continue
        if kind in _ABSORBING and bool(element) == _ABSORBING[kind]:
            return _repeated(element, node.output.shape, edit)
        if element == _NEUTRAL[kind] and other.dtype is node.output.dtype:
            return _expanded(other, node.output.shape, edit)
    return None


def _expanded(value: Value, shape: tuple[DimLike, ...], edit: Edit) -> Value:
    return value if value.shape == shape else edit.add(Expand(), value, edit.dims(shape))


@rule("settled where", Where, equation="where(true, a, b) = a, where(c, a, a) = a, where(not c, a, b) = where(c, b, a)")
def settled_where(node: Node, edit: Edit) -> Result:
    """A choice that is always the same, or between the same; a negated condition."""
    condition, a, b = node.inputs
    if condition is None or a is None or b is None or not ranked(node):
        return None
    element = edit.facts(Analysis).uniform(condition)
    if element is not None:
        return _expanded(a if element else b, node.output.shape, edit)
    if a is b:
        return _expanded(a, node.output.shape, edit)
    if (negation := producer(condition, Not)) is not None:
        edit.shares([negation])
        return edit.add(Where(), negation.inputs[0], b, a)
    return None


RULES = (constants, dequantised_constants, shape_arithmetic, uniform, neutral_operand, settled_where)
