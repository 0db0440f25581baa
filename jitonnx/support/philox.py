"""Random numbers by counters: Philox 4x32-10 (Salmon and others, 2011), and distributions made of its words.

Written on an `Arithmetic`, once for NumPy and for kernels: all of it is operations on integers, and sums, products,
quotients and square roots that IEEE 754 rounds in one way. So both give the same bits, on any CPU.

Numbers follow from a key, the number of the draw and an element's place alone. Sixteen counters in turn make a block:
word j of counter i of block b is that of place 64 b + 16 j + i. Numbers of double precision take two words each, words
2 j and 2 j + 1 that of place 32 b + 16 j + i.

Our own, as `numpy.random.Philox` (4x64) gives numbers in turn: kernels need the number of a place, in any order, on
several threads, and in 32-bit lanes. A float32 of a million takes numpy 2.0 ns (uniform) and 15.8 ns (normal) on one
core of a Zen 5, this on NumPy 8.9 and 33.7, and the kernels that it is written for 0.28 and 0.54.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

LANES = 16
"""Counters of a block."""
WORDS = 4 * LANES
"""Words of a block."""

_ROUNDS = 10
_FACTORS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85
"""Added to the words of the key after each round."""


class Arithmetic(Protocol):
    """Operations on vectors of uint32 (words), signed integers and floats, besides Python's operators."""

    def product(self, word: Any, factor: int) -> tuple[Any, Any]:
        """The upper and the lower half of the product of 64 bits."""

    def word(self, word: Any) -> Any:
        """A finished word, as uint32."""

    def single(self, word: Any) -> Any:
        """Words as float32, to the nearest."""

    def signed(self, word: Any, *, wide: bool) -> Any:
        """Words that are taken for int32, as float32 or, if `wide`, float64."""

    def bits(self, x: Any) -> Any:
        """The bit pattern of positive floats, as signed integers of their width."""

    def from_bits(self, pattern: Any) -> Any:
        """The floats of a bit pattern."""

    def to_float(self, integers: Any) -> Any:
        """Signed integers as floats of their width."""

    def sqrt(self, x: Any) -> Any:
        """The square root."""

    def choose(self, condition: Any, a: Any, b: Any) -> Any:
        """a where the condition holds, else b."""

    def equals(self, a: Any, b: int) -> Any:
        """Whether words are this number."""


def words(on: Arithmetic, key: Sequence[Any], counter: Sequence[Any]) -> tuple[Any, ...]:
    """The four words of counters of four words each, under a key of two."""
    (a, b, c, d), (low, high) = counter, key
    for number in range(_ROUNDS):
        if number:
            low, high = low + _STEPS[0], high + _STEPS[1]
        (upper, lower), (upper_c, lower_c) = on.product(a, _FACTORS[0]), on.product(c, _FACTORS[1])
        a, b, c, d = upper_c ^ b ^ low, lower_c, upper ^ d ^ high, lower
    return tuple(map(on.word, (a, b, c, d)))


def uniform(on: Arithmetic, four: Sequence[Any], *, wide: bool) -> list[Any]:
    """Numbers of [0, 1) for each place of the words: four of float32 with 24 bits, or two of float64 with 53."""
    if not wide:
        return [on.signed(word >> 8, wide=False) * 2.0**-24 for word in four]
    return [_wide(on, four[at], four[at + 1]) * 2.0**-53 for at in (0, 2)]


def normal(on: Arithmetic, four: Sequence[Any], *, wide: bool) -> list[Any]:
    """Numbers of the normal distribution for the places of the words, by Box and Muller's method."""
    if wide:
        distance = (_wide(on, four[0], four[1]) + 0.5) * 2.0**-53
        return _pair(on, distance, four[2], on.signed(four[3] >> 1, wide=True) * 2.0**-31)
    pairs = ((four[0], four[1]), (four[2], four[3]))
    return [x for one, two in pairs for x in _pair(on, (on.single(one) + 0.5) * 2.0**-32, two, None)]


def _wide(on: Arithmetic, one: Any, two: Any) -> Any:
    """The upper 27 bits of a word and the upper 26 of another, as a number of float64."""
    return on.signed(one >> 5, wide=True) * 2.0**26 + on.signed(two >> 6, wide=True)


def _pair(on: Arithmetic, share: Any, turn: Any, rest: Any) -> list[Any]:
    """Two normal numbers: the radius for a share of (0, 1], at an angle of so many of 2**32 parts of a turn.

    rest: what lies behind the point, in double precision.
    """
    radius = on.sqrt(_log(on, share) * -2.0)
    from_axis = turn + 0x20000000
    quarter = from_axis >> 30  # of the axis that is nearest
    beside = on.signed((from_axis & 0x3FFFFFFF) - 0x20000000, wide=rest is not None)
    angle = (beside if rest is None else beside + rest) * (math.pi * 2.0**-31)
    square = angle * angle
    sines, cosines = (_SINE32, _COSINE32) if rest is None else (_SINE64, _COSINE64)
    sine = _polynomial(square, sines) * square * angle + angle
    cosine = _polynomial(square, cosines) * (square * square) - square * 0.5 + 1.0
    odd = on.equals(quarter & 1, 1)
    across, up = on.choose(odd, sine, cosine), on.choose(odd, cosine, sine)
    left, down = on.equals((quarter + 1) & 2, 2), on.equals(quarter & 2, 2)
    return [radius * on.choose(left, -across, across), radius * on.choose(down, -up, up)]


