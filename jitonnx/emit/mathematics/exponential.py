"""Exponentials on vectors, and what the other elementary functions of `vecmath` build on them.

All write e**x = t * 2**k. A number whose last bits are worth 1/n, `magic`, is added to x * log2(e) and taken off again:
that rounds to a multiple of 1/n, and leaves its bits at the end of the sum. What x is away from there, |r| <= ln(2)/2n,
goes to a polynomial. n is 1 on some CPUs. Where a register can be used as a table (AVX2: n = 8 numbers of float32,
AVX-512: 16), the fraction of the multiple picks its power of two there (P. T. P. Tang, 1989), which saves half of the
multiply-adds: they are what limits exponentials on a CPU that has other units for additions, bounds and permutations.

None of them gives a denormal number, nor computes with one: a result below `Format.least_power` is 0. Many CPUs take a
hundred cycles and more for an operation with denormal numbers, and attention with a mask is full of such powers.

The table's numbers are 2**(i/n) * (1 + shift), with a shift that leaves each of them almost a float32; the polynomial
divides by it. Where 1 must be taken off again (`expm1_scaled`), they are exact, and a second table holds their rests.
"""

from __future__ import annotations

import numpy as np

from jitonnx.emit.instructions import lookup, scale_by_power, scales_by_power, table_entries
from jitonnx.emit.ssa import SSAValue, absolute, at_least, at_most, bits, fma, from_bits, polynomial, select
from jitonnx.support.records import NamedTuple

LOG2_E = 1.4426950408889634
_LN2 = 0.6931471805599453


class Format(NamedTuple):
    """What an element's floating-point format means for the functions below."""

    mantissa: int  # bits behind the point
    bias: int  # of the exponent
    least_normal: float
    overflow: float  # exp(x) is infinite above; rounded up
    ln2: tuple[float, float]  # high part with zeros at its end, so that its multiples by exponents are exact; rest
    log2_e: tuple[float, float]  # high and low part
    saturation: float  # tanh(x) is 1, and 1 + exp(-2 * x) too, above

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa: added to a small number, rounds it to an integer, which stands in the sum's low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def least_power(self) -> float:
        """The least x for which 2**x is computed, and found a normal number however it is rounded; below, it is 0."""
        return 1.0 - self.bias + 2.0**-16

    @property
    def least_exponent(self) -> float:
        """The least x for which e**x is computed, as `least_power` for 2**x."""
        return self.least_power / LOG2_E


_FORMATS = {
    32: Format(
        mantissa=23,
        bias=127,
        least_normal=2.0**-126,
        overflow=89.0,
        ln2=(0.693145751953125, 1.428606765330187e-06),
        log2_e=(1.4426950216293335, 1.925963033500011e-08),
        saturation=10.0,
    ),
    64: Format(
        mantissa=52,
        bias=1023,
        least_normal=2.0**-1022,
        overflow=710.0,
        ln2=(0.6931471805598903, 5.497923018708371e-14),
        log2_e=(1.4426950408889634, 2.0355273740931033e-17),
        saturation=20.0,
    ),
}


def format_of(x: SSAValue) -> Format:
    """The format of x's elements."""
    return _FORMATS[x.width]


