"""Half precision: numbers stored in 16 bits, as float32 and back.

Generated code computes in float32; float16 and bfloat16 are how numbers lie in memory, and what operators' results are
rounded to. In kernels such a number is its bits, a uint16: `widen_...` gives the float32 of equal value, `narrow_...`
the bits of the nearest number, ties to even, overflow to infinity. NaN stays NaN.

bfloat16 is the upper half of a float32: integer arithmetic, on every CPU. (AVX-512's vcvtneps2bf16 would take small
numbers as zero.) float16 is converted by the CPU's instruction where it has one, else by integer arithmetic of the same
results. Scalars are converted as vectors of one lane.
"""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.intrinsics import declared, llvm_intrinsic
from jitonnx.emit.ssa import SSAValue

_I16, _I32, _F32 = llvm_ir.IntType(16), llvm_ir.IntType(32), llvm_ir.FloatType()


def widen_float16(bits: SSAValue) -> SSAValue:
    """The float32 of a float16's bits."""
    body = _widen_by_instruction if bits.target.converts_halves else _widen_by_integers
    return _converted(bits, types.float32, body)


def narrow_float16(x: SSAValue) -> SSAValue:
    """The bits of the float16 next to a float32."""
    return _converted(x, types.uint16, _narrow_by_instruction if x.target.converts_halves else _narrow_by_integers)


def narrow_double_float16(x: SSAValue) -> SSAValue:
    """The bits of the float16 next to a float64, rounded once."""
    return narrow_float16(_converted(x, types.float32, _round_to_odd))


def widen_bfloat16(bits: SSAValue) -> SSAValue:
    """The float32 of a bfloat16's bits."""
    return _converted(bits, types.float32, _widen_bfloat16)


def narrow_bfloat16(x: SSAValue) -> SSAValue:
    """The bits of the bfloat16 next to a float32."""
    return _converted(x, types.uint16, _narrow_bfloat16)


def narrow_for_products(*parts: SSAValue) -> SSAValue:
    """The bits of the bfloat16 next to the float32 of one vector or of two, joined, for products that take denormal
    numbers for zero: what they may become. By AVX512-BF16's instruction or AArch64's where the CPU has it."""
    first, *others = parts
    for other in others:
        first = SSAValue(first.builder, first.element, _joined(first.builder, first.value, other.value))
    lanes, target = first.lanes or 1, first.target
    if target.on_arm and target.bfloat16_products:
        return _converted(first, types.uint16, _narrow_by_fptrunc)
    if target.rounds_to_bfloat16 and lanes % 16 == 0:
        return _converted(first, types.uint16, _narrow_by_avx512)
    return narrow_bfloat16(first)


