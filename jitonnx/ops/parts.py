"""Parts that many composite operators have: conversions of types, and axes that are added and exchanged."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.graph import Value
from jitonnx.ops.composite import Parts
from jitonnx.ops.onnx.cast import Cast


def as_type(parts: Parts, x: Value, dtype: DType) -> Value:
    """x, converted unless it is of the type."""
    return x if x.dtype is dtype else parts.add(Cast(to=int(dtype)), x)


def widened(parts: Parts, x: Value) -> Value:
    """x, as float32 if it is of half precision: what several parts compute is rounded once, at the end."""
    return as_type(parts, x, DType.FLOAT) if x.dtype in HALVES else x


def numbers(parts: Parts, *values: Any) -> Value:
    """A constant vector of int64: axes, shapes, positions."""
    return parts.constant(np.array(values, np.int64))


def scalar(parts: Parts, value: Any, x: Value) -> Value:
    """A constant scalar of the element type of `x`."""
    return parts.constant(np.asarray(value, x.dtype.numpy))
