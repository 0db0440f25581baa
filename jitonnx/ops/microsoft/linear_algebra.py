"""Distances between rows, and inverse matrices."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import widen
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.arithmetic import Sqrt, Sub
from jitonnx.ops.onnx.reduction import ReduceSumSquare
from jitonnx.ops.onnx.shape import Unsqueeze
from jitonnx.ops.parts import numbers


class CDist(Contributed):
    """The distances of all rows of A [M, N] from all of B [K, N], [M, K]; metric: euclidean, or sqeuclidean, its
    square.

    Differences are taken, so rows that are equal are exactly 0 apart.
    """

    metric: str = "sqeuclidean"

    def compose(self, parts: Parts, a: Value, b: Value) -> Value:
        if self.metric not in ("sqeuclidean", "euclidean"):
            raise InferenceError(f"metric is {self.metric!r}; sqeuclidean and euclidean are known")
        if len(a.shape) != 2 or len(b.shape) != 2 or not parts.context.demand_equal(a.shape[1], b.shape[1]):
            raise InferenceError(f"A is {a.type}, B is {b.type}; [M, N] and [K, N] are needed")
        rows, columns = (parts.add(Unsqueeze(), x, numbers(parts, axis)) for x, axis in ((a, 1), (b, 0)))
        squares = parts.add(ReduceSumSquare(keepdims=False), parts.add(Sub(), rows, columns), numbers(parts, 2))
        return squares if self.metric == "sqeuclidean" else parts.add(Sqrt(), squares)


class Inverse(Operator):
    """The inverses of square matrices, which the last two axes hold; NaN and infinities for singular ones."""

    domain = "com.microsoft"

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if len(x.shape) < 2 or not context.demand_equal(x.shape[-2], x.shape[-1]):
            raise InferenceError(f"{x.name!r} is {x.type}; square matrices are needed")
        return x.type

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        wide, size = widen(x), x.shape[-1]
        found = np.full_like(wide, np.nan).reshape(-1, size, size)
        for at, matrix in enumerate(wide.reshape(-1, size, size)):
            try:
                found[at] = np.linalg.inv(matrix)
            except np.linalg.LinAlgError:  # its elements stay NaN
                continue
        return found.reshape(x.shape).astype(x.dtype)

    def lower(self, to: Lowering, x: Value) -> tuple[Value, ...]:
        return to.host(self, [x])
