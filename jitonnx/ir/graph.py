"""Graphs of operators: values, nodes, and the one door through which a graph is changed.

    graph = Graph("example")
    x = graph.add_input("x", TensorType(DType.FLOAT, (variable("batch"), 16)))
    (y,) = graph.add(Relu(), [x])
    graph.outputs = [y]

A value knows its producer and its users; a node knows its operator (with attributes), inputs and outputs. Only Graph's
methods change these, so that uses and types stay true. Nodes are kept in an order in which producers come first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.ir.assumptions import Assumptions
from jitonnx.ir.dims import (
    MOST_TERMS,
    Dim,
    DimLike,
    UnwieldyError,
    maximum,
    product,
    substitute,
    taking,
    terms_of,
    variable,
    variables,
)
from jitonnx.ir.dtypes import DType
from jitonnx.ir.errors import GraphError as GraphError
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator, as_tuple, evaluate_arrays
from jitonnx.ir.schema import check_inputs, moved_inputs, unranked
from jitonnx.ir.types import UNKNOWN, Shape, TensorType, Type, contents_array, is_symbolic, type_of
from jitonnx.support.records import NamedTuple

CONTENTS_LIMIT = 1024
"""Largest number of elements of a tensor whose symbolic contents are followed: shapes and index vectors, not data."""

_MOST_ADDED = 1 << 62
"""The largest number in a sum with sizes that is followed: sizes have far less than is left to 64 bits."""


MEASURED_LIMIT = 16
"""Largest number of elements of a tensor whose elements become dimension variables."""


class Value:
    """A value in a graph (mostly a tensor): graph input, constant, or output of a node."""

    __slots__ = ("__weakref__", "_users", "contents", "measured", "name", "producer", "stands_for", "type")

    def __init__(self, name: str, type: Type, contents: np.ndarray | None = None, producer: Node | None = None) -> None:
        self.name, self.producer = name, producer
        self.type: Any = type
        """A `Type`: that of a tensor wherever an operator takes tensors only, which most do."""
        self.contents = contents
        """What is known of the elements: an array of them, or an object array with dimension expressions; else None."""
        self.measured = False
        """Whether `contents` are variables that stand for what a run computes: `Graph.bindings` has them."""
        self.stands_for: Value | None = None
        """A constant in a body names here which input of the body it is read in the place of, as the elements of what
        the node captures are known. For other types of the graph around it they may be others, or not known."""
        self._users: dict[Node, int] = {}

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """The shape. DataDependentError where not even the rank is known before the run."""
        shape: Shape | None = self.type.shape
        if shape is None:
            raise DataDependentError(f"value {self.name!r} has no known rank")
        return shape

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


class Binding(NamedTuple):
    """What a dimension variable is bound to once a run has the value: the size of an axis, or an element."""

    value: Value
    place: int
    """Which axis, or which element, row-major."""
    element: bool


class Node:
    """One use of an operator. `origin` lists the names of the model's nodes that it stands for.

    bodies: the graphs that the operator runs (branches, the body of a loop), closed: they read nothing of the graph
    around them. What a model's subgraph captures is an input of the node, behind the operator's own (`captures` of
    them), and of every body, behind the body's own, in the same order.
    """

    __slots__ = ("__weakref__", "bodies", "captures", "inputs", "name", "operator", "origin", "outputs")

    def __init__(
        self,
        name: str,
        operator: Operator,
        inputs: tuple[Value | None, ...],
        origin: tuple[str, ...],
        bodies: tuple[Graph, ...] = (),
        captures: int = 0,
    ) -> None:
        self.name, self.operator, self.inputs, self.origin = name, operator, inputs, origin
        self.bodies, self.captures = bodies, captures
        self.outputs: tuple[Value, ...] = ()

    @property
    def arguments(self) -> tuple[Value | None, ...]:
        """The operator's own inputs: all but what the bodies capture."""
        return self.inputs[: len(self.inputs) - self.captures]

    @property
    def captured(self) -> tuple[Value, ...]:
        """What the bodies read of the graph around them."""
        return self.inputs[len(self.inputs) - self.captures :]  # type: ignore[return-value]

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

    def __init__(self, name: str = "", assumptions: Assumptions | None = None, scope: str = "") -> None:
        """assumptions: what is taken for granted about sizes from the beginning. scope: put before the names of the
        variables that this graph mints, so that a body's are not its caller's."""
        self.name, self.scope = name, scope
        self.inputs: list[Value] = []
        self.given_shapes: list[Shape] | None = None
        """The shapes of the inputs over all variables, where their types are over those alone that nothing fixes."""
        self.outputs: list[Value] = []
        self.assumptions = Assumptions() if assumptions is None else assumptions
        """Pairs of dimensions taken to be equal; a feed for which one fails needs a graph made for sizes like it."""
        self.bindings: dict[str, Binding] = {}
        """What only a run can tell: dimension variables, and what each is bound to."""
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

    @property
    def results(self) -> list[Value]:
        """What is read from outside: the outputs, and what dimension variables are bound to."""
        if not self.bindings:
            return self.outputs
        return [*self.outputs, *dict.fromkeys(binding.value for binding in self.bindings.values())]

    def add_input(self, name: str, type: Type) -> Value:
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
        bodies: Sequence[Graph] = (),
        captures: int = 0,
    ) -> tuple[Value, ...]:
        """Append a node and infer its outputs' types. GraphError names the node if the operator refuses its inputs.

        `outputs` gives the names of the outputs wanted ("": not wanted, kept unnamed); by default one.
        bodies, captures: see `Node`; bodies are copied, for the types of these inputs.
        """
        node = Node(name or self._fresh(operator.name), operator, tuple(inputs), tuple(origin), tuple(bodies), captures)
        wanted = list(outputs) if outputs is not None else [f"{node.name}_output"]
        names = [self._claim(one or f"{node.name}_unused") for one in wanted]
        types, contents = self.infer(node, names)
        if len(wanted) > len(types):
            raise GraphError(f"{describe(node)} has {len(wanted)} outputs but {operator.name} gives {len(types)}")
        if outputs is not None and len(wanted) < len(types):
            from jitonnx.ir.schema import schemas_of

            known = schemas_of(type(operator))
            if known and known[-1].outputs[-1].variadic:
                raise GraphError(f"{describe(node)} gives {len(types)} outputs, and {len(wanted)} of them have names")
        node.outputs = tuple(Value(names[i], types[i], contents[i], node) for i in range(len(wanted)))
        self._bind(node)
        for value in node.inputs:
            if value is not None:
                value._users[node] = value._users.get(node, 0) + 1
        self._nodes[node] = None
        return node.outputs

    def copied(self) -> Graph:
        """The same graph of values and nodes of its own, as they are: nothing is inferred. Arrays are shared."""
        copy = Graph(self.name, self.assumptions.apart(), self.scope)
        for pair in self.assumptions:
            copy.assumptions.note(*pair, self.assumptions.demanded_by(pair))
        values: dict[Value, Value] = {}

        def of(value: Value) -> Value:
            if value not in values:
                values[value] = made = Value(value.name, value.type, value.contents)
                made.measured = value.measured
                made.stands_for = None if value.stands_for is None else of(value.stands_for)
            return values[value]

        copy.inputs, copy.given_shapes = list(map(of, self.inputs)), self.given_shapes
        for node in self:
            bodies = tuple(body.copied() for body in node.bodies)
            made = Node(node.name, node.operator, (), node.origin, bodies, node.captures)
            copy.set_inputs(made, [None if value is None else of(value) for value in node.inputs])
            made.outputs = tuple(map(of, node.outputs))
            for value in made.outputs:
                value.producer = made
            copy._nodes[made] = None
        copy.outputs = list(map(of, self.outputs))
        copy.bindings = {name: binding._replace(value=of(binding.value)) for name, binding in self.bindings.items()}
        copy._names, copy._counters = set(self._names), dict(self._counters)
        return copy

    # ------------------------------------------------------------ inference

    def infer(self, node: Node, names: Sequence[str]) -> tuple[tuple[Type, ...], tuple[np.ndarray | None, ...]]:
        """Types of a node's outputs, and their contents where they are settled before the run.

        names: of the outputs wanted, after which the variables are named that stand for what only a run can tell.
        """

        def fresh(output: int, axis: int) -> Dim:
            return variable(f"{self.scope}{names[output] if output < len(names) else node.name}.{axis}")

        with taking(self.assumptions.taken):
            context = InferenceContext(self.assumptions, lambda: short_name(node), self._settle)
            if node.operator.decides and node.inputs[0] is not None:
                self.decide(node.inputs[0])
            types, contents = infer(node, context, len(names), fresh, self.scope)
        if self.assumptions.ranks:
            types = tuple(
                self._ranked(type, names[place] if place < len(names) else "", functools.partial(fresh, place))
                for place, type in enumerate(types)
            )
        if self.assumptions.substitutions:
            types = tuple(self._settled(type) for type in types)
        return types, contents

    def _ranked(self, type: Type, name: str, fresh: Callable[[int], Dim]) -> Type:
        """The type of a node's output, of the rank that a run has shown where nothing else tells it."""
        rank = self.assumptions.ranks.get(f"{self.scope}{name}") if type.shape is None else None
        if rank is None or not isinstance(type, TensorType) or type.dtype is None:
            return type
        return TensorType(type.dtype, tuple(map(fresh, range(rank))))

    def _settle(self, value: Value, *, signed: bool) -> None:
        """Follow a value's elements back to what a run computes; that becomes variables, in place.

        signed: the value itself does not; what it follows from may.
        """
        if _is_known(value) or value.dtype not in (DType.INT64, DType.INT32) or not value.type.static:
            return
        count = value.type.elements
        if not isinstance(count, int) or count > MEASURED_LIMIT or len(value.shape) > 1:
            return
        node = value.producer
        if node is not None and node.operator.symbolic and not node.bodies:
            for given in node.inputs:
                if given is not None:
                    self._settle(given, signed=False)
            context = InferenceContext(self.assumptions, lambda: short_name(node), self._settle)
            substitutions = _settled_contents(node, [one.type for one in node.outputs], context)
            for one, contents in zip(node.outputs, substitutions, strict=False):
                if one.contents is None:
                    one.contents = contents
            if _is_known(value):
                return
        if signed or (node is None and value not in self.inputs) or self._is_untold(value):
            return
        name = f"{self.scope}{value.name}"
        names = [f"{name}[{place}]" for place in range(count)]
        value.contents, value.measured = contents_array([variable(name) for name in names], value.shape), True  # type: ignore[arg-type]
        for place, name in enumerate(names):
            self.bindings[name] = Binding(value, place, element=True)

    def _is_untold(self, value: Value) -> bool:
        """Whether a value has elements of one that a run showed negative ones of."""
        untold = self.assumptions.untold
        if not untold or f"{self.scope}{value.name}" in untold:
            return bool(untold)
        return value.producer is not None and any(map(self._is_untold, moved_inputs(value.producer)))

    def decide(self, value: Value) -> None:
        """Decide a condition that follows from sizes, in place, if there are examples of what inputs leave open."""
        node = value.producer
        if value.contents is not None or node is None or node.bodies or value.dtype is None:
            return
        if node.operator.symbolic or node.operator.elementwise:
            for given in node.inputs:
                if given is not None:
                    self.decide(given)
            context = InferenceContext(self.assumptions, lambda: short_name(node), self._settle, deciding=True)
            contents = _settled_contents(node, [one.type for one in node.outputs], context)
            for one, known in zip(node.outputs, contents, strict=False):
                if one.contents is None:
                    one.contents = known

    def refresh(self) -> None:
        """Infer all types anew, in place: what rewrites found out reaches what follows, and names are up to date."""
        own = {name for value in self.inputs for dim in value.type.shape or () for name in variables(dim)}
        bindings, assumptions = self.bindings, self.assumptions
        self._put_in(_known_by_now(bindings))
        self.assumptions, self.bindings = assumptions.apart(), {}
        for pair in assumptions:
            if variables(pair[0]).isdisjoint(bindings) and variables(pair[1]).isdisjoint(bindings):
                self.assumptions.note(*pair, assumptions.demanded_by(pair))
        for value in self.inputs:
            self.bind_sizes(value)
            if value.measured:
                value.contents, value.measured = None, False
        for node in self:
            types, contents = self.infer(node, [value.name for value in node.outputs])
            for value, type, known in zip(node.outputs, types, contents, strict=False):
                if known is None and value.contents is not None and not value.measured:
                    names = set().union(*map(variables, value.contents.ravel())) if is_symbolic(value.contents) else ()
                    known = value.contents if own.issuperset(names) else None
                value.type, value.contents, value.measured = type, known, False
            self._bind(node)
        followed = self._restore(bindings)
        renamed = {
            name: value.type.shape[place]
            for name, (value, place, element) in bindings.items()
            if name not in self.bindings and not element and value.type.shape is not None and self._holds(value)
        }
        for a, b in assumptions:
            # The node that assumed it may be gone because of it: an Expand to a size that was taken to be the input's.
            named = bindings.keys() & (variables(a) | variables(b))
            if named and named <= self.bindings.keys() | followed.keys() | renamed.keys():
                left, right = substitute(a, renamed), substitute(b, renamed)
                if left != right:
                    self.assumptions.note(left, right, assumptions.demanded_by((a, b)))
        if followed:
            self._put_in(followed)
            noted, self.assumptions = self.assumptions, self.assumptions.apart()
            for a, b in noted:
                left, right = substitute(a, followed), substitute(b, followed)
                if left != right:
                    self.assumptions.note(left, right, noted.demanded_by((a, b)))
            self.refresh()

    def _put_in(self, sizes: Mapping[str, DimLike]) -> None:
        """Put sizes that are known by now in their places in constants."""
        constants = {value for node in self for value in node.inputs if value is not None and value.producer is None}
        for value in constants if sizes else ():
            if value.contents is not None and value.constant is None:
                elements = [substitute(element, sizes) for element in value.contents.flat]
                value.contents = _as_numbers(contents_array(elements, value.contents.shape), value.type)

    def _restore(self, bindings: Mapping[str, Binding]) -> dict[str, DimLike]:
        """Keep bindings that constants mention, though nothing that is inferred does; and all of elements, which were
        taken to be no less than 0: what follows from that may be a constant by now, and has to be looked at still.

        Elements that turned out to follow from other variables are not computed by a run, so nothing can bind theirs:
        these are returned, with what they are.
        """
        constants = {value for node in self for value in node.inputs if value is not None and value.producer is None}
        symbolic = [value for value in constants if value.contents is not None and value.constant is None]
        wanted = {name for value in symbolic for dim in value.contents.flat for name in variables(dim)}  # type: ignore[union-attr]
        wanted |= {name for name, binding in bindings.items() if binding.element and self._holds(binding.value)}
        followed: dict[str, DimLike] = {}
        for name in sorted(wanted):
            if name in self.bindings or name not in bindings:
                continue
            value, place, element = bindings[name]
            if element and value.contents is not None and not value.measured:
                now = value.contents.flat[place]
                followed[name] = now = now if isinstance(now, Dim) else int(now)
                if maximum(now, 0) != now:
                    self.assumptions.note(maximum(now, 0), now)
                continue
            self.bindings[name] = bindings[name]
            if element and value.contents is None:
                value.measured = True
                value.contents = contents_array(
                    [variable(f"{self.scope}{value.name}[{n}]") for n in range(value.type.elements)],
                    value.shape,  # type: ignore[arg-type]
                )
                for n, dim in enumerate(value.contents.flat):
                    self.bindings[str(dim)] = Binding(value, n, element=True)
            now = value.contents.flat[place] if element else value.shape[place]  # type: ignore[union-attr]
            if variable(name) != now:
                self.assumptions.note(variable(name), now)
        return followed

    def _holds(self, value: Value) -> bool:
        return value.producer in self._nodes if value.producer is not None else value in self.inputs

    def _bind(self, node: Node) -> None:
        """Bind the variables among a node's sizes that were minted for it."""
        for value in node.outputs:
            self.bind_sizes(value)

    def bind_sizes(self, value: Value) -> None:
        """Bind the variables that are sizes of `value` and named after it."""
        for axis, dim in enumerate(value.type.shape or ()):
            if isinstance(dim, Dim) and dim == variable(name := f"{self.scope}{value.name}.{axis}"):
                self.bindings.setdefault(name, Binding(value, axis, element=False))

    # ------------------------------------------------------------ changing

    def replace(self, old: Value, new: Value) -> None:
        """Let every user of `old`, and the graph's outputs, read `new` instead."""
        if old is new:
            return
        for node in old.users:
            self.set_inputs(node, [new if value is old else value for value in node.inputs])
        self.outputs = [new if value is old else value for value in self.outputs]
        for name, binding in self.bindings.items():
            if binding.value is old:
                self.bindings[name] = binding._replace(value=new)

    def set_inputs(self, node: Node, inputs: Sequence[Value | None]) -> None:
        """Exchange the inputs of `node`. Types of its outputs are kept: call only with inputs that mean the same."""
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
        for name in [name for name, binding in self.bindings.items() if binding.value in node.outputs]:
            del self.bindings[name]
        self.set_inputs(node, [])
        del self._nodes[node]

    def remove_dead(self) -> bool:
        """Take out every node that no graph output depends on; whether there was any."""
        before = len(self._nodes)
        keep = set(self.results)
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

    def _settled(self, type: Type) -> Type:
        """The type with numbers for the sizes that the assumptions settle."""
        if type.shape is None or type.static:
            return type
        return TensorType(type.dtype, tuple(self.assumptions.substitutions.get(dim, dim) for dim in type.shape))

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


