"""Trigonometric functions on vectors and their inverses; `vecmath` offers them with the other elementary functions."""

from __future__ import annotations

import itertools

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.intrinsics import alloca
from jitonnx.emit.mathematics.exponential import format_of
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import (
    SSAValue,
    absolute,
    bits,
    copysign,
    fma,
    from_bits,
    narrow,
    polynomial,
    replaced,
    select,
    sqrt,
    to_double,
    to_float,
    to_single,
    vector_function,
)

# sin(r) = r + r**3 * P(r**2), cos(r) = 1 - r**2 / 2 + r**4 * P(r**2), |r| <= pi / 4 (relative error 4.0e-9 and 1.2e-10,
# 3.8e-18 and 5.8e-20)
_SIN = {
    32: (-0.16666655, 0.008332187, -0.00019517912),
    64: (
        *(-0.1666666666666663, 0.00833333333332188, -0.00019841269829413906, 2.755731356378168e-06),
        *(-2.5050739082702983e-08, 1.5895739897238648e-10),
    ),
}
_COS = {
    32: (0.041666646, -0.001388731, 2.4432336e-05),
    64: (
        *(0.041666666666666595, -0.0013888888888873305, 2.480158728896334e-05, -2.7557314202568086e-07),
        *(2.087570309055912e-09, -1.1358615968988668e-11),
    ),
}
# tan(r) = r + r**3 * P(r**2), |r| <= 0.788 (relative error 1.9e-8)
_TAN = (0.33333147, 0.13339071, 0.05338841, 0.024513027, 0.0029850625, 0.009466287)
# pi / 2: high and low part; in three parts, those of float64 of 33 bits, 33 bits and the rest
_HALF_PI = {
    32: (1.5707963705062866, -4.371138828673793e-08),
    64: (1.5707963267948966, 6.123233995736766e-17),
}
_HALF_PI_PARTS = {
    32: (1.5707963705062866, -4.371138828673793e-08, -1.7150994166548195e-15),
    64: (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21),
}
_TWO_OVER_PI = 0.6366197723675814
# asin(x) = x + x**3 * P(x**2), x <= 1/2 (relative error 4.8e-9, 1.5e-17)
_ASIN = {
    32: (0.16666752, 0.074953094, 0.045469113, 0.024185166, 0.042157292),
    64: (
        *(0.1666666666666541, 0.07500000000336483, 0.04464285682876445, 0.03038195911920314, 0.02237175846934188),
        *(0.017359698553725458, 0.01388529585798382, 0.012168820219923672, 0.006529650727419322),
        *(0.01952371641931768, -0.016217156958124597, 0.03190742650978204),
    ),
}
# atan(x) = x + x**3 * P(x**2), x <= tan(pi / 8) (relative error 6.9e-10, 1.3e-18)
_ATAN = {
    32: (-0.33333316, 0.19998528, -0.14244391, 0.105991736, -0.060900837),
    64: (
        *(-0.333333333333332, 0.19999999999953677, -0.1428571428019966, 0.11111110783469344, -0.09090897755899983),
        *(0.07692060164886014, -0.06663103406999026, 0.058478846236643435, -0.05039285074983578),
        *(0.03806412524826014, -0.017906821181277288),
    ),
}


def _quadrant(x: SSAValue) -> tuple[SSAValue, SSAValue | float, SSAValue]:
    """r, rest, q: x = r + rest + q * pi / 2, |r| <= pi / 4; q counts modulo 4, in its low bits.

    float32 takes pi / 2 in three parts, of which the first is subtracted without rounding: r has an error below 1 ulp
    for |x| <= 2**17. What is larger is reduced in float64, where that does up to 2**30, and beyond by integers.
    """
    if x.width == 64:
        return _quadrant_of_double(x)
    shifted = fma(x, _TWO_OVER_PI, x.constant(format_of(x).magic))
    count = shifted - format_of(x).magic
    r = x
    for part in _HALF_PI_PARTS[32]:
        r = fma(count, -part, r)
    r, quadrant = replaced(absolute(x) > 2.0**17, (r, bits(shifted)), lambda: _quadrant_of_huge(x))
    return r, 0.0, quadrant


