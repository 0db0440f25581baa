"""Half precision: numbers stored in 16 bits, as float32 and back.

Generated code computes in float32; float16 and bfloat16 are how numbers lie in memory, and what operators' results are
rounded to. In kernels such a number is its bits, a uint16 (Numba has no 16-bit floats on CPUs): `widen_...` gives the
float32 of equal value, `narrow_...` the bits of the nearest number, ties to even, overflow to infinity. NaN stays NaN.

bfloat16 is the upper half of a float32: integer arithmetic, on every CPU. (AVX-512's vcvtneps2bf16 would take small
numbers as zero.) How float16 is converted depends on the CPU, which a kernel does not know while its code is emitted:
it calls functions that `define_conversions` writes when the CPU is known, with the CPU's instruction where it has one,
else with integer arithmetic of the same results.
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba.core import types
from numba.extending import intrinsic

from jitonnx.kernels.simd import Vector, llvm_intrinsic

_I16, _I32, _F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()
_DECLARED = re.compile(r"jitonnx\.(widen|narrow)\.float16\.(\d+)")


# ---------------------------------------------------------------- what kernels call


def _conversion(name: str, source: types.Type, target: types.Type, body: Any, doc: str) -> Any:
    """An intrinsic from Vectors or scalars of `source` to `target`; body(builder, vector) emits it."""

    def declare(typingctx: Any, value: Any) -> Any:
        scalar = not isinstance(value, Vector)
        if (value if scalar else value.element) != source:
            return None

        def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
            if not scalar:
                return body(builder, args[0])
            one = ir.Constant(ir.VectorType(args[0].type, 1), ir.Undefined)
            return builder.extract_element(body(builder, builder.insert_element(one, args[0], _I32(0))), _I32(0))

        return (target if scalar else Vector(target, value.lanes))(value), generate

    declare.__name__, declare.__doc__ = name, doc
    return intrinsic(declare)


def _call(builder: ir.IRBuilder, name: str, value: ir.Value, element: ir.Type) -> ir.Value:
    lanes = value.type.count
    full = f"jitonnx.{name}.float16.{lanes}"
    function = builder.module.globals.get(full) or ir.Function(
        builder.module, ir.FunctionType(ir.VectorType(element, lanes), [value.type]), full
    )
    return builder.call(function, [value])


def _widen_bfloat16(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    lanes = bits.type.count
    wide = builder.zext(bits, ir.VectorType(_I32, lanes))
    return builder.bitcast(builder.shl(wide, _all(lanes, 16)), ir.VectorType(_F32, lanes))


def _narrow_bfloat16(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    lanes = x.type.count
    bits = builder.bitcast(x, ir.VectorType(_I32, lanes))
    kept = builder.lshr(bits, _all(lanes, 16))
    odd = builder.and_(kept, _all(lanes, 1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, _all(lanes, 0x7FFF))), _all(lanes, 16))
    quiet = builder.or_(kept, _all(lanes, 0x40))
    result = builder.select(builder.fcmp_unordered("uno", x, x), quiet, rounded)
    return builder.trunc(result, ir.VectorType(_I16, lanes))


def _round_to_odd(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Doubles as floats with the last bit set where anything was cut off: rounding those once more is rounding once."""
    lanes = x.type.count
    nearest = builder.fptrunc(x, ir.VectorType(_F32, lanes))
    back = builder.fpext(nearest, x.type)
    magnitudes = [llvm_intrinsic(builder, "fabs", x.type, [value], x.type) for value in (back, x)]
    above = builder.zext(builder.fcmp_ordered(">", *magnitudes), ir.VectorType(_I32, lanes))
    inexact = builder.zext(builder.fcmp_ordered("!=", back, x), ir.VectorType(_I32, lanes))
    towards_zero = builder.sub(builder.bitcast(nearest, ir.VectorType(_I32, lanes)), above)
    return builder.bitcast(builder.or_(towards_zero, inexact), ir.VectorType(_F32, lanes))


def _all(lanes: int, number: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(_I32, lanes), [number] * lanes)


def emit_widen(builder: ir.IRBuilder, bits: ir.Value, kind: str) -> ir.Value:
    """The float32s of a vector of bits; kind: float16 or bfloat16."""
    return _call(builder, "widen", bits, _F32) if kind == "float16" else _widen_bfloat16(builder, bits)


