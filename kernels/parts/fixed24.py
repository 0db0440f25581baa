"""Weights as 24-bit fixed-point numbers, four vectors of them in three: for kernels that are bound by reading weights.

A product of one row reads each weight once, and a core reads 32 bytes a cycle from its second-level cache: half of what
it multiplies. Weights of 24 bits take 0.75 of the bytes, and what turns them into floats (shifts, conversions) runs on
units that the multiply-adds leave idle.

A number is an int32 whose lower byte is left to chance, times the scale of its output. The largest weight of an output
is 2**31 - _MARGIN, so that each is exact to 2**-24 of the largest: half a unit in the last place of that. float32 is
finer for smaller weights, but sums of float32 products are not: the largest may be 7 times the mean magnitude of its
output's, no more (`fit_24_bits`). The squares of both errors add up, which is no matter of the CPU that has the
instructions for it. Measured on weights of nearly 7 times the mean (100 steps, means of 8 seeds, against float64), in
terms of the error of the same layer with float32 weights: an LSTM of 64 units 1.14 and of 256 units 1.12, a GRU of 64
units 1.23 (a single seed up to 1.26) and of 256 units 1.19; at 10 times the mean 1.27, 1.22, 1.47 and 1.36.
tests/session/test_fixed24.py allows 1.25 times, of means.

The vectors a, b, c, d of int32 lie as A = [a3 a2 a1 d3], B = [b3 b2 b1 d2], C = [d1 c3 c2 c1], highest byte first. So
A and B are read as they are, c is C << 8, and d is [d3 d2 d1 c3] by two funnel shifts. The lower bytes are known when
the upper ones are rounded and count as part of the number, so that they cost no precision.
Imports nothing of ours, and no LLVM.
"""

from __future__ import annotations

import sys

import numpy as np

_MARGIN = 512
"""Room for rounding to 24 bits."""
_MOST_OVER_MEAN = 7.0
"""What the largest weight of an output may be of its mean: the error of rounding weights grows with it."""
_LEAST = 2.0**-94
"""The least that the largest weight of an output may be: below, its scale would not be a normal float32."""
_LOWER_HALF = 0 if sys.byteorder == "little" else 1


def fit_24_bits(weights: np.ndarray) -> bool:
    """Whether 24 bits hold float32 weights [..., k], each row those of an output, as well as their sums need it."""
    if not weights.size:
        return True
    magnitudes = np.abs(weights)
    largest, mean = magnitudes.max(-1), magnitudes.mean(-1, dtype=np.float64)
    normal = np.isfinite(largest) & ((largest == 0) | (largest >= _LEAST))
    return bool((normal & (largest <= _MOST_OVER_MEAN * mean)).all())


def scales(weights: np.ndarray) -> np.ndarray:
    """The scale of each row of weights [..., k]: what its numbers are to be multiplied with."""
    largest = np.abs(weights).max(-1, initial=0)
    return np.where(largest > 0, largest / np.float32(2**31 - _MARGIN), 1).astype(np.float32)


def numbers(weights: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The int32 numbers of weights with scales that broadcast to them."""
    # Floats of 2**52 and more are integers, whose lower half is the number.
    shifted = np.multiply(weights, 1 / scale.astype(np.float64), order="C")
    shifted += 1.5 * 2.0**52
    return shifted.view(np.int32)[..., _LOWER_HALF::2]


def pack(quads: np.ndarray) -> np.ndarray:
    """Numbers [..., 4, lanes] -> int32 [..., 3, lanes], rounded to 24 bits."""
    a, b, c, d = np.moveaxis(quads, -2, 0)
    packed = np.empty((*quads.shape[:-2], 3, quads.shape[-1]), np.int32)
    c = c + 128 >> 8
    d = d + 128 - (c >> 16 & 0xFF) >> 8
    for x, low, number in ((a, d >> 16 & 0xFF, packed[..., 0, :]), (b, d >> 8 & 0xFF, packed[..., 1, :])):
        np.subtract(x, low - 128, out=number)
        number &= ~0xFF
        number |= low
    np.bitwise_or(d << 24, c & 0xFFFFFF, out=packed[..., 2, :])
    return packed
