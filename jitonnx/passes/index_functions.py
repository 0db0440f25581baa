"""What is known of integer and boolean tensors before the run: functions of their own coordinates.

Exporters spell positions and masks with Range, Unsqueeze, Expand, Concat and comparisons. Such a tensor of integers is
an `Affine` function of its coordinates, whatever its sizes:

    Unsqueeze(Range(0, seq, 1), [0, 2])        # [1, seq, 1]: element [i, j, k] is j

and a comparison of two of them is often true, or false, for all coordinates. `Analysis` answers such questions and
remembers the answers; it looks at a graph that does not change meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jitonnx.ir.dims import DimLike, not_negative
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.operator import Operator, evaluate_arrays
from jitonnx.ops.onnx.arithmetic import Add, Mul, Neg, Sub
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.generators import ConstantOfShape, Range
from jitonnx.ops.onnx.logic import Equal, Greater, GreaterOrEqual, Less, LessOrEqual
from jitonnx.ops.onnx.shape import Expand
from jitonnx.passes.rewriting import array
from jitonnx.passes.views import View, apply_step, identity, step_of
from jitonnx.support.records import dataclass

EXAMINED = 1 << 20
"""Constants of more elements are not searched for a pattern."""
_LARGEST = 1 << 40
"""Above all sizes and indices; times EXAMINED it is within 64 bits."""


@dataclass(frozen=True)
class Affine:
    """Element [i0, i1, ...] is offset + sum of coefficients[a] * i_a. The coefficient of an axis of size 1 is 0."""

    offset: DimLike
    coefficients: tuple[DimLike, ...]

    @property
    def uniform(self) -> bool:
        """Whether all elements are equal."""
        return all(coefficient == 0 for coefficient in self.coefficients)

    def bounds(self, shape: Sequence[DimLike]) -> tuple[DimLike, DimLike] | None:
        """The smallest and the largest element of a tensor of this shape; None if a coefficient's sign is unknown."""
        low = high = self.offset
        for coefficient, size in zip(self.coefficients, shape, strict=False):
            reach = coefficient * (size - 1)
            if not_negative(coefficient, shape):
                high = high + reach
            elif not_negative(-1 * coefficient, shape):
                low = low + reach
            else:
                return None
        return low, high


