"""Vector math: the largest error of each function in ulp, over all exponents, edges and the intervals that matter."""

from __future__ import annotations

import ctypes
import functools
import math
import platform
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel
from jitonnx.emit.mathematics import vecmath
from jitonnx.target.machine import Target, host
from tests.kernels.harness import Compiled, assembly, lane_by_lane
from tests.targets import named

Array = np.ndarray
CPUS = ["host", "haswell", "x86-64-v2"]
"""This one, one with tables of eight numbers, and one without any."""
_SQRT1_2 = np.sqrt(np.longdouble(0.5))


class Case(NamedTuple):
    """A function, its exact value, and the ulp bounds for float32 and float64."""

    exact: Callable[..., Array]
    single: float
    double: float
    domain: tuple[float, float] = (-math.inf, math.inf)
    """Arguments that the bounds hold for."""
    negligible: float = 0.0
    """An absolute error that passes as well, in units of the smallest normal number."""
    constants: tuple[float, ...] = ()


def _series_erf(x: Array) -> Array:
    """erf by its power series with positive terms: exp(-x**2) * sum of 2**n * x**(2n+1) / (2n+1)!!."""
    term = total = x.copy()
    for n in range(1, 200):
        term = term * (2 * x * x / (2 * n + 1))
        total = total + term
    return total * np.exp(-x * x) * 2 / np.sqrt(np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16))


def _fraction_erfc(x: Array) -> Array:
    """erfc by its continued fraction, for x >= 2."""
    tail = np.zeros_like(x)
    for n in range(200, 0, -1):
        tail = np.longdouble(n) / 2 / (x + tail)
    return np.exp(-x * x) / (x + tail) / np.sqrt(np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16))


def _erf(x: Array) -> Array:
    if x.dtype == np.float64:
        return np.frompyfunc(math.erf, 1, 1)(x).astype(np.float64)
    clipped = np.clip(x, -7, 7)
    return np.where(np.isnan(x), x, _series_erf(clipped))


def _erfc(x: Array) -> Array:
    if x.dtype == np.float64:
        return np.frompyfunc(math.erfc, 1, 1)(x).astype(np.float64)
    return np.where(x > 2, _fraction_erfc(np.clip(x, 2, 100)), 1 - _series_erf(np.clip(x, -7, 2)))


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _gelu(x: Array) -> Array:
    return np.where(np.isinf(x), np.maximum(x, 0), x * 0.5 * _erfc(-x * _SQRT1_2.astype(x.dtype)))


def _gelu_tanh(x: Array) -> Array:
    return x * _sigmoid(2 * np.sqrt(2 / np.longdouble(np.pi)).astype(x.dtype) * (x + x.dtype.type(0.044715) * x**3))


def _mish(x: Array) -> Array:
    return x * np.tanh(np.logaddexp(x, 0))


CASES = {
    "exp": Case(np.exp, 1, 1, negligible=1.01),
    "exp_flush": Case(np.exp, 1, 1, domain=(-math.inf, 88), negligible=1.01),
    "exp2": Case(np.exp2, 1, 1, negligible=1.01),
    "exp2_flush": Case(np.exp2, 1, 1, domain=(-math.inf, 126), negligible=1.01),
    "expm1": Case(np.expm1, 2, 2),
    "log": Case(np.log, 1, 1),
    "log1p": Case(np.log1p, 2, 2),
    "erf": Case(_erf, 2, 1),
    "gelu": Case(_gelu, 2.5, 2.5, domain=(-1, math.inf)),
    "gelu_tanh": Case(_gelu_tanh, 3, 3, domain=(-1, math.inf)),
    "sigmoid": Case(_sigmoid, 6, 2.5, negligible=1),
    "silu": Case(lambda x: x * _sigmoid(x), 6, 2.5, negligible=800),
    "tanh": Case(np.tanh, 2, 2),
    "sinh": Case(np.sinh, 2, 2),
    "cosh": Case(np.cosh, 1.5, 1.5),
    "asinh": Case(np.arcsinh, 2.5, 2.5),
    "acosh": Case(np.arccosh, 2.5, 2.5),
    "atanh": Case(np.arctanh, 2.5, 2.5),
    "softplus": Case(lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), 2, 2, negligible=1.01),
    "softsign": Case(lambda x: x / (1 + np.abs(x)), 1.51, 1.51),
    "mish": Case(_mish, 4.5, 4.5, negligible=800),
    "elu": Case(lambda x, a: np.where(x > 0, x, a * np.expm1(x)), 2.5, 2.5, constants=(0.7,)),
    "reciprocal": Case(lambda x: 1 / x, 0.501, 0.501),
    "sign": Case(np.sign, 0, 0),
    "sin": Case(np.sin, 2, 1),
    "cos": Case(np.cos, 2, 1),
    "tan": Case(np.tan, 3, 2.5),
    "asin": Case(np.arcsin, 2, 2),
    "acos": Case(np.arccos, 2, 2),
    "atan": Case(np.arctan, 2, 2),
}