class _Table(NamedTuple):
    """Powers of two by lookup, and the polynomials for what is left."""

    steps: int  # to the octave: numbers in the table
    shift: float
    exp: tuple[float, ...]  # exp(r) / (1 + shift) - 1
    exp2: tuple[float, ...]  # 2**r / (1 + shift) - 1
    cubic: tuple[float, ...]  # exp(r) as cubic[3] * (cubic[0] + cubic[1] * r + cubic[2] * r**2 + r**3)
    expm1: tuple[float, ...]  # (exp(r) - 1 - r) / r**2, beside exact powers
    tanh: tuple[float, ...]  # the same for r / (ln(2) / steps) from -3/4 to 1/4

    @property
    def powers(self) -> list[float]:
        """2**(i / steps) * (1 + shift), all almost a float32: in units of 2**-24, off by 0.05 (8 steps), 0.27 (16)."""
        return [2.0 ** (i / self.steps) * (1.0 + self.shift) for i in range(self.steps)]

    @property
    def cubic_powers(self) -> list[float]:
        """2**(i / steps) * cubic[3], whose rounding and that of cubic[0] make 0.16 (8 steps), 0.27 units of 2**-24."""
        return [2.0 ** (i / self.steps) * self.cubic[3] for i in range(self.steps)]

    @property
    def half_powers(self) -> list[int]:
        """Bits of 2**(i / steps - 1) rounded, less i << (mantissa - log2(steps)), where a sum with `magic` has i."""
        halves = np.array([2.0 ** (i / self.steps - 1) for i in range(self.steps)], np.float32)
        return [pattern - (i * ((1 << 23) // self.steps)) for i, pattern in enumerate(halves.view(np.int32).tolist())]

    @property
    def rests(self) -> list[float]:
        """What rounding took from each of these powers, relative to it."""
        exact = [2.0 ** (i / self.steps) for i in range(self.steps)]
        return [power / float(np.float32(power)) - 1.0 for power in exact]


# Errors in units of 2**-24: of exp and exp2 0.31 (8 steps), 0.02 (16); of the cubic 0.37, 0.03; of expm1, relative to
# exp(r) - 1, 0.09, 0.005.
_TABLES = {
    8: _Table(
        steps=8,
        shift=-0.002561030795545649,
        exp=(0.0025675881, 1.0025676, 0.5013622, 0.16707787),
        exp2=(0.0025675881, 0.6949269, 0.2408809, 0.0556465),
        cubic=(5.98942, 5.989418, 2.9952166, 0.16696107883035580),
        expm1=(0.5, 0.16667962, 0.04166921),
        tanh=(0.50000036, 0.16666214, 0.040983737),
    ),
    16: _Table(
        steps=16,
        shift=0.010077362918471482,
        exp=(-0.009976824, 0.9900232, 0.49503028, 0.16496487),
        exp2=(-0.009976824, 0.6862318, 0.23783875, 0.054932244),
        cubic=(6.0165715, 6.0165725, 3.0084233, 0.16620761067787123),
        expm1=(0.5, 0.1666699, 0.041667316),
        tanh=(0.50000006, 0.1666669, 0.0413521),
    ),
}


# ---------------------------------------------------------------- polynomials where there is no table

# exp(r) = 1 + r + r**2 * P(r), |r| <= ln(2) / 2 (relative error 3.1e-9, 3.7e-18)
_EXP = {
    32: (0.49999994, 0.16666521, 0.041668266, 0.008368677, 0.0013820708),
    64: (
        *(0.5000000000000011, 0.1666666666666645, 0.04166666666652697, 0.008333333333472689, 0.001388888894435279),
        *(0.00019841269551268035, 2.4801492423966666e-05, 2.7557547984380233e-06, 2.763047146353872e-07),
        2.501186229020957e-08,
    ),
}
# expm1(r) = r + r**2 * P(r), |r| <= ln(2) / 2 (relative error 1.4e-8, 1.9e-17)
_EXPM1 = {
    32: (0.49999997, 0.16666546, 0.04166745, 0.008366262, 0.0013869288),
    64: (
        *(0.5000000000000006, 0.1666666666666662, 0.04166666666657378, 0.00833333333336829, 0.0013888888932320532),
        *(0.00019841269766182875, 2.480150450966896e-05, 2.7557364655471708e-06, 2.7626305565104507e-07),
        2.5067532859004824e-08,
    ),
}
# exp2(r) = 1 + r * P(r), |r| <= 1/2 (relative error 3.0e-9, 4.1e-18)
_EXP2 = {
    32: (1.0, 0.6931472, 0.24022648, 0.055503596, 0.009618501, 0.0013390984, 0.00015328547),
    64: (
        *(1.0, 0.6931471805599453, 0.2402265069591011, 0.055504108664821736, 0.009618129107600562),
        *(0.0013333558146540457, 0.00015403530450288356, 1.5252733641423647e-05, 1.3215438233990165e-06),
        *(1.017815635491877e-07, 7.073333726878818e-09, 4.4394907126185456e-10),
    ),
}

# ---------------------------------------------------------------- numbers as t * 2**k


class Power(NamedTuple):
    """The number t * 2**floor(multiple): t in about [1, 2) with a table, [0.7, 1.4] and `multiple` whole without."""

    t: SSAValue
    total: SSAValue  # magic + offset + multiple: the addition rounds it to a multiple of 1 / steps
    multiple: SSAValue  # of 1 / steps; with the offset, it is in `total`
    steps: int

    def flushed(self) -> SSAValue:
        """The number where the offset is the format's bias: 0 below the least exponent, inf above the largest."""
        return self.t * _power_of_two(self._whole())

    def rounded(self) -> SSAValue:
        """The number where the offset is twice the bias, also if it is denormal or infinite."""
        mantissa, pattern = format_of(self.t).mantissa, self._whole()
        half = pattern >> 1
        # The last product alone rounds, be it to infinity or to a denormal number.
        return self.t * from_bits(half << mantissa) * from_bits((pattern - half) << mantissa)

    def scaled(self) -> SSAValue:
        """The number where the offset is 0, also if it is denormal or infinite: see `scales_by_power`."""
        return scale_by_power(self.t, self.multiple)

    def _whole(self) -> SSAValue:
        """Integers that end in the bits of offset + floor(multiple)."""
        return bits(self.total) >> (self.steps.bit_length() - 1) if self.steps > 1 else bits(self.total)


def _power_of_two(biased: SSAValue) -> SSAValue:
    """2**(k - bias) from integers that end in k: their low bits become the exponent."""
    return from_bits(biased << (23 if biased.width == 32 else 52))


def exp_power(x: SSAValue, offset: float = 0.0, sign: int = 1) -> Power:
    """e**(sign * x) for bounded x. r = x - count * ln 2, with ln 2 in two parts (W. J. Cody and W. Waite, 1980).

    A sign of -1 goes into constants: negating x itself would cost an operation.
    """
    form, table, steps = format_of(x), _table_of(x), _steps(x)
    magic = form.magic / steps + offset
    total = fma(x, sign * LOG2_E, magic)
    count = total - magic
    r = fma(count, -sign * form.ln2[1], fma(count, -sign * form.ln2[0], x))  # of the other sign with x
    coefficients = table.exp if table else (1.0, 1.0, *_EXP[x.width])
    value = polynomial(r, [c * sign**power for power, c in enumerate(coefficients)])
    return Power(_grown(table, total, value) if table else value, total, count, steps)


def exp2_power(
    x: SSAValue, offset: float = 0.0, rest: SSAValue | None = None, coefficients: tuple[float, ...] | None = None
) -> Power:
    """2**(x + rest) for bounded x and a small `rest`; by `coefficients`, if there are any, and no table."""
    form = format_of(x)
    table = None if coefficients else _table_of(x)
    steps = table.steps if table else 1
    magic = form.magic / steps + offset
    total = x + magic
    count = total - magic
    r = x - count if rest is None else x - count + rest
    t = _grown(table, total, polynomial(r, table.exp2)) if table else polynomial(r, coefficients or _EXP2[x.width])
    return Power(t, total, count, steps)


def _grown(table: _Table, total: SSAValue, growth: SSAValue) -> SSAValue:
    """(1 + growth) times the power that the end of `total` picks."""
    power = lookup(table.powers, bits(total), total.element)
    return fma(power, growth, power)


# ---------------------------------------------------------------- exponentials


def exp(x: SSAValue) -> SSAValue:
    """e**x; 0 instead of denormal numbers, infinity where it is one."""
    form = format_of(x)
    bounded = at_most(at_least(x, form.least_exponent), form.overflow)
    power = exp_power(bounded).scaled() if scales_by_power(x) else exp_power(bounded, 2 * form.bias).rounded()
    return _or_0(x < form.least_exponent, power)


def exp_flush(x: SSAValue) -> SSAValue:
    """e**x for x <= 88 (float64: 709); 0 instead of denormal numbers."""
    least = format_of(x).least_exponent
    bounded = at_least(x, least)
    power = exp_power(bounded).scaled() if scales_by_power(x) else exp_power(bounded, format_of(x).bias).flushed()
    return _or_0(x < least, power)


def exp_of_minus(x: SSAValue) -> SSAValue:
    """exp(-x), inf from 2**(bias + 1/2) on; 0 instead of denormal numbers."""
    most = -format_of(x).least_exponent
    power = exp_power(at_most(_bounded_for_minus(x), most), _offset_of_minus(x), sign=-1)
    return _or_0(x > most, power.scaled() if scales_by_power(x) else power.flushed())


def exp_of_minus_and_1(x: SSAValue, least: float | None = None) -> SSAValue:
    """1 + exp(-x), inf from 2**(bias + 1/2) on; for an x below `least`, where that is given, as for `least`.

    By a table, it takes two multiply-adds less than `exp_of_minus`. The polynomial's leading coefficient is 1, the true
    one being in the table. And ln 2 has one part: float32 has it with a relative error of 2.7e-9, which adds as much
    times |x| to that of exp(-x).
    """
    table = _table_of(x)
    if table is None:
        return exp_of_minus(x if least is None else at_least(x, least)) + 1.0
    bounded = at_most(_bounded_for_minus(x, least), 2.0 * format_of(x).saturation)
    magic = format_of(x).magic / table.steps + _offset_of_minus(x)
    total = fma(bounded, -LOG2_E, magic)
    count = total - magic
    r = fma(count, -_LN2, -bounded)
    power = Power(lookup(table.cubic_powers, bits(total), x.element), total, count, table.steps)
    scale = power.scaled() if scales_by_power(x) else power.flushed()
    constant, linear, square, _ = table.cubic
    return fma(scale, fma(fma(r + square, r, linear), r, constant), 1.0)


def _offset_of_minus(x: SSAValue) -> float:
    """What `Power.scaled` or, where the CPU has none, `flushed` wants to be added to the multiple."""
    return 0.0 if scales_by_power(x) else format_of(x).bias


def _bounded_for_minus(x: SSAValue, least: float | None = None) -> SSAValue:
    """x, at least `least`: by default what makes exp(-x) infinite in the function that finishes it.

    Where that is `flushed`, the largest biased exponent stands for inf.
    """
    form = format_of(x)
    if least is None:
        largest = form.bias + (1.25 if _table_of(x) else 0.75)
        least = -form.overflow if scales_by_power(x) else -largest / LOG2_E
    return at_least(x, least)


def exp2(x: SSAValue, rest: SSAValue | None = None) -> SSAValue:
    """2**(x + rest), rounded to denormal numbers and infinity, for bounded x and a small `rest`."""
    if scales_by_power(x):
        return exp2_power(x, 0.0, rest).scaled()
    return exp2_power(x, 2 * format_of(x).bias, rest).rounded()


def exp2_flush(x: SSAValue, coefficients: tuple[float, ...] | None = None) -> SSAValue:
    """2**x for least_power <= x < bias + 3/2. By `coefficients` if there are any."""
    if coefficients is None and scales_by_power(x):
        return exp2_power(x).scaled()
    return exp2_power(x, format_of(x).bias, coefficients=coefficients).flushed()


def _or_0(low: SSAValue, power: SSAValue) -> SSAValue:
    """0 where `low` is true, else the power: one instruction, or a part of the one that makes the power."""
    return select(low, power.constant(0.0), power)


def half_exp(x: SSAValue) -> SSAValue:
    """exp(x) / 2, infinite only where that is; 0 <= x."""
    form = format_of(x)
    x = at_most(x, form.overflow + 0.5)
    half = exp_power(x, form.bias - 2).flushed()
    return half + half


# ---------------------------------------------------------------- exponentials less 1


def half_expm1(x: SSAValue) -> SSAValue:
    """(exp(x) - 1) / 2 for -40 < x <= overflow, relative error below 2 ulp: s * expm1(r) + (s - 1/2), s = 2**k / 2."""
    form, table = format_of(x), _table_of(x)
    magic = form.magic / table.steps if table else form.magic + form.bias - 1
    total = fma(x, LOG2_E, magic)
    count = total - magic
    r = fma(count, -form.ln2[1], fma(count, -form.ln2[0], x))
    if table:
        return _half_expm1_by_table(table, total, r, table.expm1)
    s = _power_of_two(bits(total))
    return fma(fma(r * r, polynomial(r, _EXPM1[x.width]), r), s, s - 0.5)


def _half_expm1_by_table(table: _Table, total: SSAValue, r: SSAValue, coefficients: tuple[float, ...]) -> SSAValue:
    """expm1(r) * s + (s - 1/2) with the s that the end of `total` picks, and what rounding took from it."""
    pattern = bits(total)
    shift = format_of(r).mantissa + 1 - table.steps.bit_length()
    s = from_bits(lookup(table.half_powers, pattern, pattern.element) + (pattern << shift))
    rest = lookup(table.rests, pattern, r.element)
    return fma(fma(r * r, polynomial(r, coefficients), r + rest), s, s - 0.5)


def tanh_by_exponential(x: SSAValue) -> SSAValue | None:
    """|tanh(x)|, error below 2 ulp, as |e / (e + 1)| with e = expm1(y) / 2; None if there is no table.

    y is 2 * |x|. For a small x it is negative, so that the rounding of e + 1 counts half. And the multiple of ln 2
    taken off is not the nearest, but rather the one farther from 0: then expm1(r) and s - 1/2 do not cancel.
    """
    table = _table_of(x)
    if table is None:
        return None
    form = format_of(x)
    a = at_most(absolute(x), form.saturation)
    sign_if_small = (bits(a) - bits(a.constant(0.2))) & -(1 << 31)
    y = from_bits(bits(a + a) ^ sign_if_small)
    magic = form.magic / table.steps
    total = fma(y + 0.25 * _LN2 / table.steps, LOG2_E, magic)
    r = fma(total - magic, -_LN2, y)
    half = _half_expm1_by_table(table, total, r, table.tanh)
    return half / (half + 1.0)


def _table_of(x: SSAValue) -> _Table | None:
    return _TABLES.get(table_entries(x))


def _steps(x: SSAValue) -> int:
    return table_entries(x) or 1