class Analysis:
    """Affine functions and uniform values of one graph, computed when asked for."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._affine: dict[Value, Affine | None] = {}
        self._uniform: dict[Value, np.ndarray | None] = {}

    # ------------------------------------------------------------ integers

    def affine(self, value: Value) -> Affine | None:
        """The function that an integer tensor is of its coordinates, if it is affine."""
        if value not in self._affine:
            self._affine[value] = self._find_affine(value)
        return self._affine[value]

    def _find_affine(self, value: Value) -> Affine | None:
        if value.dtype not in (DType.INT64, DType.INT32) or value.type.shape is None:
            return None
        if value.contents is not None:
            return _fit(value)
        node = value.producer
        if node is None:
            return None
        if (step := step_of(value, self._graph.assumptions)) is not None and node.inputs[0] is not None:
            given = self.affine(node.inputs[0])
            view = apply_step(identity(node.inputs[0].shape), step)
            return _through(view, given) if view is not None and given is not None else None
        rule = _AFFINE.get(type(node.operator))
        found = rule(self, node) if rule is not None else None
        return found and _without_units(found, value.shape)

    # ------------------------------------------------------------ equal elements

    def uniform(self, value: Value | None) -> np.ndarray | None:
        """The scalar that all elements of a tensor are, if they are equal and it is known (not asked of big floats)."""
        if value is None:
            return None
        if value not in self._uniform:
            self._uniform[value] = self._find_uniform(value)
        return self._uniform[value]

    def _find_uniform(self, value: Value) -> np.ndarray | None:
        if value.dtype is None or value.dtype is DType.STRING or value.type.shape is None:
            return None
        if (elements := array(value)) is not None:
            return _one_element(elements)
        node = value.producer
        if node is None:
            return None
        if (known := self.affine(value)) is not None and known.uniform and isinstance(known.offset, int):
            return np.asarray(known.offset, value.dtype.numpy)
        if step_of(value, self._graph.assumptions) is not None or isinstance(node.operator, Expand):
            return self.uniform(node.inputs[0])
        if isinstance(node.operator, ConstantOfShape):
            return np.asarray(evaluate_arrays(node.operator, [np.ones(1, np.int64)])[0]).reshape(())
        if (answer := self.compared(node)) is not None:
            return np.asarray(answer)
        if node.operator.elementwise and node.operator.deterministic and node.inputs:
            scalars = [self.uniform(one) for one in node.inputs]
            if not any(one is None for one in scalars):
                return np.asarray(evaluate_arrays(node.operator, scalars)[0])
        return None

    def compared(self, node: Node) -> bool | None:
        """What a comparison of two affine tensors gives for all coordinates, if it is the same for all."""
        question = _COMPARISONS.get(type(node.operator))
        difference = self.difference(node) if question is not None else None
        if question is None or difference is None:
            return None
        shape = node.output.shape
        bounds = difference.bounds(shape)
        if bounds is None:
            return None
        low, high = bounds
        return question(shape, low, high)

    def difference(self, node: Node) -> Affine | None:
        """First input minus second, broadcast, where both are affine."""
        return _combine(self, node, -1)


# ---------------------------------------------------------------- operators


def _fit(value: Value) -> Affine | None:
    """The affine function that known contents are."""
    contents = value.contents
    assert contents is not None
    if contents.size == 1 and contents.dtype == object:
        return Affine(contents.reshape(-1)[0], (0,) * contents.ndim)
    return fit(elements) if (elements := array(value)) is not None else None


def fit(elements: np.ndarray) -> Affine | None:
    """The affine function of coordinates that an array of integers is. Numbers beyond all indices have none."""
    if elements.size == 0 or elements.size > EXAMINED:
        return None
    offset = int(elements[(0,) * elements.ndim])
    coefficients = []
    for axis, size in enumerate(elements.shape):
        unit = tuple(int(other == axis) for other in range(elements.ndim))
        coefficients.append(int(elements[unit]) - offset if size > 1 else 0)
    if max(map(abs, (offset, *coefficients))) > _LARGEST:  # their products are beyond 64 bits
        return None
    expected = np.asarray(offset)
    for axis, coefficient in enumerate(coefficients):
        ramp = np.arange(elements.shape[axis]) * coefficient
        expected = expected + ramp.reshape(-1, *(1,) * (elements.ndim - axis - 1))
    return Affine(offset, tuple(coefficients)) if np.array_equal(expected, elements) else None


def _through(view: View, given: Affine) -> Affine | None:
    """An affine function looked at through a view."""
    offset = given.offset
    for start, coefficient in zip(view.offsets, given.coefficients, strict=False):
        offset = offset + start * coefficient
    coefficients: list[DimLike] = []
    for axis in view.axes:
        steps = [given.coefficients[factor.axis] * factor.stride for factor in axis]
        if any(a != b * factor.size for a, b, factor in zip(steps, steps[1:], axis[1:], strict=False)):
            return None
        coefficients.append(steps[-1] if steps else 0)
    return Affine(offset, tuple(coefficients))


def _without_units(found: Affine, shape: Sequence[DimLike]) -> Affine:
    return Affine(
        found.offset, tuple(0 if size == 1 else c for c, size in zip(found.coefficients, shape, strict=False))
    )


def _combine(analysis: Analysis, node: Node, sign: int) -> Affine | None:
    a, b = (analysis.affine(value) if value is not None else None for value in node.inputs)
    if a is None or b is None:
        return None
    rank = len(node.output.shape)
    left, right = ((0,) * (rank - len(one.coefficients)) + one.coefficients for one in (a, b))
    return Affine(a.offset + sign * b.offset, tuple(x + sign * y for x, y in zip(left, right, strict=False)))


def _mul(analysis: Analysis, node: Node) -> Affine | None:
    for first, second in (node.inputs, node.inputs[::-1]):
        factor = analysis.affine(first) if first is not None else None
        other = analysis.affine(second) if second is not None else None
        if factor is not None and other is not None and factor.uniform:
            rank = len(node.output.shape)
            padded = (0,) * (rank - len(other.coefficients)) + other.coefficients
            return Affine(other.offset * factor.offset, tuple(c * factor.offset for c in padded))
    return None


def _neg(analysis: Analysis, node: Node) -> Affine | None:
    given = analysis.affine(node.inputs[0]) if node.inputs[0] is not None else None
    return given and Affine(-1 * given.offset, tuple(-1 * c for c in given.coefficients))


def _range(analysis: Analysis, node: Node) -> Affine | None:
    start, _, step = (analysis.affine(value) if value is not None else None for value in node.inputs)
    return Affine(start.offset, (step.offset,)) if start is not None and step is not None else None


def _expand(analysis: Analysis, node: Node) -> Affine | None:
    given = analysis.affine(node.inputs[0]) if node.inputs[0] is not None else None
    rank = len(node.output.shape)
    return given and Affine(given.offset, (0,) * (rank - len(given.coefficients)) + given.coefficients)


def _cast(analysis: Analysis, node: Node) -> Affine | None:
    return analysis.affine(node.inputs[0]) if node.inputs[0] is not None else None


def _constant_of_shape(analysis: Analysis, node: Node) -> Affine | None:
    value = int(evaluate_arrays(node.operator, [np.ones(1, np.int64)])[0].reshape(-1)[0])
    return Affine(value, (0,) * len(node.output.shape))


_AFFINE: dict[type[Operator], Callable[[Analysis, Node], Affine | None]] = {
    Add: lambda analysis, node: _combine(analysis, node, 1),
    Sub: lambda analysis, node: _combine(analysis, node, -1),
    Mul: _mul,
    Neg: _neg,
    Range: _range,
    Expand: _expand,
    Cast: _cast,
    ConstantOfShape: _constant_of_shape,
}
"""Operators besides views whose result is affine where their inputs are."""


def _one_element(elements: np.ndarray) -> np.ndarray | None:
    if elements.size == 0 or elements.size > EXAMINED or (elements.dtype.kind == "f" and elements.size > 4096):
        return None
    first = elements.reshape(-1)[:1]
    return first.reshape(()) if elements.size == 1 or bool((elements == first).all()) else None


# ---------------------------------------------------------------- comparisons for all coordinates

_Question = Callable[[Sequence[DimLike], DimLike, DimLike], "bool | None"]


def _greater_or_equal(shape: Sequence[DimLike], low: DimLike, high: DimLike) -> bool | None:
    if not_negative(low, shape):
        return True
    return False if not_negative(-1 * high - 1, shape) else None


def _greater(shape: Sequence[DimLike], low: DimLike, high: DimLike) -> bool | None:
    return _greater_or_equal(shape, low - 1, high - 1)


def _less(shape: Sequence[DimLike], low: DimLike, high: DimLike) -> bool | None:
    answer = _greater_or_equal(shape, low, high)
    return None if answer is None else not answer


def _less_or_equal(shape: Sequence[DimLike], low: DimLike, high: DimLike) -> bool | None:
    answer = _greater(shape, low, high)
    return None if answer is None else not answer


def _equal(shape: Sequence[DimLike], low: DimLike, high: DimLike) -> bool | None:
    if low == 0 and high == 0:
        return True
    return False if _greater(shape, low, high) or _less(shape, low, high) else None


_COMPARISONS: dict[type[Operator], _Question] = {
    GreaterOrEqual: _greater_or_equal,
    Greater: _greater,
    Less: _less,
    LessOrEqual: _less_or_equal,
    Equal: _equal,
}
"""What a comparison says of a difference between `low` and `high`."""
