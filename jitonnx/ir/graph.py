"""Graphs of operators: values, nodes, and the one door through which a graph is changed.

    graph = Graph("example")
    x = graph.add_input("x", TensorType(DType.FLOAT, (variable("batch"), 16)))
    (y,) = graph.add(Relu(), [x])
    graph.outputs = [y]

A value knows its producer and its users; a node knows its operator (with attributes), inputs and outputs. Only Graph's
methods change these, so that uses and types stay true. Nodes are kept in an order in which producers come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from jitonnx.ir.assumptions import Assumptions, noting
from jitonnx.ir.dtypes import DType
from jitonnx.ir.errors import GraphError
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator, as_tuple, evaluate_arrays
from jitonnx.ir.types import UNKNOWN, Shape, TensorType, contents_array, is_symbolic, type_of

CONTENTS_LIMIT = 1024
"""Largest number of elements of a tensor whose symbolic contents are followed: shapes and index vectors, not data."""


class Value:
    """A tensor in a graph: graph input, constant, or output of a node."""

    __slots__ = ("__weakref__", "_users", "contents", "name", "producer", "type")

    def __init__(
        self, name: str, type: TensorType, contents: np.ndarray | None = None, producer: Node | None = None
    ) -> None:
        self.name, self.type, self.producer = name, type, producer
        self.contents = contents
        """What is known of the elements: an array of them, or an object array with dimension expressions; else None."""
        self._users: dict[Node, int] = {}

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """The shape. DataDependentError where not even the rank is known before the run."""
        if self.type.shape is None:
            raise DataDependentError(f"value {self.name!r} has no known rank")
        return self.type.shape

    @property
    def constant(self) -> np.ndarray | None:
        """The elements where all are known numbers, with the value's own dtype."""
        if self.contents is None or (self.type.dtype is not DType.STRING and is_symbolic(self.contents)):
            return None
        return self.contents

    @property
    def users(self) -> list[Node]:
        """The nodes that read this value, in the order in which they began to."""
        return list(self._users)

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


class Node:
    """One use of an operator. `origin` lists the names of the model's nodes that it stands for."""

    __slots__ = ("__weakref__", "inputs", "name", "operator", "origin", "outputs")

    def __init__(
        self, name: str, operator: Operator, inputs: tuple[Value | None, ...], origin: tuple[str, ...]
    ) -> None:
        self.name, self.operator, self.inputs, self.origin = name, operator, inputs, origin
        self.outputs: tuple[Value, ...] = ()

    @property
    def output(self) -> Value:
        """The only output."""
        (value,) = self.outputs
        return value

    def __repr__(self) -> str:
        inputs = ", ".join(value.name if value else "" for value in self.inputs)
        return f"{', '.join(v.name for v in self.outputs)} = {self.operator.name}({inputs})"


