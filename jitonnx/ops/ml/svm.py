"""Support vector machines."""

from __future__ import annotations

import functools
import math
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
    logistic,
    lower_highest,
    lower_labelled,
    lower_of_two,
    lower_rows,
    lower_transformed,
    of_two,
    rows_and_features,
    transformed,
)

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


class _Machine(Operator):
    """What classifier and regressor share: products with support vectors under a kernel.

    Without support vectors the coefficients themselves are multiplied with.
    """

    domain = "ai.onnx.ml"

    coefficients: tuple[float, ...] | None = None
    kernel_params: tuple[float, ...] | None = None
    kernel_type: str = "LINEAR"
    post_transform: str = "NONE"
    rho: tuple[float, ...] | None = None
    support_vectors: tuple[float, ...] | None = None

    @functools.cached_property
    def _parameters(self) -> tuple[np.float32, np.float32, float]:
        """gamma, coef0, degree."""
        given = (*(self.kernel_params or ()), 0.0, 0.0, 0.0)[:3]
        return np.float32(given[0]), np.float32(given[1]), float(given[2])

    def _check(self, context: InferenceContext, x: Value, vectors: int, columns: int) -> None:
        """InferenceError unless there are coefficients, and what is multiplied with fits the features."""
        check_transform(self.post_transform)
        if self.kernel_type not in KERNELS:
            raise InferenceError(f"kernel_type is {self.kernel_type!r}; ONNX has {', '.join(KERNELS)}")
        given = self.support_vectors if vectors else self.coefficients
        if not self.coefficients or not self.rho:
            raise InferenceError("coefficients and rho are needed")
        count = vectors or columns
        if not given or len(given) % count:
            raise InferenceError(f"{len(given or ())} numbers are given for {count} vectors")
        if not context.demand_equal(rows_and_features(x)[1], len(given) // count):
            raise InferenceError(f"{x.name!r} is {x.type}; the vectors have {len(given) // count} features")

    def _kernel(self, x: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """The kernel's value of each row with each vector: float32 [rows, vectors]."""
        gamma, shift, degree = self._parameters
        if self.kernel_type == "RBF":
            distances = np.stack([np.square(x - vector).sum(axis=1) for vector in vectors], axis=1)
            return np.exp(-gamma * distances)
        product = x @ vectors.T
        if self.kernel_type == "LINEAR":
            return product
        product = gamma * product + shift
        return np.tanh(product) if self.kernel_type == "SIGMOID" else np.power(product, np.float32(degree))

    def _lower_kernel(self, to: Lowering, x: Value, vectors: np.ndarray) -> Value:
        """What `_kernel` gives. Squared distances of RBF are |x|² + |v|² - 2 x·v, in float64, where what cancels is
        far below what float32 shows of the differences' squares."""
        gamma, shift, degree = (float(number) for number in self._parameters)
        element = e.operand(0, DType.FLOAT)
        if self.kernel_type == "RBF":
            wide, of_vectors = to.cast(x, DType.DOUBLE), vectors.astype(np.float64)
            number, of_row, of_vector = (e.operand(place, DType.DOUBLE) for place in range(3))
            product = to.matmul(wide, to.constant(np.ascontiguousarray(of_vectors.T)))
            squares = to.reduce("sum", to.map(number * number, wide), (1,), keepdims=True)
            between = e.maximum(of_row + of_vector - number * 2.0, 0.0)
            distance = e.cast(e.where(e.equal(of_row, math.inf), math.inf, between), DType.FLOAT)
            lengths = to.constant(np.square(of_vectors).sum(axis=1)[None])
            return to.map(e.exp(distance * -gamma), product, squares, lengths)
        product = to.matmul(x, to.constant(np.ascontiguousarray(vectors.T)))
        if self.kernel_type == "LINEAR":
            return product
        moved = element * gamma + shift
        if self.kernel_type == "SIGMOID":
            return to.map(e.tanh(moved), product)
        if degree in (1, 2, 3):
            power = moved
            for _ in range(int(degree) - 1):
                power = power * moved
            return to.map(power, product)
        return to.map(e.power(moved, degree), product)


def _float32(numbers: tuple[float, ...] | None) -> np.ndarray:
    return np.array(numbers or (), np.float32)


class SVMRegressor(_Machine):
    """A weighted sum of kernels with support vectors; if one_class, its sign."""

    n_supports: int = 0
    one_class: int = 0

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        self._check(context, x, self.n_supports, 1)
        if self.n_supports and len(self.coefficients or ()) != self.n_supports:
            raise InferenceError(f"{len(self.coefficients or ())} coefficients for {self.n_supports} support vectors")
        return TensorType(DType.FLOAT, (rows_and_features(x)[0], 1))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        rows, coefficients = as_rows(x).astype(np.float32), _float32(self.coefficients)
        if self.n_supports:
            rows = self._kernel(rows, _float32(self.support_vectors).reshape(self.n_supports, -1))
        y = (rows @ coefficients + _float32(self.rho)[0])[:, None]
        return np.where(y > 0, np.float32(1), np.float32(-1)) if self.one_class else y

    def lower(self, to: Lowering, x: Value) -> Value:
        rows, coefficients = lower_rows(to, x, DType.FLOAT), _float32(self.coefficients)
        if self.n_supports:
            rows = self._lower_kernel(to, rows, _float32(self.support_vectors).reshape(self.n_supports, -1))
        y = e.operand(0, DType.FLOAT) + float(_float32(self.rho)[0])
        return to.map(
            e.where(y > 0.0, e.constant(1.0, DType.FLOAT), -1.0) if self.one_class else y,
            to.matmul(rows, to.constant(coefficients[:, None])),
        )


class SVMClassifier(_Machine):
    """Each class against each other by kernels with support vectors, and the class that wins most often.

    With prob_a and prob_b the scores are probabilities of the classes, else the decisions between pairs, or, of two
    classes, the decision and its opposite. Without support vectors the classes' scores are sums of weighted features.
    """

    classlabels_ints: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None
    prob_a: tuple[float, ...] | None = None
    prob_b: tuple[float, ...] | None = None
    vectors_per_class: tuple[int, ...] | None = None

    @property
    def _classes(self) -> int:
        return len(self.classlabels_strings or self.classlabels_ints or ())

    @property
    def _vectors(self) -> int:
        return sum(self.vectors_per_class or ())

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return _pairs(self._classes)

    def infer(self, context: InferenceContext, x: Value) -> tuple[TensorType, TensorType]:
        classes, pairs = self._classes, len(self._pairs)
        if not classes:
            raise InferenceError("one of classlabels_ints and classlabels_strings is needed")
        self._check(context, x, self._vectors, classes)
        if self._vectors:
            wanted = {"vectors_per_class": classes, "coefficients": (classes - 1) * self._vectors, "rho": pairs}
            if self.prob_a:
                wanted |= {"prob_a": pairs, "prob_b": pairs}
            for name, count in wanted.items():
                if len(getattr(self, name) or ()) < count:
                    raise InferenceError(
                        f"{len(getattr(self, name) or ())} elements of {name} are given; {count} are needed"
                    )
        columns = classes
        if self._vectors and not self.prob_a:
            columns = pairs if classes > 2 else 2
        rows = rows_and_features(x)[0]
        kind = DType.STRING if self.classlabels_strings else DType.INT64
        return TensorType(kind, (rows,)), TensorType(DType.FLOAT, (rows, columns))

    def decompose(self, parts: Any, inputs: Sequence[Value | None], outputs: int) -> Sequence[Value] | None:
        """Names by the classes' numbers, probabilities by the pairs' decisions: both from generated code."""
        coupled = self._vectors > 0 and bool(self.prob_a) and self._classes > 1
        if not self.classlabels_strings and not coupled:
            return None
        changed: dict[str, Any] = {}
        if self.classlabels_strings:
            changed = {"classlabels_strings": None, "classlabels_ints": tuple(range(self._classes))}
        if coupled:
            changed |= {"prob_a": None, "prob_b": None, "post_transform": "NONE"}
        results = list(parts.add_many(SVMClassifier(**attributes_of(self) | changed), inputs, outputs))
        if coupled and outputs > 1:
            a, b = (tuple(numbers or ()) for numbers in (self.prob_a, self.prob_b))
            coupling = _PairProbabilities(classes=self._classes, prob_a=a, prob_b=b, post_transform=self.post_transform)
            results[1] = parts.add(coupling, results[1])
        return named(parts, self.classlabels_strings, results) if self.classlabels_strings else results

    def _decisions(self) -> np.ndarray:
        """What kernels with support vectors are multiplied by, for each pair of classes: [vectors, pairs]."""
        table = _float32(self.coefficients).reshape(-1, self._vectors)
        starts = np.concatenate([[0], np.cumsum(self.vectors_per_class or ())])
        matrix = np.zeros((self._vectors, len(self._pairs)), np.float32)
        for pair, (i, j) in enumerate(self._pairs):
            matrix[starts[i] : starts[i + 1], pair] = table[j - 1, starts[i] : starts[i + 1]]
            matrix[starts[j] : starts[j + 1], pair] = table[i, starts[j] : starts[j + 1]]
        return matrix

    def _votes(self) -> np.ndarray:
        """What the pairs' decisions, 1 or -1, are multiplied by to order classes by votes: [pairs, classes]."""
        matrix = np.zeros((len(self._pairs), self._classes), np.float32)
        for pair, (i, j) in enumerate(self._pairs):
            matrix[pair, i], matrix[pair, j] = 1, -1
        return matrix

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = as_rows(x).astype(np.float32)
        if not self._vectors:
            coefficients = _float32(self.coefficients).reshape(self._classes, -1)
            scores = rows @ coefficients.T + _float32(self.rho)[0]
            chosen = scores.argmax(axis=1)
            if self._classes == 2:
                chosen = _of_two(chosen, scores.max(axis=1, initial=-np.inf), self.coefficients)
            return self._labelled(chosen), transformed(scores, self.post_transform) if self._classes > 1 else scores
        kernels = self._kernel(rows, _float32(self.support_vectors).reshape(self._vectors, -1))
        decisions = kernels @ self._decisions() + _float32(self.rho)[: len(self._pairs)]
        chosen = (np.where(decisions > 0, 1, -1) @ self._votes()).argmax(axis=1)
        if self.prob_a:
            scores = probabilities(decisions, self._classes, self.prob_a, self.prob_b or ())
            return self._labelled(chosen), transformed(scores, self.post_transform)
        if self._classes > 2:
            return self._labelled(chosen), transformed(decisions, self.post_transform)
        return self._labelled(chosen), _both_sides(decisions, self.post_transform)

    def _labelled(self, chosen: np.ndarray) -> np.ndarray:
        return labelled(chosen, self.classlabels_ints or (), self.classlabels_strings or ())

    def lower(self, to: Lowering, x: Value) -> tuple[Value, ...]:
        if self.classlabels_strings or self.prob_a or self._classes < 2:
            return to.host(self, (x,))
        rows, labels = lower_rows(to, x, DType.FLOAT), self.classlabels_ints or ()
        element = e.operand(0, DType.FLOAT)
        if not self._vectors:
            matrix = to.constant(np.ascontiguousarray(_float32(self.coefficients).reshape(self._classes, -1).T))
            scores = to.map(element + float(_float32(self.rho)[0]), to.matmul(rows, matrix))
            chosen = lower_highest(to, scores)
            if self._classes == 2:
                chosen = self._lower_of_two(to, chosen, to.reduce("max", scores, (1,), keepdims=False))
            return lower_labelled(to, chosen, labels), lower_transformed(to, scores, self.post_transform)
        kernels = self._lower_kernel(to, rows, _float32(self.support_vectors).reshape(self._vectors, -1))
        decisions = to.map(
            element + e.operand(1, DType.FLOAT),
            to.matmul(kernels, to.constant(self._decisions())),
            to.constant(_float32(self.rho)[: len(self._pairs)]),
        )
        sides = to.map(e.where(element > 0.0, e.constant(1.0, DType.FLOAT), -1.0), decisions)
        chosen = lower_highest(to, to.matmul(sides, to.constant(self._votes())))
        if self._classes > 2:
            scores = lower_transformed(to, decisions, self.post_transform)
        else:
            opposed = self.post_transform == "NONE"
            both = to.concat([to.map(-element, decisions), decisions], 1) if opposed else None
            scores = both or lower_of_two(to, decisions, self.post_transform)
        return lower_labelled(to, chosen, labels), scores

    def _lower_of_two(self, to: Lowering, chosen: Value, highest: Value) -> Value:
        second, zero = e.constant(1, DType.INT64), e.operand(0, DType.INT64)
        score = e.operand(1, DType.FLOAT)
        above = score >= 0.5 if min(_float32(self.coefficients)) >= 0 else score > 0.0
        return to.map(e.where(above, second, zero), chosen, highest)


def _of_two(chosen: np.ndarray, highest: np.ndarray, coefficients: tuple[float, ...] | None) -> np.ndarray:
    """The class of two without support vectors: the second where the larger score is high, as onnxruntime has it."""
    above = highest >= 0.5 if min(_float32(coefficients)) >= 0 else highest > 0
    return np.where(above, 1, chosen)


def _both_sides(decisions: np.ndarray, transform: str) -> np.ndarray:
    """The decision between two classes [rows, 1], and its opposite before it."""
    if transform == "NONE":
        return np.concatenate([-decisions, decisions], axis=1)
    return of_two(decisions[:, 0], transform)


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


class _PairProbabilities(Operator):
    """No operator of ONNX: the probabilities of SVMClassifier from the decisions that it gives without them.

    Its steps depend on the data, so that it is evaluated by the host.
    """

    classes: int
    prob_a: tuple[float, ...]
    prob_b: tuple[float, ...]
    post_transform: str

    def infer(self, context: InferenceContext, decisions: Value) -> TensorType:
        return TensorType(DType.FLOAT, (decisions.shape[0], self.classes))

    def evaluate(self, decisions: np.ndarray) -> np.ndarray:
        own = decisions[:, 1:] if self.classes == 2 else decisions  # of two classes there is the opposite before it
        return transformed(probabilities(own, self.classes, self.prob_a, self.prob_b), self.post_transform)

    def lower(self, to: Lowering, decisions: Value) -> tuple[Value, ...]:
        return to.host(self, (decisions,))


def probabilities(decisions: np.ndarray, classes: int, prob_a: Sequence[float], prob_b: Sequence[float]) -> np.ndarray:
    """The classes' probabilities from the decisions between pairs [rows, pairs], by Platt's sigmoids of them."""
    pairs = _pairs(classes)
    a, b = (np.array(numbers, np.float32)[: len(pairs)] for numbers in (prob_a, prob_b))
    wins = np.clip(1 - logistic(decisions * a + b), np.float32(1e-7), np.float32(1 - 1e-7))
    r = np.zeros((len(decisions), classes, classes), np.float32)
    for pair, (i, j) in enumerate(pairs):
        r[:, i, j], r[:, j, i] = wins[:, pair], 1 - wins[:, pair]
    return coupled(r)


def coupled(r: np.ndarray) -> np.ndarray:
    """Probabilities of classes from those of each against each other, r [rows, classes, classes]: Wu, Lin and Weng's
    second method, with LIBSVM's steps and bound."""
    rows, classes, _ = r.shape
    diagonal = np.arange(classes)
    q = -np.swapaxes(r, 1, 2) * r
    q[:, diagonal, diagonal] = np.square(np.swapaxes(r, 1, 2)).sum(axis=2) - np.square(r[:, diagonal, diagonal])
    p = np.full((rows, classes), 1 / classes, np.float32)
    going = np.ones(rows, bool)
    for _ in range(100):
        qp = np.einsum("nij,nj->ni", q, p)
        pqp = (p * qp).sum(axis=1)
        going &= np.abs(qp - pqp[:, None]).max(axis=1, initial=0) >= np.float32(0.005) / classes
        if not going.any():
            break
        for t in range(classes):
            step = np.where(going, (pqp - qp[:, t]) / q[:, t, t], 0).astype(np.float32)
            p[:, t] += step
            pqp = (pqp + step * (step * q[:, t, t] + 2 * qp[:, t])) / (1 + step) / (1 + step)
            qp = (qp + step[:, None] * q[:, t, :]) / (1 + step[:, None])
            p /= 1 + step[:, None]
    return p
