"""Logarithms on vectors, and what `vecmath` builds on them.

x = (1 + f) * 2**e, with a polynomial for log(1 + f), and e * ln 2 added in two parts. Where two registers can be used
as a table (AVX-512), the leading bits of 1 + f pick the reciprocal c of a number near it and -log(c): what is left for
the polynomial, (1 + f) * c - 1, is at most 1/32, and half of the multiply-adds are saved (P. T. P. Tang, 1990). The
reciprocals are such float32 that their logarithms are almost multiples of 2**-17 (S. Gal, 1986), so that -log(c) and
the leading part of e * ln 2, which is such a multiple too, have an exact sum. Around 1 both are 0.
"""

from __future__ import annotations

from jitonnx.emit.instructions import exponent_of, fraction_of, lookup, splits_floats
from jitonnx.emit.mathematics.exponential import format_of
from jitonnx.emit.ssa import SSAValue, bits, copysign, fma, from_bits, polynomial, select, to_float

INFINITY, _NAN = float("inf"), float("nan")

# log1p(f) = f - f**2 / 2 + f**3 * P(f), 1/sqrt(2) <= 1 + f <= sqrt(2) (relative error 5.8e-9)
_LOG1P = (0.3333333, -0.2500082, 0.20001242, -0.16623409, 0.14201596, -0.1315964, 0.12762019, -0.07636014)
# 2 * atanh(s) = 2 * s + s**3 * P(s**2), |s| <= 3 - 2 * sqrt(2) (relative error 1.2e-18)
_ATANH = (
    *(0.6666666666666735, 0.3999999999940964, 0.2857142874356442, 0.22222198445914643, 0.1818357130726897),
    *(0.15313862088928756, 0.1479793662544951),
)

# log1p(r) = r + r**2 * P(r), |r| <= 1/32 (relative error 3.9e-10), beside a table of 32 numbers: reciprocals of 1 + f
# near 1, 1 + 1/32 … 3/2, then 3/4, 3/4 + 1/64 … 1, and minus their logarithms in units of 2**-17 (off by up to 0.02 of
# 2**-24 of the result).
_LOG1P_BESIDE_TABLE = (-0.49999994, 0.3333333, -0.25022295, 0.20012882)
_RECIPROCALS = (
    *(1.0, 0.9567435, 0.9307239, 0.89225256, 0.88066745, 0.8441106, 0.8242486, 0.8152427, 0.78807724, 0.7697921),
    *(0.7474869, 0.72803533, 0.72803533, 0.71087205, 0.69387513, 0.6745669, 1.3081623, 1.3020586, 1.2672181),
    *(1.2427363, 1.2249639, 1.2013626, 1.1691363, 1.1529353, 1.1314639, 1.1174376, 1.1047646, 1.0719025, 1.0568392),
    *(1.042083, 1.0, 1.0),
)
_LOGARITHMS = (
    *(0, 5796, 9410, 14943, 16656, 22213, 25334, 26774, 31216, 34293, 38147, 41603, 41603, 44730, 47902, 51601),
    *(-35209, -34596, -31041, -28484, -26596, -24046, -20482, -18653, -16189, -14554, -13059, -9101, -7246, -5403, 0),
    *(0,),
)


def split(x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """f, e, scale: x = (1 + f) * 2**e with 1 + f in [1/sqrt(2), sqrt(2)), and 2**(1 - e), for x > 0 and finite.

    The scale holds for 1 - e above the least exponent, and is 0 there.
    """
    form = format_of(x)
    lift = form.mantissa + 1
    tiny = x < form.least_normal
    pattern = bits(select(tiny, x * 2.0**lift, x))
    low = pattern.constant(0x3F3504F3 if x.width == 32 else 0x3FE6A09E667F3BCD)  # 1/sqrt(2)
    two = (form.bias + 1) << form.mantissa
    exponent = (pattern - low) >> form.mantissa
    shift = exponent << form.mantissa
    e = to_float(exponent) + select(tiny, x.constant(-lift), 0.0)
    return from_bits(pattern - shift) - 1.0, e, from_bits(pattern.constant(two) - shift)


def log_of(f: SSAValue, e: SSAValue) -> SSAValue:
    """log((1 + f) * 2**e). float64: K. C. Ng's form with s = f / (2 + f), as in fdlibm's e_log.c."""
    form = format_of(f)
    if f.width == 32:
        square = f * f
        rest = fma(square * f, polynomial(f, _LOG1P), fma(square, -0.5, e * form.ln2[1]))
        return fma(e, form.ln2[0], f + rest)
    s = f / (f + 2.0)
    square, half = s * s, 0.5 * f * f
    rest = fma(s, fma(square, polynomial(square, _ATANH), half), e * form.ln2[1])
    return fma(e, form.ln2[0], f - (half - rest))


def _logarithm_edges(x: SSAValue, result: SSAValue) -> SSAValue:
    """`result` for positive finite x; else what a logarithm is there: -inf at 0, inf at inf, NaN below 0 and at NaN."""
    edge = select(x.equals(0.0), x.constant(-INFINITY), _NAN)
    return select(x.equals(INFINITY), x, select(x > 0.0, result, edge))


def log(x: SSAValue) -> SSAValue:
    """log(x)."""
    if has_table(x):
        return _log_by_table(x)
    f, e, _ = split(x)
    return _logarithm_edges(x, log_of(f, e))


def log1p(x: SSAValue) -> SSAValue:
    """log(1 + x)."""
    total = x + 1.0
    lost = x - (total - 1.0)  # of x, when 1 was added; goes back in at the scale of the fraction
    if has_table(x):
        return copysign(_log_by_table(total, lost), x)
    f, e, double = split(total)
    f = fma(0.5 * lost, double, f)
    return copysign(_logarithm_edges(total, log_of(f, e)), x)


def has_table(x: SSAValue) -> bool:
    """Whether logarithms of x's type are made by a table."""
    return splits_floats(x)


def fraction_and_exponent(x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """m, -e, i of float32: x = m * 2**e with m in [3/4, 3/2), whose part of the table is i modulo 32."""
    fraction = fraction_of(x)
    return fraction, exponent_of(fraction) - exponent_of(x), bits(fraction) >> 18


def _log_by_table(x: SSAValue, rest: SSAValue | None = None) -> SSAValue:
    """log(x + rest) for a rest that is small beside x, does not count where x is above 2**100, and is 0 where x is.

    At 0, at inf, below 0 and at NaN the exponent and the fraction make the result what it has to be.
    """
    fraction, minus_e, index = fraction_and_exponent(x)
    reciprocal = lookup(_RECIPROCALS, index, x.element)
    r = fma(fraction, reciprocal, -1.0)
    if rest is not None:
        scale = from_bits(bits(fraction) - bits(x) + bits(x.constant(1.0)))  # their fractions are equal: 2**-e
        r = fma(select(x < 2.0**100, rest * scale, 0.0), reciprocal, r)
    high, low = format_of(x).ln2
    whole = fma(minus_e, -high, lookup([number * 2.0**-17 for number in _LOGARITHMS], index, x.element))
    return whole + fma(r * r, polynomial(r, _LOG1P_BESIDE_TABLE), fma(minus_e, -low, r))
