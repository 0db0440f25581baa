"""Powers on vectors, for `vecmath`: exp2(y * log2(x)), with a logarithm as exact as products of up to 1000 need it."""

from __future__ import annotations

import math

from jitonnx.emit.instructions import lookup
from jitonnx.emit.mathematics import exponential
from jitonnx.emit.mathematics.exponential import format_of
from jitonnx.emit.mathematics.logarithm import INFINITY, fraction_and_exponent, has_table, split
from jitonnx.emit.ssa import SSAValue, at_least, at_most, fma, polynomial, select, to_double, to_single

# ---------------------------------------------------------------- double-double arithmetic (T. J. Dekker, 1971)


def _product(a: SSAValue, b: SSAValue) -> tuple[SSAValue, SSAValue]:
    """a * b as its rounded value and the rest, exactly."""
    high = a * b
    return high, fma(a, b, -high)


def _sum(a: SSAValue, b: SSAValue) -> tuple[SSAValue, SSAValue]:
    """a + b as its rounded value and the rest, exactly, when |a| >= |b| or a = 0."""
    high = a + b
    return high, b - (high - a)


# ---------------------------------------------------------------- power

# log2(1 + f) = f * P(f) in float64 (relative error 1.6e-11), and exp2(r), |r| <= 1/2 (4.1e-11): pow of float32
_LOG2_MIDDLE = (
    *(1.4426950408687043, -0.7213475208691107, 0.480898361393702, -0.3606736747058151, 0.28853729380807724),
    *(-0.24045317405492503, 0.20617534955728714, -0.18030037376572527, 0.15876980802804086, -0.14315912638803818),
    *(0.14475060660190353, -0.1428279244816367, 0.07735418923849662),
)
_EXP2_MIDDLE = (
    *(0.9999999999613742, 0.6931471807298613, 0.24022651201177095, 0.05550410350186787, 0.009618026846242975),
    *(0.001333392415193342, 0.00015469422443863248, 1.5201790423248018e-05),
)
# log1p(r) = r - r**2 / 2 + r**3 * P(r), |r| <= 1/32 (relative error 6.3e-12), and the reciprocals of 1 + f in units of
# 1/64, in the order of `logarithm`: so short that r is exact
_LOG1P_TAIL = (0.33333328, -0.24999991, 0.20018385, -0.16688077)
_RECIPROCALS = (
    *(64, 61, 59, 58, 56, 55, 53, 52, 51, 49, 48, 47, 46, 45, 44, 43),
    *(84, 82, 82, 80, 78, 76, 76, 74, 72, 72, 70, 68, 68, 66, 66, 64),
)
# 2 * atanh(s) = 2 * s + 2/3 * s**3 + s**5 * P(s**2) (error 1.5e-22 of s)
_ATANH_TAIL = (
    *(0.39999999999999974, 0.2857142857144701, 0.22222222217086626, 0.1818181892418107, 0.15384553276010465),
    *(0.13336453032998688, 0.11672113870612105, 0.12011179688001486),
)
_THIRD = (0.3333333333333333, 1.850371707708594e-17)


def _logarithm_edges(base: SSAValue, log: SSAValue) -> SSAValue:
    """`log`, the logarithm of base, where that is positive and finite; else what it is at 0 and inf."""
    return select(base.equals(0.0), base.constant(-INFINITY), select(base.equals(INFINITY), base, log))


def _log2_pair(x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """log2(x) of float64 in two parts, relative error about 2**-65; x >= 0.

    log(1 + f) = 2 * atanh(s) = 2 * s * (1 + s**2 / 3 + …), s = f / (2 + f), with the two leading terms in two parts.
    """
    f, e, _ = split(x)
    divisor = f + 2.0
    divisor_rest = f - (divisor - 2.0)
    s = f / divisor
    s_rest = fma(-s, divisor_rest, fma(-s, divisor, f)) / divisor
    square, square_rest = _product(s, s)
    square_rest = fma(2.0 * s, s_rest, square_rest)
    term, term_rest = _product(square, square.constant(_THIRD[0]))
    term_rest = term_rest + fma(square, _THIRD[1], square_rest * _THIRD[0])
    series, series_rest = _sum(term, 0.5 * square * square * polynomial(square, _ATANH_TAIL))
    series, carried = _sum(series.constant(1.0), series)
    series_rest = series_rest + carried + term_rest
    log, log_rest = _product(2.0 * s, series)
    log_rest = log_rest + fma(2.0 * s, series_rest, 2.0 * s_rest * series)
    high, low = format_of(x).log2_e
    product, rest = _product(log, log.constant(high))
    rest = rest + fma(log_rest, high, log * low)
    result, carried = _sum(e, product)
    result, carried = _sum(result, carried + rest)
    return _logarithm_edges(x, result), carried


def _log2_by_table(x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """log2(x) of float32 in two parts, relative error about 2**-33; x >= 0. At 0 and inf the second one is NaN.

    Minus the logarithms of the reciprocals have two parts as well, of which the first is a multiple of 2**-16, so that
    its sum with the exponent is exact.
    """
    fraction, minus_e, index = fraction_and_exponent(x)
    logarithms = [-math.log2(reciprocal / 64) for reciprocal in _RECIPROCALS]
    leading = [round(number * 2**16) / 2**16 for number in logarithms]
    rests = [number - lead for number, lead in zip(logarithms, leading, strict=True)]
    r = fma(fraction, lookup([number / 64 for number in _RECIPROCALS], index, x.element), -1.0)
    square, square_rest = _product(r, r)
    log = fma(square, -0.5, r)
    log_rest = fma(square * r, polynomial(r, _LOG1P_TAIL), fma(square_rest, -0.5, fma(square, -0.5, r - log)))
    high, low = format_of(x).log2_e
    product, product_rest = _product(log, log.constant(high))
    product_rest = fma(log_rest, high, fma(log, low, product_rest))
    result, carried = _sum(lookup(leading, index, x.element) - minus_e, product)
    return result, carried + (product_rest + lookup(rests, index, x.element))


def power_of_magnitude(base: SSAValue, exponent: SSAValue) -> SSAValue:
    """base**exponent for base >= 0 and a finite exponent, but for NaN at 0**0 and inf**0."""
    if base.width == 32 and not has_table(base):
        return _power_in_double(base, exponent)
    log, log_rest = _log2_by_table(base) if base.width == 32 else _log2_pair(base)
    product, rest = _product(log, exponent)
    rest = fma(log_rest, exponent, rest)
    bound = 200.0 if base.width == 32 else 1100.0
    clamped = at_most(at_least(product, -bound), bound)
    return exponential.exp2(*_sum(clamped, select(product.equals(clamped), rest, 0.0)))


def _power_in_double(base: SSAValue, exponent: SSAValue) -> SSAValue:
    """base**exponent of float32, base >= 0, computed in float64."""
    wide = to_double(base)
    f, e, _ = split(wide)
    log = _logarithm_edges(wide, fma(f, polynomial(f, _LOG2_MIDDLE), e))
    return to_single(exponential.exp2_flush(at_most(at_least(log * to_double(exponent), -200.0), 200.0), _EXP2_MIDDLE))
