"""What operations on values are made of in LLVM IR: intrinsics by name, masked memory, vectors where LLVM would go lane
by lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jitonnx.emit import llvm_ir, types

_I32 = llvm_ir.IntType(32)
CONTRACTED = ("contract",)
"""The flag of operations on floats that LLVM may fuse, a product and a sum to a multiply-add."""


def llvm_intrinsic(
    builder: llvm_ir.IRBuilder,
    name: str,
    result: llvm_ir.Type,
    arguments: Sequence[llvm_ir.Value],
    overload: llvm_ir.Type,
) -> llvm_ir.Value:
    """Call `llvm.NAME.OVERLOAD(arguments)`, declaring it in the builder's module at its first use."""
    full = f"llvm.{name}.{mangle(overload)}"
    function = declared(builder, full, result, [argument.type for argument in arguments])
    return builder.call_pure(function, arguments, fastmath=CONTRACTED if _is_float(result) else ())


def mangle(typ: llvm_ir.Type) -> str:
    """LLVM's suffix for an overloaded intrinsic: f32, i64, v16f32, v16f32.p0 parts …"""
    if isinstance(typ, llvm_ir.VectorType):
        return f"v{typ.count}{mangle(typ.element)}"
    if isinstance(typ, llvm_ir.IntType):
        return f"i{typ.width}"
    return {llvm_ir.HalfType(): "f16", llvm_ir.FloatType(): "f32", llvm_ir.DoubleType(): "f64"}[typ]


def _is_float(typ: llvm_ir.Type) -> bool:
    return isinstance(
        typ.element if isinstance(typ, llvm_ir.VectorType) else typ,
        llvm_ir.HalfType | llvm_ir.FloatType | llvm_ir.DoubleType,
    )


def splat(builder: llvm_ir.IRBuilder, scalar: llvm_ir.Value, lanes: int) -> llvm_ir.Value:
    """A vector with `scalar` in every lane."""
    undefined = llvm_ir.Constant(llvm_ir.VectorType(scalar.type, lanes), llvm_ir.Undefined)
    first = builder.insert_element(undefined, scalar, _I32(0))
    return builder.shuffle_vector(first, undefined, llvm_ir.Constant(llvm_ir.VectorType(_I32, lanes), None))


_FLOAT_ARITHMETIC = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv", "%": "frem"}
_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "&": "and_", "|": "or_", "^": "xor", "<<": "shl"}
_SIGNED_ARITHMETIC = {">>": "ashr", "/": "sdiv", "%": "srem"}
_UNSIGNED_ARITHMETIC = {">>": "lshr", "/": "udiv", "%": "urem"}


def arithmetic(
    builder: llvm_ir.IRBuilder,
    name: str,
    element: types.ElementType,
    a: llvm_ir.Value,
    b: llvm_ir.Value,
    flags: tuple[str, ...] = (),
) -> llvm_ir.Value:
    """a + b and the like, by the operator's sign. Integers are divided as LLVM does it: by 0 is a trap."""
    if isinstance(element, types.Float):
        return getattr(builder, _FLOAT_ARITHMETIC[name])(a, b, flags=flags)
    by_sign = _SIGNED_ARITHMETIC if element.signed else _UNSIGNED_ARITHMETIC
    return getattr(builder, _ARITHMETIC.get(name) or by_sign[name])(a, b)


def comparison(
    builder: llvm_ir.IRBuilder, name: str, element: types.ElementType, a: llvm_ir.Value, b: llvm_ir.Value
) -> llvm_ir.Value:
    """a < b and the like, by the operator's sign; with a NaN, only != holds."""
    if isinstance(element, types.Float):
        return builder.fcmp_unordered(name, a, b) if name == "!=" else builder.fcmp_ordered(name, a, b)
    return builder.icmp_signed(name, a, b) if element.signed else builder.icmp_unsigned(name, a, b)


def holds_everywhere(builder: llvm_ir.IRBuilder, mask: llvm_ir.Value) -> llvm_ir.Value:
    """Whether a condition holds in all lanes of a vector, or of a scalar."""
    if not isinstance(mask.type, llvm_ir.VectorType):
        return mask
    return llvm_intrinsic(builder, "vector.reduce.and", llvm_ir.IntType(1), [mask], mask.type)


