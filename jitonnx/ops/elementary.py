"""Elementary functions that NumPy lacks."""

from __future__ import annotations

import functools
import math

import numpy as np

_TABLE_STEP = 1 / 1024
_TABLE_END = 6.0  # erf is 1 in double precision from 5.93 on


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, element by element, in float32 or float64; relative error below 3e-16 in float64.

    Each element is expanded around the nearest of 6145 points p, where erf is known from the C library:
    erf(p + h) = erf(p) + erf'(p) * (h - p h**2 + (4 p**2 - 2) h**3 / 6 - (8 p**3 - 12 p) h**4 / 24 + ...).
    With |h| <= 2**-11 the first term left out is below 1e-17. (A loop over math.erf would take 30 times as long.)
    """
    values, slopes = _table()
    size = np.minimum(np.abs(x, dtype=np.float64), _TABLE_END)
    nearest = np.rint(np.nan_to_num(size) / _TABLE_STEP).astype(np.int64)
    p = nearest * _TABLE_STEP
    h = size - p
    # Horner's scheme for the Taylor series, whose coefficients are Hermite polynomials of p over factorials.
    series = (1 / 30) * (4 * p**4 - 12 * p**2 + 3)
    series = series * h - (2 * p**3 - 3 * p) / 6
    series = series * h + (2 * p**2 - 1) / 3
    series = series * h - p
    series = (series * h + 1) * h
    return np.copysign(values[nearest] + slopes[nearest] * series, x).astype(x.dtype)


@functools.cache
def _table() -> tuple[np.ndarray, np.ndarray]:
    """erf and its derivative at the points around which it is expanded."""
    points = np.arange(0, _TABLE_END + _TABLE_STEP, _TABLE_STEP)
    return np.array([math.erf(p) for p in points]), 2 / math.sqrt(math.pi) * np.exp(-points * points)
