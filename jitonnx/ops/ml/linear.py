"""Linear models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, attributes_of
from jitonnx.ir.types import TensorType
from jitonnx.ops.ml.labels import named
from jitonnx.ops.ml.scores import (
    as_rows,
    check_transform,
    labelled,
    lower_highest,
    lower_labelled,
    lower_of_two,
    lower_rows,
    lower_transformed,
    of_two,
    rows_and_features,
    transformed,
)


def _matrix(context: InferenceContext, coefficients: tuple[float, ...] | None, targets: int, x: Value) -> np.ndarray:
    """The coefficients, float32 [targets, features]. InferenceError unless they fit the features.

    Of fewer features than there are coefficients for, the first of these are used, as onnxruntime does.
    """
    given = np.array(coefficients or (), np.float32)
    if targets < 1 or not given.size or given.size % targets:
        raise InferenceError(f"{given.size} coefficients are given for {targets} targets")
    features = rows_and_features(x)[1]
    if isinstance(features, int) and 0 < features < given.size // targets:
        return given[: targets * features].reshape(targets, features)
    if not context.demand_equal(features, given.size // targets):
        raise InferenceError(f"{x.name!r} is {x.type}; there are coefficients for {given.size // targets} features")
    return given.reshape(targets, -1)


def _biased(to: Lowering, x: Value, matrix: np.ndarray, bias: np.ndarray | None) -> Value:
    """Rows times a matrix [targets, features], plus a bias: float32 [rows, targets]."""
    product = to.matmul(lower_rows(to, x, DType.FLOAT), to.constant(np.ascontiguousarray(matrix.T)))
    if bias is None:
        return product
    return to.map(e.operand(0, DType.FLOAT) + e.operand(1, DType.FLOAT), product, to.constant(bias))


class LinearRegressor(Operator):
    """Sums of weighted features, one for each target."""

    domain = "ai.onnx.ml"

    coefficients: tuple[float, ...] | None = None
    intercepts: tuple[float, ...] | None = None
    post_transform: str = "NONE"
    targets: int = 1

    def _bias(self) -> np.ndarray | None:
        given = self.intercepts or ()
        return np.array(given, np.float32) if len(given) == self.targets else None

    @property
    def _transform(self) -> str:
        """A single target knows PROBIT alone."""
        return self.post_transform if self.targets > 1 or self.post_transform == "PROBIT" else "NONE"

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        check_transform(self.post_transform)
        _matrix(context, self.coefficients, self.targets, x)
        return TensorType(DType.FLOAT, (rows_and_features(x)[0], self.targets))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        matrix = np.array(self.coefficients, np.float32).reshape(self.targets, -1)
        scores = as_rows(x).astype(np.float32) @ matrix.T
        bias = self._bias()
        return transformed(scores if bias is None else scores + bias, self._transform)

    def lower(self, to: Lowering, x: Value) -> Value:
        scores = _biased(to, x, _matrix(to.context, self.coefficients, self.targets, x), self._bias())
        return lower_transformed(to, scores, self._transform)


class LinearClassifier(Operator):
    """Sums of weighted features, one for each class, and the class of the largest.

    One sum alone is the score of the second of two classes, which is chosen above 0; or, as onnx's reference has it, of
    the only class, in the place of which 0 (or no text) is chosen where its score is low.
    """

    domain = "ai.onnx.ml"

    classlabels_ints: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None
    coefficients: tuple[float, ...]
    intercepts: tuple[float, ...] | None = None
    multi_class: int = 0
    post_transform: str = "NONE"

    @property
    def _labels(self) -> tuple[int, ...] | tuple[str, ...]:
        return self.classlabels_strings or self.classlabels_ints or ()

    def _sums(self, x: Value | None = None) -> int:
        """How many sums there are: as intercepts are given, else as coefficients are."""
        if self.intercepts:
            return len(self.intercepts)
        features = None if x is None else rows_and_features(x)[1]
        if isinstance(features, int) and features and len(self.coefficients) % features == 0:
            return len(self.coefficients) // features
        return max(len(self._labels), 1)

    @property
    def _pair(self) -> tuple[int | str, int | str]:
        """The labels for a single sum that is low or high."""
        labels = self._labels
        if len(labels) == 2:
            return labels[0], labels[1]
        return ("", labels[0]) if self.classlabels_strings else (0, labels[0] if labels else 1)

    def infer(self, context: InferenceContext, x: Value) -> tuple[TensorType, TensorType]:
        check_transform(self.post_transform)
        sums, labels = self._sums(x), self._labels
        _matrix(context, self.coefficients, sums, x)
        if sums > 1 and len(labels) < sums:
            raise InferenceError(f"{len(labels)} class labels are given for {sums} classes")
        rows = rows_and_features(x)[0]
        columns = 2 if sums == 1 and len(labels) == 2 else sums
        kind = DType.STRING if self.classlabels_strings else DType.INT64
        return TensorType(kind, (rows,)), TensorType(DType.FLOAT, (rows, columns))

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = as_rows(x).astype(np.float32)
        matrix = np.array(self.coefficients, np.float32).reshape(-1, rows.shape[1])
        scores = rows @ matrix.T
        if self.intercepts:
            scores = scores + np.array(self.intercepts, np.float32)
        if scores.shape[1] > 1:
            labels = labelled(scores.argmax(axis=1), self.classlabels_ints or (), self.classlabels_strings or ())
            return labels, transformed(scores, self.post_transform)
        if len(self._labels) == 2:
            high, scores = scores[:, 0] > 0, of_two(scores[:, 0], self.post_transform)
        else:
            scores = transformed(scores, self.post_transform)
            high = scores[:, 0] >= self._least
        names: Any = self._pair
        labels = labelled(high.astype(np.int64), *(((), names) if self.classlabels_strings else (names, ())))
        return labels, scores

    def decompose(self, parts: Any, inputs: Sequence[Value | None], outputs: int) -> Sequence[Value] | None:
        names = self.classlabels_strings
        if not names or len(names) == 1:
            return None
        numbers = {"classlabels_strings": None, "classlabels_ints": tuple(range(len(names)))}
        return named(parts, names, parts.add_many(LinearClassifier(**attributes_of(self) | numbers), inputs, outputs))

    @property
    def _least(self) -> float:
        """The score from which a sum is high whose class is the only one."""
        return 0.0 if self.post_transform == "NONE" else 0.5

    def lower(self, to: Lowering, x: Value) -> tuple[Value, ...]:
        if self.classlabels_strings:
            return to.host(self, (x,))
        bias = np.array(self.intercepts, np.float32) if self.intercepts else None
        scores = _biased(to, x, _matrix(to.context, self.coefficients, self._sums(x), x), bias)
        if self._sums(x) > 1:
            labels = lower_labelled(to, lower_highest(to, scores), self.classlabels_ints or ())
            return labels, lower_transformed(to, scores, self.post_transform)
        score = e.operand(0, DType.FLOAT)
        low, high = (e.constant(label, DType.INT64) for label in self._pair)
        if len(self._labels) == 2:
            above, result = score > 0.0, lower_of_two(to, scores, self.post_transform)
        else:
            scores = result = lower_transformed(to, scores, self.post_transform)
            above = score >= self._least
        return to.map(e.where(above, high, low), to.reshape(scores, scores.shape[:1])), result