def _quadrant_of_huge(x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """r and q of float32, whose rest vanishes."""
    r, _, quadrant = _quadrant_of_double(to_double(x))
    return to_single(r), narrow(quadrant)


def _quadrant_of_double(x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    shifted = fma(x, _TWO_OVER_PI, x.constant(format_of(x).magic))
    count = shifted - format_of(x).magic
    high, middle, low = _HALF_PI_PARTS[64]
    first = fma(count, -high, x)
    second = fma(count, -middle, first)
    r = fma(count, -low, second)
    rest = fma(count, -low, second - r) + fma(count, -middle, first - second)
    values = r, rest, bits(shifted)
    r, rest, quadrant = replaced(absolute(x) > _LARGE, values, lambda: _quadrants_by_integers(x))
    return r, rest, quadrant


_LARGE = 2.0**30
"""Three parts of pi / 2 are enough below."""
_TWO_OVER_PI_WORDS = (
    *(0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561, 0xB7246E3A),
    *(0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E, 0xE88235F5, 0x2EBB4484, 0xE99C7026, 0xB45F7E41),
    *(0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF, 0xDE05980F, 0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF),
    *(0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7, 0xEBE5F17B, 0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08),
    *(0x56033046, 0xFC7B6BAB),
)
"""2 / pi behind the point, 32 bits each."""
_FRACTION_WORDS = 6
"""The last 53 of 192 bits behind the point are wrong, and 62 can be 0 before the first that is not: 76 are left."""


def _quadrants_by_integers(x: SSAValue) -> list[SSAValue]:
    """r, rest, q of float64 in the lanes above 2**30, one after the other: of vectors the code would be many times as
    long, in each kernel, for what next to none meets."""
    if not x.lanes:
        return list(_quadrant_by_integers(x))
    builder, i64 = x.builder, llvm_ir.IntType(64)
    kinds = (types.float64, types.float64, types.int64)
    given, *places = (alloca(builder, kind.llvm, x.lanes) for kind in (types.float64, *kinds))
    typ = x.value.type
    builder.store(x.value, builder.bitcast(given, typ.as_pointer())).align = 8
    before, body, after = builder.block, builder.append_basic_block("lane"), builder.append_basic_block("lanes")
    builder.branch(body)
    builder.position_at_end(body)
    lane = builder.phi(i64)
    lane.add_incoming(i64(0), before)
    one = SSAValue(builder, types.float64, builder.load(builder.gep(given, [lane])))
    with builder.if_then((absolute(one) > _LARGE).value):
        for place, result in zip(places, _quadrant_by_integers(one), strict=True):
            builder.store(result.value, builder.gep(place, [lane]))
    following = builder.add(lane, i64(1))
    lane.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, i64(x.lanes)), body, after)
    builder.position_at_end(after)
    results = []
    for kind, place in zip(kinds, places, strict=True):
        loaded = builder.load(builder.bitcast(place, llvm_ir.VectorType(kind.llvm, x.lanes).as_pointer()))
        loaded.align = 8
        results.append(SSAValue(builder, kind, loaded))
    return results