def infer(
    node: Node, context: InferenceContext, wanted: int, fresh: Callable[[int, int], Dim], scope: str = ""
) -> tuple[tuple[Type, ...], tuple[np.ndarray | None, ...]]:
    """Types of a node's outputs, and their contents where they are settled before the run.

    fresh: the variable for the size of an output's axis that only a run can tell. Where not even the ranks are known
    there are `wanted` outputs, of element types that the signature tells. Bodies are exchanged for copies made for the
    inputs' types. GraphError names the node and its inputs if the operator refuses them.
    """
    try:
        if node.bodies:
            from jitonnx.ir.bodies import contents_taken, infer_bodies

            types = infer_bodies(node, context, f"{scope}{node.name}/")
            contents = contents_taken(node, f"{scope}{node.name}/", CONTENTS_LIMIT, len(types))
        else:
            if any(value is not None and value.type == UNKNOWN for value in node.inputs):
                return unranked(node.operator, node.inputs, wanted), (None,) * wanted
            check_inputs(node.operator, node.inputs, node.name)
            try:
                types = as_tuple(node.operator.infer(context, *node.inputs))
            except DataDependentError:
                types = as_tuple(node.operator.infer_open(*node.inputs))
            if _open(types) and (substitutions := _evaluated(node)) is not None:
                return tuple(type_of(array) for array in substitutions), substitutions
            _check_sizes(types)
    except DataDependentError:
        types = (UNKNOWN,) * wanted if node.bodies else unranked(node.operator, node.inputs, wanted)
        return types, (None,) * wanted
    except InferenceError as error:
        raise GraphError(f"{describe(node)}: {error}") from error
    types = tuple(map(_workable, types))
    if _open(types):
        types = tuple(_closed(type, functools.partial(fresh, output)) for output, type in enumerate(types))
    try:
        return types, contents if node.bodies else _settled_contents(node, types, context)
    except DataDependentError:  # contents follow from the shape of an input, and only a run tells even its rank
        return types, (None,) * len(types)
    except InferenceError as error:
        raise GraphError(f"{describe(node)}: {error}") from error


