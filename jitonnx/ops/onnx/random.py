"""Random numbers.

With a `seed` they are those of onnx's reference, the same in every run; without one they differ from run to run
(`jitonnx.ir.computation.drawing`). No pass merges or folds these operators (`deterministic`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.drawing import STANDARD, Distribution, drawn, normal, seeded, uniform
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import Shape, TensorType
from jitonnx.ops.base import BOOLS, FLOATS, NUMBERS, widen


class _Random(Operator):
    """What all share: the seed, and numbers of a distribution."""

    deterministic = False

    seed: float | None = None

    @property
    def _seed(self) -> int | None:
        """The seed, if there is one; NaN and infinities are none."""
        return None if self.seed is None or not math.isfinite(self.seed) else int(self.seed)

    def _draw(self, distribution: Distribution, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        """Numbers of a type."""
        count = math.prod(shape)
        if self._seed is not None:
            return seeded(distribution, self._seed, count, dtype).reshape(shape)
        wide = np.float64 if dtype == np.float64 else np.float32
        return drawn(distribution, count, wide).astype(dtype, copy=False).reshape(shape)

    def _lower(self, to: Lowering, distribution: Distribution, shape: Shape, dtype: DType) -> Value:
        """The same as a computation."""
        wide = dtype if self._seed is not None or dtype is DType.DOUBLE else DType.FLOAT
        return to.cast(to.draw(distribution, self._seed, wide, shape), dtype)


class _Normal(_Random):
    """Numbers are drawn from a normal distribution."""

    mean: float = 0.0
    scale: float = 1.0

    def distribution(self, dtype: np.dtype[Any]) -> Distribution:
        """The distribution of numbers of a type."""
        return normal(self.mean, self.scale)


class _Uniform(_Random):
    """Numbers are drawn from [low, high), all alike."""

    high: float = 1.0
    low: float = 0.0

    def distribution(self, dtype: np.dtype[Any]) -> Distribution:
        """The distribution of numbers of a type."""
        return uniform(self.low, self.high, dtype)


class _Distributed(_Random):
    """A tensor of random numbers and nothing else."""

    def distribution(self, dtype: np.dtype[Any]) -> Distribution:
        """The distribution of numbers of a type."""
        raise NotImplementedError

    def _drawn(self, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        return self._draw(self.distribution(dtype), shape, dtype)

    def lower(self, to: Lowering, *inputs: Value | None) -> Value:
        dtype = to.type.dtype
        assert dtype is not None
        return self._lower(to, self.distribution(dtype.numpy), to.shape, dtype)


class _OfShape(_Distributed):
    """A tensor of the attribute `shape`."""

    dtype: int = int(DType.FLOAT)
    shape: tuple[int, ...]

    def infer(self, context: InferenceContext) -> TensorType:
        if any(size < 0 for size in self.shape):
            raise InferenceError(f"shape {list(self.shape)} has a negative size")
        return TensorType(_chosen(self.dtype, FLOATS), self.shape)

    def evaluate(self) -> np.ndarray:
        return self._drawn(self.shape, _chosen(self.dtype, FLOATS).numpy)


class _Like(_Distributed):
    """A tensor of the input's shape, and of its type unless `dtype` says otherwise."""

    dtype: int | None = None

    def infer(self, context: InferenceContext, like: Value) -> TensorType:
        return TensorType(_chosen(like.dtype if self.dtype is None else self.dtype, FLOATS), like.shape)

    def evaluate(self, like: np.ndarray) -> np.ndarray:
        return self._drawn(like.shape, like.dtype if self.dtype is None else DType(self.dtype).numpy)


def _chosen(dtype: int, allowed: frozenset[DType]) -> DType:
    """The element type of that number. InferenceError for one that is not allowed."""
    if dtype not in allowed:
        names = ", ".join(known.text for known in sorted(allowed))
        given = DType(dtype).text if dtype in tuple(DType) else dtype
        raise InferenceError(f"dtype is {given}: one of {names} expected")
    return DType(dtype)


class RandomNormal(_Normal, _OfShape):
    """Numbers from the normal distribution of `mean` and standard deviation `scale`."""


class RandomUniform(_Uniform, _OfShape):
    """Numbers from [low, high), all alike."""


class RandomNormalLike(_Normal, _Like):
    """Numbers from the normal distribution of `mean` and standard deviation `scale`, as many as the input has."""


class RandomUniformLike(_Uniform, _Like):
    """Numbers from [low, high), all alike, as many as the input has."""


class Bernoulli(_Random):
    """1 with the probability that the input has in its place, else 0."""

    dtype: int | None = None

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        return TensorType(_chosen(x.dtype if self.dtype is None else self.dtype, NUMBERS | BOOLS), x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """What RandomState's binomial gives for a seed: the least of two outcomes where a uniform number is
        large."""
        dtype = x.dtype if self.dtype is None else DType(self.dtype).numpy
        wide = widen(x)
        if self._seed is None:
            return (self._draw(STANDARD, x.shape, wide.dtype) < wide).astype(dtype)
        numbers, likely, p = self._draw(STANDARD, x.shape, np.dtype(np.float64)), wide > 0.5, wide.astype(np.float64)
        rest = np.where(likely, 1 - (1 - p), 1 - p)
        return np.asarray((numbers > rest) ^ likely).astype(dtype)

    def lower(self, to: Lowering, x: Value) -> Value:
        dtype = to.type.dtype
        assert dtype is not None
        if self._seed is None:
            wide = DType.DOUBLE if x.dtype is DType.DOUBLE else DType.FLOAT
            numbers = self._lower(to, STANDARD, to.shape, wide)
            ones = e.operand(1, wide) < e.cast(e.operand(0, x.dtype), wide)
        else:
            numbers, p = self._lower(to, STANDARD, to.shape, DType.DOUBLE), e.cast(e.operand(0, x.dtype), DType.DOUBLE)
            likely, rest = p > 0.5, 1.0 - p
            ones = e.logical_xor(e.operand(1, DType.DOUBLE) > e.where(likely, 1.0 - rest, rest), likely)
        return to.map(e.cast(ones, dtype), x, numbers)


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
        wide = x.astype(np.float64)
        sums = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf)).cumsum(axis=1)
        result = np.empty((x.shape[0], self.sample_size), DType(self.dtype).numpy)
        numbers = self._draw(STANDARD, result.shape, wide.dtype)
        for row, sum in enumerate(sums):
            values = numbers[row] * sum[-1]
            order = np.argsort(values)  # numbers in order are looked up several times as fast
            result[row, order] = np.searchsorted(sum, values[order], side="right")
        return result

    def lower(self, to: Lowering, x: Value) -> Value:
        (rows, classes), (_, samples) = x.shape, to.shape
        wide = to.cast(x, DType.DOUBLE)
        a, b = e.operand(0, DType.DOUBLE), e.operand(1, DType.DOUBLE)
        likely = to.map(e.exp(a - b), wide, to.reduce("max", wide, (1,), keepdims=True))
        sums = to.emit(c.Cumulate("sum", 1, exclusive=False, reverse=False), (likely,), likely.type)
        whole = to.slice(sums, (0, classes - 1), (1, 1), (rows, 1))
        numbers = self._lower(to, STANDARD, (rows, samples), DType.DOUBLE)
        return to.emit(c.Search(), (sums, to.map(a * b, numbers, whole)), to.type)
