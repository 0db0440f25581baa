"""Attention with graphs that change its scores and weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from jitonnx.ir.bodies import Bodies
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType, Type
from jitonnx.ops.base import widen
from jitonnx.ops.onnx.control_flow import Body


class FlexAttention(Operator):
    """softmax(score_mod(scale * Q Kᵀ)) V with graphs that change the scores, and the weights before they meet V.

    Q [B, H, S, D], K [B, Hkv, T, D], V [B, Hkv, T, Dv]; head h of Q meets head h // (H / Hkv) of K and V. The graphs
    take and give [B, H, S, T] of the softmax's type: softmax_precision, by default float, or double for double.
    """

    domain = "ai.onnx.preview"
    bodies = ("score_mod?", "prob_mod?")

    scale: float | None = None
    softmax_precision: int | None = None

    def precision(self, dtype: DType) -> DType:
        """The type in which scores become weights."""
        if self.softmax_precision is None:
            return DType.DOUBLE if dtype is DType.DOUBLE else DType.FLOAT
        return DType(self.softmax_precision)

    def scores(self, context: InferenceContext, q: Value, k: Value, v: Value) -> TensorType:
        """The type of the scores. InferenceError for inputs that do not belong together."""
        if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
            raise InferenceError(f"Q, K and V must have 4 axes: {q.type}, {k.type} and {v.type} given")
        pairs = ((q.shape[0], k.shape[0]), (q.shape[3], k.shape[3]), *zip(k.shape[:3], v.shape[:3], strict=True))
        if not all(context.demand_equal(a, b) for a, b in pairs):
            raise InferenceError(f"Q {q.type}, K {k.type} and V {v.type} do not fit each other")
        if not context.demand_divisible(q.shape[1], k.shape[1]):
            raise InferenceError(f"{q.shape[1]} heads of Q do not divide among {k.shape[1]} of K and V")
        return TensorType(self.precision(q.dtype), (*q.shape[:3], k.shape[2]))

    def body_inputs(self, context: InferenceContext, index: int, q: Value, k: Value, v: Value) -> list[Type]:
        return [self.scores(context, q, k, v)]

    def infer_bodies(self, bodies: Bodies, q: Value, k: Value, v: Value) -> TensorType:
        scores = self.scores(bodies.context, q, k, v)
        for index, name in enumerate(self.bodies):
            results = bodies.infer(index, [scores])
            if len(results) != 1 or results[0].dtype is not scores.dtype:
                raise InferenceError(f"{name[:-1]} gives {', '.join(map(str, results))}; {scores} expected")
            shape = results[0].shape
            if shape is not None and not (
                len(shape) == 4 and all(map(bodies.context.demand_equal, shape, scores.shape or ()))
            ):
                raise InferenceError(f"{name[:-1]} gives {results[0]}; {scores} expected")
        return TensorType(q.dtype, (*q.shape[:3], v.shape[3]))

    def evaluate(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, bodies: Sequence[Body]) -> np.ndarray:
        precise = self.precision(of_numpy(q.dtype)).numpy
        groups = q.shape[1] // k.shape[1]
        keys, values = (np.repeat(widen(x), groups, 1) for x in (k, v))
        scale = 1 / math.sqrt(max(q.shape[3], 1)) if self.scale is None else self.scale
        scores = (widen(q) @ keys.swapaxes(2, 3) * keys.dtype.type(scale)).astype(precise)
        (scores,) = bodies[0](scores)
        wide = widen(scores)
        exponentials = np.exp(wide - wide.max(axis=-1, keepdims=True, initial=-np.inf))
        (weights,) = bodies[1]((exponentials / exponentials.sum(axis=-1, keepdims=True)).astype(precise))
        return (widen(weights) @ values.astype(widen(weights).dtype)).astype(q.dtype)
