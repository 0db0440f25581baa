"""Types of values as far as they are known before a run: a tensor's element type and shape, sequences and the like."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.dims import Dim, DimLike, known, product
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.support.records import dataclass

Shape = tuple[DimLike, ...]


class Type:
    """What is known of a value before a run. One that is no tensor has neither an element type nor a shape."""

    dtype: DType | None = None
    shape: Shape | None = None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def static(self) -> bool:
        """Whether it is a tensor of which every dimension is a known integer."""
        return self.shape is not None and known(self.shape)

    @property
    def elements(self) -> DimLike:
        """How many elements there are. TypeError where the shape is not known."""
        if self.shape is None:
            raise TypeError(f"a value of type {self} has no known number of elements")
        return product(self.shape)


@dataclass(frozen=True)
class TensorType(Type):
    """Element type and shape; shape None: not even the rank is known; dtype None: only a run can tell (`UNKNOWN`).

    While types are inferred a size may be None: only a run tells it. Who infers a graph puts a variable there.
    """

    dtype: DType | None
    shape: Shape | None

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ",".join(map(str, self.shape))
        return f"{self.dtype.text if self.dtype else '?'}[{dims}]"


@dataclass(frozen=True)
class SequenceType(Type):
    """A sequence of values of one type; at run time a list. A size of an element that is not the same for all is None.

    empty: it has no elements, whatever the type says of them.
    """

    element: Type
    empty: bool = False

    def __str__(self) -> str:
        return f"seq({self.element})"


@dataclass(frozen=True)
class OptionalType(Type):
    """A value of a type, or nothing; at run time the value or None."""

    element: Type

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True)
class MapType(Type):
    """A mapping from keys (integers or strings) to values of one type; at run time a dict."""

    key: DType
    value: Type

    def __str__(self) -> str:
        return f"map({self.key.text},{self.value})"


@dataclass(frozen=True)
class SparseTensorType(Type):
    """A tensor of which only some elements are stored; at run time a `SparseTensor`, which is handed on as it is."""

    element: DType
    sizes: Shape | None

    def __str__(self) -> str:
        dims = "?" if self.sizes is None else ",".join(map(str, self.sizes))
        return f"sparse({self.element.text}[{dims}])"


UNKNOWN = TensorType(None, None)
"""The type of what only a run can tell, not even its rank."""


def shapeless(type: Type) -> Type:
    """The type as it is where no shape is known, not even a rank."""
    if isinstance(type, SequenceType):
        return SequenceType(shapeless(type.element), type.empty)
    if isinstance(type, OptionalType):
        return OptionalType(shapeless(type.element))
    return TensorType(type.dtype, None) if isinstance(type, TensorType) else type


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
