"""Truth values, comparisons, bits, and choosing by a condition."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np

from jitonnx.ir import dims
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import DataDependentError
from jitonnx.ops.base import Elementwise, Unary
from jitonnx.ops.onnx.arithmetic import Binary


class _Pairwise(Binary):
    """`function` on NumPy arrays and `expression` on scalar expressions say the same."""

    function: ClassVar[Any]
    expression: ClassVar[Any]

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return type(self).function(a, b)

    def scalar(self, a: e.Expr, b: e.Expr) -> e.Expr:
        return type(self).expression(a, b)


class And(_Pairwise):
    """Whether both are true."""

    commutative = True
    function = staticmethod(np.logical_and)
    expression = staticmethod(e.logical_and)


class Or(_Pairwise):
    """Whether one of the two is true."""

    commutative = True
    function = staticmethod(np.logical_or)
    expression = staticmethod(e.logical_or)


class Xor(_Pairwise):
    """Whether exactly one of the two is true."""

    commutative = True
    function = staticmethod(np.logical_xor)
    expression = staticmethod(e.logical_xor)


class Not(Unary):
    """Whether it is false."""

    function = staticmethod(np.logical_not)
    expression = staticmethod(e.logical_not)


# ---------------------------------------------------------------------------------------------- comparisons


class _Comparison(_Pairwise):
    """Compares shapes, too, where it can be decided for all sizes."""

    result = DType.BOOL
    symbolic = True

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return type(self).function(a, b).astype(bool)

    def evaluate_sizes(self, context: InferenceContext, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.frompyfunc(functools.partial(self._decide, context), 2, 1)(a, b)

    def _decide(self, context: InferenceContext, a: dims.DimLike, b: dims.DimLike) -> bool:
        """The comparison of two sizes, from the sign of their difference."""
        difference = a - b
        if isinstance(difference, int):
            return bool(type(self).function(difference, 0))
        if dims.not_negative(difference - 1):
            return bool(type(self).function(1, 0))
        if dims.not_negative(-1 - difference):
            return bool(type(self).function(-1, 0))
        if (order := context.decide_order(a, b, equal_only=type(self).function is np.equal)) is not None:
            return bool(type(self).function(order, 0))
        raise DataDependentError(f"whether {a} or {b} is larger depends on the sizes")


class Equal(_Comparison):
    """Whether both are equal; NaN is equal to nothing."""

    commutative = True
    function = staticmethod(np.equal)
    expression = staticmethod(e.equal)


class Greater(_Comparison):
    """Whether a > b."""

    function = staticmethod(np.greater)
    expression = staticmethod(lambda a, b: a > b)


class GreaterOrEqual(_Comparison):
    """Whether a >= b."""

    function = staticmethod(np.greater_equal)
    expression = staticmethod(lambda a, b: a >= b)


class Less(_Comparison):
    """Whether a < b."""

    function = staticmethod(np.less)
    expression = staticmethod(lambda a, b: a < b)


class LessOrEqual(_Comparison):
    """Whether a <= b."""

    function = staticmethod(np.less_equal)
    expression = staticmethod(lambda a, b: a <= b)


class Where(Elementwise):
    """X where condition is true, else Y."""

    symbolic = True

    def infer_dtype(self, *inputs: Value) -> DType:
        return inputs[1].dtype

    def evaluate(self, condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(condition.astype(bool), x, y)

    def scalar(self, condition: e.Expr, x: e.Expr, y: e.Expr) -> e.Expr:
        return e.where(condition, x, y)


# ---------------------------------------------------------------------------------------------- bits


class BitwiseAnd(_Pairwise):
    """The bits that both have."""

    commutative = True
    function = staticmethod(np.bitwise_and)
    expression = staticmethod(e.bitwise_and)


class BitwiseOr(_Pairwise):
    """The bits that one of the two has."""

    commutative = True
    function = staticmethod(np.bitwise_or)
    expression = staticmethod(e.bitwise_or)


class BitwiseXor(_Pairwise):
    """The bits that exactly one of the two has."""

    commutative = True
    function = staticmethod(np.bitwise_xor)
    expression = staticmethod(e.bitwise_xor)


class BitwiseNot(Unary):
    """All bits inverted."""

    function = staticmethod(np.invert)
    expression = staticmethod(e.bitwise_not)
