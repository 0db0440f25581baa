"""Triangles of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType


class Trilu(Operator):
    """The upper (or lower) triangle of the last two axes, from diagonal `k` on; zeros elsewhere."""

    upper: int = 1

    def infer(self, context: InferenceContext, x: Value, k: Value | None = None) -> TensorType:
        if len(x.shape) < 2:
            raise InferenceError(f"{x.type} has no last two axes")
        return x.type

    def evaluate(self, x: np.ndarray, k: np.ndarray | None = None) -> np.ndarray:
        offset = 0 if k is None else int(k.reshape(()))
        keep = np.tri(x.shape[-2], x.shape[-1], offset - 1 if self.upper else offset, dtype=bool)
        empty: Any = "" if x.dtype == object else x.dtype.type(0)
        return np.where(~keep if self.upper else keep, x, empty).astype(x.dtype)

    def lower(self, to: Lowering, x: Value, k: Value | None = None) -> Value:
        rank, operands = len(x.shape), [x]
        offset: e.Expr = e.constant(0, DType.INT64)
        if k is not None and k.constant is not None:
            offset = e.constant(k.constant.item(), DType.INT64)
        elif k is not None:
            operands.append(to.reshape(k, ()))
            offset = e.operand(1, DType.INT64)
        difference = e.index(rank - 1) - e.index(rank - 2)
        keep = difference >= offset if self.upper else difference <= offset
        return to.map(e.where(keep, e.operand(0, x.dtype), 0), *operands)
