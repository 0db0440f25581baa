"""Random numbers: distributions, what a seed draws, and what differs from draw to draw (`computations.Draw`).

With a seed the numbers are those of onnx's reference, NumPy's RandomState, the same in every run; without one they are
those of `jitonnx.support.philox`, under a key and a number that each draw has for itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitonnx.support.records import dataclass


@dataclass(frozen=True)
class Distribution:
    """Standard numbers of a kind, "uniform" (of [0, 1)) or "normal", times `factor` plus `term`, at most `most`."""

    kind: str
    factor: float = 1.0
    term: float = 0.0
    most: float = math.inf

    def limits(self, dtype: Any) -> np.ndarray:
        """Factor, term and largest number as [3] of that type."""
        return np.array([self.factor, self.term, self.most]).astype(dtype)


def uniform(low: float, high: float, dtype: np.dtype[Any]) -> Distribution:
    """The distribution of numbers in [low, high), also where one of `dtype` would be rounded up to the end."""
    most = float(np.nextafter(dtype.type(high), dtype.type(low)))
    return Distribution("uniform", high - low, low, max(low, most))


def normal(mean: float, deviation: float) -> Distribution:
    """The normal distribution."""
    return Distribution("normal", deviation, mean)


STANDARD = Distribution("uniform")
"""Numbers of it lie in [0, 1)."""


def drawn(distribution: Distribution, count: int, dtype: Any) -> np.ndarray:
    """So many numbers of float32 or float64, others each time."""
    from jitonnx.support import draws, philox  # of which sessions whose models draw nothing need not know

    key, number = draws.draw()
    factor, term, most = distribution.limits(dtype)
    numbers: np.ndarray = philox.evaluate(distribution.kind, key, number, count, dtype)
    numbers *= factor
    numbers += term
    np.minimum(numbers, most, out=numbers)
    return numbers


def seeded(distribution: Distribution, seed: int, count: int, dtype: Any) -> np.ndarray:
    """So many numbers of any type of floats, the same each time. Of a seed its lowest 32 bits count."""
    generator = np.random.RandomState(seed % (1 << 32))
    numbers = np.asarray(generator.randn(count) if distribution.kind == "normal" else generator.rand(count))
    numbers *= distribution.factor
    numbers += distribution.term
    return numbers.astype(dtype)
