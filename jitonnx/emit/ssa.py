"""Code written as plain arithmetic: what is done to `SSAValue` values becomes LLVM IR as the Python that does it runs.

    def softsign(x: SSAValue) -> SSAValue:
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

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.intrinsics import arithmetic, comparison, holds_everywhere, llvm_intrinsic, opaque, splat
from jitonnx.target.machine import Target

_INTEGERS = {32: types.int32, 64: types.int64}


def _arithmetic(name: str) -> Callable[[SSAValue, SSAValue | float], SSAValue]:
    """An operation of values with values or numbers."""
    return lambda a, b: a.like(arithmetic(a.builder, name, a.element, a.value, a.fit(b).value))


def _turned(name: str) -> Callable[[SSAValue, float], SSAValue]:
    """The same of numbers with values."""
    return lambda b, a: b.like(arithmetic(b.builder, name, b.element, b.fit(a).value, b.value))


def _comparison(name: str) -> Callable[[SSAValue, SSAValue | float], SSAValue]:
    return lambda a, b: SSAValue(
        a.builder, types.boolean, comparison(a.builder, name, a.element, a.value, a.fit(b).value)
    )


class SSAValue:
    """A float, an integer or a truth value, one or a vector of them, in the LLVM function being built.

    Operators work lane by lane; a comparison gives truth values. A number on one side counts as a value like the other.
    """

    __slots__ = ("builder", "element", "value")

    def __init__(self, builder: llvm_ir.IRBuilder, element: types.ElementType, value: llvm_ir.Value) -> None:
        self.builder, self.element, self.value = builder, element, value

    @property
    def width(self) -> int:
        """Bits of an element: 32 (single precision) or 64 (double)."""
        return self.element.bitwidth

    @property
    def lanes(self) -> int:
        """How many elements the vector has; 0 for a scalar."""
        return self.value.type.count if isinstance(self.value.type, llvm_ir.VectorType) else 0

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, types.Float)

    @property
    def target(self) -> Target:
        """The CPU that the code is for."""
        return self.builder.module.target

    def constant(self, number: float) -> SSAValue:
        """`number` as a value of this type, in all lanes."""
        return SSAValue(self.builder, self.element, constant(self.value.type, number))

    def fit(self, other: SSAValue | float) -> SSAValue:
        return other if isinstance(other, SSAValue) else self.constant(other)

    def like(self, value: llvm_ir.Value) -> SSAValue:
        return SSAValue(self.builder, self.element, value)

    def splat(self, lanes: int) -> SSAValue:
        """A scalar in all lanes of a vector."""
        return self.like(splat(self.builder, self.value, lanes))

    def behind(self, vector: SSAValue) -> SSAValue:
        """The same value, a vector of a register's length, of which LLVM knows no more than that it cannot be had
        before another vector: what is made of it does not take registers before that is there."""
        return self.like(opaque(self.builder, self.value, vector.value))

    __add__, __radd__ = _arithmetic("+"), _turned("+")
    __sub__, __rsub__ = _arithmetic("-"), _turned("-")
    __mul__, __rmul__ = _arithmetic("*"), _turned("*")
    __truediv__, __rtruediv__ = _arithmetic("/"), _turned("/")
    """The quotient; of integers that is cut off, and LLVM's: see `simd.divide_integer` for divisors of 0."""
    __and__, __or__, __xor__ = map(_arithmetic, "&|^")
    __lshift__, __rshift__ = _arithmetic("<<"), _arithmetic(">>")
    """Shifts; a signed integer that is shifted to the right keeps its sign."""
    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("<", "<=", ">", ">="))
    equals, differs = _comparison("=="), _comparison("!=")
    """A NaN differs from all."""

    def __neg__(self) -> SSAValue:
        return self.like(self.builder.fneg(self.value) if self.is_float else self.builder.neg(self.value))

    def __invert__(self) -> SSAValue:
        return self.like(self.builder.not_(self.value))


