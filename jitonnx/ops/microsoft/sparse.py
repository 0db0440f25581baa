"""Products of sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import SparseTensorType, TensorType


class SparseToDenseMatMul(Operator):
    """alpha * A @ B of a sparse matrix A [M, K], in coordinates or rows, and B [K, N]; transA, transB turn them first.
    alpha is for float32 alone, as in onnxruntime.

    Evaluated by the host, as sparse tensors are Python's objects: a product and a sum for each stored element and
    column.
    """

    domain = "com.microsoft"

    alpha: float = 1.0
    transA: bool = False
    transB: bool = False

    def infer(self, context: InferenceContext, a: Value, b: Value) -> TensorType:
        assert isinstance(a.type, SparseTensorType)
        if len(b.shape) != 2:
            raise InferenceError(f"B is {b.type}; a matrix is needed")
        sizes = a.type.sizes
        if sizes is not None and len(sizes) != 2:
            raise InferenceError(f"A is {a.type}; a matrix is needed")
        inner, columns = reversed(b.shape) if self.transB else b.shape
        rows: Any = None
        if sizes is not None:
            rows, own = reversed(sizes) if self.transA else sizes
            if not context.demand_equal(own, inner):
                turned = f"transA {self.transA:d}, transB {self.transB:d}"
                raise InferenceError(f"A is {a.type}, B {b.type}, {turned}: they do not fit")
        return TensorType(b.dtype, (rows, columns))

    def infer_open(self, a: Value, b: Value) -> TensorType:
        rows: Any = None
        return TensorType(b.dtype, (rows, rows))

    def evaluate(self, a: Any, b: np.ndarray) -> np.ndarray:
        rows, columns = a.coordinates()
        shape = tuple(a.dense_shape())
        if self.transA:
            rows, columns, shape = columns, rows, shape[::-1]
        b = b.T if self.transB else b
        if len(shape) != 2 or shape[1] != b.shape[0]:
            raise ValueError(f"matrices {list(shape)} and {list(b.shape)} have no product")
        y = np.zeros((shape[0], b.shape[1]), b.dtype)
        np.add.at(y, rows, a.values().reshape(-1, 1) * b[columns])
        return y * np.float32(self.alpha) if y.dtype == np.float32 else y
