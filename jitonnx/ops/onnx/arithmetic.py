"""Arithmetic on elements: sums, products, powers, comparisons of magnitude, rounding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from jitonnx.ir import dims
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import DataDependentError, InferenceError
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import (
    FLOATS,
    SIGNED,
    Elementwise,
    Unary,
    computed,
    via_float32,
)
from jitonnx.ops.elementary import erf
from jitonnx.ops.onnx.shape import Unsqueeze

# ---------------------------------------------------------------------------------------------- two inputs


class Binary(Elementwise):
    """Two inputs, broadcast. Before version 7 only the second was, and only where an attribute asked for it."""

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 7:
            align_second_input(node)


def align_second_input(node: RawNode) -> None:
    """Versions before 7 line B's axes up with A's from `axis` on: B gets trailing axes of size 1."""
    asked, axis = node.attributes.pop("broadcast", 0), node.attributes.pop("axis", None)
    a, b = node.inputs
    if not asked or axis is None or a is None or b is None:
        return
    trailing = len(a.shape) - axis % len(a.shape) - len(b.shape)
    if trailing > 0:
        axes = np.arange(len(b.shape), len(b.shape) + trailing)
        node.inputs[1] = node.add(Unsqueeze(), [b, node.add_constant(axes)])


def _elements(function: Callable[..., object]) -> Callable[..., np.ndarray]:
    """`function` of Python integers or dimension expressions, on object arrays."""
    return np.frompyfunc(function, 2, 1)


class Add(Binary):
    """a + b."""

    commutative = True
    symbolic = True

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b

    def scalar(self, a: e.Expr, b: e.Expr) -> e.Expr:
        return a + b


class Sub(Binary):
    """a - b."""

    symbolic = True

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a - b

    def scalar(self, a: e.Expr, b: e.Expr) -> e.Expr:
        return a - b


class Mul(Binary):
    """a * b."""

    commutative = True
    symbolic = True

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a * b

    def scalar(self, a: e.Expr, b: e.Expr) -> e.Expr:
        return a * b


class Div(Binary):
    """a / b; integers truncate towards zero, and the smallest integer divided by -1 wraps. A division by an integer 0
    is an error."""

    symbolic = True

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind not in "iu":
            return a / b
        _check_divisors(b)
        return _truncated_division(a, b)

    def evaluate_sizes(self, context: InferenceContext, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return _elements(functools.partial(_divide_dims, context))(a, b)

    def scalar(self, a: e.Expr, b: e.Expr) -> e.Expr:
        return a / b

    def lower(self, to: Lowering, *inputs: Value | None) -> Value:
        _lower_check(to, inputs[1])
        return super().lower(to, *inputs)


_BY_ZERO = "an element of B is 0, and integers cannot be divided by 0"


def _check_divisors(b: np.ndarray) -> None:
    """ZeroDivisionError if an integer among them is 0."""
    if b.dtype.kind in "iu" and not b.all():
        raise ZeroDivisionError(_BY_ZERO)


def _lower_check(to: Lowering, b: Value | None) -> None:
    """Check divisors as `_check_divisors` does, in a run; known ones need no check."""
    if b is not None and b.dtype is not None and b.dtype.is_integer and (b.constant is None or not b.constant.all()):
        to.check(to.map(e.equal(e.operand(0, b.dtype), 0), b), _BY_ZERO)


def _divide_dims(context: InferenceContext, a: dims.DimLike, b: dims.DimLike) -> dims.DimLike:
    """a / b, towards zero: rounded down where a is not negative, as sizes are. What differences are is assumed."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if isinstance(b, int) and b < 0:
        return 0 - _divide_dims(context, a, -b)
    if dims.not_negative(a) or context.assume_equal(dims.maximum(a, 0), a):
        return dims.floor_divide(a, b)
    if context.assume_equal(dims.minimum(a, 0), a):  # the feeds of an example
        return 0 - dims.floor_divide(0 - a, b)
    raise DataDependentError(f"whether {a} is negative depends on the sizes")


