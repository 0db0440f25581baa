"""Types of values as far as they are known before a run: a tensor's element type and shape, sequences and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from jitonnx.ir.assumptions import assume_equal
from jitonnx.ir.dims import Dim, DimLike, known, product
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.records import dataclass

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


_settle: ContextVar[Callable[[Any, bool], None] | None] = ContextVar("settle", default=None)


@contextmanager
def settling(follow: Callable[[Any, bool], None]) -> Iterator[None]:
    """Within the block, `settle` calls `follow`."""
    token = _settle.set(follow)
    try:
        yield
    finally:
        _settle.reset(token)


_decides: ContextVar[bool] = ContextVar("decides", default=False)


@contextmanager
def deciding() -> Iterator[None]:
    """Within the block, comparisons of sizes that inputs leave open are decided by examples, which is assumed."""
    token = _decides.set(True)
    try:
        yield
    finally:
        _decides.reset(token)


def decides() -> bool:
    """Whether comparisons of sizes are to be decided."""
    return _decides.get()


def settle(value: Any, signed: bool) -> None:
    """Ask whoever infers to follow a small integer value's elements, as dimension variables where a run tells them.

    signed: the value itself does not become variables, as it may be negative; what it follows from may.
    """
    follow = _settle.get()
    if follow is not None:
        follow(value, signed)


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
