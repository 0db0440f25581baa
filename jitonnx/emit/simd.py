"""Operations on vectors and scalars beyond arithmetic: conversions, extremes, division of integers, sums across lanes.

They work lane by lane on `SSAValue` values, as those of `trace` do, and mean what ONNX's operators mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.division import emit_division, emit_modulo, emit_remainder
from jitonnx.emit.intrinsics import CONTRACTED, arithmetic, declared, float_to_integer, llvm_intrinsic
from jitonnx.emit.ssa import SSAValue, absolute, fma, isnan, select

LINE_BYTES = 64
"""The size of a cache line on most CPUs."""


def contracted(name: str, a: SSAValue, b: SSAValue) -> SSAValue:
    """a + b and the like, by the operator's sign; LLVM may make a product and a sum a multiply-add."""
    return a.like(arithmetic(a.builder, name, a.element, a.value, b.value, CONTRACTED))


def combined(name: str, a: SSAValue, b: SSAValue) -> SSAValue:
    """a + b and the like, by the operator's sign, rounded on its own."""
    return a.like(arithmetic(a.builder, name, a.element, a.value, b.value))


def quotient(number: SSAValue, step: SSAValue, factor: SSAValue) -> SSAValue:
    """number / step, where factor is 1 / step: the product with it, and what that leaves of the number, divided the
    same way. That is the rounded quotient where neither overflows or is denormal. A division on CPUs without
    multiply-adds."""
    if not number.builder.module.target.has_multiply_adds:
        return number / step
    near = number * factor
    return fma(fma(-near, step, number), factor, near)


def multiply_add(a: SSAValue, b: SSAValue, c: SSAValue) -> SSAValue:
    """a * b + c of float32, rounded once; in float64 on CPUs without multiply-adds, where the product is exact and the
    sum hardly ever rounded."""
    if a.builder.module.target.has_multiply_adds:
        return fma(a, b, c)
    wide = [convert(x, types.float64) for x in (a, b, c)]
    return convert(wide[0] * wide[1] + wide[2], types.float32)


def _rounded(name: str, x: SSAValue) -> SSAValue:
    return x.like(llvm_intrinsic(x.builder, name, x.value.type, [x.value], x.value.type))


def floor(x: SSAValue) -> SSAValue:
    """The largest integer not above."""
    return _rounded("floor", x)


def ceil(x: SSAValue) -> SSAValue:
    """The smallest integer not below."""
    return _rounded("ceil", x)


def trunc(x: SSAValue) -> SSAValue:
    """Rounded towards zero."""
    return _rounded("trunc", x)


def maximum(a: SSAValue, b: SSAValue) -> SSAValue:
    """The larger; NaN if either is."""
    return _with_nan_of(a, select(a > b, a, b))


def minimum(a: SSAValue, b: SSAValue) -> SSAValue:
    """The smaller; NaN if either is."""
    return _with_nan_of(a, select(a < b, a, b))


def _with_nan_of(a: SSAValue, otherwise: SSAValue) -> SSAValue:
    """x86's max returns its second operand where either is NaN: only a NaN in `a` needs care."""
    return select(isnan(a), a, otherwise) if a.is_float else otherwise


def isinf(x: SSAValue) -> SSAValue:
    """Whether it is infinite, of either sign."""
    return absolute(x).equals(float("inf"))


def divide_integer(a: SSAValue, b: SSAValue) -> SSAValue:
    """a / b for integers, truncated; a where b is 0 or the quotient overflows."""
    return a.like(emit_division(a.builder, a.element, a.value, b.value))


def remainder(a: SSAValue, b: SSAValue) -> SSAValue:
    """The rest of a / b, with a's sign (C's fmod); 0 for an integer b of 0."""
    return a.like(emit_remainder(a.builder, a.element, a.value, b.value))


def modulo(a: SSAValue, b: SSAValue) -> SSAValue:
    """The rest of a / b, with b's sign (Python's %); 0 for an integer b of 0."""
    return a.like(emit_modulo(a.builder, a.element, a.value, b.value))


def convert(x: SSAValue, element: types.ElementType) -> SSAValue:
    """x with elements of another type, by C's rules; float to integer saturates and NaN gives 0."""
    sizes, integers = (x.element.bitwidth, element.bitwidth), (types.int32, types.uint32, types.int8, types.uint8)
    if sizes == (32, 8) and x.lanes == 32 and {x.element, element} <= {*integers} and x.target.permutes_bytes:
        return SSAValue(x.builder, element, _low_bytes(x.builder, x.value))
    return SSAValue(x.builder, element, _converted(x.builder, x.value, x.element, element))


