"""A graph, or some of its nodes, one by one on NumPy: the ground truth that compiled programs are tested against."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from jitonnx.errors import Error, RuntimeException
from jitonnx.ir import dims
from jitonnx.ir.dims import Dim, DimLike
from jitonnx.ir.extract import substituted
from jitonnx.ir.graph import Binding, Graph, GraphError, Node, Value
from jitonnx.ir.operator import is_custom, results_of
from jitonnx.ir.types import UNKNOWN, TensorType, Type
from jitonnx.support.cancellation import check_end

LARGE = 1 << 30
"""Bytes of results from which on a failure is one of memory, most likely."""

Body: TypeAlias = Callable[[Sequence[Any], Mapping[str, int]], "list[Any]"]
"""Runs a body: its outputs for its inputs, given the values of the variables of the graph around it."""


def evaluate(graph: Graph, feeds: Mapping[str, Any]) -> list[Any]:
    """The graph's outputs for `feeds`: an array for each graph input (or what else its type says), by name.

    Arrays are let go after their last use. KeyError for an input without a feed; RuntimeException names the node that
    failed and what it was given.
    """
    arrays: list[Any] = []
    for value in graph.inputs:
        fed = feeds[value.name]
        arrays.append(np.asarray(fed) if isinstance(value.type, TensorType) and value.type != UNKNOWN else fed)
    return evaluate_graph(graph, arrays, {})


def evaluate_graph(graph: Graph, inputs: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    """The outputs that `evaluate` gives, of inputs in order. sizes: values of variables of the graph around it."""
    arrays: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    variables = {**sizes, **bind_dimensions(graph, inputs)}
    bound = bindings_by_value(graph)
    for value in graph.inputs:
        bind(variables, bound.get(value, ()), arrays[value])

    def array_of(value: Value | None) -> Any:
        if value is None:
            return None
        if value not in arrays and value.producer is None:
            return known(value, variables)
        return arrays[value]

    last_use = _last_uses(graph)
    with _silent():
        for node in graph:
            check_end()
            inputs = [array_of(value) for value in node.inputs]
            results = evaluate_node(node, inputs, variables)
            arrays.update(zip(node.outputs, results, strict=False))
            for value, result in zip(node.outputs, results, strict=False):
                bind(variables, bound.get(value, ()), result)
            for value in last_use.get(node, ()):
                arrays.pop(value, None)
    return [array_of(value) for value in graph.outputs]


def on_numpy(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The graph's outputs for inputs in its order; arrays of their own, which the caller may keep and change."""
    return owned(evaluate_graph(graph, inputs, {}), inputs)


def bindings_by_value(graph: Graph) -> dict[Value, list[tuple[str, Binding]]]:
    """The variables that only a run can tell, by the value that tells them."""
    bound: dict[Value, list[tuple[str, Binding]]] = {}
    for name, binding in graph.bindings.items():
        bound.setdefault(binding.value, []).append((name, binding))
    return bound


def axes_told(shape: Sequence[DimLike], bindings: Iterable[tuple[str, Binding]]) -> set[int]:
    """The axes whose sizes are variables that a value of this shape tells: there is nothing to compare these with.

    An axis may tell another variable, too, or that alone: of a value that was found to be the same.
    """
    return {one.place for name, one in bindings if not one.element and str(shape[one.place]) == name}


def bind(sizes: dict[str, int], bindings: Iterable[tuple[str, Binding]], array: Any) -> list[Any]:
    """The variables that an array tells their values; its elements, if these tell some."""
    elements: list[Any] = []
    if isinstance(array, np.ndarray):
        shape = array.shape
        for name, binding in bindings:
            if binding.element and not elements:
                elements = array.ravel().tolist()  # few, which NumPy takes longer to give one by one
            sizes[name] = int(elements[binding.place]) if binding.element else shape[binding.place]
    return elements


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


def bind_dimensions(graph: Graph, inputs: Sequence[Any]) -> dict[str, int]:
    """Values of the graph's dimension variables for inputs of these shapes; where they disagree, the first counts."""
    bound: dict[str, int] = {}
    for value, array in zip(graph.inputs, inputs, strict=True):
        sizes = array.shape if isinstance(array, np.ndarray) else ()
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

        elements = [dims.evaluate(element, variables) for element in value.contents.ravel().tolist()]
        constant = np.array(elements, np.int64).reshape(value.contents.shape)
    return constant.astype(value.dtype.numpy, copy=False).view()


def array_of(value: Value, values: Mapping[Value, Any], sizes: Mapping[str, int]) -> Any:
    """What a value is in a run: what was computed by now, or what is known of it."""
    found = values.get(value, value)
    return known(value, sizes) if found is value else found


