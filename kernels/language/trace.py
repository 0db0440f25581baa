"""Code written as plain arithmetic: what is done to `Traced` values becomes LLVM IR as the Python that does it runs.

    def softsign(x: Traced) -> Traced:
        return x / (absolute(x) + 1.0)

Such a function runs once for every place where its code is wanted, with the element type and the CPU at hand: it can
pick coefficients by precision and loop over them. Nothing has to be inferred, so compiling is LLVM's work alone.

Every operation here is rounded on its own (no contraction): where a multiply-add is to be fused, `fma` says so. This
is what error-compensated arithmetic needs.
"""

from __future__ import annotations

import functools
import inspect
import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from jitonnx.kernels.language import ir, types
from jitonnx.kernels.language.llvm import arithmetic, comparison, holds_everywhere, llvm_intrinsic, opaque, splat
from jitonnx.target import Target

_INTEGERS = {32: types.int32, 64: types.int64}


class Traced:
    """A float, an integer or a truth value, one or a vector of them, in the LLVM function being built.

    Operators work lane by lane; a comparison gives truth values. A number on one side counts as a value like the other.
    """

    __slots__ = ("builder", "element", "value")

    def __init__(self, builder: ir.IRBuilder, element: types.Type, value: ir.Value) -> None:
        self.builder, self.element, self.value = builder, element, value

    @property
    def width(self) -> int:
        """Bits of an element: 32 (single precision) or 64 (double)."""
        return self.element.bitwidth

    @property
    def lanes(self) -> int:
        """How many elements the vector has; 0 for a scalar."""
        return self.value.type.count if isinstance(self.value.type, ir.VectorType) else 0

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, types.Float)

    @property
    def target(self) -> Target:
        """The CPU that the code is for."""
        return self.builder.module.target

    def constant(self, number: float) -> Traced:
        """`number` as a value of this type, in all lanes."""
        return Traced(self.builder, self.element, constant(self.value.type, number))

    def fit(self, other: Traced | float) -> Traced:
        return other if isinstance(other, Traced) else self.constant(other)

    def like(self, value: ir.Value) -> Traced:
        return Traced(self.builder, self.element, value)

    def spread(self, lanes: int) -> Traced:
        """A scalar in all lanes of a vector."""
        return self.like(splat(self.builder, self.value, lanes))

    def behind(self, vector: Traced) -> Traced:
        """This value, a vector of a register's length, of which LLVM knows no more than that it cannot be had before
        another vector: what is made of it does not take registers before that is there."""
        return self.like(opaque(self.builder, self.value, vector.value))

    def _arithmetic(self, name: str, a: Traced | float, b: Traced | float) -> Traced:
        return self.like(arithmetic(self.builder, name, self.element, self.fit(a).value, self.fit(b).value))

    def __add__(self, other: Traced | float) -> Traced:
        return self._arithmetic("+", self, other)

    def __radd__(self, other: float) -> Traced:
        return self._arithmetic("+", other, self)

    def __sub__(self, other: Traced | float) -> Traced:
        return self._arithmetic("-", self, other)

    def __rsub__(self, other: float) -> Traced:
        return self._arithmetic("-", other, self)

    def __mul__(self, other: Traced | float) -> Traced:
        return self._arithmetic("*", self, other)

    def __rmul__(self, other: float) -> Traced:
        return self._arithmetic("*", other, self)

    def __truediv__(self, other: Traced | float) -> Traced:
        """The quotient; of integers that is cut off, and LLVM's: see `simd.divide_integer` for divisors of 0."""
        return self._arithmetic("/", self, other)

    def __rtruediv__(self, other: float) -> Traced:
        return self._arithmetic("/", other, self)

    def __neg__(self) -> Traced:
        return self.like(self.builder.fneg(self.value) if self.is_float else self.builder.neg(self.value))

    def __and__(self, other: Traced | int) -> Traced:
        return self._arithmetic("&", self, other)

    def __or__(self, other: Traced | int) -> Traced:
        return self._arithmetic("|", self, other)

    def __xor__(self, other: Traced | int) -> Traced:
        return self._arithmetic("^", self, other)

    def __invert__(self) -> Traced:
        return self.like(self.builder.not_(self.value))

    def __lshift__(self, count: Traced | int) -> Traced:
        return self._arithmetic("<<", self, count)

    def __rshift__(self, count: Traced | int) -> Traced:
        """A signed integer keeps its sign."""
        return self._arithmetic(">>", self, count)

    def _compare(self, name: str, other: Traced | float) -> Traced:
        return Traced(
            self.builder,
            types.boolean,
            comparison(self.builder, name, self.element, self.value, self.fit(other).value),
        )

    def __lt__(self, other: Traced | float) -> Traced:
        return self._compare("<", other)

    def __le__(self, other: Traced | float) -> Traced:
        return self._compare("<=", other)

    def __gt__(self, other: Traced | float) -> Traced:
        return self._compare(">", other)

    def __ge__(self, other: Traced | float) -> Traced:
        return self._compare(">=", other)

    def equals(self, other: Traced | float) -> Traced:
        return self._compare("==", other)

    def differs(self, other: Traced | float) -> Traced:
        """Not `equals`: also where one is NaN."""
        return self._compare("!=", other)