def _truncated_division(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "u":
        return a // b
    quotient = a // b  # rounded down, and wrong in some NumPy versions for the smallest integer by -1
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    return np.where(b == -1, -a, quotient + inexact).astype(a.dtype)


class Mod(Binary):
    """The remainder of a / b, with b's sign; with fmod = 1 with a's. A division by an integer 0 is an error."""

    symbolic = True

    fmod: int = 0

    def infer_dtype(self, *inputs: Value) -> DType:
        if self.fmod not in (0, 1):
            raise InferenceError(f"fmod is {self.fmod}; 0 and 1 are known")
        return super().infer_dtype(*inputs)

    @via_float32
    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype == object:
            if self.fmod:
                raise DataDependentError("fmod of a dimension expression")
            return _elements(dims.modulo)(a, b)
        _check_divisors(b)
        return np.fmod(a, b) if self.fmod else np.mod(a, b)

    def scalar(self, a: e.Expr, b: e.Expr) -> e.Expr:
        return e.fmod(a, b) if self.fmod else e.mod(a, b)

    def lower(self, to: Lowering, *inputs: Value | None) -> Value:
        _lower_check(to, inputs[1])
        return super().lower(to, *inputs)


class Pow(Binary):
    """a to the power b, in a's type. Whole powers of integers are exact where they fit that type; negative ones are
    truncated."""

    def infer_dtype(self, *inputs: Value) -> DType:
        return inputs[0].dtype

    @via_float32
    def evaluate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if x.dtype.kind != "i":
            # For an exponent 0.5 with stride 0 NumPy takes the square root, which differs at -0.0 and -inf.
            shape = np.broadcast_shapes(x.shape, y.shape)
            return np.power(x, np.broadcast_to(y.astype(x.dtype), shape).copy())
        if y.dtype.kind in "iu":
            inverse = np.where(np.abs(x) == 1, np.where(y % 2, x, 1), 0)
            whole = np.power(x, np.maximum(y, 0).astype(x.dtype))
            return np.where(y < 0, inverse, whole).astype(x.dtype)
        return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)

    def scalar(self, x: e.Expr, y: e.Expr) -> e.Expr:
        if x.dtype.is_float:
            return e.power(x, e.cast(y, x.dtype))
        if not y.dtype.is_float:
            return _whole_power(x, y)
        return e.cast(e.power(e.cast(x, DType.DOUBLE), e.cast(y, DType.DOUBLE)), x.dtype)

    def lower(self, to: Lowering, *inputs: Value | None) -> Value:
        """Small constant powers become products: pow costs some 20 times as much."""
        x, y = inputs
        assert x is not None and y is not None
        known = y.constant
        if known is not None and known.size == 1 and len(y.shape) <= len(x.shape):
            product = _small_power(computed(0, x), known.item())
            if product is not None:
                return to.map(e.cast(product, x.dtype), x)
        return super().lower(to, x, y)


def _whole_power(x: e.Expr, exponent: e.Expr) -> e.Expr:
    """x ** exponent of integers by repeated squaring: float64 has the digits of 2**53, and no more."""
    bits = 8 * x.dtype.itemsize
    whole = e.cast(exponent, DType.INT64)
    is_odd = e.equal(e.bitwise_and(whole, 1), 1)
    # All bases but 0, 1 and -1 overflow with more than `bits`, and these tell apart odd powers and even ones alone.
    rest = e.where(whole < bits, whole, e.where(is_odd, e.constant(bits - 1, DType.INT64), bits - 2))
    sign = power = e.where(is_odd, x, 1)
    square = x
    for place in range(1, bits.bit_length() - 1):
        square = square * square
        power = e.where(e.equal(e.bitwise_and(e.shift_right(rest, place), 1), 1), power * square, power)
    return e.where(whole < 0, e.where(e.equal(e.absolute(x), 1), sign, 0), power)


def _small_power(x: e.Expr, exponent: float) -> e.Expr | None:
    """x ** exponent without calling pow, for the exponents that models use; None for others."""
    if exponent in (1, 2, 3, 4):
        square = x * x
        return {1: x, 2: square, 3: square * x, 4: square * square}[int(exponent)]
    if exponent == 0.5 and x.dtype.is_float:
        # pow(-0.0, 0.5) is 0.0 and pow(-inf, 0.5) is inf, where sqrt gives -0.0 and NaN.
        return e.where(e.equal(x, float("-inf")), float("inf"), e.sqrt(x) + 0.0)
    if exponent == -1 and x.dtype.is_float:
        return e.reciprocal(x)
    return None


