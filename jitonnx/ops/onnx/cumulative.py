"""Sums and products along an axis."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import is_narrow, lower_halves, normalize_axis


def cumulate(x: np.ndarray, *, kind: str, axis: int, exclusive: bool, reverse: bool) -> np.ndarray:
    """Sums or products of all elements up to each one."""
    x = np.flip(x, axis) if reverse else x
    y = np.cumsum(x, axis, x.dtype) if kind == "sum" else np.cumprod(x, axis, x.dtype)
    if exclusive:
        moved = np.full_like(y, 0 if kind == "sum" else 1)
        np.moveaxis(moved, axis, 0)[1:] = np.moveaxis(y, axis, 0)[:-1]
        y = moved
    return np.flip(y, axis) if reverse else y


class _Cumulative(Operator):
    """Goes along the axis that input 1 names; `exclusive` leaves each element itself out, `reverse` begins at the
    end."""

    kind: ClassVar[c.CumulationKind]

    exclusive: int = 0
    reverse: int = 0

    def infer(self, context: InferenceContext, x: Value, axis: Value) -> TensorType:
        if not x.shape:
            raise InferenceError("a scalar has no axis to go along")
        if axis.constant is not None:
            normalize_axis(int(axis.constant.reshape(())), len(x.shape))
        return x.type

    def evaluate(self, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
        along, wide = normalize_axis(int(axis.reshape(())), x.ndim), x.astype(np.float32) if is_narrow(x.dtype) else x
        options = {"exclusive": bool(self.exclusive), "reverse": bool(self.reverse)}
        return cumulate(wide, kind=self.kind, axis=along, **options).astype(x.dtype)

    @lower_halves
    def lower(self, to: Lowering, x: Value, axis: Value) -> Value:
        if axis.constant is None:
            return to.host(self, (x, axis))[0]
        along = normalize_axis(int(axis.constant.reshape(())), len(x.shape))
        return to.emit(c.Cumulate(self.kind, along, bool(self.exclusive), bool(self.reverse)), (x,), x.type)


class CumSum(_Cumulative):
    """Sums of all elements up to each one along an axis."""

    kind = "sum"


class CumProd(_Cumulative):
    """Products of all elements up to each one along an axis."""

    kind = "prod"
