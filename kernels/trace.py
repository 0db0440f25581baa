"""Functions of vectors written as plain arithmetic: what they do to `Traced` values becomes LLVM IR as they run.

A function marked `@vector_function` is called from kernels like any intrinsic, on Vectors or scalars of float32 or
float64, and is emitted inline. Its body runs in Python, once for every call site and with the element type at hand: it
can pick coefficients by precision and loop over them. Numba has nothing to infer in it, which keeps compiling fast.

    @vector_function
    def softsign(x: Traced) -> Traced:
        return x / (absolute(x) + 1.0)

Every operation here is rounded on its own (no contraction): where a multiply-add is to be fused, `fma` says so. This
is what error-compensated arithmetic needs.
"""

from __future__ import annotations

import functools
import inspect
import struct
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba.core import types
from numba.core.errors import NumbaTypeError

from jitonnx.kernels.jit import lowering_target
from jitonnx.kernels.llvm import holds_everywhere
from jitonnx.kernels.simd import elementwise, llvm_intrinsic, splat

_INTEGERS = {32: types.int32, 64: types.int64}
_I32 = ir.IntType(32)


class Traced:
    """A float, an integer or a truth value, one or a vector of them, in the LLVM function being built."""

    __slots__ = ("builder", "element", "value")

    def __init__(self, builder: ir.IRBuilder, element: types.Type, value: ir.Value) -> None:
        self.builder, self.element, self.value = builder, element, value

    @property
    def width(self) -> int:
        """Bits of an element: 32 (single precision) or 64 (double)."""
        return self.element.bitwidth

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, types.Float)

    def constant(self, number: float) -> Traced:
        """`number` as a value of this type, in all lanes."""
        return Traced(self.builder, self.element, _constant(self.value.type, number))

    def fit(self, other: Traced | float) -> Traced:
        return other if isinstance(other, Traced) else self.constant(other)

    def like(self, value: ir.Value) -> Traced:
        return Traced(self.builder, self.element, value)

    def _arithmetic(self, float_name: str, integer_name: str, a: Traced | float, b: Traced | float) -> Traced:
        operation = getattr(self.builder, float_name if self.is_float else integer_name)
        return self.like(operation(self.fit(a).value, self.fit(b).value))

    def __add__(self, other: Traced | float) -> Traced:
        return self._arithmetic("fadd", "add", self, other)

    def __radd__(self, other: float) -> Traced:
        return self._arithmetic("fadd", "add", other, self)

    def __sub__(self, other: Traced | float) -> Traced:
        return self._arithmetic("fsub", "sub", self, other)

    def __rsub__(self, other: float) -> Traced:
        return self._arithmetic("fsub", "sub", other, self)

    def __mul__(self, other: Traced | float) -> Traced:
        return self._arithmetic("fmul", "mul", self, other)

    def __rmul__(self, other: float) -> Traced:
        return self._arithmetic("fmul", "mul", other, self)

    def __truediv__(self, other: Traced | float) -> Traced:
        return self._arithmetic("fdiv", "sdiv", self, other)

    def __rtruediv__(self, other: float) -> Traced:
        return self._arithmetic("fdiv", "sdiv", other, self)

    def __neg__(self) -> Traced:
        return self.like(self.builder.fneg(self.value) if self.is_float else self.builder.neg(self.value))

    def __and__(self, other: Traced | int) -> Traced:
        return self.like(self.builder.and_(self.value, self.fit(other).value))

    def __or__(self, other: Traced | int) -> Traced:
        return self.like(self.builder.or_(self.value, self.fit(other).value))

    def __xor__(self, other: Traced | int) -> Traced:
        return self.like(self.builder.xor(self.value, self.fit(other).value))

    def __invert__(self) -> Traced:
        return self.like(self.builder.not_(self.value))

    def __lshift__(self, count: int) -> Traced:
        return self.like(self.builder.shl(self.value, self.constant(count).value))

    def __rshift__(self, count: int) -> Traced:
        """Arithmetic shift: the sign is kept."""
        return self.like(self.builder.ashr(self.value, self.constant(count).value))

    def _compare(self, name: str, other: Traced | float) -> Traced:
        compare = self.builder.fcmp_ordered if self.is_float else self.builder.icmp_signed
        return Traced(self.builder, types.boolean, compare(name, self.value, self.fit(other).value))

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


def vector_function(function: Callable[..., Traced]) -> Any:
    """An intrinsic, callable from kernels, that emits what `function` does to one to three `Traced` floats.

    Scalars among the arguments spread to all lanes of the Vectors. Numba's type error tells of elements other than
    float32 and float64.
    """
    name, arity = function.__name__, len(inspect.signature(function).parameters)

    def body(builder: ir.IRBuilder, element: types.Type, *values: ir.Value) -> ir.Value:
        if element not in (types.float32, types.float64):
            raise NumbaTypeError(f"{name} is defined on float32 and float64, not on {element}; convert its argument")
        return function(*(Traced(builder, element, value) for value in values)).value

    return elementwise(name, arity, inspect.getdoc(function) or name, body)


