"""Elementary functions on vectors: branch-free, inline, for float32 and float64, Vectors and scalars alike.

    y = exp(load(p, i, lanes))

Every function is a `vector_function`: arguments are reduced to a small interval, where a minimax polynomial serves, and
the pieces are put together by arithmetic on exponents. The polynomials were fitted by Lawson's algorithm (C. L. Lawson,
1961) in 160-bit arithmetic, their coefficients rounded to the working precision one after the other, the rest refitted
each time.

Error bounds are in ulp (units in the last place) of the exact result, measured by tests/emit/test_vecmath.py over
all exponents; denormal arguments and results are included unless a docstring says otherwise. NaN gives NaN. What goes
through exponentials gives 0 instead of a denormal number, and computes with none for arguments that are none.
`round` to even (`rint`), `sqrt`, `floor` and the like are in emit/simd.py.
"""

from __future__ import annotations

from jitonnx.emit.mathematics import exponential, hyperbolic, logarithm
from jitonnx.emit.mathematics.exponential import exp_of_minus_and_1, format_of, half_exp, half_expm1
from jitonnx.emit.mathematics.gaussian import erf as erf
from jitonnx.emit.mathematics.gaussian import gelu as gelu
from jitonnx.emit.mathematics.gaussian import gelu_tanh as gelu_tanh
from jitonnx.emit.mathematics.power import power_of_magnitude
from jitonnx.emit.mathematics.trigonometry import acos as acos
from jitonnx.emit.mathematics.trigonometry import asin as asin
from jitonnx.emit.mathematics.trigonometry import atan as atan
from jitonnx.emit.mathematics.trigonometry import cos as cos
from jitonnx.emit.mathematics.trigonometry import sin as sin
from jitonnx.emit.mathematics.trigonometry import tan as tan
from jitonnx.emit.ssa import (
    SSAValue,
    absolute,
    at_least,
    at_most,
    bits,
    copysign,
    fma,
    isnan,
    polynomial,
    rint,
    select,
    sqrt,
    vector_function,
)

_INFINITY, _NAN = float("inf"), float("nan")
# ---------------------------------------------------------------- exponentials


@vector_function
def exp(x: SSAValue) -> SSAValue:
    """e**x, error below 1 ulp, 0 instead of denormal results: Cody and Waite's reduction by multiples of ln 2, a
    polynomial on what is left."""
    return exponential.exp(x)


@vector_function
def exp_flush(x: SSAValue) -> SSAValue:
    """e**x for x <= 88 (float64: 709), error below 1 ulp, 0 instead of denormal results.

    For softmax and the like, whose arguments are at most 0: less work than `exp`.
    """
    return exponential.exp_flush(x)


@vector_function
def exp2(x: SSAValue) -> SSAValue:
    """2**x, error below 1 ulp, 0 instead of denormal results: the integer part goes to the exponent, a polynomial does
    the rest."""
    form = format_of(x)
    power = exponential.exp2(at_most(at_least(x, form.least_power), form.bias + 2.0))
    return select(x < form.least_power, 0.0, power)


@vector_function
def exp2_flush(x: SSAValue) -> SSAValue:
    """2**x for x < bias, error below 1 ulp, 0 instead of denormal results; -inf gives 0."""
    least = format_of(x).least_power
    return select(x < least, 0.0, exponential.exp2_flush(at_least(x, least)))


def _expm1(x: SSAValue) -> SSAValue:
    form = format_of(x)
    half = half_expm1(at_most(at_least(x, -2 * form.saturation), form.overflow))
    return half + half


@vector_function
def expm1(x: SSAValue) -> SSAValue:
    """e**x - 1, error below 2 ulp: s * expm1(r) + (s - 1) with x = r + ln s."""
    return copysign(_expm1(x), x)


# ---------------------------------------------------------------- logarithms and powers


@vector_function
def log(x: SSAValue) -> SSAValue:
    """Natural logarithm, error below 1 ulp: exponent times ln 2 and a polynomial on [1/sqrt(2), sqrt(2)]."""
    return logarithm.log(x)


@vector_function
def log1p(x: SSAValue) -> SSAValue:
    """log(1 + x), error below 2 ulp: `log`, with what 1 + x lost to rounding added to the fraction."""
    return logarithm.log1p(x)


@vector_function
def pow(x: SSAValue, y: SSAValue) -> SSAValue:
    """x**y as C's pow for zeros, infinities, NaN and negative x; error below 1 ulp (float64: 2).

    exp2(y * log2(x)) with the logarithm in two parts (P. Markstein, 2000); float32 without AVX-512 in float64.
    """
    magnitude = absolute(x)
    bounded = at_most(at_least(y, -1e30), 1e30)  # 0 * inf would spoil 1**inf; nothing else changes
    power = power_of_magnitude(magnitude, bounded)
    whole, half = rint(y).equals(y), 0.5 * y
    odd = whole & ~rint(half).equals(half)
    negative = bits(x) < 0
    signed = select(negative & odd, -power, power)
    undefined = (x < 0.0) & ~whole & (magnitude < _INFINITY)
    signed = select(undefined, _NAN, signed)
    return select(y.equals(0.0) | x.equals(1.0), 1.0, select(isnan(y) | isnan(x), _NAN, signed))


# ---------------------------------------------------------------- hyperbolic functions and activations

# sinh(x) = x + x**3 * P(x**2), |x| <= 1 (relative error 3.0e-10, 2.6e-19)
_SINH = {
    32: (0.16666667, 0.0083333105, 0.00019842894, 2.7822286e-06),
    64: (
        *(0.16666666666666669, 0.00833333333333292, 0.00019841269841583062, 2.7557319110938313e-06),
        *(2.5052130234638062e-08, 1.60567240923618e-10, 7.77451512452494e-13),
    ),
}