class BitShift(Elementwise):
    """x shifted by y bits to the LEFT or RIGHT; by y outside [0, bits): 0, or -1 for a negative x to the right."""

    direction: str

    def infer_dtype(self, *inputs: Value) -> DType:
        if self.direction not in ("LEFT", "RIGHT"):
            raise InferenceError(f"direction is {self.direction!r}; 'LEFT' and 'RIGHT' are known")
        return super().infer_dtype(*inputs)

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        bits = x.dtype.itemsize * 8
        outside = (y < 0) | (y >= bits)
        if self.direction == "LEFT":
            return np.where(outside, x.dtype.type(0), x << np.where(outside, y.dtype.type(0), y))
        return x >> np.where(outside, y.dtype.type(bits - 1), y) if x.dtype.kind == "i" else self._right(x, y, outside)

    @staticmethod
    def _right(x: np.ndarray, y: np.ndarray, outside: np.ndarray) -> np.ndarray:
        return np.where(outside, x.dtype.type(0), x >> np.where(outside, y.dtype.type(0), y))

    def scalar(self, x: e.Expr, y: e.Expr) -> e.Expr:
        bits = x.dtype.itemsize * 8
        outside = y > bits - 1 if x.dtype not in SIGNED else e.logical_or(y < 0, y > bits - 1)
        shift = e.shift_left if self.direction == "LEFT" else e.shift_right
        if self.direction == "RIGHT" and x.dtype in SIGNED:
            return shift(x, e.where(outside, bits - 1, y))
        return e.where(outside, 0, shift(x, e.where(outside, 0, y)))


# ---------------------------------------------------------------------------------------------- any number of inputs


class _Variadic(Elementwise):
    """One or more inputs, broadcast together; before version 8 all of one shape."""

    def infer(self, context: InferenceContext, *inputs: Any, **unused: Any) -> TensorType:
        if not inputs:
            raise InferenceError("at least one input is needed")
        return super().infer(context, *inputs)


class Max(_Variadic):
    """The largest of the inputs' elements; NaN if one is NaN."""

    symbolic = True

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        largest = np.maximum if arrays[0].dtype != object else _elements(dims.maximum)
        return functools.reduce(largest, arrays)

    def scalar(self, *operands: e.Expr) -> e.Expr:
        return functools.reduce(e.maximum, operands)


class Min(_Variadic):
    """The smallest of the inputs' elements; NaN if one is NaN."""

    symbolic = True

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        smallest = np.minimum if arrays[0].dtype != object else _elements(dims.minimum)
        return functools.reduce(smallest, arrays)

    def scalar(self, *operands: e.Expr) -> e.Expr:
        return functools.reduce(e.minimum, operands)


class Sum(_Variadic):
    """The sum of the inputs."""

    @via_float32
    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return functools.reduce(np.add, arrays)

    def scalar(self, *operands: e.Expr) -> e.Expr:
        return functools.reduce(lambda a, b: a + b, operands)


class Mean(_Variadic):
    """The sum of the inputs over their number."""

    @via_float32
    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return functools.reduce(np.add, arrays) / len(arrays)

    def scalar(self, *operands: e.Expr) -> e.Expr:
        return functools.reduce(lambda a, b: a + b, operands) / len(operands)