class _Number(ir.FormattedConstant):
    """A constant in LLVM's short form `splat (float 0x…)`, which llvmlite's constructor does not expect of a vector."""

    def __init__(self, typ: ir.Type, text: str) -> None:
        self.type, self.constant = typ, text


def _constant(typ: ir.Type, number: float) -> ir.Constant:
    """`number` as an LLVM constant of `typ`, in all lanes of a vector."""
    element = typ.element if isinstance(typ, ir.VectorType) else typ
    text = _number_text(element, number)
    return _Number(typ, f"splat ({element} {text})" if isinstance(typ, ir.VectorType) else text)


def _number_text(element: ir.Type, number: float) -> str:
    """`number`, rounded to `element`, as LLVM writes it."""
    if isinstance(element, ir.IntType):
        return str(int(number))
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number)) if isinstance(element, ir.FloatType) else float(number)
    return "0x" + struct.pack(">d", rounded).hex().upper()


# ---------------------------------------------------------------- operations


def _call(name: str, first: Traced, *others: Traced | float) -> Traced:
    values = [first.value, *(first.fit(other).value for other in others)]
    return first.like(llvm_intrinsic(first.builder, name, first.value.type, values, first.value.type))


def fma(a: Traced, b: Traced | float, c: Traced | float) -> Traced:
    """a * b + c, rounded once."""
    return _call("fma", a, b, c)


def sqrt(x: Traced) -> Traced:
    return _call("sqrt", x)


def absolute(x: Traced) -> Traced:
    return _call("fabs", x)


def rint(x: Traced) -> Traced:
    """The nearest integer, ties to even."""
    return _call("roundeven", x)


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


def table_entries(x: Traced) -> int:
    """How many numbers of x's type `lookup` finds by one instruction; 0: none, or the CPU is not known."""
    target = lowering_target()
    if target is None or x.width != 32:
        return 0
    return {64: 16, 32: 8}.get(target.vector_bytes, 0)  # vpermps of AVX-512 and of AVX2


def lookup(table: Sequence[float], index: Traced, element: types.Type) -> Traced:
    """table[index modulo len(table)] for int32 indices and `table_entries` numbers of `element`, of 32 bits.

    With AVX-512 the table may be twice as long. Vectors are looked up by whole registers; what is shorter takes a part
    of one.
    """
    entries = min(len(table), 16)
    count = index.value.type.count if isinstance(index.value.type, ir.VectorType) else 0
    integer = isinstance(element, types.Integer)
    typ = ir.VectorType(ir.IntType(32) if integer else ir.FloatType(), entries)
    numbers = [_numbers(typ, table[start : start + entries]) for start in range(0, len(table), entries)]
    if len(table) == 32:
        name = f"llvm.x86.avx512.vpermi2var.{'d' if integer else 'ps'}.512"
    elif entries == 16:
        name = f"llvm.x86.avx512.permvar.{'si' if integer else 'sf'}.512"
    else:
        name = f"llvm.x86.avx2.{'permd' if integer else 'permps'}"

    def find(piece: ir.Value) -> ir.Value:
        arguments = [numbers[0], piece, numbers[1]] if len(numbers) == 2 else [numbers[0], piece]
        return _named_call(index.builder, name, typ, arguments)

    return Traced(index.builder, element, _by_registers(index.builder, find, count, entries, index.value))


def permuted(low: Traced, high: Traced, index: Traced) -> Traced:
    """Elements `index` (int32, 0 <= index < 2 * lanes) of two float32 vectors as wide as the CPU's registers."""
    builder, count = index.builder, index.value.type.count
    entries = table_entries(low)
    if entries == count == 16:
        name = "llvm.x86.avx512.vpermi2var.ps.512"
        return low.like(_named_call(builder, name, low.value.type, [low.value, index.value, high.value]))
    if entries == count == 8:
        found = [
            half.like(_named_call(builder, "llvm.x86.avx2.permps", low.value.type, [half.value, index.value]))
            for half in (low, high)
        ]
        return select(index < entries, *found)
    both, result = _joined(builder, low.value, high.value), ir.Constant(low.value.type, ir.Undefined)
    for lane in map(_I32, range(count)):
        element = builder.extract_element(both, builder.extract_element(index.value, lane))
        result = builder.insert_element(result, element, lane)
    return low.like(result)


def reordered(x: Traced, index: Traced) -> Traced:
    """Elements `index` (int32, 0 <= index < lanes) of a float32 vector as wide as the CPU's registers."""
    builder, count = x.builder, index.value.type.count
    entries = table_entries(x)
    if entries == count and count in _REORDERING:
        return x.like(_named_call(builder, _REORDERING[count], x.value.type, [x.value, index.value]))
    result = ir.Constant(x.value.type, ir.Undefined)
    for lane in map(_I32, range(count)):
        element = builder.extract_element(x.value, builder.extract_element(index.value, lane))
        result = builder.insert_element(result, element, lane)
    return x.like(result)


