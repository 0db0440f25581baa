"""What classifiers and regressors share: transforms of scores, class labels, features as float32.

Where ONNX's text leaves the meaning open, it is onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ir.strings import strings_of
from jitonnx.ir.types import TensorType

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The keys are their numbers in TreeEnsemble."""

_ALMOST_ZERO = 1e-7
"""Scores of at most this size are left out of SOFTMAX_ZERO."""


def check_transform(name: str) -> None:
    """InferenceError for a transform that ONNX does not have."""
    if name not in TRANSFORMS:
        raise InferenceError(f"post_transform is {name!r}; ONNX has {', '.join(TRANSFORMS)}")


def rows_and_features(x: Value) -> tuple[DimLike, DimLike]:
    """How many rows of how many features an input has; a vector is one row. InferenceError for another rank."""
    if len(x.shape) not in (1, 2):
        raise InferenceError(f"{x.name!r} is {x.type}; rows of features, or the features of one row, are needed")
    return x.shape if len(x.shape) == 2 else (1, x.shape[0])


def as_rows(x: np.ndarray) -> np.ndarray:
    """Features as rows: a vector is one row."""
    return x if x.ndim == 2 else x.reshape(1, -1)


# ---------------------------------------------------------------- on NumPy


def transformed(scores: np.ndarray, name: str) -> np.ndarray:
    """Rows of scores under a transform."""
    if name == "LOGISTIC":
        return logistic(scores)
    if name == "PROBIT":
        return probit(scores)
    if name == "SOFTMAX":
        powers = np.exp(scores - _highest(scores))
        return powers / powers.sum(axis=-1, keepdims=True)
    if name == "SOFTMAX_ZERO":
        highest = _highest(scores)
        counts = np.abs(scores) > scores.dtype.type(_ALMOST_ZERO)
        powers = np.exp(scores - highest)
        total = np.where(counts, powers, 0).sum(axis=-1, keepdims=True)
        return np.where(counts, powers, scores * np.exp(-highest)) / total
    return scores


def _highest(scores: np.ndarray) -> np.ndarray:
    return scores.max(axis=-1, keepdims=True, initial=np.finfo(scores.dtype).min)


def logistic(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), precise far from 0."""
    positive = 1 / (1 + np.exp(-np.abs(x)))
    return np.where(x < 0, 1 - positive, positive)


_WINITZKI = 0.147


def probit(x: np.ndarray) -> np.ndarray:
    """The quantile of the normal distribution, by Winitzki's approximation, as onnxruntime has it."""
    number = x.dtype.type
    y = number(2) * x - number(1)
    log = np.log((1 - y) * (1 + y))
    v = number(2 / (3.14159 * _WINITZKI)) + number(0.5) * log
    root = np.sqrt(np.sqrt(v * v - number(1 / _WINITZKI) * log) - v)
    return number(1.41421356) * np.where(y < 0, -root, root)


def of_two(score: np.ndarray, transform: str) -> np.ndarray:
    """The scores of two classes [rows, 2] for those of the second: opposite under LOGISTIC, else what is left of 1."""
    if transform == "PROBIT":
        return np.stack([probit(score)] * 2, axis=1)
    if transform == "LOGISTIC":
        return np.stack([logistic(-score), logistic(score)], axis=1)
    return np.stack([1 - score, score], axis=1)


def labelled(indices: np.ndarray, integers: Sequence[int], strings: Sequence[str]) -> np.ndarray:
    """The labels of classes by their numbers."""
    if strings:
        return strings_of([strings[index] for index in indices.tolist()], indices.shape)
    return np.asarray(integers, np.int64)[indices]


# ---------------------------------------------------------------- in computations


def lower_transformed(to: Lowering, scores: Value, name: str) -> Value:
    """What `transformed` gives, for rows of scores [rows, classes] of float32 or float64."""
    x = e.operand(0, scores.dtype)
    if name == "LOGISTIC":
        return to.map(e.sigmoid(x), scores)
    if name == "PROBIT":
        return to.map(probit_expression(x), scores)
    if name == "SOFTMAX":
        return to.emit(c.Softmax(1, log=False), (scores,), scores.type)
    if name == "SOFTMAX_ZERO":
        highest = to.reduce("max", scores, (1,), keepdims=True)
        counts = e.absolute(x) > _ALMOST_ZERO
        power = e.exp(x - e.operand(1, scores.dtype))
        total = to.reduce("sum", to.map(e.where(counts, power, 0.0), scores, highest), (1,), keepdims=True)
        value = e.where(counts, power, x * e.exp(-e.operand(1, scores.dtype)))
        return to.map(value / e.operand(2, scores.dtype), scores, highest, total)
    return scores


def probit_expression(x: e.Expr) -> e.Expr:
    """`probit` as an expression."""
    y = 2.0 * x - 1.0
    log = e.log((1.0 - y) * (1.0 + y))
    v = 2 / (3.14159 * _WINITZKI) + 0.5 * log
    root = e.sqrt(e.sqrt(v * v - (1 / _WINITZKI) * log) - v)
    return 1.41421356 * e.where(y < 0.0, -root, root)


def lower_labelled(to: Lowering, indices: Value, labels: Sequence[int]) -> Value:
    """Integer labels of classes by their numbers, int64 [rows]."""
    if tuple(labels) == tuple(range(len(labels))):
        return indices
    if len(labels) == 2:
        return to.map(
            e.where(e.equal(e.operand(0, DType.INT64), 0), *(e.constant(n, DType.INT64) for n in labels)), indices
        )
    return to.emit(c.Gather(0), (to.constant(np.asarray(labels, np.int64)), indices), indices.type)


def lower_highest(to: Lowering, scores: Value) -> Value:
    """The number of the highest score of each row, the first of equals: int64 [rows]."""
    return to.emit(
        c.ArgReduce("max", 1, keepdims=False, last=False), (scores,), TensorType(DType.INT64, scores.shape[:1])
    )


def lower_of_two(to: Lowering, score: Value, transform: str) -> Value:
    """What `of_two` gives, for [rows, 1]."""
    x = e.operand(0, score.dtype)
    first, second = {
        "PROBIT": (probit_expression(x), probit_expression(x)),
        "LOGISTIC": (e.sigmoid(-x), e.sigmoid(x)),
    }.get(transform, (1.0 - x, x))
    return to.concat([to.map(first, score), to.map(second, score)], 1)


def lower_rows(to: Lowering, x: Value, dtype: DType) -> Value:
    """Features as rows of another type."""
    return to.cast(to.reshape(x, rows_and_features(x)), dtype)
