"""What random cases are drawn with: sizes, axes, types, arrays with edge values, and how these lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from jitonnx.ir.dtypes import COMPILED
from jitonnx.ir.schema import versions_of
from jitonnx.ops.registry import registry
from tests.ops.coverage import schemas
from tests.ops.harness import Case, case

T = TypeVar("T")
FLOATS = tuple(map(np.dtype, (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)))
NUMBERS = {f"tensor({dtype.text})": dtype.numpy for dtype in sorted(COMPILED)}
"""NumPy's types of what generated code computes with, by ONNX's text."""
SIZES = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33)
UNJUDGED = "no oracle"
"""The note of a case that nothing judges but the evaluation on NumPy."""
MOST = 4000
"""Elements of an array."""
SAME = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
"""The same examples in every run, and few of them, as each has kernels to compile."""
OTHERS = settings(max_examples=300, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
"""Other examples in every run."""


class Draw:
    """Hypothesis's `draw`, with words for what operators take."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw
        self.random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def pick(self, options: Sequence[T]) -> T:
        """One of these; the first is the simplest."""
        return options[0] if len(options) == 1 else self._draw(st.sampled_from(options))

    def integer(self, low: int, high: int) -> int:
        """One of low … high."""
        return self._draw(st.integers(low, high))

    def flag(self) -> bool:
        """True or false."""
        return self._draw(st.booleans())

    def shape(self, least: int = 0, most: int = 4, empty: bool = True, sizes: Sequence[int] = SIZES) -> tuple[int, ...]:
        """A shape of rank `least` to `most`; with `empty` now and then one without elements."""
        rank = self.integer(least, most)
        found = [self.pick(sizes) for _ in range(rank)]
        while np.prod(found, dtype=np.int64) > MOST:
            found[int(np.argmax(found))] = 2
        if rank and empty and self.integer(0, 9) == 9:
            found[self.integer(0, rank - 1)] = 0
        return tuple(found)

    def broadcast(self, count: int, most: int = 4) -> list[tuple[int, ...]]:
        """Shapes that broadcast to one another."""
        whole = self.shape(0, most)
        found = []
        for _ in range(count):
            kept = whole[self.integer(0, len(whole)) if self.flag() else 0 :]
            ones = [self.flag() and self.flag() for _ in kept]
            found.append(tuple(1 if one else size for one, size in zip(ones, kept, strict=True)))
        return found

    def axis(self, rank: int, end: int = 0) -> int:
        """One of `rank` axes (and `end` places behind them), from the front or from the back."""
        found = self.integer(0, rank + end - 1)
        return found - rank - end if self.flag() else found

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Some of `rank` axes, in any order, from the front or from the back."""
        order = self._draw(st.permutations(range(rank)))[: self.integer(min(least, rank), rank)]
        return [axis - rank if self.flag() else axis for axis in order]

    def permutation(self, rank: int) -> list[int]:
        return list(self._draw(st.permutations(range(rank))))

    def dtype(self, operator: str, position: int = 0, domain: str = "", of: Sequence[Any] = ()) -> np.dtype[Any]:
        """A type that an input of the operator's newest version may have, and that generated code computes with."""
        schema = newest_schema(operator, domain)
        allowed = schema.inputs[min(position, len(schema.inputs) - 1)].types
        found = [dtype for text, dtype in NUMBERS.items() if text in allowed and (not of or dtype in of)]
        return self.pick(found)

    def array(
        self, shape: Sequence[int], dtype: Any = np.float32, edges: bool = False, low: float = -4, high: float = 4
    ) -> np.ndarray:
        """Random elements: normal numbers of a standard deviation of 1.5, whole ones of low … high, truth values.

        edges: among them those at which operators err: signed zeros, infinities, NaN, and the ends of the type.
        """
        dtype, size = np.dtype(dtype), int(np.prod(shape, dtype=np.int64))
        if dtype.kind == "b":
            return self.random.random(shape) < 0.5
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            found = self.random.integers(max(int(low), info.min), min(int(high), info.max) + 1, size).astype(dtype)
            special = np.array([info.min, info.max, info.max - 1, 0, 1], dtype)
        else:
            found = (self.random.normal(size=size) * 1.5).astype(dtype)
            info = ml_dtypes.finfo(dtype)
            ends = [float(info.max), float(info.min), float(info.tiny), -float(info.tiny)]
            special = np.array([0.0, -0.0, 0.5, -0.5, 2.5, 1.0, -1.0, np.inf, -np.inf, np.nan, *ends]).astype(dtype)
        if edges and size:
            places = self.random.random(size) < 0.3
            found[places] = self.random.choice(special, int(places.sum()))
        return found.reshape(shape)

    def within(self, shape: Sequence[int], size: int, dtype: Any = np.int64) -> np.ndarray:
        """Indices of `size` places, also counted from the end."""
        found = self.random.integers(-size, size, shape) if size else np.zeros(shape)
        return found.astype(dtype)

    def known(self, *positions: int) -> tuple[int, ...]:
        """These inputs as constants, or none."""
        return positions if self.flag() else ()

    def laid_out(self, x: np.ndarray) -> np.ndarray:
        """The same elements in memory in another way: transposed, reversed, with gaps, or off their alignment."""
        way = self.integer(0, 7)
        if x.dtype == object or not x.size or not x.ndim or way > 4:
            return x
        if way == 0:
            return np.asfortranarray(x)
        if way == 1:
            return x[..., ::-1].copy()[..., ::-1]
        if way == 2:
            wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
            wide[..., ::2] = x
            return wide[..., ::2]
        if way == 3:
            axis = self.integer(0, x.ndim - 1)
            return np.ascontiguousarray(x.swapaxes(0, axis)).swapaxes(0, axis)
        room = np.zeros(x.nbytes + 1, np.uint8)[1:]
        room[:] = np.frombuffer(x.tobytes(), np.uint8)
        return room.view(x.dtype).reshape(x.shape)


def newest_schema(operator: str, domain: str = "") -> Any:
    """ONNX's schema of the newest version."""
    versions = schemas()[domain, operator]
    return versions[newest(operator, domain)]


def newest(operator: str, domain: str = "") -> int:
    """The newest version of an operator."""
    declaration = registry.find(domain, operator)
    assert declaration is not None
    return versions_of(declaration)[-1]


def node(operator: str, *inputs: Any, domain: str = "", **options: Any) -> Case:
    """A case of the operator's newest version that onnx's reference judges, unless it is said otherwise."""
    return case(operator, newest(operator, domain), *inputs, domain=domain, **{"by_reference": True, **options})


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def is_real(dtype: Any) -> bool:
    """Whether elements are of a floating type."""
    return np.dtype(dtype) in FLOATS