def _known_by_now(bindings: Mapping[str, Binding]) -> dict[str, DimLike]:
    """Variables whose values turned out to be known before the run, and these."""
    known: dict[str, DimLike] = {}
    for name, (value, place, element) in bindings.items():
        if element and value.constant is not None:
            known[name] = int(value.constant.flat[place])
        elif not element and value.type.shape is not None and isinstance(size := value.shape[place], int):
            known[name] = size
    return known


def _is_known(value: Value) -> bool:
    return value.contents is not None


def _open(types: Sequence[Type]) -> bool:
    """Whether some sizes are left to the run."""
    return any(None in (type.shape or ()) for type in types)


def _check_sizes(types: Sequence[Type]) -> None:
    """InferenceError for a size that is known to be negative."""
    for type in types:
        if type.shape is not None and any(isinstance(size, int) and size < 0 for size in type.shape):
            raise InferenceError(f"its result would have the shape {list(type.shape)}, with a negative size")


def _workable(type: Type) -> Type:
    """The type; where the number of elements is too large an expression to work with, the longest sizes are left to the
    run, as those of paddings that are worked out layer by layer come to be."""
    if type.shape is None or math.prod([terms_of(dim) for dim in type.shape if dim is not None]) <= MOST_TERMS:
        return type
    try:
        product([dim for dim in type.shape if dim is not None])
    except UnwieldyError:
        longest = max(terms_of(dim) for dim in type.shape if dim is not None)
        left: list[Any] = [None if dim is None or terms_of(dim) == longest else dim for dim in type.shape]
        return TensorType(type.dtype, tuple(left))
    return type


