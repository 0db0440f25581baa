"""Small graphs for tests of rewrites: building them, and comparing what they compute before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.dims import variable
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.operator import Operator
from jitonnx.ir.types import TensorType, type_of
from jitonnx.passes import Report, optimize


class Build:
    """A graph under construction; `op` takes values and arrays (which become constants), and gives a value."""

    def __init__(self) -> None:
        self.graph = Graph("test")
        self.feeds: dict[str, np.ndarray] = {}

    def input(self, array: Any, shape: Sequence[int | str] | None = None) -> Value:
        """A graph input with its feed; names in `shape` are dimension variables."""
        array = np.asarray(array)
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        dims = tuple(variable(dim) if isinstance(dim, str) else dim for dim in shape or array.shape)
        return self.graph.add_input(name, TensorType(type_of(array).dtype, dims))

    def op(self, operator: Operator, *inputs: Any, name: str = "") -> Value:
        """The first output of a node."""
        return self.ops(operator, 1, *inputs, name=name)[0]

    def ops(self, operator: Operator, outputs: int, *inputs: Any, name: str = "") -> tuple[Value, ...]:
        """Several outputs of a node."""
        values = [x if x is None or isinstance(x, Value) else self.graph.add_constant(np.asarray(x)) for x in inputs]
        names = [f"{operator.name}_{i}" for i in range(outputs)]
        return self.graph.add(operator, values, name=name, outputs=names)


Author = Callable[[Build], "Value | Sequence[Value]"]


def rewritten(author: Author, rtol: float = 1e-5, atol: float = 1e-6, **options: Any) -> tuple[Graph, Report]:
    """The graph that `author` describes, optimised; it must compute what it computed before, under the same names."""
    before, after = _built(author), _built(author)
    report = optimize(after.graph, verify_fully=True, **options)
    assert [value.name for value in after.graph.outputs] == [value.name for value in before.graph.outputs]
    expected, actual = evaluate(before.graph, before.feeds), evaluate(after.graph, before.feeds)
    for given, wanted in zip(actual, expected, strict=True):
        assert given.dtype == wanted.dtype
        assert given.shape == wanted.shape
        np.testing.assert_allclose(
            np.asarray(given, np.float64), np.asarray(wanted, np.float64), rtol=rtol, atol=atol, equal_nan=True
        )
    return after.graph, report


def _built(author: Author) -> Build:
    build = Build()
    result = author(build)
    build.graph.outputs = [result] if isinstance(result, Value) else list(result)
    return build


def operators(graph: Graph) -> Mapping[str, int]:
    """How many nodes there are of each operator."""
    return Counter(node.operator.name for node in graph)


def only(graph: Graph, operator: type[Operator]) -> Node:
    """The one node of an operator."""
    (node,) = (node for node in graph if isinstance(node.operator, operator))
    return node


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Random numbers of a fixed seed."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