class Clip(Elementwise):
    """min(max, max(input, min)): with min above max everything is max. Limits that are absent do nothing."""

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version >= 11 or node.inputs[0] is None:
            return
        # Version 6 gives the limits defaults, the largest floats; version 1 none.
        largest = float(np.finfo(np.float32).max) if node.version == 6 else None
        kind = node.inputs[0].dtype.numpy
        with np.errstate(over="ignore"):
            node.attribute_to_input("min", 1, kind, None if largest is None else -largest)
            node.attribute_to_input("max", 2, kind, largest)

    def infer(
        self, context: InferenceContext, x: Value, low: Value | None = None, high: Value | None = None
    ) -> TensorType:
        limits = [value for value in (low, high) if value is not None]
        for limit in limits:
            if limit.shape not in ((), (1,)):
                raise InferenceError(f"limit {limit.name!r} is of type {limit.type}; a scalar is needed")
        return x.type

    def evaluate(self, x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> np.ndarray:
        if low is not None:
            x = np.maximum(x, low.reshape(()))
        return np.minimum(x, high.reshape(())) if high is not None else np.array(x)

    def lower(self, to: Lowering, *inputs: Value | None) -> Value:
        x, low, high = (*inputs, None, None)[:3]
        assert x is not None
        operands = [x]

        def limit(value: Value) -> e.Expr:
            if value.constant is not None:
                return e.constant(value.constant.item(), x.dtype)
            operands.append(to.reshape(value, ()))
            return e.operand(len(operands) - 1, x.dtype)

        clipped = e.operand(0, x.dtype)
        if low is not None:
            clipped = e.maximum(clipped, limit(low))
        if high is not None:
            clipped = e.minimum(clipped, limit(high))
        return to.map(clipped, *operands)


# ---------------------------------------------------------------------------------------------- one input


def _integers_stay(expression: Callable[[e.Expr], e.Expr]) -> Callable[[e.Expr], e.Expr]:
    """An expression that means nothing to unsigned integers."""
    return lambda x: expression(x) if x.dtype in FLOATS | SIGNED else x


class Abs(Unary):
    """The absolute value; that of the smallest integer wraps to itself."""

    function = staticmethod(np.abs)
    expression = staticmethod(_integers_stay(e.absolute))


class Ceil(Unary):
    """Rounded up."""

    function = staticmethod(np.ceil)
    expression = staticmethod(e.ceil)


class Erf(Unary):
    """The error function; integers (version 9 took them) are truncated."""

    @via_float32
    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return erf(x) if x.dtype.kind == "f" else erf(x.astype(np.float64)).astype(x.dtype)

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.erf(x) if x.dtype.is_float else e.cast(e.erf(e.cast(x, DType.DOUBLE)), x.dtype)


class Exp(Unary):
    """e to the power x."""

    function = staticmethod(np.exp)
    expression = staticmethod(e.exp)


class Floor(Unary):
    """Rounded down."""

    function = staticmethod(np.floor)
    expression = staticmethod(e.floor)


class IsInf(Elementwise):
    """Whether an element is infinite, of the signs asked for."""

    result = DType.BOOL

    detect_negative: int = 1
    detect_positive: int = 1

    @via_float32
    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return ((x == np.inf) & bool(self.detect_positive)) | ((x == -np.inf) & bool(self.detect_negative))

    def scalar(self, x: e.Expr) -> e.Expr:
        if self.detect_positive and self.detect_negative:
            return e.isinf(x)
        if self.detect_positive or self.detect_negative:
            return e.equal(x, float("inf") if self.detect_positive else float("-inf"))
        return e.constant(False, DType.BOOL)


class IsNaN(Elementwise):
    """Whether an element is not a number."""

    result = DType.BOOL

    @via_float32
    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.isnan(x)

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.isnan(x)


class Log(Unary):
    """The natural logarithm."""

    function = staticmethod(np.log)
    expression = staticmethod(e.log)


class Neg(Unary):
    """-x."""

    symbolic = True
    function = staticmethod(np.negative)
    expression = staticmethod(lambda x: -x)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return -x


class Reciprocal(Unary):
    """1 / x."""

    function = staticmethod(lambda x: 1 / x)
    expression = staticmethod(e.reciprocal)


class Round(Unary):
    """Rounded to the nearest integer, halves to the even one."""

    function = staticmethod(np.rint)
    expression = staticmethod(e.round_even)


class Sign(Unary):
    """-1, 0 or 1; NaN stays NaN."""

    function = staticmethod(np.sign)
    expression = staticmethod(lambda x: e.sign(x) if x.dtype.is_float else _integer_sign(x))


def _integer_sign(x: e.Expr) -> e.Expr:
    zero = e.constant(0, x.dtype)
    return e.where(x > 0, e.constant(1, x.dtype), e.where(x < 0, -1, zero) if x.dtype in SIGNED else zero)


class Sqrt(Unary):
    """The square root; NaN of negative numbers."""

    function = staticmethod(np.sqrt)
    expression = staticmethod(e.sqrt)