_Function = TypeVar("_Function", bound=Callable[..., SSAValue])


def vector_function(function: _Function) -> _Function:
    """A function of floats, vectors or scalars; the first is a SSAValue value, later ones may be numbers.

    TypeError tells of elements other than float32 and float64.
    """
    name, arity = function.__name__, len(inspect.signature(function).parameters)

    @functools.wraps(function)
    def apply(x: SSAValue, *others: SSAValue | float) -> SSAValue:
        if x.element not in (types.float32, types.float64):
            raise TypeError(f"{name} is defined on float32 and float64, not on {x.element}; convert its argument")
        if len(others) != arity - 1:
            raise TypeError(f"{name} takes {arity} arguments")
        return function(x, *map(x.fit, others))

    return apply  # type: ignore[return-value]


def constant(typ: llvm_ir.Type, number: float) -> llvm_ir.Constant:
    """`number` as an LLVM constant of `typ`, in all lanes of a vector."""
    if isinstance(typ, llvm_ir.VectorType):
        return llvm_ir.splat(typ, _fitting(typ.element, number))
    return llvm_ir.Constant(typ, _fitting(typ, number))


def _fitting(element: llvm_ir.Type, number: float) -> float:
    return int(number) if isinstance(element, llvm_ir.IntType) else number


def numbers(typ: llvm_ir.VectorType, values: Sequence[float]) -> llvm_ir.Constant:
    """A constant vector of 32-bit numbers. Tables come again with each function that is looked up in them: their text,
    a third of what it took to write a region of 64 of these, is made once."""
    return _numbers(typ, struct.pack(f"{len(values)}d", *values))


@functools.lru_cache(1024)
def _numbers(typ: llvm_ir.VectorType, packed: bytes) -> llvm_ir.Constant:
    """`packed`: float64, by which -0 is another number than 0."""
    values = struct.unpack(f"{len(packed) // 8}d", packed)
    return llvm_ir.Constant(typ, [_fitting(typ.element, value) for value in values])


# ---------------------------------------------------------------- operations


def _call(name: str, first: SSAValue, *others: SSAValue | float) -> SSAValue:
    values = [first.value, *(first.fit(other).value for other in others)]
    return first.like(llvm_intrinsic(first.builder, name, first.value.type, values, first.value.type))


def fma(a: SSAValue, b: SSAValue | float, c: SSAValue | float) -> SSAValue:
    """a * b + c, rounded once."""
    if not isinstance(b, SSAValue) and b in (1, -1):
        return c + a if b == 1 else c - a
    return _call("fma", a, b, c)


def sqrt(x: SSAValue) -> SSAValue:
    return _call("sqrt", x)


def absolute(x: SSAValue) -> SSAValue:
    if x.is_float:
        return _call("fabs", x)
    return select(x < 0, -x, x) if x.element.signed else x


def rint(x: SSAValue) -> SSAValue:
    """The nearest integer, ties to even."""
    return _call("roundeven", x)


_ROUNDING = 1.5 * 2.0**23
"""A float32 whose last place is 1: a sum with it is rounded to whole numbers."""


def nearest_integer(x: SSAValue) -> SSAValue:
    """The integers nearest to float32 within ±2**22, ties to even, as int32."""
    return nearest_low(x) - 0x4B400000


def nearest_low(x: SSAValue) -> SSAValue:
    """What `nearest_integer` gives, but for what is above the 16 low bits."""
    return bits(x + _ROUNDING)


def within(x: SSAValue, low: SSAValue, high: SSAValue) -> SSAValue:
    """x, but `low` where it is less or not a number, and `high` where it is more."""
    above = select(x > low, x, low)
    return select(above < high, above, high)


def copysign(magnitude: SSAValue, sign: SSAValue) -> SSAValue:
    return _call("copysign", magnitude, sign)