@vector_function
def sigmoid(x: SSAValue) -> SSAValue:
    """1 / (1 + exp(-x)), error below 3 ulp for x >= -20, 6 ulp below (float64: 2.5); 0 instead of denormal results."""
    least = format_of(x).least_exponent
    return select(x < least, 0.0, 1.0 / exp_of_minus_and_1(x, least))


@vector_function
def silu(x: SSAValue) -> SSAValue:
    """x * sigmoid(x) as x / (1 + exp(-x)), with the error of `sigmoid`; where exp(-x) overflows, -0."""
    return x / exp_of_minus_and_1(x)


@vector_function
def tanh(x: SSAValue) -> SSAValue:
    """Hyperbolic tangent, error below 2 ulp: by segments, or by expm1(2 * |x|) where the CPU has smaller tables.

    Elsewhere an odd polynomial up to 0.6, 1 - 2 / (exp(2 * |x|) + 1) above.
    """
    return hyperbolic.tanh(x)


@vector_function
def sinh(x: SSAValue) -> SSAValue:
    """Hyperbolic sine, error below 2 ulp: an odd polynomial up to 1, exp(|x|) / 2 - exp(-|x|) / 2 above."""
    a = absolute(x)
    square, half = a * a, half_exp(a)
    near = fma(a * square, polynomial(square, _SINH[x.width]), a)
    return copysign(select(a < 1.0, near, half - 0.25 / half), x)


@vector_function
def cosh(x: SSAValue) -> SSAValue:
    """Hyperbolic cosine, error below 1.5 ulp: exp(|x|) / 2 + exp(-|x|) / 2."""
    half = half_exp(absolute(x))
    return half + 0.25 / half


_LN2 = 0.6931471805599453
_LARGE = 2.0**30  # sqrt(x**2 + 1) is x from here on, and the functions log(2 * x), in both precisions


@vector_function
def asinh(x: SSAValue) -> SSAValue:
    """Inverse hyperbolic sine, error below 2.5 ulp: log1p(a + a**2 / (1 + sqrt(a**2 + 1))), log(2 * a) for large a."""
    a = absolute(x)
    large = a > _LARGE
    near = a + a * a / (sqrt(fma(a, a, 1.0)) + 1.0)
    return copysign(logarithm.log1p(select(large, a - 1.0, near)) + select(large, a.constant(_LN2), 0.0), x)


@vector_function
def acosh(x: SSAValue) -> SSAValue:
    """Inverse hyperbolic cosine, error below 2.5 ulp, NaN below 1: log1p(t + sqrt(t * (t + 2))), t = x - 1."""
    t = x - 1.0
    large = x > _LARGE
    result = logarithm.log1p(select(large, t, t + sqrt(t * (t + 2.0)))) + select(large, x.constant(_LN2), 0.0)
    return select(x < 1.0, _NAN, result)


@vector_function
def atanh(x: SSAValue) -> SSAValue:
    """Inverse hyperbolic tangent, error below 2.5 ulp, NaN outside [-1, 1]: log1p(2 * |x| / (1 - |x|)) / 2.

    Written as 2 * |x| + 2 * |x| * |x| / (1 - |x|), the quotient's roundings do not count for small x.
    """
    a = at_most(absolute(x), 2.0)  # the result is NaN above 1
    twice = a + a
    return copysign(0.5 * logarithm.log1p(fma(twice, a / (1.0 - a), twice)), x)


@vector_function
def softplus(x: SSAValue) -> SSAValue:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), error below 2 ulp.

    The logarithm is of a number in [1, 2], which needs no exponent taken out: above sqrt(2) its half is in the range of
    the polynomial.
    """
    power = exponential.exp_flush(-absolute(x))
    negligible = 2.0 ** -(format_of(x).mantissa + 2)  # below, log1p(power) is power, and its square may be denormal
    bounded = at_least(power, negligible)
    if x.width == 64:
        log_of_sum = logarithm.log1p(bounded)
    else:
        high = bounded > 2**0.5 - 1.0
        f = select(high, fma(bounded, 0.5, -0.5), bounded)
        log_of_sum = logarithm.log_of(f, select(high, x.constant(1.0), 0.0))
    return at_least(x, 0.0) + select(power < negligible, power, log_of_sum)


@vector_function
def softsign(x: SSAValue) -> SSAValue:
    """x / (1 + |x|), error at most 1.5 ulp."""
    return x / (absolute(x) + 1.0)


@vector_function
def mish(x: SSAValue) -> SSAValue:
    """x * tanh(softplus(x)) as x * n / (n + 2), n = e * (e + 2), e = exp(x); error below 4.5 ulp for normal results."""
    e = exponential.exp_flush(at_most(x, 2 * format_of(x).saturation))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


@vector_function
def elu(x: SSAValue, alpha: SSAValue) -> SSAValue:
    """x for x >= 0, else alpha * expm1(x); error below 2.5 ulp."""
    half = half_expm1(at_least(x, -2 * format_of(x).saturation))  # anything for large x
    return select(x < 0.0, half * (alpha + alpha), x)


@vector_function
def hard_sigmoid(x: SSAValue, alpha: SSAValue, beta: SSAValue) -> SSAValue:
    """alpha * x + beta (rounded once), bounded to [0, 1]."""
    return at_most(at_least(fma(x, alpha, beta), 0.0), 1.0)


@vector_function
def reciprocal(x: SSAValue) -> SSAValue:
    """1 / x, correctly rounded."""
    return 1.0 / x


@vector_function
def sign(x: SSAValue) -> SSAValue:
    """-1, 0 or 1 by the sign of x; zeros and NaN stay what they are."""
    return select(x > 0.0, 1.0, select(x < 0.0, -1.0, x))
