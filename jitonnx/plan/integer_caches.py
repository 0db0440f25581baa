"""Keys and values that DequantizeLinear makes of int8, in front of attention: read as they lie, and not widened whole.

A cache of int8 (what TensorScatter writes of rows that QuantizeLinear gives) is longer with each token, while a step
has one row of queries. So queries take the scale of keys, and results that of values, and the kernel reads integers:

    softmax(c Q (s K)ᵀ) (t V) = t softmax(c (s Q) Kᵀ) V

for scales that are one number, one for each element of a head, or one for each head that queries and keys share. Zero
points are 0, and keys and values both of this kind; others are widened before, as are those that somebody else reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowered, Statement
from jitonnx.ir.dims import product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.types import TensorType
from jitonnx.support.records import NamedTuple

_SCALED = e.operand(0, DType.FLOAT) * e.operand(1, DType.FLOAT)
_WIDENED = e.cast(e.operand(0, DType.INT8), DType.FLOAT) * e.operand(1, DType.FLOAT)


class _Dequantized(NamedTuple):
    """A value that is `scale` * what `views` make of `integers`."""

    integers: Value
    scale: Value
    views: tuple[Statement, ...]
    """They are from the integers to the value."""
    widening: Statement


def with_integer_caches(lowered: Lowered) -> Lowered:
    """The same statements, with attention that reads keys and values of int8 where DequantizeLinear gives them."""
    attentions = [one for one in lowered.statements if isinstance(one.computation, c.Attention)]
    if not any(value is not None and value.dtype is DType.INT8 for s in lowered.statements for value in s.inputs):
        return lowered
    uses = Counter(value for statement in lowered.statements for value in statement.inputs)
    uses.update(lowered.outputs)
    makers = {statement.outputs[0]: statement for statement in lowered.statements}
    written: dict[Statement, list[Statement]] = {}
    left_out: set[Statement] = set()
    for statement in attentions:
        q, k, v = statement.inputs[:3]
        assert q is not None and k is not None and v is not None
        keys, values = (_dequantized(value, makers, uses) for value in (k, v))
        if keys is None or values is None or not all(_fits(one, q) for one in (keys, values)):
            continue
        written[statement] = _written(statement, keys, values)
        left_out |= {one for found in (keys, values) for one in (found.widening, *found.views)}
    statements: list[Statement] = []
    for statement in lowered.statements:
        if statement not in left_out:
            statements += written.get(statement, [statement])
    return replace(lowered, statements=statements)


def _dequantized(value: Value, makers: dict[Value, Statement], uses: Counter[Value | None]) -> _Dequantized | None:
    """How a value comes from int8, if it does and nobody reads what is between."""
    views: list[Statement] = []
    while (maker := makers.get(value)) is not None and uses[value] == 1:
        computation = maker.computation
        if isinstance(computation, c.Map):
            if computation.expr is not _WIDENED:
                return None
            integers, scale = maker.inputs
            assert integers is not None and scale is not None
            return _Dequantized(integers, scale, tuple(reversed(views)), maker)
        if not isinstance(computation, c.View):
            return None
        views.append(maker)
        (source,) = (one for one in maker.inputs if one is not None)
        value = source
    return None


def _fits(found: _Dequantized, q: Value) -> bool:
    """Whether what a scale multiplies may be queries, and results, in its place."""
    shape = found.scale.shape
    if product(shape) == 1:
        return True
    if found.views or len(shape) != 4 or found.integers.shape != found.widening.outputs[0].shape:
        return False
    return shape[2] == 1 and shape[1] in (1, q.shape[1])


def _written(statement: Statement, keys: _Dequantized, values: _Dequantized) -> list[Statement]:
    """Attention on integers, with what goes before and behind it."""
    node, (q, *others), (y,) = statement.node, statement.inputs, statement.outputs
    assert q is not None
    statements: list[Statement] = []

    def moved(found: _Dequantized) -> Value:
        """The integers behind the views."""
        value = found.integers
        for view in found.views:
            seen = Value(f"{view.outputs[0].name} as integers", TensorType(DType.INT8, view.outputs[0].shape))
            statements.append(Statement(view.computation, (value,), (seen,), view.node))
            value = seen
        return value

    def factor(found: _Dequantized) -> Value:
        """The scale; where it has one element, of any rank, as a scalar."""
        if product(found.scale.shape) != 1 or not found.scale.shape:
            return found.scale
        scalar = Value(f"{found.scale.name} alone", TensorType(DType.FLOAT, ()))
        statements.append(Statement(c.Reshape(()), (found.scale,), (scalar,), node))
        return scalar

    integers: Sequence[Value] = [moved(keys), moved(values)]
    queries, sums = (Value(f"{name} of {y.name}", one.type) for name, one in (("queries", q), ("sums", y)))
    statements.append(Statement(c.Map(_SCALED), (q, factor(keys)), (queries,), node))
    statements.append(Statement(statement.computation, (queries, *integers, *others[2:]), (sums,), node))
    statements.append(Statement(c.Map(_SCALED), (sums, factor(values)), (y,), node))
    return statements