def _low_bytes(builder: llvm_ir.IRBuilder, value: llvm_ir.Value) -> llvm_ir.Value:
    """The low bytes of 32 numbers of 32 bits, which fill two registers, by one permutation of these (VBMI), where LLVM
    would take four instructions."""
    register = llvm_ir.VectorType(llvm_ir.IntType(8), 64)
    halves = [builder.bitcast(_part(builder, value, start, 16), register) for start in (0, 16)]
    places = llvm_ir.Constant(register, [4 * lane % 128 for lane in range(64)])
    function = declared(builder, "llvm.x86.avx512.vpermi2var.qi.512", register, [register] * 3)
    return _part(builder, builder.call(function, [halves[0], places, halves[1]]), 0, 32)


def _part(builder: llvm_ir.IRBuilder, value: llvm_ir.Value, start: int, lanes: int) -> llvm_ir.Value:
    """Some lanes of a vector."""
    places = llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(32), lanes), list(range(start, start + lanes)))
    return builder.shuffle_vector(value, llvm_ir.Constant(value.type, llvm_ir.Undefined), places)


def _converted(
    builder: llvm_ir.IRBuilder, value: llvm_ir.Value, old: types.ElementType, new: types.ElementType
) -> llvm_ir.Value:
    if old is new:
        return value
    to = llvm_ir.VectorType(new.llvm, value.type.count) if isinstance(value.type, llvm_ir.VectorType) else new.llvm
    if isinstance(new, types.Boolean):
        zero = llvm_ir.Constant(value.type, None)
        compare = builder.fcmp_unordered if isinstance(old, types.Float) else builder.icmp_unsigned
        return compare("!=", value, zero)
    if isinstance(old, types.Float) and isinstance(new, types.Float):
        return builder.fpext(value, to) if new.bitwidth > old.bitwidth else builder.fptrunc(value, to)
    if isinstance(old, types.Float):
        assert isinstance(new, types.Integer)
        return float_to_integer(builder, value, new, to)
    signed = old.signed
    if isinstance(new, types.Float):
        return builder.sitofp(value, to) if signed else builder.uitofp(value, to)
    if new.bitwidth == old.bitwidth:
        return value
    if new.bitwidth < old.bitwidth:
        return builder.trunc(value, to)
    return builder.sext(value, to) if signed else builder.zext(value, to)


def each_lane(symbol: str, text: str, result: types.ElementType, arguments: Sequence[SSAValue]) -> SSAValue:
    """What a C function of numbers gives, lane by lane. text: of the LLVM module that defines it.

    C passes truth values as bytes.
    """
    builder, lanes = arguments[0].builder, arguments[0].lanes
    builder.module.linked[symbol] = text
    kinds = [_BYTE if isinstance(x.element, types.Boolean) else x.element.llvm for x in arguments]
    given = _BYTE if isinstance(result, types.Boolean) else result.llvm
    function = declared(builder, symbol, given, kinds)

    def called(numbers: Sequence[llvm_ir.Value]) -> llvm_ir.Value:
        pairs = zip(numbers, arguments, strict=True)
        passed = [builder.zext(n, _BYTE) if isinstance(x.element, types.Boolean) else n for n, x in pairs]
        value = builder.call_pure(function, passed)
        return builder.icmp_unsigned("!=", value, _BYTE(0)) if isinstance(result, types.Boolean) else value

    if not lanes:
        return SSAValue(builder, result, called([x.value for x in arguments]))
    vector: llvm_ir.Value = llvm_ir.Constant(llvm_ir.VectorType(result.llvm, lanes), llvm_ir.Undefined)
    for lane in range(lanes):
        place = llvm_ir.IntType(32)(lane)
        one = called([builder.extract_element(x.value, place) for x in arguments])
        vector = builder.insert_element(vector, one, place)
    return SSAValue(builder, result, vector)


_BYTE = llvm_ir.IntType(8)


def reduce_add(x: SSAValue) -> SSAValue:
    """The sum of all lanes (a power of two), as a scalar."""
    return _across(x, lambda a, b: contracted("+", a, b))


def reduce_max(x: SSAValue) -> SSAValue:
    """The largest of all lanes (a power of two), as a scalar; NaN if any is."""
    return _across(x, maximum)


def _across(x: SSAValue, combine: Callable[[SSAValue, SSAValue], SSAValue]) -> SSAValue:
    """Halves combined, again and again: the shuffles are free next to the dependent operations of a serial sum."""
    builder, lanes, i32 = x.builder, x.lanes, llvm_ir.IntType(32)
    while lanes > 1:
        lanes //= 2
        undefined = llvm_ir.Constant(x.value.type, llvm_ir.Undefined)
        places = (
            llvm_ir.Constant(llvm_ir.VectorType(i32, lanes), list(range(start, start + lanes))) for start in (0, lanes)
        )
        low, high = (x.like(builder.shuffle_vector(x.value, undefined, place)) for place in places)
        x = combine(low, high)
    return x.like(builder.extract_element(x.value, i32(0)))