def widen_bfloat16_apart(bits: SSAValue) -> SSAValue:
    """So many float32 as there are bfloat16 in a vector, first those of its even lanes, then those of the odd ones: one
    instruction for each half."""
    builder, lanes = bits.builder, bits.value.type.count
    pairs = builder.bitcast(bits.value, llvm_ir.VectorType(_I32, lanes // 2))
    even = builder.shl(pairs, _all(lanes // 2, 16))
    odd = builder.and_(pairs, _all(lanes // 2, 0xFFFF0000))
    low, high = (builder.bitcast(part, llvm_ir.VectorType(_F32, lanes // 2)) for part in (even, odd))
    return SSAValue(builder, types.float32, _joined(builder, low, high))


def unwiden_bfloat16_apart(x: SSAValue) -> SSAValue:
    """The bits of float32 that are numbers of bfloat16 and lie as `widen_bfloat16_apart` has them."""
    builder, lanes = x.builder, x.value.type.count
    both = builder.bitcast(x.value, llvm_ir.VectorType(_I32, lanes))
    even, odd = (_lanes(builder, both, first, lanes // 2) for first in (0, lanes // 2))
    pairs = builder.or_(builder.lshr(even, _all(lanes // 2, 16)), odd)
    return SSAValue(builder, types.uint16, builder.bitcast(pairs, llvm_ir.VectorType(_I16, lanes)))


def widen(bits: SSAValue, kind: str) -> SSAValue:
    """The float32 of the bits of a number of a kind: float16 or bfloat16."""
    return widen_float16(bits) if kind == "float16" else widen_bfloat16(bits)


def _converted(
    x: SSAValue, element: types.ElementType, body: Callable[[llvm_ir.IRBuilder, llvm_ir.Value], llvm_ir.Value]
) -> SSAValue:
    """What body(builder, vector) makes of x, with elements of another type."""
    builder = x.builder
    if x.lanes:
        return SSAValue(builder, element, body(builder, x.value))
    one = builder.insert_element(
        llvm_ir.Constant(llvm_ir.VectorType(x.value.type, 1), llvm_ir.Undefined), x.value, _I32(0)
    )
    return SSAValue(builder, element, builder.extract_element(body(builder, one), _I32(0)))


def _widen_bfloat16(builder: llvm_ir.IRBuilder, bits: llvm_ir.Value) -> llvm_ir.Value:
    lanes = bits.type.count
    wide = builder.zext(bits, llvm_ir.VectorType(_I32, lanes))
    return builder.bitcast(builder.shl(wide, _all(lanes, 16)), llvm_ir.VectorType(_F32, lanes))


def _narrow_bfloat16(builder: llvm_ir.IRBuilder, x: llvm_ir.Value) -> llvm_ir.Value:
    lanes = x.type.count
    bits = builder.bitcast(x, llvm_ir.VectorType(_I32, lanes))
    kept = builder.lshr(bits, _all(lanes, 16))
    odd = builder.and_(kept, _all(lanes, 1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, _all(lanes, 0x7FFF))), _all(lanes, 16))
    quiet = builder.or_(kept, _all(lanes, 0x40))
    result = builder.select(builder.fcmp_unordered("uno", x, x), quiet, rounded)
    return builder.trunc(result, llvm_ir.VectorType(_I16, lanes))


def _narrow_by_fptrunc(builder: llvm_ir.IRBuilder, x: llvm_ir.Value) -> llvm_ir.Value:
    lanes = x.type.count
    return builder.bitcast(
        builder.fptrunc(x, llvm_ir.VectorType(llvm_ir.BfloatType(), lanes)), llvm_ir.VectorType(_I16, lanes)
    )


def _narrow_by_avx512(builder: llvm_ir.IRBuilder, x: llvm_ir.Value) -> llvm_ir.Value:
    """Multiples of 16 lanes; an instruction takes 32."""
    lanes = x.type.count
    if lanes == 16:
        name, values = "cvtneps2bf16", [x]
    elif lanes == 32:
        name, values = "cvtne2ps2bf16", [_lanes(builder, x, 16, 16), _lanes(builder, x, 0, 16)]
    else:
        low, high = (_narrow_by_avx512(builder, _lanes(builder, x, at, lanes // 2)) for at in (0, lanes // 2))
        return _joined(builder, low, high)
    result = llvm_ir.VectorType(llvm_ir.BfloatType(), lanes)
    function = declared(builder, f"llvm.x86.avx512bf16.{name}.512", result, [value.type for value in values])
    return builder.bitcast(builder.call_pure(function, values), llvm_ir.VectorType(_I16, lanes))


def _lanes(builder: llvm_ir.IRBuilder, x: llvm_ir.Value, first: int, count: int) -> llvm_ir.Value:
    places = llvm_ir.Constant(llvm_ir.VectorType(_I32, count), list(range(first, first + count)))
    return builder.shuffle_vector(x, x, places)


def _joined(builder: llvm_ir.IRBuilder, a: llvm_ir.Value, b: llvm_ir.Value) -> llvm_ir.Value:
    """The lanes of two vectors of equal length, one after the other."""
    lanes = a.type.count + b.type.count
    return builder.shuffle_vector(a, b, llvm_ir.Constant(llvm_ir.VectorType(_I32, lanes), list(range(lanes))))


def _round_to_odd(builder: llvm_ir.IRBuilder, x: llvm_ir.Value) -> llvm_ir.Value:
    """Doubles as floats with the last bit set where anything was cut off: rounding those once more is rounding once."""
    lanes = x.type.count
    nearest = builder.fptrunc(x, llvm_ir.VectorType(_F32, lanes))
    back = builder.fpext(nearest, x.type)
    magnitudes = [llvm_intrinsic(builder, "fabs", x.type, [value], x.type) for value in (back, x)]
    above = builder.zext(builder.fcmp_ordered(">", *magnitudes), llvm_ir.VectorType(_I32, lanes))
    inexact = builder.zext(builder.fcmp_ordered("!=", back, x), llvm_ir.VectorType(_I32, lanes))
    towards_zero = builder.sub(builder.bitcast(nearest, llvm_ir.VectorType(_I32, lanes)), above)
    return builder.bitcast(builder.or_(towards_zero, inexact), llvm_ir.VectorType(_F32, lanes))


def _all(lanes: int, number: int) -> llvm_ir.Constant:
    return llvm_ir.Constant(llvm_ir.VectorType(_I32, lanes), [number] * lanes)


def _widen_by_instruction(builder: llvm_ir.IRBuilder, bits: llvm_ir.Value) -> llvm_ir.Value:
    lanes = bits.type.count
    return builder.fpext(
        builder.bitcast(bits, llvm_ir.VectorType(llvm_ir.HalfType(), lanes)), llvm_ir.VectorType(_F32, lanes)
    )


def _narrow_by_instruction(builder: llvm_ir.IRBuilder, x: llvm_ir.Value) -> llvm_ir.Value:
    """Narrow behind a fence: LLVM would otherwise compute in float16 what is narrowed, and might then contract it."""
    lanes = x.type.count
    fenced = llvm_intrinsic(builder, "arithmetic.fence", x.type, [x], x.type)
    return builder.bitcast(
        builder.fptrunc(fenced, llvm_ir.VectorType(llvm_ir.HalfType(), lanes)), llvm_ir.VectorType(_I16, lanes)
    )


def _widen_by_integers(builder: llvm_ir.IRBuilder, bits: llvm_ir.Value) -> llvm_ir.Value:
    """The exponent moved to float32's bias; 0 and denormals, which have none, as multiples of 2 ** -24."""
    lanes = bits.type.count
    floats = llvm_ir.VectorType(_F32, lanes)
    wide = builder.zext(bits, llvm_ir.VectorType(_I32, lanes))
    sign = builder.shl(builder.and_(wide, _all(lanes, 0x8000)), _all(lanes, 16))
    magnitude = builder.and_(wide, _all(lanes, 0x7FFF))
    shifted = builder.shl(magnitude, _all(lanes, 13))
    normal = builder.add(shifted, _all(lanes, (127 - 15) << 23))
    special = builder.or_(shifted, _all(lanes, 0x7F800000))
    small = builder.fmul(builder.sitofp(magnitude, floats), llvm_ir.Constant(floats, [2.0**-24] * lanes))
    small = builder.bitcast(small, llvm_ir.VectorType(_I32, lanes))
    result = builder.select(builder.icmp_signed("<", magnitude, _all(lanes, 0x400)), small, normal)
    result = builder.select(builder.icmp_signed(">=", magnitude, _all(lanes, 0x7C00)), special, result)
    return builder.bitcast(builder.or_(result, sign), floats)


def _narrow_by_integers(builder: llvm_ir.IRBuilder, x: llvm_ir.Value) -> llvm_ir.Value:
    """The exponent moved to float16's bias and the fraction rounded, its carry going into the exponent; what becomes
    denormal is rounded by adding 0.5, at which the last bit of a float32 counts as much as that of a denormal."""
    lanes = x.type.count
    integers, floats = llvm_ir.VectorType(_I32, lanes), llvm_ir.VectorType(_F32, lanes)
    bits = builder.bitcast(x, integers)
    sign = builder.and_(builder.lshr(bits, _all(lanes, 16)), _all(lanes, 0x8000))
    magnitude = builder.and_(bits, _all(lanes, 0x7FFFFFFF))
    odd = builder.and_(builder.lshr(magnitude, _all(lanes, 13)), _all(lanes, 1))
    biased = builder.add(magnitude, _all(lanes, 0xFFF - ((127 - 15) << 23)))
    normal = builder.lshr(builder.add(biased, odd), _all(lanes, 13))
    half = llvm_ir.Constant(floats, [0.5] * lanes)
    small = builder.bitcast(builder.fadd(builder.bitcast(magnitude, floats), half), integers)
    small = builder.sub(small, builder.bitcast(half, integers))
    payload = builder.and_(builder.lshr(magnitude, _all(lanes, 13)), _all(lanes, 0x3FF))
    nan = builder.or_(payload, _all(lanes, 0x7E00))
    result = builder.select(builder.icmp_signed("<", magnitude, _all(lanes, (127 - 14) << 23)), small, normal)
    # From 65536 on, also what rounding has not carried there.
    result = builder.select(
        builder.icmp_signed(">=", magnitude, _all(lanes, (127 + 16) << 23)), _all(lanes, 0x7C00), result
    )
    result = builder.select(builder.icmp_signed(">", magnitude, _all(lanes, 0x7F800000)), nan, result)
    return builder.trunc(builder.or_(result, sign), llvm_ir.VectorType(_I16, lanes))