def float_to_integer(
    builder: llvm_ir.IRBuilder, value: llvm_ir.Value, new: types.Integer, to: llvm_ir.Type
) -> llvm_ir.Value:
    """Floats as integers of type `new`, saturated, NaN as 0. LLVM's own operation for it goes lane by lane."""
    smallest, largest = (-(1 << (new.bitwidth - 1)) if new.signed else 0), (1 << (new.bitwidth - new.signed)) - 1
    least, top, above = (
        llvm_ir.Constant(value.type, all_lanes(value.type, float(bound))) for bound in (smallest, largest, largest + 1)
    )
    zero, convert = llvm_ir.Constant(value.type, None), builder.fptosi if new.signed else builder.fptoui
    ordered = builder.fcmp_ordered("ord", value, value)
    element = value.type.element if isinstance(value.type, llvm_ir.VectorType) else value.type
    if new.bitwidth - new.signed <= _MANTISSA[str(element)]:  # the largest is a number of the format
        bounded = builder.select(builder.fcmp_ordered(">", value, least), value, least)
        bounded = builder.select(builder.fcmp_ordered("<", bounded, top), bounded, top)
        return convert(builder.select(ordered, bounded, zero), to)
    high, low = builder.fcmp_ordered(">=", value, above), builder.fcmp_ordered("<", value, least)
    inside = builder.and_(ordered, builder.not_(builder.or_(high, low)))
    converted = convert(builder.select(inside, value, zero), to)
    converted = builder.select(high, llvm_ir.Constant(to, all_lanes(to, largest)), converted)
    return builder.select(low, llvm_ir.Constant(to, all_lanes(to, smallest)), converted)


_MANTISSA = {"half": 11, "float": 24, "double": 53}
"""Bits of the mantissa of LLVM's types, the first included."""


def float_remainder(
    builder: llvm_ir.IRBuilder, element: types.Float, a: llvm_ir.Value, b: llvm_ir.Value
) -> llvm_ir.Value:
    """C's fmod, exact. LLVM's operation for it calls the C library for every lane: that is left to large quotients.

    With q, the quotient rounded and cut off, below 2**(mantissa - 1), a - q * b is a number of the format, and q is at
    most one too large.
    """
    typ, zero = a.type, llvm_ir.Constant(a.type, None)
    size, divisor = (llvm_intrinsic(builder, "fabs", typ, [value], typ) for value in (a, b))
    bound = builder.fmul(
        divisor, llvm_ir.Constant(typ, all_lanes(typ, 2.0 ** {16: 10, 32: 22, 64: 51}[element.bitwidth]))
    )
    finite = builder.fcmp_ordered("<", divisor, llvm_ir.Constant(typ, all_lanes(typ, float("inf"))))
    small = builder.and_(builder.fcmp_ordered("<", size, bound), finite)  # no NaN, no divisor of 0
    with builder.if_else(holds_everywhere(builder, small), likely=True) as (fast, slow):
        with fast:
            quotient = llvm_intrinsic(builder, "trunc", typ, [builder.fdiv(size, divisor)], typ)
            rest = llvm_intrinsic(builder, "fma", typ, [builder.fneg(quotient), divisor, size], typ)
            below = builder.fcmp_ordered("<", rest, zero)
            rest = builder.select(below, builder.fadd(rest, divisor), rest)
            near, near_block = llvm_intrinsic(builder, "copysign", typ, [rest, a], typ), builder.block
        with slow:
            far, far_block = builder.frem(a, b), builder.block
    result = builder.phi(typ)
    result.add_incoming(near, near_block)
    result.add_incoming(far, far_block)
    return result


def all_lanes(typ: llvm_ir.Type, number: float) -> Any:
    """`number` as the contents of a constant of `typ`: in all lanes of a vector."""
    return [number] * typ.count if isinstance(typ, llvm_ir.VectorType) else number


# ---------------------------------------------------------------- loops


def not_unrolled(module: llvm_ir.Module) -> str:
    """Metadata for a loop's branch back that stops LLVM from unrolling: our loops hold what is worth having in one."""
    return module.loop_metadata(module.metadata('!{!"llvm.loop.unroll.disable"}'))


# ---------------------------------------------------------------- memory


def alloca(builder: llvm_ir.IRBuilder, typ: llvm_ir.Type, count: int = 1) -> llvm_ir.Instruction:
    """Room for `count` values on the stack, for the whole of the function; nothing is in it at first."""
    return builder.alloca(typ, count)


def declared(
    builder: llvm_ir.IRBuilder, name: str, result: llvm_ir.Type, arguments: Sequence[llvm_ir.Type]
) -> llvm_ir.Function:
    """The function `name` of the module, which declares it at its first use."""
    return builder.module.globals.get(name) or llvm_ir.Function(
        builder.module, llvm_ir.FunctionType(result, arguments), name
    )


