"""Random numbers. They are drawn by NumPy, between native programs.

With a `seed` they are those of onnx's reference, the same in every run; without one they differ from run to run. No
pass merges or folds these operators (`deterministic`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import BOOLS, FLOATS, NUMBERS, widen


class _Random(Operator):
    """What all share: the generator, and the type of what is drawn."""

    deterministic = False

    seed: float | None = None

    def _draw(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Numbers of a type, distributed as `_from` says."""
        if self._seeded:
            return self._from(np.random.RandomState(int(self.seed)), shape, np.float64).astype(dtype)  # type: ignore[arg-type]
        # The fastest generator that there is, in single precision unless double is asked for.
        wide = np.float64 if dtype == np.float64 else np.float32
        return self._from(np.random.Generator(np.random.SFC64()), shape, wide).astype(dtype, copy=False)

    @property
    def _seeded(self) -> bool:
        return self.seed is not None and not np.isnan(self.seed)

    def _from(self, generator: Any, shape: tuple[int, ...], wide: type) -> np.ndarray:
        """Numbers from a Generator, in the type `wide`, or from a RandomState, in float64."""
        raise NotImplementedError


class _Normal(_Random):
    """From a normal distribution."""

    mean: float = 0.0
    scale: float = 1.0

    def _from(self, generator: Any, shape: tuple[int, ...], wide: type) -> np.ndarray:
        if isinstance(generator, np.random.RandomState):
            numbers = np.asarray(generator.randn(*shape))
        elif wide is np.float32:
            numbers = _normals(generator, math.prod(shape)).reshape(shape)
        else:
            numbers = np.asarray(generator.standard_normal(shape))
        numbers *= wide(self.scale)
        numbers += wide(self.mean)
        return numbers


_AT_ONCE = 1 << 13
"""Pairs of normal numbers that are made together: what they take fits the caches."""