@functools.cache
def compiled(name: str, dtype: type, constants: tuple[float, ...] = (), target: Target | None = None) -> Compiled:
    target = target or host()
    return Compiled(_kernel(name, dtype, constants, target), target)


def _kernel(name: str, dtype: type, constants: tuple[float, ...], target: Target) -> Kernel:
    function, lanes = getattr(vecmath, name), target.lanes(np.dtype(dtype).itemsize)
    element = types.float32 if dtype == np.float32 else types.float64
    operands = 2 if name == "pow" else 1
    return lane_by_lane([lambda *x: function(*x, *constants)], [element] * operands, [element], lanes)


def apply(function: Compiled, *operands: Array) -> Array:
    """The function on arrays of any length."""
    size = operands[0].size
    padded = [np.append(a, np.zeros(-size % 64, a.dtype)) for a in operands]
    result = np.empty_like(padded[0])
    function([*padded, result], [result.size], 1)
    return result[:size]


def ulps(got: Array, exact: Array) -> Array:
    """The distance from `exact` in units of its last place in got's dtype; inf where NaN or infinity do not match."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(exact)[1] - 1, info.minexp)
        unit = np.ldexp(exact.dtype.type(1), exponent - info.nmant)
        top = np.ldexp(exact.dtype.type(1), info.maxexp)
        # An infinite result stands for the first number too large.
        value = np.where(np.isinf(got) & np.isfinite(exact), np.copysign(top, got), got.astype(exact.dtype))
        target = np.where(np.abs(exact) > top, np.copysign(top, exact), exact)
        unit = np.where(np.abs(exact) >= top, top * info.eps / 2, unit)
        error = np.abs(value - target) / unit
    error[np.isnan(got) & np.isnan(exact)] = 0
    error[np.isnan(error)] = np.inf
    error[got == exact] = 0
    return error.astype(np.float64)


def edges(dtype: type) -> Array:
    info = np.finfo(dtype)
    positive = [
        0.0,
        info.smallest_subnormal,
        info.tiny,
        info.eps,
        0.5,
        1.0,
        1.5,
        2.0,
        math.pi,
        88.72,
        88.73,
        709.7,
        710.0,
    ]
    positive += [103.9, 104.1, 745.1, 745.2, 1e5, 2.0**30, info.max, math.inf, 127.9999, 128.0, 149.0, 149.9, 150.1]
    ends = np.array(positive, dtype)
    with np.errstate(all="ignore"):
        around = np.concatenate([ends, np.nextafter(ends, dtype(0)), np.nextafter(ends, dtype(np.inf))])
    return np.concatenate([around, -around, np.array([np.nan], dtype)]).astype(dtype)


def sample(dtype: type) -> Array:
    """About a million numbers: every exponent, the edges, and dense intervals."""
    if dtype == np.float32:
        everything = np.arange(0, 2**32, 6151, dtype=np.uint64).astype(np.uint32).view(np.float32)
        count = 100_000
    else:
        everything = np.random.default_rng(1).integers(0, 2**64, 60_000, np.uint64, endpoint=False).view(np.float64)
        count = 20_000
    rng = np.random.default_rng(2)
    dense = [rng.uniform(-r, r, count) for r in (1, 2, 10, 110, 800)] + [rng.uniform(0.4, 1.6, count)]
    dense += [np.exp(rng.uniform(-12, 3, count)), rng.uniform(-1e5, 1e5, count)]
    return np.concatenate([everything, edges(dtype), *(d.astype(dtype) for d in dense)])


def largest_error(name: str, x: Array, target: Target | None = None) -> tuple[float, float]:
    """The largest ulp error of a function on x within its case's domain, and where it is."""
    case, dtype = CASES[name], x.dtype.type
    wide = np.float64 if dtype == np.float32 else np.longdouble
    got = apply(compiled(name, dtype, case.constants, target), x)
    with np.errstate(all="ignore"):
        exact = case.exact(x.astype(wide), *(wide(dtype(c)) for c in case.constants))
        error = ulps(got, exact)
        error[np.abs(got - exact) <= case.negligible * np.finfo(dtype).tiny] = 0
    error[(x < case.domain[0]) | (x > case.domain[1])] = 0
    worst = int(np.argmax(error))
    return float(error[worst]), float(x[worst])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_error_bound(name: str, dtype: type) -> None:
    if dtype == np.float64 and np.finfo(np.longdouble).nmant < 63:
        pytest.skip("no extended precision on this machine to compare with")
    error, at = largest_error(name, sample(dtype))
    bound = CASES[name].single if dtype == np.float32 else CASES[name].double
    assert error <= bound, f"{name}({at!r}) is {error:.3f} ulp off"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cpu", ["haswell", "x86-64-v2"])
