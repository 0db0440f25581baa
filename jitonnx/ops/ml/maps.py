"""Maps, which are dicts at run time: what they are made of, and what becomes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.maps import Map
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.strings import strings_of
from jitonnx.ir.types import MapType, SequenceType, TensorType


def _map(value: Value) -> tuple[DType, DType]:
    """The types of a map's keys and values."""
    if not isinstance(value.type, MapType) or not isinstance(value.type.value, TensorType):
        raise InferenceError(f"{value.name!r} is {value.type}; a map is needed")
    dtype = value.type.value.dtype
    assert dtype is not None
    return value.type.key, dtype


class ZipMap(Operator):
    """A map from the classes' labels to each row's scores."""

    domain = "ai.onnx.ml"

    classlabels_int64s: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None

    def _labels(self) -> tuple[Any, ...]:
        if bool(self.classlabels_int64s) == bool(self.classlabels_strings):
            raise InferenceError("one of classlabels_int64s and classlabels_strings is needed")
        return self.classlabels_strings or self.classlabels_int64s or ()

    def infer(self, context: InferenceContext, x: Value) -> SequenceType:
        labels = self._labels()
        if len(x.shape) not in (1, 2):
            raise InferenceError(f"{x.name!r} is {x.type}; rows of scores, or those of one row, are needed")
        if not context.demand_equal(x.shape[-1], len(labels)):
            raise InferenceError(f"{x.name!r} is {x.type}; there are {len(labels)} labels")
        key = DType.STRING if self.classlabels_strings else DType.INT64
        return SequenceType(MapType(key, TensorType(DType.FLOAT, ())))

    def order(self) -> tuple[list[int], list[Any]]:
        """The places of the labels in the order in which maps have them, and the labels in that order."""
        labels = self._labels()
        order = sorted(range(len(labels)), key=labels.__getitem__)
        return order, [labels[place] for place in order]

    def evaluate(self, x: np.ndarray) -> tuple[list[dict[Any, float]]]:
        order, names = self.order()
        if x.shape[-1] != len(names):
            raise ValueError(f"rows of {x.shape[-1]} scores for {len(names)} labels")
        rows = x.reshape(-1, len(names))[:, order].tolist()
        return ([dict(zip(names, row, strict=True)) for row in rows],)


_CASTS = {"TO_FLOAT": DType.FLOAT, "TO_STRING": DType.STRING, "TO_INT64": DType.INT64}


class CastMap(Operator):
    """A row of a map's values: in the order of their keys, or, from a sparse map, each at the place that is its key."""

    domain = "ai.onnx.ml"

    cast_to: str = "TO_FLOAT"
    map_form: str = "DENSE"
    max_map: int = 1

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        key, value = _map(x)
        if key is not DType.INT64 or value not in (DType.STRING, DType.FLOAT):
            raise InferenceError(f"{x.name!r} is {x.type}; map(int64,string) or map(int64,float) is needed")
        if self.cast_to not in _CASTS or self.map_form not in ("DENSE", "SPARSE"):
            raise InferenceError(f"no cast_to {self.cast_to!r} with map_form {self.map_form!r}")
        return TensorType(_CASTS[self.cast_to], (1, self.max_map if self.map_form == "SPARSE" else None))  # type: ignore[arg-type]

    infer_open = infer

    def evaluate(self, x: dict[int, Any]) -> np.ndarray:
        keys = sorted(x) if self.map_form == "DENSE" else range(self.max_map)
        if self.map_form == "SPARSE" and x and min(x) < 0:
            raise ValueError(f"a sparse map has the key {min(x)}; keys are places, from 0 on")
        values = [self._cast(x[key]) if key in x else None for key in keys]
        if self.cast_to == "TO_STRING":
            return strings_of(["0.f" if value is None else value for value in values], (1, len(values)))
        dtype = _CASTS[self.cast_to].numpy
        return np.array([[0 if value is None else value for value in values]], dtype)

    def _cast(self, value: Any) -> Any:
        if self.cast_to == "TO_FLOAT":
            return float(value)
        if self.cast_to == "TO_INT64":
            return int(value)
        return value if isinstance(value, str) else f"{float(value):.6f}"


class DictVectorizer(Operator):
    """A row of a map's values, one for each word of a vocabulary; 0 for words that the map does not have."""

    domain = "ai.onnx.ml"

    int64_vocabulary: tuple[int, ...] | None = None
    string_vocabulary: tuple[str, ...] | None = None

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        key, value = _map(x)
        if bool(self.int64_vocabulary) == bool(self.string_vocabulary):
            raise InferenceError("one of int64_vocabulary and string_vocabulary is needed")
        if key is not (DType.STRING if self.string_vocabulary else DType.INT64):
            raise InferenceError(f"{x.name!r} is {x.type}; the vocabulary has other keys")
        return TensorType(value, (1, len(self.string_vocabulary or self.int64_vocabulary or ())))

    def evaluate(self, x: dict[Any, Any]) -> np.ndarray:
        words = self.string_vocabulary or self.int64_vocabulary or ()
        dtype = x.dtype if isinstance(x, Map) else DType.FLOAT  # maps that operators make have scores for values
        if dtype is DType.STRING:
            return strings_of([x.get(word, "") for word in words], (1, len(words)))
        return np.array([[x.get(word, 0) for word in words]], dtype.numpy)
