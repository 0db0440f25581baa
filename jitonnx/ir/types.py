"""The type of a tensor as far as it is known before a run: element type, shape, and small integer contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.assumptions import assume_equal
from jitonnx.ir.dims import Dim, DimLike, known, product
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.records import dataclass

Shape = tuple[DimLike, ...]


@dataclass(frozen=True)
class TensorType:
    """Element type and shape; shape None: not even the rank is known; dtype None: only a run can tell (`UNKNOWN`)."""

    dtype: DType | None
    shape: Shape | None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def static(self) -> bool:
        """Whether every dimension is a known integer."""
        return self.shape is not None and known(self.shape)

    @property
    def elements(self) -> DimLike:
        """How many elements there are. TypeError where the shape is not known."""
        if self.shape is None:
            raise TypeError("a tensor of unknown rank has no known number of elements")
        return product(self.shape)

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ",".join(map(str, self.shape))
        return f"{self.dtype.text if self.dtype else '?'}[{dims}]"


UNKNOWN = TensorType(None, None)
"""The type of what follows data-dependent shapes."""


def type_of(array: np.ndarray) -> TensorType:
    """The type of a NumPy array."""
    return TensorType(of_numpy(array.dtype), tuple(map(int, array.shape)))


def is_symbolic(array: np.ndarray) -> bool:
    """Whether an array of contents holds dimension expressions rather than numbers only."""
    return array.dtype == object and any(isinstance(element, Dim) for element in array.flat)


def contents_array(elements: Any, shape: tuple[int, ...]) -> np.ndarray:
    """An object array of integers and dimension expressions."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)


def broadcast_shapes(*shapes: Sequence[DimLike]) -> Shape | None:
    """The shape that NumPy's broadcasting gives; None if the shapes do not fit.

    A variable dimension beside an integer above 1, or beside another variable, is assumed to equal it, or to be 1.
    """
    result: list[DimLike] = []
    for position in range(1, max(map(len, shapes), default=0) + 1):
        chosen: DimLike = 1
        for shape in shapes:
            both = _broadcast(chosen, shape[-position] if position <= len(shape) else 1)
            if both is None:
                return None
            chosen = both
        result.append(chosen)
    return tuple(reversed(result))


def _broadcast(a: DimLike, b: DimLike) -> DimLike | None:
    """What two sizes broadcast to; None if they do not fit."""
    if b == 1 or a == b:
        return a
    if a == 1:
        return b
    if assume_equal(a, b):
        return b if isinstance(b, int) else a
    if assume_equal(b, 1):
        return a
    return b if assume_equal(a, 1) else None