@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "exp_flush",
        "exp2",
        "exp2_flush",
        "expm1",
        "log",
        "log1p",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "gelu",
        "gelu_tanh",
        "tanh",
        "sinh",
        "sigmoid",
        "silu",
        "softplus",
        "mish",
        "sin",
        "cos",
        "tan",
    ],
)
def test_error_bound_on_other_cpus(name: str, cpu: str) -> None:
    """It holds with tables of eight numbers, and without any."""
    error, at = largest_error(name, sample(np.float32)[::4], named(cpu))
    assert error <= CASES[name].single, f"{name}({at!r}) is {error:.3f} ulp off"


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", ["sigmoid", "silu"])
def test_error_bound_where_exponentials_are_not_large(name: str, cpu: str) -> None:
    x = sample(np.float32)
    error, at = largest_error(name, x[x >= -20], named(cpu))
    assert error <= 3, f"{name}({at!r}) is {error:.3f} ulp off"


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_are_exact_at_their_ends(dtype: type, cpu: str) -> None:
    largest = np.finfo(dtype).max
    x = np.array([0, -0.0, np.inf, -np.inf, largest, -largest, np.nan], dtype)
    expected = {
        "exp": [1, 1, np.inf, 0, np.inf, 0, np.nan],
        "exp2": [1, 1, np.inf, 0, np.inf, 0, np.nan],
        "expm1": [0, -0.0, np.inf, -1, np.inf, -1, np.nan],
        "sigmoid": [0.5, 0.5, 1, 0, 1, 0, np.nan],
        "silu": [0, -0.0, np.inf, np.nan, largest, -0.0, np.nan],
        "tanh": [0, -0.0, 1, -1, 1, -1, np.nan],
        "erf": [0, -0.0, 1, -1, 1, -1, np.nan],
        "gelu": [0, 0, np.inf, np.nan, largest, 0, np.nan],
        "log": [-np.inf, -np.inf, np.inf, np.nan, np.log(largest), np.nan, np.nan],
        "log1p": [0, -0.0, np.inf, np.nan, np.log(largest), np.nan, np.nan],
        "atanh": [0, -0.0, np.nan, np.nan, np.nan, np.nan, np.nan],
        "softplus": [np.log(2), np.log(2), np.inf, 0, largest, 0, np.nan],
    }
    for name, results in expected.items():
        np.testing.assert_array_equal(apply(compiled(name, dtype, (), named(cpu)), x), np.array(results, dtype), name)
    for name in ("exp_flush", "exp2_flush"):  # for what is not above 88
        got = apply(compiled(name, dtype, (), named(cpu)), x[[0, 1, 3, 5, 6]])
        np.testing.assert_array_equal(got, np.array([1, 1, 0, 0, np.nan], dtype), name)


