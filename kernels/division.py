"""Division of integers, and remainders, in LLVM IR, of vectors and scalars: nothing traps, and lanes go together."""

from __future__ import annotations

import llvmlite.ir as ir
from numba.core import types

from jitonnx.kernels.llvm import all_lanes, arithmetic, comparison, float_remainder, holds_everywhere


def _safe_divisor(builder: ir.IRBuilder, element: types.Type, a: ir.Value, b: ir.Value) -> ir.Value:
    """b, or 1 where dividing by it would trap: 0, and -1 under the smallest integer."""
    one, zero = ir.Constant(b.type, all_lanes(b.type, 1)), ir.Constant(b.type, None)
    trap = builder.icmp_unsigned("==", b, zero)
    if element.signed:
        smallest = ir.Constant(a.type, all_lanes(a.type, -(1 << (element.bitwidth - 1))))
        overflow = builder.and_(
            builder.icmp_unsigned("==", a, smallest),
            builder.icmp_unsigned("==", b, ir.Constant(b.type, all_lanes(b.type, -1))),
        )
        trap = builder.or_(trap, overflow)
    return builder.select(trap, one, b)


def _quotient(builder: ir.IRBuilder, element: types.Type, a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b truncated, for b that does not trap. Vector units divide floats only.

    The truncated quotient of floats of p bits is that of the integers where these are at most 2^p: a quotient that is
    no integer is at least 1 / b away from one, which is more than rounding moves it by: a / b / 2^p. So float64 serves
    integers of 32 bits, and those of 64 as long as they are that small; otherwise all lanes are divided one by one.
    """
    if not isinstance(a.type, ir.VectorType):
        return arithmetic(builder, "/", element, a, b)
    if element.bitwidth < 64:
        return _quotient_of_floats(builder, ir.FloatType() if element.bitwidth < 32 else ir.DoubleType(), element, a, b)
    small = builder.and_(*(_within_double(builder, element, x) for x in (a, b)))
    with builder.if_else(holds_everywhere(builder, small)) as (fast, slow):
        with fast:
            by_floats = _quotient_of_floats(builder, ir.DoubleType(), types.int64, a, b)
            after_fast = builder.block
        with slow:
            one_by_one = arithmetic(builder, "/", element, a, b)
            after_slow = builder.block
    result = builder.phi(a.type)
    result.add_incoming(by_floats, after_fast)
    result.add_incoming(one_by_one, after_slow)
    return result


def _quotient_of_floats(
    builder: ir.IRBuilder, scalar: ir.Type, element: types.Type, a: ir.Value, b: ir.Value
) -> ir.Value:
    floats = ir.VectorType(scalar, a.type.count)
    signed = element.signed
    a_float, b_float = ((builder.sitofp if signed else builder.uitofp)(x, floats) for x in (a, b))
    return (builder.fptosi if signed else builder.fptoui)(builder.fdiv(a_float, b_float), a.type)


def _within_double(builder: ir.IRBuilder, element: types.Type, x: ir.Value) -> ir.Value:
    """In which lanes a 64-bit integer is at most 2^53, and at least -2^53."""
    limit = 1 << 53
    if element.signed:
        x = builder.add(x, ir.Constant(x.type, all_lanes(x.type, limit)))
        limit *= 2
    return builder.icmp_unsigned("<=", x, ir.Constant(x.type, all_lanes(x.type, limit)))


def emit_division(builder: ir.IRBuilder, element: types.Type, a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b for integers, truncated; a where b is 0 or the quotient overflows."""
    return _quotient(builder, element, a, _safe_divisor(builder, element, a, b))


def emit_remainder(builder: ir.IRBuilder, element: types.Type, a: ir.Value, b: ir.Value) -> ir.Value:
    """The rest of a / b, with a's sign."""
    if isinstance(element, types.Float):
        return float_remainder(builder, element, a, b)
    b = _safe_divisor(builder, element, a, b)
    if not isinstance(a.type, ir.VectorType):
        return arithmetic(builder, "%", element, a, b)
    return builder.sub(a, builder.mul(_quotient(builder, element, a, b), b))


def emit_modulo(builder: ir.IRBuilder, element: types.Type, a: ir.Value, b: ir.Value) -> ir.Value:
    """The rest of a / b, with b's sign."""
    rest, zero = emit_remainder(builder, element, a, b), ir.Constant(b.type, None)
    if not isinstance(element, types.Float) and not element.signed:
        return rest
    differ = builder.xor(comparison(builder, "<", element, rest, zero), comparison(builder, "<", element, b, zero))
    wrong = builder.and_(differ, comparison(builder, "!=", element, rest, zero))
    return builder.select(wrong, arithmetic(builder, "+", element, rest, b), rest)
