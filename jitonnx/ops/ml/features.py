"""Features brought into the form that models take: scaled, completed, chosen, put side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, minimum
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType


class Binarizer(Operator):
    """1 where an element is above the threshold, else 0."""

    domain = "ai.onnx.ml"

    threshold: float = 0.0

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        return TensorType(x.dtype, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return (x > np.float32(self.threshold)).astype(x.dtype)

    def lower(self, to: Lowering, x: Value) -> Value:
        wide = DType.DOUBLE if x.dtype.is_integer else x.dtype
        element = e.cast(e.operand(0, x.dtype), wide)
        return to.map(e.cast(element > float(np.float32(self.threshold)), x.dtype), x)


def _columns(x: Value) -> DimLike:
    """How many features an input has along its last axis, of the one or two that it has."""
    if len(x.shape) not in (1, 2):
        raise InferenceError(f"{x.name!r} is {x.type}; rows of features, or the features of one row, are needed")
    return x.shape[-1]


def _check_length(context: InferenceContext, count: int, x: Value, what: str) -> None:
    """InferenceError unless a list has one element, or one for each feature."""
    if count != 1 and not context.demand_equal(_columns(x), count):
        raise InferenceError(f"{x.name!r} is {x.type}; {count} {what} are given: one, or one a feature, are needed")


class Imputer(Operator):
    """Elements that are equal to a value, which may be NaN, replaced; by one value, or one for each feature."""

    domain = "ai.onnx.ml"

    imputed_value_floats: tuple[float, ...] | None = None
    imputed_value_int64s: tuple[int, ...] | None = None
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0

    def _values(self, dtype: np.dtype) -> tuple[np.ndarray, np.generic]:
        """What is put in, and what it is put in the place of, in the type of the elements."""
        floats = bool(self.imputed_value_floats)
        if floats == bool(self.imputed_value_int64s):
            raise InferenceError("one of imputed_value_floats and imputed_value_int64s is needed")
        if floats != (dtype.kind == "f"):
            raise InferenceError(f"elements of {dtype} are replaced by values of the other kind")
        if floats:
            return np.array(self.imputed_value_floats, np.float32).astype(dtype), dtype.type(
                np.float32(self.replaced_value_float)
            )
        return np.array(self.imputed_value_int64s, np.int64).astype(dtype), dtype.type(self.replaced_value_int64)

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        _check_length(context, len(self._values(x.dtype.numpy)[0]), x, "imputed values")
        return TensorType(x.dtype, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        values, replaced = self._values(x.dtype)
        return np.where((x != x) if replaced != replaced else (x == replaced), values, x)

    def lower(self, to: Lowering, x: Value) -> Value:
        values, replaced = self._values(x.dtype.numpy)
        element = e.operand(0, x.dtype)
        missing = e.isnan(element) if replaced != replaced else e.equal(element, replaced.item())
        return to.map(e.where(missing, e.operand(1, x.dtype), element), x, to.constant(values))


class Scaler(Operator):
    """(x - offset) * scale, in float32; one offset and scale for all features, or one for each."""

    domain = "ai.onnx.ml"

    offset: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    def _factors(self) -> tuple[np.ndarray, np.ndarray]:
        offset, scale = (np.array(given or (), np.float32) for given in (self.offset, self.scale))
        offset = offset if self.offset else np.zeros_like(scale)
        scale = scale if self.scale else np.ones_like(offset)
        if len(offset) != len(scale) or not len(scale):
            raise InferenceError(f"{len(offset)} offsets and {len(scale)} scales are given; as many are needed")
        return offset, scale

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        _check_length(context, len(self._factors()[0]), x, "offsets and scales")
        return TensorType(DType.FLOAT, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        factors: tuple[Any, Any] = self._factors()
        wide: Any = x if x.dtype.kind == "f" else x.astype(np.float32)
        result: np.ndarray = ((wide - factors[0]) * factors[1]).astype(np.float32)
        return result

    def lower(self, to: Lowering, x: Value) -> Value:
        wide = DType.DOUBLE if x.dtype is DType.DOUBLE else DType.FLOAT
        offset, scale = (to.constant(factor.astype(wide.numpy)) for factor in self._factors())
        result = (e.cast(e.operand(0, x.dtype), wide) - e.operand(1, wide)) * e.operand(2, wide)
        return to.map(e.cast(result, DType.FLOAT), x, offset, scale)


class Normalizer(Operator):
    """Each row divided by its largest element, the sum of its absolute values, or its Euclidean length.

    What would be divided by 0 is left as it is. norm: MAX, L1 or L2. As onnxruntime has it, MAX is the largest
    element itself, not its absolute value.
    """

    domain = "ai.onnx.ml"

    norm: str = "MAX"

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        _columns(x)
        if self.norm not in ("MAX", "L1", "L2"):
            raise InferenceError(f"norm is {self.norm!r}: MAX, L1 and L2 are allowed")
        return TensorType(DType.FLOAT, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        wide: Any = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
        if self.norm == "MAX":
            norm = wide.max(axis=-1, keepdims=True, initial=np.finfo(np.float32).min)
        elif self.norm == "L1":
            norm = np.abs(wide).sum(axis=-1, keepdims=True)
        else:
            norm = np.sqrt((wide * wide).sum(axis=-1, keepdims=True))
        return np.where(norm == 0, wide, wide / norm).astype(np.float32)

    def lower(self, to: Lowering, x: Value) -> Value:
        wide = DType.DOUBLE if x.dtype is DType.DOUBLE else DType.FLOAT
        elements = to.cast(x, wide)
        kinds: dict[str, c.ReductionKind] = {"MAX": "max", "L1": "l1", "L2": "l2"}
        norm = to.reduce(kinds[self.norm], elements, (len(x.shape) - 1,), keepdims=True)
        element, size = e.operand(0, wide), e.operand(1, wide)
        return to.map(e.cast(e.where(e.equal(size, 0.0), element, element / size), DType.FLOAT), elements, norm)


class ArrayFeatureExtractor(Operator):
    """The elements of each row at the places that Y names. A vector is one row."""

    domain = "ai.onnx.ml"

    def infer(self, context: InferenceContext, x: Value, y: Value) -> TensorType:
        if not x.shape:
            raise InferenceError(f"{x.name!r} is a scalar")
        return TensorType(x.dtype, (*(x.shape[:-1] or (1,)), y.type.elements))

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        places = y.ravel()
        if places.size and (places.min() < 0 or places.max() >= x.shape[-1]):
            raise ValueError(f"an index is outside of rows of {x.shape[-1]} elements")
        return np.take(x if x.ndim > 1 else x[None], places, axis=-1)

    def lower(self, to: Lowering, x: Value, y: Value) -> Value:
        rows = x if len(x.shape) > 1 else to.reshape(x, (1, *x.shape))
        places = to.reshape(y, (y.type.elements,))
        return to.emit(c.Gather(len(rows.shape) - 1), (rows, places), to.type)


class FeatureVectorizer(Operator):
    """All inputs' features side by side, as float32; each cut off, or filled up with zeros, to a given number."""

    domain = "ai.onnx.ml"

    inputdimensions: tuple[int, ...] | None = None

    def _wanted(self, inputs: tuple[Value, ...]) -> list[DimLike]:
        """How many features each input gives: by default all that it has."""
        if self.inputdimensions is None:
            return [_columns(x) for x in inputs]
        if len(self.inputdimensions) != len(inputs):
            raise InferenceError(f"{len(self.inputdimensions)} inputdimensions are given for {len(inputs)} inputs")
        return list(self.inputdimensions)

    def infer(self, context: InferenceContext, *inputs: Value) -> TensorType:
        if not inputs:
            raise InferenceError("at least one input is needed")
        rows = [x.shape[0] if len(x.shape) == 2 else 1 for x in inputs]
        if not all(context.demand_equal(rows[0], other) for other in rows[1:]):
            raise InferenceError(f"inputs have different numbers of rows: {', '.join(str(x.type) for x in inputs)}")
        width: DimLike = sum(self._wanted(inputs))
        return TensorType(DType.FLOAT, (rows[0], width))

    def evaluate(self, *inputs: np.ndarray) -> np.ndarray:
        rows = [x if x.ndim == 2 else x[None] for x in inputs]
        widths = self.inputdimensions or [x.shape[1] for x in rows]
        parts = []
        for x, width in zip(rows, widths, strict=True):
            part = np.zeros((len(x), width), np.float32)
            part[:, : x.shape[1]] = x[:, :width]
            parts.append(part)
        return np.concatenate(parts, axis=1)

    def lower(self, to: Lowering, *inputs: Value) -> Value:
        parts = []
        for x, width in zip(inputs, self._wanted(inputs), strict=True):
            part = to.cast(to.reshape(x, (1, x.shape[0])) if len(x.shape) == 1 else x, DType.FLOAT)
            rows, columns = part.shape
            kept = minimum(columns, width)
            part = to.slice(part, (0, 0), (1, 1), (rows, kept))
            if kept != width:
                parts.append(part)
                part = to.fill(e.constant(0.0, DType.FLOAT), (rows, width - kept))
            parts.append(part)
        return to.concat(parts, 1) if len(parts) > 1 else parts[0]