_Function = TypeVar("_Function", bound=Callable[..., Traced])


def vector_function(function: _Function) -> _Function:
    """A function of floats, vectors or scalars; the first is a Traced value, later ones may be numbers.

    TypeError tells of elements other than float32 and float64.
    """
    name, arity = function.__name__, len(inspect.signature(function).parameters)

    @functools.wraps(function)
    def apply(x: Traced, *others: Traced | float) -> Traced:
        if x.element not in (types.float32, types.float64):
            raise TypeError(f"{name} is defined on float32 and float64, not on {x.element}; convert its argument")
        if len(others) != arity - 1:
            raise TypeError(f"{name} takes {arity} arguments")
        return function(x, *map(x.fit, others))

    return apply  # type: ignore[return-value]


def constant(typ: ir.Type, number: float) -> ir.Constant:
    """`number` as an LLVM constant of `typ`, in all lanes of a vector."""
    if isinstance(typ, ir.VectorType):
        return ir.splat(typ, _fitting(typ.element, number))
    return ir.Constant(typ, _fitting(typ, number))


def _fitting(element: ir.Type, number: float) -> float:
    return int(number) if isinstance(element, ir.IntType) else number


def numbers(typ: ir.VectorType, values: Sequence[float]) -> ir.Constant:
    """A constant vector of 32-bit numbers. Tables come again with each function that is looked up in them: their text,
    a third of what it took to write a region of 64 of these, is made once."""
    return _numbers(typ, struct.pack(f"{len(values)}d", *values))


@functools.lru_cache(1024)
def _numbers(typ: ir.VectorType, packed: bytes) -> ir.Constant:
    """`packed`: float64, by which -0 is another number than 0."""
    values = struct.unpack(f"{len(packed) // 8}d", packed)
    return ir.Constant(typ, [_fitting(typ.element, value) for value in values])


# ---------------------------------------------------------------- operations


def _call(name: str, first: Traced, *others: Traced | float) -> Traced:
    values = [first.value, *(first.fit(other).value for other in others)]
    return first.like(llvm_intrinsic(first.builder, name, first.value.type, values, first.value.type))


def fma(a: Traced, b: Traced | float, c: Traced | float) -> Traced:
    """a * b + c, rounded once."""
    if not isinstance(b, Traced) and b in (1, -1):
        return c + a if b == 1 else c - a
    return _call("fma", a, b, c)


def sqrt(x: Traced) -> Traced:
    return _call("sqrt", x)


def absolute(x: Traced) -> Traced:
    if x.is_float:
        return _call("fabs", x)
    return select(x < 0, -x, x) if x.element.signed else x


def rint(x: Traced) -> Traced:
    """The nearest integer, ties to even."""
    return _call("roundeven", x)


_ROUNDING = 1.5 * 2.0**23
"""A float32 whose last place is 1: a sum with it is rounded to whole numbers."""


def nearest_integer(x: Traced) -> Traced:
    """The integers nearest to float32 within ±2**22, ties to even, as int32."""
    return nearest_low(x) - 0x4B400000


def nearest_low(x: Traced) -> Traced:
    """Do what `nearest_integer` does, but for what is above the 16 low bits."""
    return bits(x + _ROUNDING)


def within(x: Traced, low: Traced, high: Traced) -> Traced:
    """x, but `low` where it is less or not a number, and `high` where it is more."""
    above = select(x > low, x, low)
    return select(above < high, above, high)