class Graph:
    """A computation: inputs, outputs, and nodes in an order in which producers come before users."""

    def __init__(self, name: str = "", assumptions: Assumptions | None = None) -> None:
        """assumptions: what is taken for granted about sizes from the beginning."""
        self.name = name
        self.inputs: list[Value] = []
        self.given_shapes: list[Shape] | None = None
        """The shapes of the inputs over all variables, where their types are over those alone that nothing fixes."""
        self.outputs: list[Value] = []
        self.assumptions = Assumptions() if assumptions is None else assumptions
        """Pairs of dimensions taken to be equal; a feed for which one fails needs a graph made for sizes like it."""
        self._nodes: dict[Node, None] = {}
        self._names: set[str] = set()
        self._counters: dict[str, int] = {}

    def __iter__(self) -> Iterator[Node]:
        """The nodes in order; safe against changes made meanwhile (a node removed since is passed over)."""
        return (node for node in list(self._nodes) if node in self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node: Node) -> bool:
        return node in self._nodes

    # ------------------------------------------------------------ building

    def add_input(self, name: str, type: TensorType) -> Value:
        """A new graph input."""
        value = Value(self._claim(name), type)
        self.inputs.append(value)
        return value

    def add_constant(self, array: np.ndarray, name: str = "constant") -> Value:
        """A value with known elements. The array is kept, not copied: nobody may write to it."""
        return Value(self._claim(name), type_of(array), array)

    def add_dims(self, dims: Sequence[Any], name: str = "dims") -> Value:
        """An int64 vector of dimensions, symbolic ones among them or not."""
        contents = contents_array(dims, (len(dims),))
        if not is_symbolic(contents):
            return self.add_constant(contents.astype(np.int64), name)
        return Value(self._claim(name), TensorType(DType.INT64, (len(dims),)), contents)

    def add(
        self,
        operator: Operator,
        inputs: Sequence[Value | None],
        *,
        name: str = "",
        outputs: Sequence[str] | None = None,
        origin: Iterable[str] = (),
    ) -> tuple[Value, ...]:
        """Append a node and infer its outputs' types. GraphError names the node if the operator refuses its inputs.

        `outputs` gives the names of the outputs wanted ("": not wanted, kept unnamed); by default one.
        """
        node = Node(name or self._fresh(operator.name), operator, tuple(inputs), tuple(origin))
        wanted = list(outputs) if outputs is not None else [f"{node.name}_output"]
        with noting(self.assumptions, lambda: short_name(node)):
            types, contents = infer(node, len(wanted))
        if self.assumptions.settled:
            types = tuple(self._settled(type) for type in types)
        node.outputs = tuple(
            Value(self._claim(wanted[i] or f"{node.name}_unused"), types[i], contents[i], node)
            for i in range(min(len(wanted), len(types)))
        )
        if len(wanted) > len(types):
            raise GraphError(f"{describe(node)} has {len(wanted)} outputs but {operator.name} gives {len(types)}")
        for value in node.inputs:
            if value is not None:
                value._users[node] = value._users.get(node, 0) + 1
        self._nodes[node] = None
        return node.outputs

    # ------------------------------------------------------------ changing

    def replace(self, old: Value, new: Value) -> None:
        """Let every user of `old`, and the graph's outputs, read `new` instead."""
        if old is new:
            return
        for node in old.users:
            self.set_inputs(node, [new if value is old else value for value in node.inputs])
        self.outputs = [new if value is old else value for value in self.outputs]

    def set_inputs(self, node: Node, inputs: Sequence[Value | None]) -> None:
        """Give `node` other inputs. Types of its outputs are kept: call only with inputs that mean the same."""
        for value in node.inputs:
            if value is not None:
                value._users.pop(node, None)
        node.inputs = tuple(inputs)
        for value in node.inputs:
            if value is not None:
                value._users[node] = value._users.get(node, 0) + 1

    def remove(self, node: Node) -> None:
        """Take out a node whose outputs nobody reads. GraphError if somebody does."""
        for value in node.outputs:
            if value._users or value in self.outputs:
                raise GraphError(f"Bug: {describe(node)} cannot be removed: {value.name!r} is still read")
        self.set_inputs(node, [])
        del self._nodes[node]

    def remove_dead(self) -> bool:
        """Take out every node that no graph output depends on; whether there was any."""
        before = len(self._nodes)
        keep = set(self.outputs)
        for node in reversed(list(self._nodes)):
            if not any(value._users or value in keep for value in node.outputs):
                self.remove(node)
        return len(self._nodes) < before

    def sort(self) -> None:
        """Put producers before their users again, otherwise keeping the order. GraphError names a cycle."""
        order: dict[Node, None] = {}
        state: dict[Node, int] = {}
        for start in self._nodes:
            stack = [start]
            while stack:
                node = stack[-1]
                if state.get(node) == 2:
                    stack.pop()
                    continue
                state[node] = 1
                missing = [p for p in producers(node) if state.get(p) != 2]
                if any(state.get(p) == 1 for p in missing):
                    raise GraphError(f"the graph is not acyclic: {describe(node)} depends on its own output")
                if missing:
                    stack.extend(missing)
                    continue
                state[node] = 2
                order[node] = None
                stack.pop()
        self._nodes = order

    def _settled(self, type: TensorType) -> TensorType:
        """The type with numbers for the sizes that the assumptions settle."""
        if type.shape is None or type.static:
            return type
        return TensorType(type.dtype, tuple(self.assumptions.settled.get(dim, dim) for dim in type.shape))

    def _claim(self, name: str) -> str:
        if name in self._names:
            name = self._fresh(name)
        self._names.add(name)
        return name

    def _fresh(self, stem: str) -> str:
        while True:
            number = self._counters[stem] = self._counters.get(stem, 0) + 1
            if (name := f"{stem}_{number}") not in self._names:
                return name


