"""What kernels' sources call besides NumPy: numbers of 16 bits, conversions, division, extremes, special functions.

Plain functions of NumPy's scalars. `compiling` compiles them with a kernel; without Numba they run as they stand. They
mean what ONNX's operators mean: nothing traps, NaN comes through, conversions saturate. Integers may come back wider
than they went in: who calls converts them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Number = Any
"""A scalar of NumPy, or Numba's idea of one."""


# ---------------------------------------------------------------- numbers of 16 bits


def widen_float16(bits: Number) -> Number:
    """The float32 of a float16's bits."""
    magnitude = np.int64(bits) & 0x7FFF
    if magnitude < 0x400:  # zero and denormal numbers are multiples of the smallest
        value = np.float32(magnitude) * np.float32(2.0**-24)
    else:
        value = np.uint32((magnitude << 13) + (0x38000000 if magnitude < 0x7C00 else 0x70000000)).view(np.float32)
    return -value if bits & 0x8000 else value


def narrow_float16(x: Number) -> Number:
    """The bits of the float16 next to a float32, ties to even."""
    bits = np.int64(np.float32(x).view(np.uint32))
    sign, magnitude = (bits >> 16) & 0x8000, bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        half = 0x7E00 | ((magnitude >> 13) & 0x3FF)
    elif magnitude >= 0x47800000:
        half = np.int64(0x7C00)
    elif magnitude < 0x38800000:  # the last bit of 0.5 and more counts as much as that of a denormal number
        half = np.int64(np.float32(abs(x) + np.float32(0.5)).view(np.uint32)) - 0x3F000000
    else:
        half = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13
    return np.uint16(sign | half)


def round_float16(x: Number) -> Number:
    """A float32 rounded to float16, as float32."""
    return widen_float16(narrow_float16(x))


def round_double_float16(x: Number) -> Number:
    """A float64 rounded to float16, once, as float32."""
    nearest = np.float32(x)
    back, bits = np.float64(nearest), np.int64(nearest.view(np.uint32))
    if back != x and x == x:  # cut off, with the last bit set: rounding that is rounding once
        bits = (bits - 1 if abs(back) > abs(x) else bits) | 1
    return round_float16(np.uint32(bits).view(np.float32))


def widen_bfloat16(bits: Number) -> Number:
    """The float32 of a bfloat16's bits."""
    return np.uint32(np.int64(bits) << 16).view(np.float32)


def narrow_bfloat16(x: Number) -> Number:
    """The bits of the bfloat16 next to a float32, ties to even."""
    bits = np.int64(np.float32(x).view(np.uint32))
    kept = bits >> 16
    return np.uint16((bits + 0x7FFF + (kept & 1)) >> 16 if x == x else kept | 0x40)


def round_bfloat16(x: Number) -> Number:
    """A float32 rounded to bfloat16, as float32."""
    return widen_bfloat16(narrow_bfloat16(x))


# ---------------------------------------------------------------- conversions


def bounded(x: Number, low: Number, high: Number) -> Number:
    """A float within its bounds; 0 of NaN."""
    return low - low if x != x else low if x < low else high if x > high else x


def to_int64(x: Number) -> Number:
    """A float cut off to a whole number; the nearest there is of what is too large, 0 of NaN."""
    if x != x:
        return np.int64(0)
    if x >= 9223372036854775808.0:
        return np.int64(9223372036854775807)
    if x < -9223372036854775808.0:
        return np.int64(-9223372036854775808)
    return np.int64(x)


def to_uint64(x: Number) -> Number:
    """A float cut off to a whole number; the nearest there is of what is too large or negative, 0 of NaN."""
    if x != x or x < 0.0:
        return np.uint64(0)
    if x >= 18446744073709551616.0:
        return np.uint64(18446744073709551615)
    return np.uint64(x)


# ---------------------------------------------------------------- division of integers, remainders


def divide(a: Number, b: Number) -> Number:
    """a / b of signed integers, truncated; a where b is 0."""
    if b == 0:
        return a
    if b == -1:  # of the smallest integer itself
        return -a
    quotient = a // b
    return quotient + 1 if quotient < 0 and quotient * b != a else quotient


def divide_unsigned(a: Number, b: Number) -> Number:
    """a / b of unsigned integers, truncated; a where b is 0."""
    return a // b if b != 0 else a


def modulo(a: Number, b: Number) -> Number:
    """The rest of a / b of signed integers, with b's sign; 0 where b is 0."""
    return a % b if b != 0 and b != -1 else a - a


def remainder(a: Number, b: Number) -> Number:
    """The rest of a / b of signed integers, with a's sign; 0 where b is 0."""
    rest = a % b if b != 0 and b != -1 else a - a
    return rest - b if rest != 0 and (a < 0) != (b < 0) else rest


def modulo_unsigned(a: Number, b: Number) -> Number:
    """The rest of a / b of unsigned integers; 0 where b is 0."""
    return a % b if b != 0 else a - a


def modulo_float(a: Number, b: Number) -> Number:
    """The rest of a / b, with b's sign."""
    rest = np.fmod(a, b)
    return rest + b if rest != 0 and (rest < 0) != (b < 0) else rest


# ---------------------------------------------------------------- extremes


def maximum(a: Number, b: Number) -> Number:
    """The larger; NaN if either is."""
    return a if a > b or a != a else b


def minimum(a: Number, b: Number) -> Number:
    """The smaller; NaN if either is."""
    return a if a < b or a != a else b


def within(x: Number, low: Number, high: Number) -> Number:
    """x, but `low` where it is less or not a number, and `high` where it is more."""
    above = x if x > low else low
    return above if above < high else high


# ---------------------------------------------------------------- special functions


def erf(x: Number) -> Number:
    """The error function."""
    return math.erf(x)


def erfc(x: Number) -> Number:
    """1 less the error function."""
    return math.erfc(x)
