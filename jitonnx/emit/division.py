"""Division of integers, and remainders, in LLVM IR, of vectors and scalars: nothing traps, and lanes go together."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.intrinsics import (
    all_lanes,
    arithmetic,
    comparison,
    float_remainder,
    holds_everywhere,
    llvm_intrinsic,
)

_OfFloats = Callable[[llvm_ir.Value, llvm_ir.Value, llvm_ir.Value], llvm_ir.Value]  # quotient, a, b
_OfIntegers = Callable[[llvm_ir.Value, llvm_ir.Value], llvm_ir.Value]


def _safe_divisor(
    builder: llvm_ir.IRBuilder, element: types.ElementType, a: llvm_ir.Value, b: llvm_ir.Value
) -> llvm_ir.Value:
    """b, or 1 where dividing by it would trap: 0, and -1 under the smallest integer."""
    one, zero = llvm_ir.Constant(b.type, all_lanes(b.type, 1)), llvm_ir.Constant(b.type, None)
    trap = builder.icmp_unsigned("==", b, zero)
    if element.signed:
        smallest = llvm_ir.Constant(a.type, all_lanes(a.type, -(1 << (element.bitwidth - 1))))
        overflow = builder.and_(
            builder.icmp_unsigned("==", a, smallest),
            builder.icmp_unsigned("==", b, llvm_ir.Constant(b.type, all_lanes(b.type, -1))),
        )
        trap = builder.or_(trap, overflow)
    return builder.select(trap, one, b)


def _by_floats(
    builder: llvm_ir.IRBuilder,
    element: types.ElementType,
    a: llvm_ir.Value,
    b: llvm_ir.Value,
    fast: _OfFloats,
    slow: _OfIntegers,
) -> llvm_ir.Value:
    """What `fast` makes of the quotient, a and b as vectors of floats, as integers; slow(a, b) for scalars.

    Vector units divide floats only. The quotient of floats of p bits lies between the same integers as that of integers
    of at most 2^p: one that is no integer is at least 1 / b away from one, which is more than rounding moves it by:
    a / b / 2^p. So float64 serves integers of 32 bits, and those of 64 as long as they are that small; otherwise all
    lanes are divided one by one. Remainders by a multiply-add are exact.
    """
    if not isinstance(a.type, llvm_ir.VectorType):
        return slow(a, _safe_divisor(builder, element, a, b))
    if element.bitwidth < 64:
        scalar = llvm_ir.FloatType() if element.bitwidth < 32 else llvm_ir.DoubleType()
        return _in_floats(builder, scalar, element, a, _safe_divisor(builder, element, a, b), fast)
    possible = builder.and_(
        _within_double(builder, element, a, b), builder.icmp_unsigned("!=", b, llvm_ir.Constant(b.type, None))
    )
    with builder.if_else(holds_everywhere(builder, possible)) as (all_small, others):
        with all_small:
            by_floats = _in_floats(builder, llvm_ir.DoubleType(), types.int64, a, b, fast)
            after_fast = builder.block
        with others:
            one_by_one = slow(a, _safe_divisor(builder, element, a, b))
            after_slow = builder.block
    result = builder.phi(a.type)
    result.add_incoming(by_floats, after_fast)
    result.add_incoming(one_by_one, after_slow)
    return result


def _in_floats(
    builder: llvm_ir.IRBuilder,
    scalar: llvm_ir.Type,
    element: types.ElementType,
    a: llvm_ir.Value,
    b: llvm_ir.Value,
    fast: _OfFloats,
) -> llvm_ir.Value:
    floats = llvm_ir.VectorType(scalar, a.type.count)
    a_float, b_float = ((builder.sitofp if element.signed else builder.uitofp)(x, floats) for x in (a, b))
    result = fast(builder.fdiv(a_float, b_float), a_float, b_float)
    return (builder.fptosi if element.signed else builder.fptoui)(result, a.type)


def _rest_of(builder: llvm_ir.IRBuilder, rounding: str) -> _OfFloats:
    """a - q * b, where q is the quotient rounded by the intrinsic `rounding`."""

    def rest(quotient: llvm_ir.Value, a: llvm_ir.Value, b: llvm_ir.Value) -> llvm_ir.Value:
        whole = llvm_intrinsic(builder, rounding, a.type, [quotient], a.type)
        return llvm_intrinsic(builder, "fma", a.type, [builder.fneg(whole), b, a], a.type)

    return rest


def _within_double(
    builder: llvm_ir.IRBuilder, element: types.ElementType, a: llvm_ir.Value, b: llvm_ir.Value
) -> llvm_ir.Value:
    """The lanes in which two 64-bit integers are below 2^53, and at least -2^53."""
    limit = 1 << 53
    if element.signed:
        a, b = (builder.add(x, llvm_ir.Constant(x.type, all_lanes(x.type, limit))) for x in (a, b))
        limit *= 2
    return builder.icmp_unsigned("<", builder.or_(a, b), llvm_ir.Constant(a.type, all_lanes(a.type, limit)))


def emit_division(
    builder: llvm_ir.IRBuilder, element: types.ElementType, a: llvm_ir.Value, b: llvm_ir.Value
) -> llvm_ir.Value:
    """a / b for integers, truncated; a where b is 0 or the quotient overflows."""
    return _by_floats(
        builder, element, a, b, lambda quotient, *_: quotient, lambda a, b: arithmetic(builder, "/", element, a, b)
    )


def emit_remainder(
    builder: llvm_ir.IRBuilder, element: types.ElementType, a: llvm_ir.Value, b: llvm_ir.Value
) -> llvm_ir.Value:
    """The rest of a / b, with a's sign."""
    if isinstance(element, types.Float):
        return float_remainder(builder, element, a, b)
    return _by_floats(
        builder, element, a, b, _rest_of(builder, "trunc"), lambda a, b: arithmetic(builder, "%", element, a, b)
    )


def emit_modulo(
    builder: llvm_ir.IRBuilder, element: types.ElementType, a: llvm_ir.Value, b: llvm_ir.Value
) -> llvm_ir.Value:
    """The rest of a / b, with b's sign."""
    if isinstance(element, types.Float):
        return _with_sign_of_divisor(builder, element, float_remainder(builder, element, a, b), b)

    def one_by_one(a: llvm_ir.Value, b: llvm_ir.Value) -> llvm_ir.Value:
        rest = arithmetic(builder, "%", element, a, b)
        return _with_sign_of_divisor(builder, element, rest, b) if element.signed else rest

    return _by_floats(builder, element, a, b, _rest_of(builder, "floor"), one_by_one)


def _with_sign_of_divisor(
    builder: llvm_ir.IRBuilder, element: types.ElementType, rest: llvm_ir.Value, b: llvm_ir.Value
) -> llvm_ir.Value:
    zero = llvm_ir.Constant(b.type, None)
    differ = builder.xor(comparison(builder, "<", element, rest, zero), comparison(builder, "<", element, b, zero))
    wrong = builder.and_(differ, comparison(builder, "!=", element, rest, zero))
    return builder.select(wrong, arithmetic(builder, "+", element, rest, b), rest)