FLUSHING = ["exp", "exp_flush", "exp2", "exp2_flush", "expm1", "sigmoid", "silu", "gelu", "gelu_tanh", "softplus"]
FLUSHING += ["mish", "elu", "tanh", "erf"]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FLUSHING)
def test_no_denormal_numbers(name: str, dtype: type, cpu: str) -> None:
    """Neither a result nor what it is computed from is denormal, as operations with such numbers are slow.

    The CPU notes both: its flags for underflow and for denormal operands stay clear. Arguments below 1e-12 are left
    out, as polynomials take their cubes.
    """
    case, info = CASES[name], np.finfo(dtype)
    magnitudes = np.geomspace(1e-12, info.max, 40_000)
    prefetch_distance = np.linspace(0, 2 * -math.log(info.tiny), 40_000)
    x = np.concatenate([magnitudes, -magnitudes, prefetch_distance, -prefetch_distance, [np.inf]]).astype(dtype)
    x = x[(x >= (-800 if name in ("gelu", "mish") else case.domain[0])) & (x <= min(case.domain[1], info.max))]
    function = compiled(name, dtype, case.constants, named(cpu))
    apply(function, x)
    flags = _DenormalFlags()
    y = apply(function, x)
    raised = flags.raised()
    assert not np.any((y != 0) & (np.abs(y) < info.tiny))
    assert not raised


class _DenormalFlags:
    """What the CPU notes of this thread's operations from now on: an underflow, and on x86 a denormal operand."""

    def __init__(self) -> None:
        self._libm = ctypes.CDLL(None)
        self._watched = 0x10 | 0x02 if platform.machine() in ("x86_64", "AMD64") else 0x08
        self._libm.feclearexcept(self._watched)

    def raised(self) -> bool:
        return bool(self._libm.fetestexcept(self._watched))