def _quadrant_by_integers(x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """r, rest, q of a float64 above 2**30, however large (M. Payne and R. Hanek, 1983); NaN of infinities.

    |x| = m 2**e with a whole number m. Words of 2 / pi from where a product with 2**e begins to count, modulo 2**32,
    are multiplied by m; what is behind the point of the product, less 1 if that is nearer, is r in quarter turns.
    """
    builder, mask = x.builder, 0xFFFFFFFF

    def unsigned(value: SSAValue) -> SSAValue:
        return SSAValue(builder, types.uint64, value.value)

    pattern = unsigned(bits(absolute(x)))
    above = (pattern >> 52) - (1075 - 32)  # e + 32
    number = (pattern & ((1 << 52) - 1)) | (1 << 52)
    lower, upper = number & mask, number >> 32
    table = builder.module.table("two_over_pi", llvm_ir.IntType(32), (0, 0, *_TWO_OVER_PI_WORDS))
    begin, shift = above >> 5, above & 31

    def word(place: SSAValue) -> SSAValue:
        found = builder.load(builder.gep(table, [place.value]))
        return convert(SSAValue(builder, types.uint32, found), types.uint64)

    words = [word(begin + at) for at in range(_FRACTION_WORDS + 2)]
    factors = [((high << 32 | low) >> (32 - shift)) & mask for high, low in itertools.pairwise(words)]
    behind, carry, digits = number.constant(0), number.constant(0), list[SSAValue]()
    for factor in reversed(factors):
        one, two = lower * factor, upper * behind
        total = (one & mask) + (two & mask) + carry
        digits.append(total & mask)
        carry, behind = (one >> 32) + (two >> 32) + (total >> 32), factor
    quarters, *fraction = reversed(digits)
    nearer = fraction[0] >> 31  # 1: the next whole number
    flipped = [digit ^ ((number.constant(0) - nearer) & mask) for digit in fraction]
    floats = [to_float(SSAValue(builder, types.int64, digit.value)) for digit in flipped]
    parts = [part * 2.0 ** (-32 * at) for at, part in enumerate(floats, 1)]
    first = parts[0] + parts[1]
    tail = (parts[1] - (first - parts[0])) + (parts[2] + (parts[3] + (parts[4] + parts[5])))
    turn = first + tail
    turn_rest = tail - (turn - first)
    high, low = _HALF_PI[64]
    r = turn * high
    rest = fma(turn, high, -r) + fma(turn, low, turn_rest * high)
    quadrant = SSAValue(builder, types.int64, (quarters + nearer).value)
    negative = x < 0.0
    minus, none = negative ^ nearer.differs(0), x - x  # NaN of what is not finite
    return select(minus, -r, r) + none, select(minus, -rest, rest), select(negative, -quadrant, quadrant)


def _sine_and_cosine(r: SSAValue, rest: SSAValue | float) -> tuple[SSAValue, SSAValue]:
    """sin(r + rest), cos(r + rest)."""
    square = r * r
    sine = r + fma(r * square, polynomial(square, _SIN[r.width]), rest)
    if isinstance(rest, SSAValue):
        half = 0.5 * square
        one = 1.0 - half
        tail = fma(square * square, polynomial(square, _COS[r.width]), -r * rest)
        return sine, one + (((1.0 - one) - half) + tail)
    return sine, fma(square * square, polynomial(square, _COS[r.width]), fma(square, -0.5, r.constant(1.0)))


def _flip(x: SSAValue, quadrant: SSAValue) -> SSAValue:
    """x with its sign changed where bit 1 of the quadrant is set."""
    return from_bits(bits(x) ^ ((quadrant & 2) << (x.width - 2)))


@vector_function
def sin(x: SSAValue) -> SSAValue:
    """Sine, error below 2 ulp (float64: 1) of all numbers.

    Reduced by multiples of pi / 2 (W. J. Cody and W. Waite, 1980), polynomials for sine and cosine on the rest.
    """
    r, rest, quadrant = _quadrant(absolute(x))
    sine, cosine = _sine_and_cosine(r, rest)
    value = _flip(select((quadrant & 1).equals(0), sine, cosine), quadrant)
    sign_bit = bits(x) & bits(x.constant(-0.0))
    return from_bits(bits(value) ^ sign_bit)


@vector_function
def cos(x: SSAValue) -> SSAValue:
    """Cosine, as `sin`."""
    r, rest, quadrant = _quadrant(x)
    sine, cosine = _sine_and_cosine(r, rest)
    return _flip(select((quadrant & 1).equals(0), cosine, sine), quadrant + 1)


@vector_function
def tan(x: SSAValue) -> SSAValue:
    """Tangent, error below 3 ulp (float64: 2.5): that of what the reduction leaves, or minus its
    inverse. float32 has a polynomial for it, float64 takes sine over cosine.
    """
    r, rest, quadrant = _quadrant(absolute(x))
    even = (quadrant & 1).equals(0)
    if x.width == 32:
        square = r * r
        near = fma(r * square, polynomial(square, _TAN), r)
        value = select(even, near, -1.0 / near)
    else:
        sine, cosine = _sine_and_cosine(r, rest)
        value = select(even, sine, -cosine) / select(even, cosine, sine)
    return from_bits(bits(value) ^ (bits(x) & bits(x.constant(-0.0))))


def _asin_core(a: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Whether a > 1/2, and asin(a), or asin(sqrt((1 - a) / 2)) = acos(a) / 2 then."""
    outer = a > 0.5
    square = select(outer, (1.0 - a) * 0.5, a * a)
    root = select(outer, sqrt(square), a)
    return outer, fma(root * square, polynomial(square, _ASIN[a.width]), root)


@vector_function
def asin(x: SSAValue) -> SSAValue:
    """Inverse sine, error below 2 ulp: a polynomial up to 1/2, pi / 2 - 2 * asin(sqrt((1 - |x|) / 2)) above."""
    outer, core = _asin_core(absolute(x))
    high, low = _HALF_PI[x.width]
    return copysign(select(outer, fma(core, -2.0, x.constant(high)) + low, core), x)


@vector_function
def acos(x: SSAValue) -> SSAValue:
    """Inverse cosine, error below 2 ulp: by the inverse sine of x or of sqrt((1 - |x|) / 2)."""
    outer, core = _asin_core(absolute(x))
    high, low = _HALF_PI[x.width]
    inner = (high - copysign(core, x)) + low
    far = select(x > 0.0, 2.0 * core, fma(core, -2.0, x.constant(2 * high)) + 2 * low)
    return select(outer, far, inner)


@vector_function
def atan(x: SSAValue) -> SSAValue:
    """Inverse tangent, error below 2 ulp: by atan(1 / x) or atan((x - 1) / (x + 1)) to arguments below tan(pi / 8)."""
    a = absolute(x)
    high, low = _HALF_PI[x.width]
    far, middle = a > 2.414213562373095, a > 0.41421356237309503
    upper = select(far, -1.0, select(middle, a - 1.0, a))
    w = upper / select(far, a, select(middle, a + 1.0, 1.0))
    square = w * w
    tail = fma(
        w * square, polynomial(square, _ATAN[x.width]), select(far, low, select(middle, a.constant(0.5 * low), 0.0))
    )
    return copysign(select(far, high, select(middle, a.constant(0.5 * high), 0.0)) + (w + tail), x)