def _closed(type: Type, fresh: Callable[[int], Dim]) -> Type:
    """The type with variables for the sizes that only a run can tell."""
    if type.shape is None or None not in type.shape:
        return type
    return TensorType(type.dtype, tuple(fresh(axis) if dim is None else dim for axis, dim in enumerate(type.shape)))


def _evaluated(node: Node) -> tuple[np.ndarray, ...] | None:
    """The outputs of an operator on small constants."""
    arrays = [None if value is None else value.constant for value in node.inputs]
    known = all(value is None or array is not None for value, array in zip(node.inputs, arrays, strict=True))
    if not known or not node.operator.deterministic or any(x is not None and x.size > CONTENTS_LIMIT for x in arrays):
        return None
    try:
        return tuple(np.asarray(result) for result in evaluate_arrays(node.operator, arrays))
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise InferenceError(str(error)) from error


def _settled_contents(node: Node, types: Sequence[Type], context: InferenceContext) -> tuple[np.ndarray | None, ...]:
    """Outputs that are known before the run, as far as shapes may depend on them: small ones.

    Those that follow from the inputs' types, shape arithmetic on dimension expressions, and what small constants give.
    """
    nothing = (None,) * len(types)
    if any(value is not None and value.dtype is None for value in node.inputs):
        return nothing
    if (substitutions := node.operator.contents(*node.inputs)) is not None:
        return (_as_numbers(substitutions, types[0]), *nothing[1:])
    given = [value for value in node.inputs if value is not None]
    if not given or any(value.contents is None or value.contents.size > CONTENTS_LIMIT for value in given):
        return nothing
    if all(value.constant is not None for value in given):
        return _folded(node, types)
    if not node.operator.symbolic:
        return nothing
    arrays = [None if value is None or value.contents is None else _as_object(value.contents) for value in node.inputs]
    try:
        results = as_tuple(node.operator.evaluate_sizes(context, *arrays))
        made = [
            _as_numbers(_as_sizes(np.asarray(one, object)), type) for one, type in zip(results, types, strict=False)
        ]
    except (DataDependentError, UnwieldyError, ArithmeticError):
        # Expressions that stay undecided, as in a comparison, or that grow beyond use, and divisions by 0.
        return nothing
    except IndexError as error:
        raise InferenceError(str(error)) from error
    return tuple(made)


def _folded(node: Node, types: Sequence[Type]) -> tuple[np.ndarray | None, ...]:
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


def _as_sizes(contents: np.ndarray) -> np.ndarray:
    """The contents; UnwieldyError for sums that are no sizes, but numbers that wrap round."""
    added = [one.terms[-1] for one in contents.flat if isinstance(one, Dim)]
    if any(abs(number) > _MOST_ADDED for monomial, number in added if not monomial):
        raise UnwieldyError("a number so large is added to a size that the sum may wrap round")
    return contents


def _as_numbers(contents: np.ndarray, type: Type) -> np.ndarray:
    """Contents without dimension expressions become an array of the value's own dtype."""
    if contents.dtype != object or type.dtype in (None, DType.STRING) or is_symbolic(contents):
        return contents
    return contents.astype(type.dtype.numpy)


def _as_object(contents: np.ndarray) -> np.ndarray:
    return contents if contents.dtype == object else contents_array(contents.ravel().tolist(), contents.shape)
