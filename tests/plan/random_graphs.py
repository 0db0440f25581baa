"""Random graphs for Hypothesis, written as Python text: what a failing test prints can be pasted and run.

A graph grows by steps. Each step writes a line such as `v3 = b.op(Add(), v1, data(7, 4))`, which is executed at once,
so that the next one knows all types. Some inputs have a first axis of variable size; constants then have 1 there, and
nothing counts its elements, so that the graph makes sense for any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from jitonnx.ir.dims import Dim
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ops.registry import registry
from tests.passes.graphs import Build

LARGEST = 3000
"""Elements of a value: enough for every vector width and tail, few enough to be quick."""
SIZES = (
    (2, 3, 4),
    (5, 17),
    (2, 3, 9, 10),
    (33,),
    (1, 20, 6, 5),
    (3, 1, 18),
    (1, 8, 7),
    (),
    (4, 16),
    (2, 4, 5, 3),
    (40, 3),
)
EMPTY = ((2, 0, 3), (0, 5), (3, 4, 0, 2))
INTEGERS = (DType.INT64, DType.INT32, DType.UINT8, DType.INT8)
VARIABLE, SIZE = "n", 3
"""The variable axis, and its size in a graph's own feeds."""


def data(seed: int, *shape: int, dtype: str = "float32") -> np.ndarray:
    """Numbers that are the same in every process: floats off zero, small integers, or truth values."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        low = -4 if np.dtype(dtype).kind == "i" else 0
        return random.integers(low, 5, shape).astype(dtype)
    return (random.choice([-1, 1], shape) * random.uniform(0.25, 1.5, shape)).astype(dtype)


NAMES: dict[str, Any] = {operator.name: operator for operator in registry if not operator.domain}
NAMES |= {"np": np, "data": data}


@dataclass(frozen=True)
class Recipe:
    """A graph as text. `build` makes it anew each time."""

    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(["b = Build()", *self.lines])

    def build(self) -> Build:
        """The graph and its feeds."""
        b = Build()
        exec("\n".join(self.lines), {**NAMES, "b": b})
        return b

    def feeds(self, size: int) -> dict[str, np.ndarray]:
        """Feeds with another size of the variable axis."""
        build = self.build()
        found = {}
        for position, value in enumerate(build.graph.inputs):
            given = build.feeds[value.name]
            shape = [size if isinstance(dim, Dim) else dim for dim in value.shape]
            found[value.name] = data(1000 + size + position, *shape, dtype=given.dtype.name)
        return found


class Author:
    """A graph under construction."""

    def __init__(self, draw: st.DrawFn, variable: bool, real: str = "float32") -> None:
        self.draw, self.variable, self.build = draw, variable, Build()
        self.real = real
        self.lines: list[str] = []
        self.names: dict[str, Any] = {**NAMES, "b": self.build}
        self.values: list[str] = []

    # ------------------------------------------------------------ drawing

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def value(self, accept: Callable[[Value], bool] = lambda value: True, *dtypes: DType) -> str | None:
        """A value of the graph's real numbers, or of one of `dtypes`; one of the newest."""
        allowed = dtypes or (of_numpy(np.dtype(self.real)),)
        fitting = [name for name in reversed(self.values) if self[name].dtype in allowed and accept(self[name])]
        return self.pick(fitting[:5]) if fitting else None

    def integer(self, accept: Callable[[Value], bool] = lambda value: True) -> str | None:
        """A value of integers."""
        return self.value(accept, *INTEGERS)

    def scalar(self, number: float) -> str:
        """The text of a real number."""
        return f"np.{self.real}({number})"

    def draw_permutation(self, size: int) -> list[int]:
        return self.draw(st.permutations(range(size)))

    def __getitem__(self, name: str) -> Value:
        return self.names[name]

    def shape(self, name: str) -> tuple[Any, ...]:
        """The sizes; None for one that is variable."""
        return tuple(None if isinstance(dim, Dim) else dim for dim in self[name].shape)

    def axes(self, name: str) -> list[int]:
        """The axes of fixed size, but those without elements."""
        return [axis for axis, size in enumerate(self.shape(name)) if size]

    # ------------------------------------------------------------ writing

    def write(self, line: str) -> None:
        self.lines.append(line)
        exec(line, self.names)

    def input(self, shape: Sequence[int], dtype: str = "") -> None:
        name, seed = f"x{len(self.values)}", len(self.values) + 1
        if self.variable:
            shape = (SIZE, *shape[1:])
        numbers = f"data({seed}{''.join(f', {size}' for size in shape)}, dtype={dtype or self.real!r})"
        if self.variable:
            self.write(f"{name} = b.input({numbers}, {(VARIABLE, *shape[1:])})")
        else:
            self.write(f"{name} = b.input({numbers})")
        self.values.append(name)

    def constant(self, *shape: int, dtype: str = "") -> str:
        """The text of a constant of numbers."""
        return f"data({self.number(1, 50)}{''.join(f', {size}' for size in shape)}, dtype={dtype or self.real!r})"

    def op(self, operator: str, *inputs: str, outputs: int = 1) -> None:
        """A node; a result that is too large is forgotten."""
        names = [f"v{len(self.lines)}{'abc'[i] if outputs > 1 else ''}" for i in range(outputs)]
        call = f"b.op({operator}, {', '.join(inputs)})"
        if outputs > 1:
            call = f"b.ops({operator}, {outputs}, {', '.join(inputs)})"
        self.write(f"{', '.join(names)} = {call}")
        for name in names:
            if math.prod(SIZE if size is None else size for size in self.shape(name)) <= LARGEST:
                self.values.append(name)

    def finish(self) -> Recipe:
        """Outputs: the newest value, and some others."""
        computed = [name for name in self.values if name.startswith("v")] or self.values
        chosen = [computed[-1]]
        for _ in range(self.number(0, 2)):
            name = self.pick(computed)
            if name not in chosen:
                chosen.append(name)
        return Recipe((*self.lines, f"b.graph.outputs = [{', '.join(chosen)}]"))


@st.composite
def recipes(
    draw: st.DrawFn,
    steps: Sequence[Callable[[Author], None]],
    length: int = 8,
    *,
    integers: bool = False,
    variable: bool = False,
    empty: bool = False,
    real: str = "float32",
) -> Recipe:
    """A graph of up to `length` random steps.

    integers: with inputs of integers and truth values, too. variable: first axes are of variable size. empty: with an
    input of no elements. real: the type of real numbers.
    """
    author = Author(draw, variable, real)
    begin(author, integers, empty)
    for _ in range(author.number(1, length)):
        author.pick(steps)(author)
    return author.finish()


def begin(author: Author, integers: bool, empty: bool) -> None:
    """The inputs."""
    shapes = [shape for shape in SIZES if shape or not author.variable]
    for _ in range(author.number(1, 2)):
        author.input(author.pick(EMPTY if empty else shapes))
    if integers:
        author.input(author.pick(shapes), author.pick([dtype.numpy.name for dtype in INTEGERS]))
        author.input(author.pick(shapes), "bool")
