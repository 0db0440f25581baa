"""The type of a tensor as far as it is known before a run: element type, shape, and small integer contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

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


_assumptions: ContextVar[set[tuple[DimLike, DimLike]] | None] = ContextVar("assumptions", default=None)


@contextmanager
def collect_assumptions(into: set[tuple[DimLike, DimLike]]) -> Iterator[None]:
    """Within the block, `assume_equal` notes its pairs in `into`."""
    token = _assumptions.set(into)
    try:
        yield
    finally:
        _assumptions.reset(token)


def assume_equal(a: DimLike, b: DimLike) -> bool:
    """Take two dimensions to be equal, noting it where it is not certain; False if they cannot be."""
    if a == b or a - b == 0:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    noted = _assumptions.get()
    if noted is not None:
        noted.add((a, b))
    return True


def broadcast_shapes(*shapes: Sequence[DimLike]) -> Shape | None:
    """The shape that NumPy's broadcasting gives; None if the shapes do not fit.

    A variable dimension beside an integer above 1, or beside another variable, is assumed to equal it.
    """
    result: list[DimLike] = []
    for position in range(1, max(map(len, shapes), default=0) + 1):
        chosen: DimLike = 1
        for shape in shapes:
            dim = shape[-position] if position <= len(shape) else 1
            if dim == 1 or dim == chosen:
                continue
            if chosen == 1:
                chosen = dim
            elif not assume_equal(chosen, dim):
                return None
            elif isinstance(dim, int):
                chosen = dim
        result.append(chosen)
    return tuple(reversed(result))