def _normals(generator: np.random.Generator, count: int) -> np.ndarray:
    """So many normally distributed numbers of float32, by Box and Muller: in half the time of Generator's.

    Both uniform numbers of a pair have 32 bits, so that the largest normal one is 6.76.
    """
    half = -(-count // 2)
    numbers = np.empty(2 * half, np.float32)
    for start in range(0, half, _AT_ONCE):
        pairs = min(_AT_ONCE, half - start)
        uniform = generator.bit_generator.random_raw(pairs).view(np.uint32).astype(np.float32)
        uniform += np.float32(0.5)
        uniform *= np.float32(2.0**-32)
        radius, angle = np.log(uniform[:pairs]), uniform[pairs:]
        radius *= np.float32(-2)
        np.sqrt(radius, out=radius)
        angle *= np.float32(2 * math.pi)
        for function, first in ((np.cos, start), (np.sin, half + start)):
            part = numbers[first : first + pairs]
            function(angle, out=part)
            part *= radius
    return numbers[:count]


class _Uniform(_Random):
    """From [low, high), all numbers alike."""

    high: float = 1.0
    low: float = 0.0

    def _from(self, generator: Any, shape: tuple[int, ...], wide: type) -> np.ndarray:
        if isinstance(generator, np.random.RandomState):
            numbers = np.asarray(generator.rand(*shape))
        else:
            numbers = np.asarray(generator.random(shape, wide))
        numbers *= wide(self.high - self.low)
        numbers += wide(self.low)
        return numbers


class _OfShape(_Random):
    """A tensor of the attribute `shape`."""

    dtype: int = int(DType.FLOAT)
    shape: tuple[int, ...]

    def infer(self, context: InferenceContext) -> TensorType:
        if any(size < 0 for size in self.shape):
            raise InferenceError(f"shape {list(self.shape)} has a negative size")
        return TensorType(_chosen(self.dtype, FLOATS), self.shape)

    def evaluate(self) -> np.ndarray:
        return self._draw(self.shape, _chosen(self.dtype, FLOATS).numpy)


class _Like(_Random):
    """A tensor of the input's shape, and of its type unless `dtype` says otherwise."""

    dtype: int | None = None

    def infer(self, context: InferenceContext, like: Value) -> TensorType:
        return TensorType(_chosen(like.dtype if self.dtype is None else self.dtype, FLOATS), like.shape)

    def evaluate(self, like: np.ndarray) -> np.ndarray:
        return self._draw(like.shape, like.dtype if self.dtype is None else DType(self.dtype).numpy)


def _chosen(dtype: int, allowed: frozenset[DType]) -> DType:
    """The element type of that number. InferenceError for one that is not allowed."""
    if dtype not in allowed:
        names = ", ".join(known.text for known in sorted(allowed))
        given = DType(dtype).text if dtype in tuple(DType) else dtype
        raise InferenceError(f"dtype is {given}: one of {names} expected")
    return DType(dtype)


class RandomNormal(_OfShape, _Normal):
    """Numbers from the normal distribution of `mean` and standard deviation `scale`."""


class RandomUniform(_OfShape, _Uniform):
    """Numbers from [low, high), all alike."""


class RandomNormalLike(_Like, _Normal):
    """Numbers from the normal distribution of `mean` and standard deviation `scale`, as many as the input has."""


class RandomUniformLike(_Like, _Uniform):
    """Numbers from [low, high), all alike, as many as the input has."""


class Bernoulli(_Random):
    """1 with the probability that the input has in its place, else 0."""

    dtype: int | None = None

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        return TensorType(_chosen(x.dtype if self.dtype is None else self.dtype, NUMBERS | BOOLS), x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """Of a seed what RandomState's binomial gives: the least of two outcomes where a uniform number is large."""
        dtype = x.dtype if self.dtype is None else DType(self.dtype).numpy
        wide = widen(x)
        if not self._seeded:
            drawn = np.random.Generator(np.random.SFC64()).random(x.shape, wide.dtype)
            return np.asarray(drawn < wide).astype(dtype)
        drawn = np.random.RandomState(int(self.seed)).random_sample(x.shape)  # type: ignore[arg-type]
        likely = wide > 0.5
        rest = np.where(likely, 1 - (1 - wide.astype(np.float64)), 1 - wide.astype(np.float64))
        return np.asarray((drawn > rest) ^ likely).astype(dtype)


class Multinomial(_Random):
    """Classes drawn `sample_size` times for each row of unnormalised logarithms of their probabilities."""

    dtype: int = int(DType.INT32)
    sample_size: int = 1

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if len(x.shape) != 2:
            raise InferenceError(f"{x.name!r} is {x.type}; a batch axis and one of classes are needed")
        if self.sample_size < 1:
            raise InferenceError(f"sample_size is {self.sample_size}; at least 1 is needed")
        return TensorType(_chosen(self.dtype, frozenset({DType.INT32, DType.INT64})), (x.shape[0], self.sample_size))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """The place of a uniform number among the sums of all probabilities up to each class."""
        if not x.shape[1] and x.shape[0]:
            raise ValueError("there are no classes to draw from")
        wide = widen(x)
        sums = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf)).cumsum(axis=1, dtype=np.float64)
        generator: Any = np.random.RandomState(int(self.seed)) if self._seeded else np.random.default_rng()  # type: ignore[arg-type]
        result = np.empty((x.shape[0], self.sample_size), DType(self.dtype).numpy)
        for row, sum in enumerate(sums):
            drawn = generator.random(self.sample_size) * sum[-1]
            order = np.argsort(drawn)  # numbers in order are looked up several times as fast
            result[row, order] = np.searchsorted(sum, drawn[order], side="right")
        return result


OPERATORS = (
    Bernoulli,
    Multinomial,
    RandomNormal,
    RandomNormalLike,
    RandomUniform,
    RandomUniformLike,
)
