"""`Tensor` and `NamedTensors`: arrays under onnxruntime-genai's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.api.values import element_type
from jitonnx.ir.dtypes import DType

TYPES = {f"tensor({dtype.text})": dtype for dtype in DType}
"""Elements' types, by what a session calls tensors of them."""


class Tensor:
    """An array that is handed to a generator."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = np.ascontiguousarray(array)

    def as_numpy(self) -> np.ndarray:
        """The array, not copied."""
        return self._array

    def shape(self) -> list[int]:
        """Its sizes."""
        return list(self._array.shape)

    def type(self) -> int:
        """The type of its elements, as in onnx.TensorProto."""
        return int(element_type(self._array.dtype))

    def data(self) -> int:
        """The address of its memory."""
        address: int = self._array.__array_interface__["data"][0]
        return address

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._array, dtype, copy=copy)


class NamedTensors(dict[str, Tensor]):
    """Tensors by the names of a model's inputs."""
