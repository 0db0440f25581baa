"""The error function and Gaussian units on vectors; `vecmath` offers them with the other elementary functions.

Where one or two registers can be a table of 16 or 32 numbers (AVX-512), float32 takes piecewise polynomials: the
segment of |x| picks each coefficient by a permutation, which other units do than multiply-adds. One polynomial for all
|x| has more terms and needs an exponential. The tables of 8 numbers of AVX2 would be for segments too wide to gain.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitonnx.emit.instructions import lookup, table_entries
from jitonnx.emit.mathematics import exponential
from jitonnx.emit.mathematics.exponential import LOG2_E, exp_of_minus, format_of
from jitonnx.emit.ssa import (
    SSAValue,
    absolute,
    at_least,
    at_most,
    bits,
    copysign,
    fma,
    polynomial,
    select,
    vector_function,
)

# erf(a) = a + a * P(a**2), a <= 0.9 (float64: 1) (relative error 1.4e-8, 1.4e-17)
_ERF = {
    32: (0.12837915, -0.37612513, 0.11282057, -0.026776413, 0.0050087846, -0.0006075827),
    64: (
        *(0.12837916709551256, -0.3761263890318337, 0.11283791670939075, -0.026866170642395118),
        *(0.0052239776008298645, -0.0008548325697710649, 0.00012055287181176798, -1.4924597930770907e-05),
        *(1.6445809432474398e-06, -1.6196776326515085e-07, 1.3671946353839584e-08, -7.710257512611952e-10),
    ),
}
# log2(erfc(a)) on [0.9, 4] (error 2.4e-9 of erf)
_LOG2_ERFC = (*(-0.00024056227, -1.6270657, -0.9189654, -0.15020145, 0.03219266, -0.0044222143, 0.00028593405),)
# exp(a**2) * erfc(a) in t = (a - 3) / (a + 3), 1 <= a <= 28 (relative error 3.1e-17)
_ERFCX = (
    *(0.17900115118138996, -0.3262335600430372, 0.24560380171232887, -0.15011593650077548, 0.07166583719810797),
    *(-0.024392499318911673, 0.004269136329651524, 0.0007077464474038753, -0.0005970619135849637),
    *(4.5255165806977536e-05, 6.405641565575351e-05, -1.2859450587080505e-05, -7.978573452740098e-06),
    *(2.1159595471412928e-06, 1.258509456163498e-06, -2.887886400494286e-07, -2.537971732007452e-07),
    *(3.828078915245018e-08, 6.402241029366376e-08, -2.456555186226095e-08, 1.7282918095526688e-09),
)
# log2(Phi(-a)) on [0, 7.65], Phi the distribution function of the Gauss curve (error 5.4e-9 * (1 + a**2) up to 5.5, 23
# times that at 7.65); its values behind that interval still go down: -117 at a = 12, where the exact value is -108.8.
_LOG2_TAIL = (
    *(-1.0, -1.1511042, -0.4592231, -0.052422825, 0.0068945256, 7.3141535e-05, -0.0003372135, 0.00010370229),
    *(-1.8944313e-05, 2.2961744e-06, -1.8118618e-07, 8.440112e-09, -1.760673e-10),
)

# Coefficients of erf(a) by segment: in powers of its distance from the nearest multiple of 1/4, in the first segment
# less a (error 0.5 * 2**-24 of erf). The last one is 1 where |x| is bounded.
_ERF_BOUND = 3.87
_ERF_SEGMENTS = (
    (
        *(0.0, 0.2763264, 0.5204999, 0.71115565, 0.8427008, 0.92290014, 0.96610516, 0.9866717, 0.9953223, 0.9985373),
        *(0.999593, 0.9998994, 0.9999779, 0.9999957, 0.9999993, 0.9999999),
    ),
    (
        *(0.12837917, 1.0600142, 0.87878263, 0.6429311, 0.4151075, 0.23652112, 0.11893029, 0.052774996, 0.020666985),
        *(0.007142319, 0.0021782843, 0.0005862775, 0.00013925321, 2.9189097e-05, 5.3994518e-06, 1.0646891e-06),
    ),
    (
        *(2.8371312e-07, -0.264999, -0.4393884, -0.4822045, -0.41510454, -0.29565674, -0.17840175, -0.09236103),
        *(-0.041339673, -0.016074672, -0.0054381173, -0.0016144613, -0.0004118365, -9.771471e-05, -2.6017318e-05),
        *(6.386044e-06,),
    ),
    (
        *(-0.37614182, -0.30919772, -0.14648065, 0.026773984, 0.13836978, 0.16753475, 0.13875282, 0.09015807),
        *(0.048223455, 0.021724654, 0.008350004, 0.0027602508, 0.0007890177, 0.00019577306, 4.2282867e-05),
        *(1.09393395e-05,),
    ),
    (
        *(0.0002879378, 0.1260929, 0.18212567, 0.15065897, 0.06910796, -0.005538167, -0.043958712, -0.047709662),
        *(-0.03414505, -0.018902713, -0.00905699, -0.0031727448, -0.0013597811, -0.00014497474, 0.0002955073),
        *(-0.0006084787,),
    ),
    (
        *(0.11096162, 0.08113587, 0.00834986, -0.05208241, -0.06896769, -0.04706714, -0.014983385, 0.006484121),
        *(0.013008703, 0.0106416205, 0.006130535, 0.002773464, 0.0010271971, 0.00031846948, 8.3722065e-05),
        *(-0.00038153652,),
    ),
)
# The same of Phi(-a) for multiples of 1/4 (relative error in units of 2**-24: 0.6 up to 4.9, 8.4 at 6.6, 25 at 7.6; the
# last segment is 0).
_TAIL_BOUND = 7.75
_TAIL_SEGMENTS = (
    (
        *(0.5, 0.40129367, 0.30853754, 0.22662735, 0.15865526, 0.10564978, 0.0668072, 0.040059157, 0.022750132),
        *(0.012224473, 0.0062096654, 0.0029797633, 0.001349898, 0.00057702506, 0.00023262909, 8.8417284e-05),
        *(3.1671243e-05, 1.0688525e-05, 3.3976733e-06, 1.0170833e-06, 2.8665158e-07, 7.604961e-08, 1.8989564e-08),
        *(4.462173e-09, 9.865878e-10, 2.0522639e-10, 4.0160018e-11, 7.392261e-12, 1.2798134e-12, 2.0838599e-13),
        *(3.190895e-14, 0.0),
    ),
    (
        *(-0.3989423, -0.38666812, -0.35206532, -0.30113742, -0.24197072, -0.18264909, -0.1295176, -0.08627732),
        *(-0.053990968, -0.031739652, -0.017528301, -0.009093563, -0.0044318484, -0.002029048, -0.0008726827),
        *(-0.00035259567, -0.00013383024, -4.7718637e-05, -1.5983742e-05, -5.029509e-06, -1.4867202e-06),
        *(-4.128474e-07, -1.07697716e-07, -2.6392469e-08, -6.075895e-09, -1.3140052e-09, -2.6695654e-10),
        *(-5.0949595e-11, -9.134768e-12, -1.5385483e-12, -2.4343404e-13, 0.0),
    ),
    (
        *(1.2873617e-06, 0.04833818, 0.08801285, 0.11292916, 0.12098302, 0.11415413, 0.09713734, 0.07549282),
        *(0.05399115, 0.035706732, 0.021910261, 0.01250357, 0.0066477493, 0.0032971879, 0.0015271918, 0.00066111755),
        *(0.0002676592, 0.00010140227, 3.5963334e-05, 1.1945057e-05, 3.7167872e-06, 1.083719e-06, 2.9616683e-07),
        *(7.5877686e-08, 1.8227457e-08, 4.106199e-09, 8.6759094e-10, 1.719501e-10, 3.197057e-11, 5.5769963e-12),
        *(9.12829e-13, 0.0),
    ),
    (
        *(0.06644288, 0.060416576, 0.044007726, 0.021952128, -1.1247998e-06, -0.01712211, -0.026981875),
        *(-0.029657232, -0.026995301, -0.021490287, -0.015336982, -0.009945843, -0.005909108, -0.0032337797),
        *(-0.0016362717, -0.00076763105, -0.00033456803, -0.00013569836, -5.1279832e-05, -1.8073857e-05),
        *(-5.9464687e-06, -1.8275335e-06, -5.2496125e-07, -1.4101319e-07, -3.543584e-08, -8.333748e-09),
        *(-1.8348075e-09, -3.7827888e-10, -7.304926e-11, -1.321569e-11, -2.2404027e-12, 0.0),
    ),
    (
        *(0.0007658409, -0.012427175, -0.019649716, -0.023344498, -0.019774254, -0.013479297, -0.005963418),
        *(0.0003647949, 0.0044688317, 0.006193793, 0.0059505966, 0.0047651324, 0.0033272877, 0.0020802077),
        *(0.0011775665, 0.00060940295, 0.00029015503, 0.00012726706, 5.1709936e-05, 1.9476676e-05, 6.8159525e-06),
        *(2.2189906e-06, 6.7280445e-07, 1.9018249e-07, 5.015652e-08, 1.234919e-08, 2.8402114e-09, 6.1054345e-10),
        *(1.2270883e-10, 2.3067465e-11, 4.0574653e-12, 0.0),
    ),
    (
        *(-0.015594956, -0.008439846, -0.0045585544, 0.0005238027, 0.0040620645, 0.0059158523, 0.0058149328),
        *(0.0042770007, 0.0022459242, 0.000459968, -0.0006815695, -0.0011357786, -0.001108905, -0.00086692686),
        *(-0.0005793661, -0.00034238273, -0.00018264509, -8.818303e-05, -3.90653e-05, -1.5915666e-05),
        *(-5.9788913e-06, -2.0784717e-06, -6.697361e-07, -2.0037477e-07, -5.5755965e-08, -1.4440019e-08),
        *(-3.4842385e-09, -7.8400375e-10, -1.6458959e-10, -3.2266224e-11, -5.907793e-12, 0.0),
    ),
    (
        *(0.015533633, 0.023671366, -0.017496057, 0.018963752, -0.014321221, -0.006514485, -0.0045454223),
        *(-0.000100055295, -9.305429e-05, -0.0032245503, -0.0011266224, -0.00052573753, -1.6085829e-05),
        *(0.00010543991, 0.00016780829, 0.0001340845, 7.535482e-05, 4.5536348e-05, 2.1768756e-05, 9.7752245e-06),
        *(3.96554e-06, 1.4779849e-06, 5.0822314e-07, 1.6097898e-07, 4.7212733e-08, 1.2845083e-08, 3.2471619e-09),
        *(7.6179874e-10, 1.66548e-10, 3.3940177e-11, 6.4423328e-12, 0.0),
    ),
)


def _has_segments(x: SSAValue) -> bool:
    return table_entries(x) == 16


def _segment(a: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The nearest multiple of 1/4 to `a` below 8, whose number these bits end in, and the distance from that."""
    magic = 0.25 * format_of(a).magic
    total = a + magic
    return bits(total), a - (total - magic)