@pytest.mark.parametrize("cpu", CPUS)
def test_results_do_not_depend_on_the_number_of_lanes(cpu: str) -> None:
    """Scalars and vectors of any width look the same numbers up."""
    target = named(cpu)
    x = np.linspace(-20, 20, 256).astype(np.float32)
    for name in ("exp", "exp_flush", "tanh", "silu", "erf", "gelu", "log1p", "sin"):
        expected = apply(compiled(name, np.float32, (), target), x)
        for lanes in (1, 4, 24, 64):
            y = np.empty_like(x[: x.size // lanes * lanes])
            Compiled(_by_lanes(name, lanes), target)([x, y], [y.size], 1)
            np.testing.assert_array_equal(y, expected[: y.size], f"{name} by {lanes}")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_arguments_change_nothing_beside_them(name: str, cpu: str) -> None:
    """Arguments that are reduced in double precision stand between others, of which each keeps its bits."""
    function = compiled(name, np.float32, (), named(cpu))
    x = np.random.default_rng(3).uniform(-1e5, 1e5, 4096).astype(np.float32)
    x[:8] = [0.0, -0.0, 2.0**17, -(2.0**17), np.pi, 1e-45, -1e-45, np.nan]
    alone = apply(function, x)
    mixed = x.copy()
    mixed[9::7] = np.exp2(np.random.default_rng(4).uniform(17, 128, mixed[9::7].size))
    mixed[12::77] = np.inf
    same = mixed == x
    result = apply(function, mixed)
    np.testing.assert_array_equal(result[same].view(np.int32), alone[same].view(np.int32))
    assert np.isnan(result[12::77]).all()
    with np.errstate(invalid="ignore"):
        error = ulps(result, CASES[name].exact(mixed.astype(np.float64)))
    assert error.max() <= CASES[name].single
    assert np.isnan(apply(function, np.array([np.inf, -np.inf, np.nan], np.float32))).all()
    expected = {"sin": [0.0, -0.0], "cos": [1.0, 1.0], "tan": [0.0, -0.0]}[name]
    np.testing.assert_array_equal(alone[:2].view(np.int32), np.array(expected, np.float32).view(np.int32))


_BITS = 1300


def _pi() -> int:
    """pi * 2**_BITS, rounded down, by Machin's formula."""
    one = 1 << (_BITS + 64)

    def inverse_tangent(n: int) -> int:
        term, total, k = one // n, 0, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term, k = term // (n * n), k + 2
        return total

    return 4 * (4 * inverse_tangent(5) - inverse_tangent(239)) >> 64


def _reduced(x: float, half_pi: int) -> tuple[int, float]:
    """x as quarter turns and the rest in radians, by whole numbers alone."""
    top, bottom = abs(x).as_integer_ratio()
    quarters, rest = divmod((top << _BITS) // bottom, half_pi)
    if 2 * rest > half_pi:
        quarters, rest = quarters + 1, rest - half_pi
    angle = rest / (1 << _BITS)
    return (quarters, angle) if x >= 0 else (-quarters, -angle)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles_of_any_size_are_right(dtype: type, cpu: str) -> None:
    """They are compared with sines of what whole numbers leave of an angle, with those angles that come nearest to
    quarter turns."""
    half_pi = _pi() >> 1
    info, rng = np.finfo(dtype), np.random.default_rng(5)
    x = np.exp2(rng.uniform(17, info.maxexp, 2048)).astype(dtype) * rng.choice([-1, 1], 2048).astype(dtype)
    given = np.array([6381956970095103 * 2.0**797, 5.319372648326541e255, 16367173 * 2.0**72, 2.0**30, 1e22, info.max])
    with np.errstate(over="ignore"):
        prefetch_distance = given.astype(dtype)
    prefetch_distance = prefetch_distance[np.isfinite(prefetch_distance)]
    x = np.concatenate([x, prefetch_distance, -prefetch_distance, np.nextafter(prefetch_distance, dtype(0))])
    turned = [_reduced(float(number), half_pi) for number in x]
    four = [(math.sin(r), math.cos(r), -math.sin(r), -math.cos(r)) for _, r in turned]
    sines = np.array([values[q % 4] for (q, _), values in zip(turned, four, strict=True)])
    cosines = np.array([values[(q + 1) % 4] for (q, _), values in zip(turned, four, strict=True)])
    for name, exact in (("sin", sines), ("cos", cosines), ("tan", sines / cosines)):
        got = apply(compiled(name, dtype, (), named(cpu)), x)
        error = ulps(got, exact)
        allowed = CASES[name].single if dtype == np.float32 else CASES[name].double + 2  # ours and the exact one
        assert error.max() <= allowed, (name, x[error.argmax()], error.max())


def _by_lanes(name: str, lanes: int) -> Kernel:
    return lane_by_lane([getattr(vecmath, name)], [types.float32], [types.float32], lanes)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_error_bound_on_all_float32(name: str) -> None:
    step = 2**24
    for start in range(0, 2**32, step):
        x = np.arange(start, start + step, dtype=np.uint64).astype(np.uint32).view(np.float32)
        error, at = largest_error(name, x)
        assert error <= CASES[name].single, f"{name}({at!r}) is {error:.3f} ulp off"


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("name", "bound"), [("erf", 4.0), ("gelu", 15.0)])
def test_far_out_gaussian_functions_are_their_limits(name: str, bound: float, cpu: str) -> None:
    x = np.concatenate([np.linspace(bound, bound + 20, 5001), np.geomspace(bound, 3e38, 5001)]).astype(np.float32)
    far, low = (
        apply(compiled(name, np.float32, (), named(cpu)), x),
        apply(compiled(name, np.float32, (), named(cpu)), -x),
    )
    np.testing.assert_array_equal(far, np.ones_like(x) if name == "erf" else x)
    np.testing.assert_array_equal(low, -np.ones_like(x) if name == "erf" else np.zeros_like(x))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", ["erf", "gelu", "tanh"])
def test_segments_meet_without_a_step(name: str, cpu: str) -> None:
    """Neighbours around each end of a segment take other coefficients; without tables the same bounds hold."""
    function = compiled(name, np.float32, (), named(cpu))
    half = 1167 / 8192 if name == "tanh" else 1 / 8
    ends = (np.arange(1, 64) * half).astype(np.float32)
    ends = ends[ends < {"gelu": 7.6, "erf": 3.8, "tanh": 9.5}[name]].view(np.int32)
    x = (ends[:, None] + np.arange(-40, 41, dtype=np.int32)).reshape(-1).view(np.float32)
    for signed in (x, -x):
        exact = CASES[name].exact(signed.astype(np.float64))
        bound = np.where((signed < 0) & (name == "gelu"), np.maximum(45, 4 * signed * signed), CASES[name].single)
        assert (ulps(apply(function, signed), exact) <= bound).all()


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("name", "single", "double"), [("gelu", 45, 70), ("gelu_tanh", 55, 55)])
def test_tail_of_gaussian_units_keeps_relative_accuracy(name: str, single: float, double: float, cpu: str) -> None:
    for dtype, bound in ((np.float32, single), (np.float64, double)):
        x = np.linspace(-6, -1, 20_001).astype(dtype)
        wide = np.float64 if dtype == np.float32 else np.longdouble
        assert ulps(apply(compiled(name, dtype, (), named(cpu)), x), CASES[name].exact(x.astype(wide))).max() <= bound


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name", ["expm1", "log1p", "erf", "tanh", "sinh", "asinh", "atanh", "sin", "tan", "asin", "atan"]
)
def test_zero_keeps_its_sign(name: str, dtype: type) -> None:
    assert np.signbit(apply(compiled(name, dtype), np.array([0.0, -0.0], dtype))).tolist() == [False, True]