def copysign(magnitude: Traced, sign: Traced) -> Traced:
    return _call("copysign", magnitude, sign)


def select(condition: Traced, a: Traced | float, b: Traced | float) -> Traced:
    """a where the condition holds, else b; one of them is a Traced value."""
    model = a if isinstance(a, Traced) else b
    assert isinstance(model, Traced)
    return model.like(model.builder.select(condition.value, model.fit(a).value, model.fit(b).value))


def replaced(condition: Traced, values: Sequence[Traced], others: Callable[[], Sequence[Traced]]) -> list[Traced]:
    """`values`, and others() in the lanes where the condition holds; what these take is skipped if it does nowhere.

    For rare cases: a lane's result does not depend on what is in the other lanes.
    """
    builder = values[0].builder
    nowhere = holds_everywhere(builder, builder.not_(condition.value))
    before = builder.block
    with builder.if_then(builder.not_(nowhere), likely=False):
        chosen = [select(condition, other, value) for other, value in zip(others(), values, strict=True)]
        inside = builder.block
    results = []
    for value, choice in zip(values, chosen, strict=True):
        result = builder.phi(value.value.type)
        result.add_incoming(value.value, before)
        result.add_incoming(choice.value, inside)
        results.append(value.like(result))
    return results


def at_least(x: Traced, bound: Traced | float) -> Traced:
    """max(x, bound); a NaN in x stays."""
    return select(x.fit(bound) > x, bound, x)


def at_most(x: Traced, bound: Traced | float) -> Traced:
    """min(x, bound); a NaN in x stays."""
    return select(x.fit(bound) < x, bound, x)


def isnan(x: Traced) -> Traced:
    return unordered("uno", x, x)


def unordered(comparison: str, a: Traced, b: Traced) -> Traced:
    """Whether floats compare so (">", "<", …) or one of them is NaN."""
    return Traced(a.builder, types.boolean, a.builder.fcmp_unordered(comparison, a.value, b.value))


def one_if(condition: Traced) -> Traced:
    """1 if a condition (a scalar) holds, else 0."""
    return Traced(condition.builder, types.int64, condition.builder.zext(condition.value, ir.IntType(64)))


def bits(x: Traced) -> Traced:
    """The bit pattern of floats, as signed integers of the same width."""
    integer = _INTEGERS[x.width]
    return Traced(x.builder, integer, x.builder.bitcast(x.value, _with_element(x.value.type, ir.IntType(x.width))))


def from_bits(pattern: Traced) -> Traced:
    """The floats whose bit patterns these integers are."""
    single = pattern.width == 32
    to = _with_element(pattern.value.type, ir.FloatType() if single else ir.DoubleType())
    return Traced(
        pattern.builder, types.float32 if single else types.float64, pattern.builder.bitcast(pattern.value, to)
    )


def to_double(x: Traced) -> Traced:
    return Traced(x.builder, types.float64, x.builder.fpext(x.value, _with_element(x.value.type, ir.DoubleType())))


def to_single(x: Traced) -> Traced:
    return Traced(x.builder, types.float32, x.builder.fptrunc(x.value, _with_element(x.value.type, ir.FloatType())))


def to_float(integers: Traced) -> Traced:
    """Integers as floats of the same width."""
    single = integers.width == 32
    to = _with_element(integers.value.type, ir.FloatType() if single else ir.DoubleType())
    return Traced(
        integers.builder, types.float32 if single else types.float64, integers.builder.sitofp(integers.value, to)
    )


def funnel_left(high: Traced, low: Traced, count: int) -> Traced:
    """The upper half of the integers high:low shifted left by `count` bits."""
    return _call("fshl", high, low, count)


def narrow(integers: Traced) -> Traced:
    """The low 32 bits of 64-bit integers."""
    return Traced(
        integers.builder,
        types.int32,
        integers.builder.trunc(integers.value, _with_element(integers.value.type, ir.IntType(32))),
    )


def _with_element(typ: ir.Type, element: ir.Type) -> ir.Type:
    return ir.VectorType(element, typ.count) if isinstance(typ, ir.VectorType) else element


def polynomial(x: Traced, coefficients: Sequence[Traced | float]) -> Traced:
    """coefficients[0] + coefficients[1] * x + …, by Horner's rule."""
    *lower, highest = coefficients
    return functools.reduce(lambda total, c: fma(total, x, c), reversed(lower), x.fit(highest))