def _looked_up(tables: Sequence[Sequence[float]], segment: SSAValue, t: SSAValue) -> list[SSAValue | float]:
    return [lookup(table, segment, t.element) for table in tables]


def _erf_by_segments(x: SSAValue) -> SSAValue:
    """|erf(x)| of float32."""
    a = at_most(absolute(x), _ERF_BOUND)
    segment, t = _segment(a)
    constant, *others = _looked_up(_ERF_SEGMENTS, segment, t)
    return fma(t, polynomial(t, others), select(t.equals(a), a, constant))


def _tail_by_segments(a: SSAValue) -> SSAValue:
    """Phi(-a) of float32, 0 from 7.625 on."""
    segment, t = _segment(at_most(a, _TAIL_BOUND))
    return polynomial(t, _looked_up(_TAIL_SEGMENTS, segment, t))


def _erfc_double(a: SSAValue) -> SSAValue:
    """erfc(a) of float64 for 1 <= a <= 28: exp(-a**2) times a slowly varying function (Shepherd and Laframboise)."""
    return exp_of_minus(a * a) * polynomial((a - 3.0) / (a + 3.0), _ERFCX)


@vector_function
def erf(x: SSAValue) -> SSAValue:
    """Error function, error below 2 ulp (float64: 1): an odd polynomial near 0, else 1 - erfc(|x|).

    float32 takes erf by segments, or erfc as 2**P(|x|) (after N. Juffa), float64
    erfc as exp(-x**2) * P((|x| - 3) / (|x| + 3)).
    """
    if _has_segments(x):
        return copysign(_erf_by_segments(x), x)
    if x.width == 32:
        a = at_most(absolute(x), 4.0)
        near, far = a < 0.9, 1.0 - exponential.exp2_flush(polynomial(a, _LOG2_ERFC))
    else:
        a = at_most(absolute(x), 6.0)
        near, far = a < 1.0, 1.0 - _erfc_double(a)
    return copysign(select(near, fma(a, polynomial(a * a, _ERF[x.width]), a), far), x)