def masked_load(
    builder: llvm_ir.IRBuilder,
    where: llvm_ir.Value,
    typ: llvm_ir.VectorType,
    mask: llvm_ir.Value,
    alignment: int,
    under: llvm_ir.Value | None = None,
) -> llvm_ir.Value:
    """A vector of `typ` at `where`: in the lanes that `mask` leaves out, whose memory is not touched, `under` (None:
    0)."""
    function = declared(builder, f"llvm.masked.load.{mangle(typ)}.p0", typ, [where.type, _I32, mask.type, typ])
    loaded = builder.call(
        function, [where, _I32(alignment), mask, llvm_ir.Constant(typ, None) if under is None else under]
    )
    if under is None:
        loaded.zero_outside = mask
    return loaded


def masked_gather(
    builder: llvm_ir.IRBuilder,
    base: llvm_ir.Value,
    element: llvm_ir.Type,
    places: llvm_ir.Value,
    mask: llvm_ir.Value | None,
    alignment: int,
) -> llvm_ir.Value:
    """The elements base[places]: 0 in the lanes that `mask` leaves out (None: none), whose memory is not touched."""
    lanes = places.type.count
    if mask is None:
        mask = llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(1), lanes), [1] * lanes)
    typ, where = llvm_ir.VectorType(element, lanes), builder.gep_each(base, element, places)
    kinds = [where.type, _I32, mask.type, typ]
    function = declared(builder, f"llvm.masked.gather.{mangle(typ)}.v{lanes}p0", typ, kinds)
    return builder.call(function, [where, _I32(alignment), mask, llvm_ir.Constant(typ, None)])


def masked_store(
    builder: llvm_ir.IRBuilder, value: llvm_ir.Value, where: llvm_ir.Value, mask: llvm_ir.Value, alignment: int
) -> None:
    """Store the lanes of `value` that `mask` selects; memory under the others is not touched."""
    name, arguments = f"llvm.masked.store.{mangle(value.type)}.p0", [value.type, where.type, _I32, mask.type]
    builder.call(declared(builder, name, llvm_ir.VoidType(), arguments), [value, where, _I32(alignment), mask])


def live_bytes(builder: llvm_ir.IRBuilder, active: llvm_ir.Value) -> llvm_ir.Value:
    """The mask of `active` < 64 of 64 lanes, as bits of a general register."""
    one = active.type(1)
    return builder.bitcast(builder.sub(builder.shl(one, active), one), llvm_ir.VectorType(llvm_ir.IntType(1), 64))


def live_mask(builder: llvm_ir.IRBuilder, active: llvm_ir.Value, lanes: int) -> llvm_ir.Value:
    """Lanes below `active`. Compared in 32 bits: `active` is clamped first, so that a long row still reads as all
    lanes."""
    clamped = builder.select(builder.icmp_signed("<", active, active.type(lanes)), active, active.type(lanes))
    spread = splat(builder, builder.trunc(clamped, _I32), lanes)
    return builder.icmp_signed("<", llvm_ir.Constant(llvm_ir.VectorType(_I32, lanes), list(range(lanes))), spread)


_VECTOR_REGISTERS = {"x86_64": "v", "aarch64": "w", "arm64": "w"}
"""What inline assembly calls a vector register, by the first part of LLVM's triple."""
_REGISTER_BITS = 128
"""Bits of the shortest vector that inline assembly takes: what is shorter has no register of its own."""


def opaque(builder: llvm_ir.IRBuilder, value: llvm_ir.Value, *after: llvm_ir.Value) -> llvm_ir.Value:
    """A vector of a register's length, a float or a pointer itself, of which LLVM no longer knows more than that it
    cannot be had before some vectors. No instruction; as it is on a CPU whose registers have no name here."""
    kind = _VECTOR_REGISTERS.get(builder.module.triple.partition("-")[0])
    if kind is None:
        return value
    operands = [value, *(_filled(builder, vector) for vector in after)]
    signature = llvm_ir.FunctionType(value.type, [operand.type for operand in operands])
    own = "r" if isinstance(value.type, llvm_ir.PointerType) else kind
    return builder.asm(signature, "", ",".join([f"={own}", "0", *[kind] * len(after)]), operands, side_effect=False)


def _filled(builder: llvm_ir.IRBuilder, vector: llvm_ir.Value) -> llvm_ir.Value:
    """A vector with lanes of any value behind its own, if it is shorter than registers are: 8 bytes of AVX2's sums."""
    count, bits = vector.type.count, mangle(vector.type.element).lstrip("if")
    least = _REGISTER_BITS // int(bits)
    if count >= least:
        return vector
    mask = llvm_ir.Constant(llvm_ir.VectorType(_I32, least), [min(lane, count) for lane in range(least)])
    return builder.shuffle_vector(vector, llvm_ir.Constant(vector.type, llvm_ir.Undefined), mask)