_REORDERING = {8: "llvm.x86.avx2.permps", 16: "llvm.x86.avx512.permvar.sf.512"}


def _numbers(typ: ir.VectorType, numbers: Sequence[float]) -> ir.Constant:
    """A constant vector; LLVM wants one of zeros written in its own way."""
    if not any(numbers):
        return ir.Constant(typ, None)
    return _Number(typ, "<" + ", ".join(f"{typ.element} {_number_text(typ.element, n)}" for n in numbers) + ">")


def scales_by_power() -> bool:
    """Whether the CPU has an instruction for `scale_by_power`."""
    target = lowering_target()
    return target is not None and target.vector_bytes == 64


def scale_by_power(x: Traced, exponent: Traced) -> Traced:
    """x * 2**floor(exponent), rounded once, with infinite and denormal results, by an instruction of AVX-512."""
    entries, single = 512 // x.width, x.width == 32
    typ = ir.VectorType(ir.FloatType() if single else ir.DoubleType(), entries)
    count = x.value.type.count if isinstance(x.value.type, ir.VectorType) else 0
    all_lanes, as_set = ir.Constant(ir.IntType(entries), -1), ir.IntType(32)(4)  # rounding as the CPU is set to

    def scale(a: ir.Value, b: ir.Value) -> ir.Value:
        name = f"llvm.x86.avx512.mask.scalef.{'ps' if single else 'pd'}.512"
        return _named_call(x.builder, name, typ, [a, b, ir.Constant(typ, None), all_lanes, as_set])

    return x.like(_by_registers(x.builder, scale, count, entries, x.value, exponent.value))


def splits_floats() -> bool:
    """Whether the CPU has instructions for `exponent_of` and `fraction_of`: those of AVX-512."""
    return scales_by_power()


def exponent_of(x: Traced) -> Traced:
    """floor(log2(|x|)) of float32, denormal numbers included; -inf at 0, inf at infinities."""
    return _split(x, "getexp", [])


def fraction_of(x: Traced) -> Traced:
    """x over a power of two, in [3/4, 3/2), of float32; 1 at zeros and at inf, NaN below 0."""
    return _split(x, "getmant", [_I32(0b1011)])  # NaN for negative numbers, the interval


def _split(x: Traced, name: str, kind: list[ir.Value]) -> Traced:
    typ = ir.VectorType(ir.FloatType(), 16)
    others = [*kind, ir.Constant(typ, None), ir.Constant(ir.IntType(16), -1), _I32(4)]  # all lanes, the CPU's rounding
    return _by_instruction(x, f"mask.{name}.ps.512", typ, others)


def _by_instruction(x: Traced, name: str, typ: ir.VectorType, others: list[ir.Value]) -> Traced:
    """An operation of AVX-512 on x, whose intrinsic takes `others` as well."""

    def apply(value: ir.Value) -> ir.Value:
        return _named_call(x.builder, f"llvm.x86.avx512.{name}", typ, [value, *others])

    count = x.value.type.count if isinstance(x.value.type, ir.VectorType) else 0
    return x.like(_by_registers(x.builder, apply, count, typ.count, x.value))


def _named_call(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
    function = builder.module.globals.get(name) or ir.Function(
        builder.module, ir.FunctionType(result, [argument.type for argument in arguments]), name
    )
    return builder.call(function, arguments)


def _by_registers(
    builder: ir.IRBuilder, function: Callable[..., ir.Value], count: int, lanes: int, *values: ir.Value
) -> ir.Value:
    """`function` of whole registers of `lanes`, on values of `count` lanes (0: scalars)."""
    if count == lanes:
        return function(*values)
    if count == 0:
        return builder.extract_element(function(*(splat(builder, value, lanes) for value in values)), _I32(0))
    pieces = [
        function(*(_lanes_from(builder, value, start, lanes) for value in values)) for start in range(0, count, lanes)
    ]
    while len(pieces) > 1:
        pairs = [pieces[i : i + 2] for i in range(0, len(pieces), 2)]
        pieces = [_joined(builder, *pair) if len(pair) == 2 else _joined(builder, pair[0], pair[0]) for pair in pairs]
    return _lanes_from(builder, pieces[0], 0, count)


def _lanes_from(builder: ir.IRBuilder, value: ir.Value, start: int, lanes: int) -> ir.Value:
    """`lanes` lanes from `start` on; the first ones again where the vector ends before."""
    mask = [i if i < value.type.count else 0 for i in range(start, start + lanes)]
    if mask == list(range(value.type.count)):
        return value
    chosen = ir.Constant(ir.VectorType(_I32, lanes), mask)
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), chosen)


def _joined(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.shuffle_vector(
        a, b, ir.Constant(ir.VectorType(_I32, 2 * a.type.count), list(range(2 * a.type.count)))
    )


def polynomial(x: Traced, coefficients: Sequence[Traced | float]) -> Traced:
    """coefficients[0] + coefficients[1] * x + …, by Horner's rule."""
    *lower, highest = coefficients
    return functools.reduce(lambda total, c: fma(total, x, c), reversed(lower), x.fit(highest))
