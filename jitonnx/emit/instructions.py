"""Instructions that some CPUs have and LLVM has no operation for: tables in registers, exponents and fractions.

A vector function asks `table_entries`, `scales_by_power` or `splits_floats` whether the CPU has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.intrinsics import declared, splat
from jitonnx.emit.ssa import SSAValue, numbers, select

_I32 = llvm_ir.IntType(32)


def table_entries(x: SSAValue) -> int:
    """How many numbers of x's type `lookup` finds by one instruction; 0: none."""
    return {64: 16, 32: 8}.get(x.target.vector_bytes, 0) if x.width == 32 else 0  # vpermps of AVX-512 and of AVX2


def lookup(table: Sequence[float], index: SSAValue, element: types.ElementType) -> SSAValue:
    """table[index modulo len(table)] for int32 indices and `table_entries` numbers of `element`, of 32 bits.

    With AVX-512 the table may be twice as long. Vectors are looked up by whole registers; what is shorter takes a part
    of one.
    """
    entries = min(len(table), 16)
    count = index.lanes
    integer = isinstance(element, types.Integer)
    typ = llvm_ir.VectorType(llvm_ir.IntType(32) if integer else llvm_ir.FloatType(), entries)
    parts = [numbers(typ, table[start : start + entries]) for start in range(0, len(table), entries)]
    if len(table) == 32:
        name = f"llvm.x86.avx512.vpermi2var.{'d' if integer else 'ps'}.512"
    elif entries == 16:
        name = f"llvm.x86.avx512.permvar.{'si' if integer else 'sf'}.512"
    else:
        name = f"llvm.x86.avx2.{'permd' if integer else 'permps'}"

    def find(piece: llvm_ir.Value) -> llvm_ir.Value:
        arguments = [parts[0], piece, parts[1]] if len(parts) == 2 else [parts[0], piece]
        return _named_call(index.builder, name, typ, arguments)

    return SSAValue(index.builder, element, _by_registers(index.builder, find, count, entries, index.value))


def permuted(low: SSAValue, high: SSAValue, index: SSAValue) -> SSAValue:
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
    both = _joined(builder, low.value, high.value)
    result: llvm_ir.Value = llvm_ir.Constant(low.value.type, llvm_ir.Undefined)
    for lane in map(_I32, range(count)):
        element = builder.extract_element(both, builder.extract_element(index.value, lane))
        result = builder.insert_element(result, element, lane)
    return low.like(result)


def reordered(x: SSAValue, index: SSAValue) -> SSAValue:
    """Elements `index` (int32, 0 <= index < lanes) of a float32 vector as wide as the CPU's registers."""
    builder, count = x.builder, index.value.type.count
    entries = table_entries(x)
    if entries == count and count in _REORDERING:
        return x.like(_named_call(builder, _REORDERING[count], x.value.type, [x.value, index.value]))
    result: llvm_ir.Value = llvm_ir.Constant(x.value.type, llvm_ir.Undefined)
    for lane in map(_I32, range(count)):
        element = builder.extract_element(x.value, builder.extract_element(index.value, lane))
        result = builder.insert_element(result, element, lane)
    return x.like(result)


_REORDERING = {8: "llvm.x86.avx2.permps", 16: "llvm.x86.avx512.permvar.sf.512"}


def scales_by_power(x: SSAValue) -> bool:
    """Whether the CPU has an instruction for `scale_by_power`."""
    return x.target.vector_bytes == 64


def scale_by_power(x: SSAValue, exponent: SSAValue) -> SSAValue:
    """x * 2**floor(exponent), rounded once, with infinite and denormal results, by an instruction of AVX-512."""
    entries, single = 512 // x.width, x.width == 32
    typ = llvm_ir.VectorType(llvm_ir.FloatType() if single else llvm_ir.DoubleType(), entries)
    count = x.lanes
    all_lanes, as_set = (
        llvm_ir.Constant(llvm_ir.IntType(entries), -1),
        llvm_ir.IntType(32)(4),
    )  # rounding as the CPU is set to

    def scale(a: llvm_ir.Value, b: llvm_ir.Value) -> llvm_ir.Value:
        name = f"llvm.x86.avx512.mask.scalef.{'ps' if single else 'pd'}.512"
        return _named_call(x.builder, name, typ, [a, b, llvm_ir.Constant(typ, None), all_lanes, as_set])

    return x.like(_by_registers(x.builder, scale, count, entries, x.value, exponent.value))


def splits_floats(x: SSAValue) -> bool:
    """Whether the CPU has instructions for `exponent_of` and `fraction_of` of x, float32: those of AVX-512."""
    return x.width == 32 and scales_by_power(x)