def producers(node: Node) -> list[Node]:
    """The nodes whose outputs `node` reads."""
    return [value.producer for value in node.inputs if value is not None and value.producer is not None]


def short_name(node: Node) -> str:
    """A node as users know it: its operator and its name in the model, or its outputs where it has none."""
    name = (node.origin or (node.name,))[0]
    return name if name.startswith(f"{node.operator.name} node ") else f"{node.operator.name} node {name!r}"


def describe(node: Node) -> str:
    """A node for error messages: its operator, name, and the inputs' names and types."""
    inputs = ", ".join(f"{value.name} {value.type}" if value else "(absent)" for value in node.inputs)
    return f"{node.operator.name} node {node.name!r} (inputs: {inputs})"


def infer(node: Node, wanted: int) -> tuple[tuple[TensorType, ...], tuple[np.ndarray | None, ...]]:
    """Types of a node's outputs, and their contents where they are settled before the run.

    `wanted` outputs of UNKNOWN type where only a run can tell. GraphError names the node and its inputs if the operator
    refuses them.
    """
    if any(value is not None and value.dtype is None for value in node.inputs):
        return (UNKNOWN,) * wanted, (None,) * wanted
    try:
        node.operator.check_types(node.inputs)
        types = as_tuple(node.operator.infer(*node.inputs))
        contents = _settled_contents(node, types)
    except DataDependentError:
        return (UNKNOWN,) * wanted, (None,) * wanted
    except InferenceError as error:
        raise GraphError(f"{describe(node)}: {error}") from error
    return types, contents


def _settled_contents(node: Node, types: Sequence[TensorType]) -> tuple[np.ndarray | None, ...]:
    """Outputs that are known before the run, as far as shapes may depend on them: small ones.

    Those that follow from the inputs' types, shape arithmetic on dimension expressions, and what small constants give.
    """
    nothing = (None,) * len(types)
    if (settled := node.operator.contents(*node.inputs)) is not None:
        return (_as_numbers(settled, types[0]), *nothing[1:])
    given = [value for value in node.inputs if value is not None]
    if not given or any(value.contents is None or value.contents.size > CONTENTS_LIMIT for value in given):
        return nothing
    if all(value.constant is not None for value in given):
        return _folded(node, types)
    if not node.operator.symbolic:
        return nothing
    arrays = [None if value is None or value.contents is None else _as_object(value.contents) for value in node.inputs]
    try:
        results = as_tuple(node.operator.evaluate(*arrays))
    except DataDependentError:  # dimension expressions that stay undecided, as in a comparison
        return nothing
    except IndexError as error:
        raise InferenceError(str(error)) from error
    return tuple(_as_numbers(np.asarray(result, object), type) for result, type in zip(results, types, strict=False))


def _folded(node: Node, types: Sequence[TensorType]) -> tuple[np.ndarray | None, ...]:
    """The outputs for constant inputs, if they are small; constant folding does the rest."""
    if not node.operator.deterministic or not all(
        type.static and isinstance(type.elements, int) and type.elements <= CONTENTS_LIMIT for type in types
    ):
        return (None,) * len(types)
    arrays = [None if value is None else value.constant for value in node.inputs]
    try:
        results = evaluate_arrays(node.operator, arrays)
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise InferenceError(str(error)) from error
    return tuple(np.asarray(result) for result in results)


def _as_numbers(contents: np.ndarray, type: TensorType) -> np.ndarray:
    """Contents without dimension expressions become an array of the value's own dtype."""
    if contents.dtype != object or type.dtype in (None, DType.STRING) or is_symbolic(contents):
        return contents
    return contents.astype(type.dtype.numpy)


def _as_object(contents: np.ndarray) -> np.ndarray:
    return contents if contents.dtype == object else contents_array(contents.ravel().tolist(), contents.shape)