widen_float16 = _conversion(
    "widen_float16",
    types.uint16,
    types.float32,
    lambda builder, bits: _call(builder, "widen", bits, _F32),
    "The float32 of a float16's bits.",
)
narrow_float16 = _conversion(
    "narrow_float16",
    types.float32,
    types.uint16,
    lambda builder, x: _call(builder, "narrow", x, _I16),
    "The bits of the float16 next to a float32.",
)
narrow_double_float16 = _conversion(
    "narrow_double_float16",
    types.float64,
    types.uint16,
    lambda builder, x: _call(builder, "narrow", _round_to_odd(builder, x), _I16),
    "The bits of the float16 next to a float64, rounded once.",
)
widen_bfloat16 = _conversion(
    "widen_bfloat16", types.uint16, types.float32, _widen_bfloat16, "The float32 of a bfloat16's bits."
)
narrow_bfloat16 = _conversion(
    "narrow_bfloat16", types.float32, types.uint16, _narrow_bfloat16, "The bits of the bfloat16 next to a float32."
)


# ---------------------------------------------------------------- what they call, once the CPU is known


def define_conversions(module: llvm.ModuleRef, in_hardware: bool) -> None:
    """Write the float16 conversions that `module` declares; `in_hardware`: the CPU has instructions for them."""
    wanted = [match for function in module.functions if (match := _DECLARED.fullmatch(function.name))]
    if not wanted:
        return
    library = ir.Module("jitonnx.half")
    for match in wanted:
        _define(library, match[0], match[1], int(match[2]), in_hardware)
    module.link_in(llvm.parse_assembly(str(library)))
    for match in wanted:
        module.get_function(match[0]).linkage = "internal"


def _define(library: ir.Module, name: str, direction: str, lanes: int, in_hardware: bool) -> None:
    floats, bits = ir.VectorType(_F32, lanes), ir.VectorType(_I16, lanes)
    source, target = (bits, floats) if direction == "widen" else (floats, bits)
    function = ir.Function(library, ir.FunctionType(target, [source]), name)
    function.attributes.add("alwaysinline")
    builder = ir.IRBuilder(function.append_basic_block())
    bodies = _HARDWARE if in_hardware else _SOFTWARE
    builder.ret(bodies[direction](builder, function.args[0]))


def _widen_by_instruction(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    lanes = bits.type.count
    return builder.fpext(builder.bitcast(bits, ir.VectorType(ir.HalfType(), lanes)), ir.VectorType(_F32, lanes))


def _narrow_by_instruction(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Behind a fence: LLVM would otherwise compute in float16 what is narrowed, and might then contract it."""
    lanes = x.type.count
    fenced = llvm_intrinsic(builder, "arithmetic.fence", x.type, [x], x.type)
    return builder.bitcast(builder.fptrunc(fenced, ir.VectorType(ir.HalfType(), lanes)), ir.VectorType(_I16, lanes))


def _widen_by_integers(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """The exponent moved to float32's bias; 0 and denormals, which have none, as multiples of 2 ** -24."""
    lanes = bits.type.count
    floats = ir.VectorType(_F32, lanes)
    wide = builder.zext(bits, ir.VectorType(_I32, lanes))
    sign = builder.shl(builder.and_(wide, _all(lanes, 0x8000)), _all(lanes, 16))
    magnitude = builder.and_(wide, _all(lanes, 0x7FFF))
    shifted = builder.shl(magnitude, _all(lanes, 13))
    normal = builder.add(shifted, _all(lanes, (127 - 15) << 23))
    special = builder.or_(shifted, _all(lanes, 0x7F800000))
    small = builder.fmul(builder.sitofp(magnitude, floats), ir.Constant(floats, [2.0**-24] * lanes))
    small = builder.bitcast(small, ir.VectorType(_I32, lanes))
    result = builder.select(builder.icmp_signed("<", magnitude, _all(lanes, 0x400)), small, normal)
    result = builder.select(builder.icmp_signed(">=", magnitude, _all(lanes, 0x7C00)), special, result)
    return builder.bitcast(builder.or_(result, sign), floats)


def _narrow_by_integers(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """The exponent moved to float16's bias and the fraction rounded, its carry going into the exponent; what becomes
    denormal is rounded by adding 0.5, at which the last bit of a float32 counts as much as that of a denormal."""
    lanes = x.type.count
    integers, floats = ir.VectorType(_I32, lanes), ir.VectorType(_F32, lanes)
    bits = builder.bitcast(x, integers)
    sign = builder.and_(builder.lshr(bits, _all(lanes, 16)), _all(lanes, 0x8000))
    magnitude = builder.and_(bits, _all(lanes, 0x7FFFFFFF))
    odd = builder.and_(builder.lshr(magnitude, _all(lanes, 13)), _all(lanes, 1))
    biased = builder.add(magnitude, _all(lanes, 0xFFF - ((127 - 15) << 23)))
    normal = builder.lshr(builder.add(biased, odd), _all(lanes, 13))
    half = ir.Constant(floats, [0.5] * lanes)
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
    return builder.trunc(builder.or_(result, sign), ir.VectorType(_I16, lanes))


_HARDWARE = {"widen": _widen_by_instruction, "narrow": _narrow_by_instruction}
_SOFTWARE = {"widen": _widen_by_integers, "narrow": _narrow_by_integers}