def exponent_of(x: SSAValue) -> SSAValue:
    """floor(log2(|x|)) of float32, denormal numbers included; -inf at 0, inf at infinities."""
    return _split(x, "getexp", [])


def fraction_of(x: SSAValue) -> SSAValue:
    """x over a power of two, in [3/4, 3/2), of float32; 1 at zeros and at inf, NaN below 0."""
    return _split(x, "getmant", [_I32(0b1011)])  # NaN for negative numbers, the interval


def _split(x: SSAValue, name: str, kind: list[llvm_ir.Value]) -> SSAValue:
    typ = llvm_ir.VectorType(llvm_ir.FloatType(), 16)
    others = [
        *kind,
        llvm_ir.Constant(typ, None),
        llvm_ir.Constant(llvm_ir.IntType(16), -1),
        _I32(4),
    ]  # all lanes, the CPU's rounding
    return _by_instruction(x, f"mask.{name}.ps.512", typ, others)


def _by_instruction(x: SSAValue, name: str, typ: llvm_ir.VectorType, others: list[llvm_ir.Value]) -> SSAValue:
    """An operation of AVX-512 on x, whose intrinsic takes `others` as well."""

    def apply(value: llvm_ir.Value) -> llvm_ir.Value:
        return _named_call(x.builder, f"llvm.x86.avx512.{name}", typ, [value, *others])

    count = x.lanes
    return x.like(_by_registers(x.builder, apply, count, typ.count, x.value))


_DOT_PRODUCTS = {16: "llvm.x86.avx512.vpdpbusd.512", 8: "llvm.x86.avx512.vpdpbusd.256"}


def add_dot_products(total: SSAValue, left: SSAValue, right: SSAValue, kind: str) -> SSAValue:
    """total + Σ left * right of the four bytes in each lane, exactly, in int32: by the instruction that
    `Target.byte_dots` names. "dot": left is signed and right unsigned; "signed dot": both are signed."""
    builder, lanes = total.builder, total.lanes
    typ = llvm_ir.VectorType(_I32, lanes)
    if kind == "dot":
        return total.like(_named_call(builder, _DOT_PRODUCTS[lanes], typ, [total.value, right.value, left.value]))
    quads = llvm_ir.VectorType(llvm_ir.IntType(8), 4 * lanes)
    name = f"llvm.aarch64.neon.sdot.v{lanes}i32.v{4 * lanes}i8"
    bytes_of = [builder.bitcast(x.value, quads) for x in (left, right)]
    return total.like(_named_call(builder, name, typ, [total.value, *bytes_of]))


def add_pair_products(
    builder: llvm_ir.IRBuilder, total: llvm_ir.Value, left: llvm_ir.Value, right: llvm_ir.Value
) -> llvm_ir.Value:
    """total, 16 float32, + Σ left * right of the two bfloat16 in each 32 bits, by vdpbf16ps of AVX512-BF16: denormal
    numbers count as 0, and the products are added one after the other."""
    pairs = llvm_ir.VectorType(llvm_ir.BfloatType(), 32)
    operands = [total, builder.bitcast(left, pairs), builder.bitcast(right, pairs)]
    return _named_call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", total.type, operands)


def _named_call(
    builder: llvm_ir.IRBuilder, name: str, result: llvm_ir.Type, arguments: Sequence[llvm_ir.Value]
) -> llvm_ir.Value:
    return builder.call(declared(builder, name, result, [argument.type for argument in arguments]), arguments)


def _by_registers(
    builder: llvm_ir.IRBuilder, function: Callable[..., llvm_ir.Value], count: int, lanes: int, *values: llvm_ir.Value
) -> llvm_ir.Value:
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


def _lanes_from(builder: llvm_ir.IRBuilder, value: llvm_ir.Value, start: int, lanes: int) -> llvm_ir.Value:
    """`lanes` lanes from `start` on; the first ones again where the vector ends before."""
    mask = [i if i < value.type.count else 0 for i in range(start, start + lanes)]
    if mask == list(range(value.type.count)):
        return value
    chosen = llvm_ir.Constant(llvm_ir.VectorType(_I32, lanes), mask)
    return builder.shuffle_vector(value, llvm_ir.Constant(value.type, llvm_ir.Undefined), chosen)


def _joined(builder: llvm_ir.IRBuilder, a: llvm_ir.Value, b: llvm_ir.Value) -> llvm_ir.Value:
    return builder.shuffle_vector(
        a, b, llvm_ir.Constant(llvm_ir.VectorType(_I32, 2 * a.type.count), list(range(2 * a.type.count)))
    )