_SINE32 = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
_COSINE32 = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
_SINE64 = (
    *(-1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04),
    *(2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10),
)
_COSINE64 = (
    *(4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05),
    *(-2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11),
)
"""They are those of Cephes and of FreeBSD's library, up to π/4."""
_LOG32 = (0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841)
_LOG64 = (
    *(6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01),
    *(1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01),
)
"""They are those of log((1 + s) / (1 - s)), from FreeBSD's library."""


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """coefficients[0] + coefficients[1] * x + …"""
    *lower, before, highest = coefficients
    return functools.reduce(lambda total, c: total * x + c, reversed(lower), x * highest + before)


def _log(on: Arithmetic, x: Any) -> Any:
    """The natural logarithm of numbers of (0, 1], none of them denormal: x = 2**k (1 + f), with 1 + f near 1."""
    pattern = on.bits(x)
    wide = _is_wide(pattern)
    mantissa, bias = (52, 1023) if wide else (23, 127)
    least = 0x3FE6A09E667F3BCD if wide else 0x3F3504F3
    """The pattern of the square root of a half."""
    raised = pattern + ((bias << mantissa) - least)
    exponent = on.to_float((raised >> mantissa) - bias)
    f = on.from_bits((raised & ((1 << mantissa) - 1)) + least) - 1.0
    s = f / (f + 2.0)
    square = s * s
    rest = _polynomial(square, _LOG64 if wide else _LOG32) * square
    half = f * f * 0.5
    upper, lower = (
        (6.93147180369123816490e-01, 1.90821492927058770002e-10) if wide else (6.9313812256e-01, 9.0580006145e-06)
    )
    return s * (half + rest) + exponent * lower - half + f + exponent * upper


def _is_wide(pattern: Any) -> bool:
    width = getattr(pattern, "width", None)
    return bool(pattern.dtype.itemsize == 8 if width is None else width == 64)


class _OnNumPy:
    """The arithmetic of NumPy's arrays."""

    @staticmethod
    def product(word: np.ndarray, factor: int) -> tuple[np.ndarray, np.ndarray]:
        whole = word.astype(np.uint64) * np.uint64(factor)
        return (whole >> np.uint64(32)).astype(np.uint32), whole.astype(np.uint32)

    @staticmethod
    def word(word: np.ndarray) -> np.ndarray:
        return word

    @staticmethod
    def single(word: np.ndarray) -> np.ndarray:
        return word.astype(np.float32)

    @staticmethod
    def signed(word: np.ndarray, *, wide: bool) -> np.ndarray:
        return word.view(np.int32).astype(np.float64 if wide else np.float32)

    @staticmethod
    def bits(x: np.ndarray) -> np.ndarray:
        return x.view(np.int64 if x.dtype.itemsize == 8 else np.int32)

    @staticmethod
    def from_bits(pattern: np.ndarray) -> np.ndarray:
        return pattern.view(np.float64 if pattern.dtype.itemsize == 8 else np.float32)

    @staticmethod
    def to_float(integers: np.ndarray) -> np.ndarray:
        return integers.astype(np.float64 if integers.dtype.itemsize == 8 else np.float32)

    sqrt, choose = staticmethod(np.sqrt), staticmethod(np.where)

    @staticmethod
    def equals(a: np.ndarray, b: int) -> np.ndarray:
        equal: np.ndarray = a == b
        return equal


ON_NUMPY = _OnNumPy()

_AT_ONCE = 1 << 10
"""Blocks that are made together on NumPy: what they take fits the caches."""


def evaluate(kind: str, key: int, number: int, count: int, dtype: Any) -> np.ndarray:
    """`count` numbers of the distribution "uniform" or "normal" on NumPy, of float32 or float64."""
    on, wide = ON_NUMPY, np.dtype(dtype) == np.float64
    distribution = normal if kind == "normal" else uniform
    each = WORDS // 2 if wide else WORDS
    blocks = -(-count // each)
    result = np.empty((blocks, each // LANES, LANES), dtype)
    halves = [np.array([part], np.uint32) for part in (key & 0xFFFFFFFF, key >> 32, number & 0xFFFFFFFF, number >> 32)]
    for first in range(0, blocks, _AT_ONCE):
        part = result[first : first + _AT_ONCE]
        counters = np.arange(first * LANES, (first + len(part)) * LANES, dtype=np.uint64)
        low, high = counters.astype(np.uint32), (counters >> np.uint64(32)).astype(np.uint32)
        two, three = (np.broadcast_to(half, low.shape) for half in halves[2:])
        four = words(on, halves[:2], (low, high, two, three))
        for at, numbers in enumerate(distribution(on, four, wide=wide)):
            part[:, at] = numbers.reshape(len(part), LANES)
    return result.reshape(-1)[:count]