def select(condition: SSAValue, a: SSAValue | float, b: SSAValue | float) -> SSAValue:
    """a where the condition holds, else b; one of them is a SSAValue value."""
    model = a if isinstance(a, SSAValue) else b
    assert isinstance(model, SSAValue)
    return model.like(model.builder.select(condition.value, model.fit(a).value, model.fit(b).value))


def replaced(
    condition: SSAValue, values: Sequence[SSAValue], others: Callable[[], Sequence[SSAValue]]
) -> list[SSAValue]:
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


def at_least(x: SSAValue, bound: SSAValue | float) -> SSAValue:
    """max(x, bound); a NaN in x stays."""
    return select(x.fit(bound) > x, bound, x)


def at_most(x: SSAValue, bound: SSAValue | float) -> SSAValue:
    """min(x, bound); a NaN in x stays."""
    return select(x.fit(bound) < x, bound, x)


def isnan(x: SSAValue) -> SSAValue:
    return unordered("uno", x, x)


def unordered(comparison: str, a: SSAValue, b: SSAValue) -> SSAValue:
    """Whether floats compare so (">", "<", …) or one of them is NaN."""
    return SSAValue(a.builder, types.boolean, a.builder.fcmp_unordered(comparison, a.value, b.value))


def one_if(condition: SSAValue) -> SSAValue:
    """1 if a condition (a scalar) holds, else 0."""
    return SSAValue(condition.builder, types.int64, condition.builder.zext(condition.value, llvm_ir.IntType(64)))


def bits(x: SSAValue) -> SSAValue:
    """The bit pattern of floats, as signed integers of the same width."""
    integer = _INTEGERS[x.width]
    return SSAValue(
        x.builder, integer, x.builder.bitcast(x.value, _with_element(x.value.type, llvm_ir.IntType(x.width)))
    )


def from_bits(pattern: SSAValue) -> SSAValue:
    """The floats whose bit patterns these integers are."""
    single = pattern.width == 32
    to = _with_element(pattern.value.type, llvm_ir.FloatType() if single else llvm_ir.DoubleType())
    return SSAValue(
        pattern.builder, types.float32 if single else types.float64, pattern.builder.bitcast(pattern.value, to)
    )


def to_double(x: SSAValue) -> SSAValue:
    return SSAValue(
        x.builder, types.float64, x.builder.fpext(x.value, _with_element(x.value.type, llvm_ir.DoubleType()))
    )


def to_single(x: SSAValue) -> SSAValue:
    return SSAValue(
        x.builder, types.float32, x.builder.fptrunc(x.value, _with_element(x.value.type, llvm_ir.FloatType()))
    )


def to_float(integers: SSAValue) -> SSAValue:
    """Integers as floats of the same width."""
    single = integers.width == 32
    to = _with_element(integers.value.type, llvm_ir.FloatType() if single else llvm_ir.DoubleType())
    return SSAValue(
        integers.builder, types.float32 if single else types.float64, integers.builder.sitofp(integers.value, to)
    )


def funnel_left(high: SSAValue, low: SSAValue, count: int) -> SSAValue:
    """The upper half of the integers high:low shifted left by `count` bits."""
    return _call("fshl", high, low, count)


def narrow(integers: SSAValue) -> SSAValue:
    """The low 32 bits of 64-bit integers."""
    return SSAValue(
        integers.builder,
        types.int32,
        integers.builder.trunc(integers.value, _with_element(integers.value.type, llvm_ir.IntType(32))),
    )


def _with_element(typ: llvm_ir.Type, element: llvm_ir.Type) -> llvm_ir.Type:
    return llvm_ir.VectorType(element, typ.count) if isinstance(typ, llvm_ir.VectorType) else element


def polynomial(x: SSAValue, coefficients: Sequence[SSAValue | float]) -> SSAValue:
    """coefficients[0] + coefficients[1] * x + …, by Horner's rule."""
    *lower, highest = coefficients
    return functools.reduce(lambda total, c: fma(total, x, c), reversed(lower), x.fit(highest))