def _silent() -> np.errstate:
    """No floating-point warnings: infinities and NaN are results. Once for all nodes, as it takes a microsecond."""
    return np.errstate(all="ignore")


def _last_uses(graph: Graph) -> dict[Node, list[Value]]:
    """The node behind which each computed value is not read any more."""
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


def evaluate_node(
    node: Node,
    inputs: Sequence[Any],
    sizes: Mapping[str, int],
    bodies: Sequence[Body] | None = None,
    ranks: Collection[str] = (),
) -> tuple[Any, ...]:
    """A node's outputs. sizes: values of the graph's variables; bodies: what runs the node's, NumPy if not given.
    ranks: names of outputs whose ranks the node has not promised: they are as a run has shown them.

    RuntimeException names the node that failed and what it was given.
    """
    try:
        if not node.bodies:
            results = results_of(node.operator, inputs)
            if is_custom(type(node.operator)):
                _check_promised(node, results, ranks)
            return results
        arguments, captured = inputs[: len(node.arguments)], inputs[len(node.arguments) :]
        if bodies is None:
            bodies = [functools.partial(evaluate_graph, body) for body in node.bodies]

        closed = [_Closed(run, graph, captured, sizes) for run, graph in zip(bodies, node.bodies, strict=True)]
        return results_of(node.operator, arguments, bodies=closed)
    except (ValueError, TypeError, IndexError, ArithmeticError, MemoryError) as error:
        if isinstance(error, Error) and node.operator.any_attributes:
            raise  # a library's status, with the node
        given = ", ".join(map(_described, inputs))
        raise failure(node, f"{_reason(node, inputs) or error} (inputs: {given})") from error
    except Exception as error:
        if isinstance(error, Error) or not is_custom(type(node.operator)):
            raise
        raise failure(node, f"{type(error).__name__}: {error}") from error  # of the user's operator, not of ours


def _reason(node: Node, inputs: Sequence[Any]) -> str:
    """Why an operator refuses what it is given, in the words of its inference, or of what size its results would be.

    "" where that tells nothing.
    """
    if node.bodies or not all(given is None or isinstance(given, np.ndarray) for given in inputs):
        return ""
    graph = Graph()
    values = [None if given is None else graph.add_constant(given) for given in inputs]
    try:
        results = graph.add(node.operator, values, name=node.name)
    except GraphError as error:
        return str(error.__cause__)
    types = [value.type for value in results]
    needed = sum(type.elements * type.dtype.numpy.itemsize for type in types if type.static and type.dtype is not None)
    return f"its results would take {needed} bytes" if needed >= LARGE else ""


def failure(node: Node, text: str) -> RuntimeException:
    """The error for a node that failed in a run, as onnxruntime puts it."""
    return RuntimeException(
        f"Non-zero status code returned while running {node.operator.name} node. Name:'{node.name}' "
        f"Status Message: {text}"
    )


def _check_promised(node: Node, results: Sequence[Any], ranks: Collection[str]) -> None:
    """RuntimeException unless what a user's operator gave is of the types that its inference said."""
    for value, result in zip(node.outputs, results, strict=False):
        type = value.type
        if type.dtype is None or not isinstance(result, np.ndarray):
            continue
        shape = None if value.name in ranks else type.shape
        given = zip(result.shape, shape or (), strict=False)
        fits = shape is None or len(result.shape) == len(shape)
        if result.dtype != type.dtype.numpy or not fits or any(isinstance(b, int) and a != b for a, b in given):
            raise failure(
                node,
                f"it gave {_described(result)} for {value.name!r}, but its inference says {type}: `infer` and "
                "`evaluate` of the operator contradict each other",
            )


class _Closed:
    """A body with what it captures."""

    def __init__(self, run: Body, graph: Graph, captured: Sequence[Any], sizes: Mapping[str, int]) -> None:
        self._run, self._graph, self._captured, self._sizes = run, graph, captured, sizes

    @property
    def inputs(self) -> list[Type]:
        """Those of its own inputs."""
        return [value.type for value in self._graph.inputs[: len(self._graph.inputs) - len(self._captured)]]

    @property
    def types(self) -> list[Type]:
        """Those of the outputs, with the sizes that are known."""
        return [substituted(value.type, self._sizes) for value in self._graph.outputs]

    def __call__(self, *inputs: Any) -> list[Any]:
        return self._run([*inputs, *self._captured], self._sizes)


def _described(given: Any) -> str:
    if given is None:
        return "absent"
    return f"{given.dtype}{list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