def test_beyond_the_range_of_sine_results_stay_bounded() -> None:
    for name in ("sin", "cos"):
        for dtype in (np.float32, np.float64):
            x = np.geomspace(2.0**30, 1e38, 1000).astype(dtype)
            assert np.abs(apply(compiled(name, dtype), x)).max() <= 1


def _pow_operands(dtype: type) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    special = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 1e-40, 2.0**24 + 1, 2.0**31, 1e30, np.finfo(dtype).max, np.inf]
    special = np.array([*special, *(-s for s in special), np.nan, np.nextafter(1, 2), np.nextafter(1, 0)], dtype)
    a, b = (m.ravel() for m in np.meshgrid(special, special))
    count = 200_000 if dtype == np.float32 else 50_000
    base = np.concatenate([np.exp(rng.uniform(-80, 80, count)), rng.uniform(0.5, 2, count), -rng.uniform(0, 9, count)])
    power = np.concatenate([rng.uniform(-2, 2, count), rng.uniform(-120, 120, count), rng.integers(-30, 30, count)])
    return np.concatenate([a, base.astype(dtype)]), np.concatenate([b, power.astype(dtype)])


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1), (np.float64, 2)])
def test_pow(dtype: type, bound: float) -> None:
    x, y = _pow_operands(dtype)
    got = apply(compiled("pow", dtype), x, y)
    wide = np.float64 if dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(wide), y.astype(wide))
    error = ulps(got, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, f"pow({x[worst]!r}, {y[worst]!r}) is {error[worst]:.3f} ulp off"
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(exact[got == 0]))


def test_hard_sigmoid() -> None:
    x = np.linspace(-9, 9, 4001).astype(np.float32)
    np.testing.assert_allclose(
        apply(compiled("hard_sigmoid", np.float32, (0.2, 0.5)), x), np.clip(0.2 * x + 0.5, 0, 1), atol=1e-7
    )


def test_scalars_are_taken_too() -> None:
    x, y = np.array([0.3], np.float32), np.zeros(1, np.float32)
    Compiled(_by_lanes("erf", 1))([x, y], [1], 1)
    assert abs(y[0] - math.erf(0.3)) < 1e-7


def test_integers_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="exp is defined on float32 and float64, not on int32"):
        Compiled(lane_by_lane([vecmath.exp], [types.int32], [types.int32], 8))


@pytest.mark.parametrize("name", ["exp", "log", "erf", "gelu", "tanh", "sigmoid", "pow", "sin", "atan"])
def test_code_is_vectors_without_branches_and_calls(name: str) -> None:
    text = assembly(_kernel(name, np.float32, (), host()))
    assert "call" not in text
    # The jumps of the loop, which LLVM may unroll, and those around rare arguments.
    assert sum(line.split()[0].startswith("j") for line in text.splitlines() if line.strip()) <= 8
    if host().vector_bytes == 64:
        assert "zmm" in text
