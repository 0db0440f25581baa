"""A graph, or some of its nodes, one by one on NumPy: the ground truth that compiled programs are tested against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.errors import RuntimeException
from jitonnx.ir import dims
from jitonnx.ir.dims import Dim, DimLike
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.operator import results_of


def evaluate(graph: Graph, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """The graph's outputs for `feeds`: an array for each graph input, by name.

    Arrays are let go after their last use. KeyError for an input without a feed; RuntimeException names the node that
    failed and what it was given.
    """
    arrays: dict[Value, Any] = {value: np.asarray(feeds[value.name]) for value in graph.inputs}
    variables = bind_dimensions(graph, feeds)

    def array_of(value: Value | None) -> Any:
        if value is None:
            return None
        if value not in arrays and value.producer is None:
            return known(value, variables)
        return arrays[value]

    last_use = _last_uses(graph)
    with _silent():
        for node in graph:
            inputs = [array_of(value) for value in node.inputs]
            arrays.update(zip(node.outputs, _evaluate(node, inputs), strict=False))
            for value in last_use.get(node, ()):
                arrays.pop(value, None)
    return [array_of(value) for value in graph.outputs]


def on_numpy(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The graph's outputs for inputs in its order; arrays of their own, which the caller may keep and change."""
    feeds = {value.name: array for value, array in zip(graph.inputs, inputs, strict=True)}
    return owned(evaluate(graph, feeds), inputs)


def evaluate_nodes(nodes: Sequence[Node], values: dict[Value, Any]) -> None:
    """Evaluate nodes, producers first; what they give is added to `values`. Errors as `evaluate` has them."""
    with _silent():
        for node in nodes:
            inputs = [None if value is None else look_up(values, value) for value in node.inputs]
            values.update(zip(node.outputs, _evaluate(node, inputs), strict=False))


def look_up(values: Mapping[Value, Any], value: Value) -> Any:
    """What `values` has for a value, or the value's own elements if it is a constant."""
    found = values.get(value)
    return known(value, {}) if found is None else found


def owned(arrays: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The arrays, each C-contiguous memory of its own: copied where it may be an input, a constant or a view."""
    taken = {id(array) for array in inputs}
    results = []
    for array in arrays:
        if isinstance(array, np.ndarray):
            flags = array.flags
            own = flags.owndata and flags.c_contiguous and flags.writeable and id(array) not in taken
            array = array if own else array.copy(order="C")
            taken.add(id(array))
        results.append(array)
    return results


def bind_dimensions(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, int]:
    """Values of the graph's dimension variables for feeds of these shapes; where inputs disagree, the first counts."""
    bound: dict[str, int] = {}
    for value in graph.inputs:
        sizes = np.shape(feeds[value.name])
        for dim, size in zip(value.type.shape or (), sizes, strict=False):
            if isinstance(dim, Dim) and dim == dims.variable(name := next(iter(dims.variables(dim)))):
                bound.setdefault(name, size)
    return bound


def known(value: Value, variables: Mapping[str, int]) -> np.ndarray:
    """The elements of a constant, or of a value that holds dimensions, for values of their variables.

    A view, so that `owned` copies what is the graph's.
    """
    constant = value.constant
    if constant is None:
        assert value.contents is not None, f"Bug: {value} is neither computed nor known"

        def size(element: DimLike) -> int:
            return dims.evaluate(element, variables)

        constant = np.vectorize(size, otypes=[np.int64])(value.contents)
    return constant.astype(value.dtype.numpy, copy=False).view()


def _silent() -> np.errstate:
    """No floating-point warnings: infinities and NaN are results. Once for all nodes, as it takes a microsecond."""
    return np.errstate(all="ignore")


def _last_uses(graph: Graph) -> dict[Node, list[Value]]:
    """After which node each computed value is not read any more."""
    keep = set(graph.outputs)
    last: dict[Value, Node] = {}
    for node in graph:
        for value in (*node.outputs, *node.inputs):
            if value is not None and value not in keep:
                last[value] = node
    ends: dict[Node, list[Value]] = {}
    for value, node in last.items():
        ends.setdefault(node, []).append(value)
    return ends


def _evaluate(node: Node, inputs: Sequence[Any]) -> tuple[Any, ...]:
    try:
        return results_of(node.operator, inputs)
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        given = ", ".join("absent" if x is None else f"{x.dtype}{list(x.shape)}" for x in inputs)
        raise RuntimeException(
            f"Non-zero status code returned while running {node.operator.name} node. Name:'{node.name}' "
            f"Status Message: {error} (inputs: {given})"
        ) from error
