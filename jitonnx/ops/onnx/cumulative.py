"""Sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import is_narrow, lower_halves, normalize_axis


class _Cumulative(Operator):
    """Goes along the axis that input 1 names; `exclusive` leaves each element itself out, `reverse` begins at the
    end."""

    function: ClassVar[Callable[..., np.ndarray]]
    neutral: ClassVar[int]
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
        along = normalize_axis(int(axis.reshape(())), x.ndim)
        data = np.flip(x, along) if self.reverse else x
        wide = data.astype(np.float32) if is_narrow(x.dtype) else data
        total = type(self).function(wide, axis=along, dtype=wide.dtype)
        if self.exclusive:
            first = [slice(0, 1) if position == along else slice(None) for position in range(x.ndim)]
            rest = [slice(0, -1) if position == along else slice(None) for position in range(x.ndim)]
            start = np.full_like(total[tuple(first)], self.neutral)
            total = np.concatenate([start, total[tuple(rest)]], along)
        return (np.flip(total, along) if self.reverse else total).astype(x.dtype)

    @lower_halves
    def lower(self, to: Lowering, x: Value, axis: Value) -> Value:
        if axis.constant is None:
            return to.host(self, (x, axis))[0]
        along = normalize_axis(int(axis.constant.reshape(())), len(x.shape))
        return to.emit(c.Cumulate(self.kind, along, bool(self.exclusive), bool(self.reverse)), (x,), x.type)


class CumSum(_Cumulative):
    """Sums of all elements up to each one along an axis."""

    function = staticmethod(np.cumsum)
    neutral = 0
    kind = "sum"


class CumProd(_Cumulative):
    """Products of all elements up to each one along an axis."""

    function = staticmethod(np.cumprod)
    neutral = 1
    kind = "prod"
