"""Losses of classifiers: the negative logarithm of the probability of the right class."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import lower_halves, widen
from jitonnx.support.records import NamedTuple

_REDUCTIONS = ("none", "sum", "mean")


class _Picked(NamedTuple):
    """What belongs to the target classes; both in the shape of the target."""

    values: Value
    """The values of the target classes; of ignored targets those of class 0."""
    weights: Value | None
    """What losses are multiplied by, and divided by in all where they are averaged; None: 1."""


class _ClassLoss(Operator):
    """What both losses share: x [N, C, d...], target [N, d...] of classes, weight [C].

    Targets that equal ignore_index are not counted, and may be no class at all.
    """

    ignore_index: int | None = None
    reduction: str = "mean"

    def _infer_loss(self, context: InferenceContext, x: Value, target: Value, weight: Value | None) -> TensorType:
        if self.reduction not in _REDUCTIONS:
            raise InferenceError(f"reduction is {self.reduction!r}; one of {', '.join(_REDUCTIONS)} expected")
        if len(x.shape) < 2:
            raise InferenceError(f"{x.name!r} is {x.type}; it needs a batch axis and one of classes")
        expected = (x.shape[0], *x.shape[2:])
        if len(target.shape) != len(expected) or not all(map(context.demand_equal, target.shape, expected)):
            raise InferenceError(f"target {target.type} should have the shape {list(expected)}")
        if weight is not None and (len(weight.shape) != 1 or not context.demand_equal(weight.shape[0], x.shape[1])):
            raise InferenceError(f"weight {weight.type} should have the shape {[x.shape[1]]}")
        return TensorType(x.dtype, target.shape if self.reduction == "none" else ())

    def _evaluate_loss(self, x: np.ndarray, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """The loss of logarithms of probabilities x, which are float32 or float64."""
        ignored = np.zeros(target.shape, bool) if self.ignore_index is None else target == self.ignore_index
        classes = np.where(ignored, 0, target).astype(np.int64)
        if x.size == 0 and classes.size:
            raise ValueError(f"targets name classes, of which {x.shape} has none")
        picked = np.take_along_axis(x, np.expand_dims(classes, 1), 1).reshape(target.shape)
        factors = np.ones(target.shape, x.dtype) if weight is None else widen(weight)[classes]
        factors = np.where(ignored, x.dtype.type(0), factors)
        loss = np.where(ignored, x.dtype.type(0), -picked * factors)
        if self.reduction == "none":
            return loss
        return loss.sum() if self.reduction == "sum" else loss.sum() / factors.sum()

    def _pick(self, to: Lowering, x: Value, target: Value, weight: Value | None) -> _Picked:
        """The values of x that belong to the targets, and the targets' weights."""
        classes, shape = target, target.shape
        label = e.operand(0, target.dtype)
        if self.ignore_index is not None:
            classes = to.map(e.where(e.equal(label, self.ignore_index), 0, label), target)
        places = to.reshape(classes, (shape[0], 1, *shape[1:]))
        values = to.reshape(to.emit(c.GatherElements(1), (x, places), TensorType(x.dtype, places.shape)), shape)
        weights = None
        if weight is not None:
            weights = to.emit(c.Gather(0), (weight, classes), TensorType(weight.dtype, shape))
        if self.ignore_index is not None:
            factor = e.constant(1, x.dtype) if weights is None else e.operand(1, x.dtype)
            others = () if weights is None else (weights,)
            weights = to.map(e.where(e.equal(label, self.ignore_index), 0.0, factor), target, *others)
        return _Picked(values, weights)

    def _losses(self, to: Lowering, loss: e.Expr, operands: list[Value], target: Value, weights: Value | None) -> Value:
        """A loss by its operands, times weights; 0 where it is ignored, be it infinite."""
        operands = list(operands)
        if weights is not None:
            loss = loss * e.operand(len(operands), weights.dtype)
            operands.append(weights)
        if self.ignore_index is not None:
            loss = e.where(e.equal(e.operand(len(operands), target.dtype), self.ignore_index), 0.0, loss)
            operands.append(target)
        return to.map(loss, *operands)

    def _reduce(self, to: Lowering, losses: Value, weights: Value | None) -> Value:
        """Losses that are multiplied by their weights, summed up or averaged as `reduction` says."""
        axes = tuple(range(len(losses.shape)))
        if self.reduction == "none":
            return losses
        if self.reduction == "sum" or weights is None:
            return to.reduce("sum" if self.reduction == "sum" else "mean", losses, axes, keepdims=False)
        total, share = (to.reduce("sum", value, axes, keepdims=False) for value in (losses, weights))
        return to.map(e.operand(0, total.dtype) / e.operand(1, total.dtype), total, share)


class NegativeLogLikelihoodLoss(_ClassLoss):
    """-input[n, target[n, d...], d...], each times the weight of its class: as they are, summed up or averaged."""

    def infer(self, context: InferenceContext, x: Value, target: Value, weight: Value | None = None) -> TensorType:
        return self._infer_loss(context, x, target, weight)

    def evaluate(self, x: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        return np.asarray(self._evaluate_loss(widen(x), target, weight)).astype(x.dtype)

    @lower_halves
    def lower(self, to: Lowering, x: Value, target: Value, weight: Value | None = None) -> Value:
        picked = self._pick(to, x, target, weight)
        losses = self._losses(to, -e.operand(0, x.dtype), [picked.values], target, picked.weights)
        return self._reduce(to, losses, picked.weights)


class SoftmaxCrossEntropyLoss(_ClassLoss):
    """NegativeLogLikelihoodLoss of the logarithm of scores' softmax over the classes, which is the second output."""

    def infer(
        self, context: InferenceContext, x: Value, target: Value, weight: Value | None = None
    ) -> tuple[TensorType, TensorType]:
        return self._infer_loss(context, x, target, weight), x.type

    def evaluate(
        self, x: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        wide = widen(x)
        shifted = wide - wide.max(axis=1, keepdims=True, initial=-math.inf)
        logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        loss = self._evaluate_loss(logarithms, target, weight)
        return np.asarray(loss).astype(x.dtype), logarithms.astype(x.dtype)

    @lower_halves
    def lower(self, to: Lowering, x: Value, target: Value, weight: Value | None = None) -> Any:
        """Where nobody asks for the logarithms, each loss is that of the sum of exponentials, less the score."""
        score = e.operand(0, x.dtype)
        if to.wanted > 1:
            logarithms = to.emit(c.Softmax(1, log=True), (x,), x.type)
            picked = self._pick(to, logarithms, target, weight)
            losses = self._losses(to, -score, [picked.values], target, picked.weights)
            return self._reduce(to, losses, picked.weights), logarithms
        picked = self._pick(to, x, target, weight)
        total = to.reduce("log_sum_exp", x, (1,), keepdims=False)
        losses = self._losses(to, e.operand(1, x.dtype) - score, [picked.values, total], target, picked.weights)
        return (self._reduce(to, losses, picked.weights),)