@vector_function
def gelu(x: SSAValue) -> SSAValue:
    """0.5 * x * (1 + erf(x / sqrt(2))) = max(x, 0) - |x| * Phi(-|x|), without that formula's loss for negative x.

    Error below 2.5 ulp for x >= -1; for negative x it grows as x**2 does, to 45 ulp at -6 (by segments 6; float64: 70).
    Below -12 (by segments -7.625; float64: -37.5) the result is 0, and at minus infinity NaN, as the formula has it.

    float32 takes Phi(-a) by segments, or as 2**P(a).
    """
    bound = 37.5 if x.width == 64 else _TAIL_BOUND if _has_segments(x) else 12.0
    size = at_least(-x, at_most(x, bound))  # |x|; the bound where x is above it
    if _has_segments(x):
        tail = _tail_by_segments(size)
    else:
        a = at_most(size, bound)
        whole = exponential.exp2_flush(polynomial(a, _LOG2_TAIL)) if x.width == 32 else _tail_double(a)
        tail = select(size <= bound, whole, 0.0)
    return fma(-size, tail, at_least(x, 0.0))


def _tail_double(a: SSAValue) -> SSAValue:
    """Phi(-a) of float64 for 0 <= a <= 37.5, all of which are normal numbers."""
    scaled = a * 0.7071067811865476
    inner = fma(scaled, -polynomial(scaled * scaled, _ERF[64]), 1.0 - scaled)
    return 0.5 * select(scaled < 1.0, inner, _erfc_double(scaled))


_SQRT_8_PI = 1.5957691216057308


@vector_function
def gelu_tanh(x: SSAValue) -> SSAValue:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), as x / (1 + exp(-2 * …)).

    Error below 3 ulp for x >= -1; for negative x it grows as x**2 does, to 55 ulp at -6.
    """
    if x.width == 64:
        return x / (exp_of_minus(x * fma(x * x, 0.044715 * _SQRT_8_PI, x.constant(_SQRT_8_PI))) + 1.0)
    # To base 2 and rounded once more, which loses nothing that the product has not lost, and needs no reduction.
    scale, form = -_SQRT_8_PI * LOG2_E, format_of(x)
    exponent = x * fma(x * x, 0.044715 * scale, x.constant(scale))
    bounded = at_most(at_least(exponent, -form.mantissa - 2.0), form.bias + 1.25)  # 2**-25 + 1 is 1
    return x / (exponential.exp2_flush(bounded) + 1.0)
