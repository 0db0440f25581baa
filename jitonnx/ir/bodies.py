"""Types of what nodes with bodies give: the bodies are made anew for the types that flow into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.assumptions import told_by_run
from jitonnx.ir.dims import variable, variables
from jitonnx.ir.errors import GraphError
from jitonnx.ir.extract import extract
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, as_tuple
from jitonnx.ir.types import OptionalType, SequenceType, TensorType, Type, is_symbolic

ROUNDS = 16
"""How often the types that a loop carries may change before they settle. Each time a size or a rank becomes unknown."""


class Bodies:
    """The bodies of a node while its types are inferred.

    context: what is noted of the graph around them.
    """

    def __init__(self, node: Node, context: InferenceContext, scope: str) -> None:
        self._node, self.context, self._scope = node, context, scope
        self.graphs = list(node.bodies)

    def inputs(self, index: int) -> list[Value]:
        """A body's own inputs."""
        inputs = self.graphs[index].inputs
        return inputs[: len(inputs) - len(self._node.captured)]

    def infer(self, index: int, types: Sequence[Type]) -> list[Type]:
        """The types of a body's outputs, for these types of its own inputs."""
        body, captured = self.graphs[index], self._node.captured
        own = len(body.inputs) - len(captured)
        if own != len(types):
            raise InferenceError(f"its body {body.name!r} has {own} inputs, but it is given {len(types)}")
        replaced = {
            inner: _constant(inner.name, outer)
            for inner, outer in zip(body.inputs[own:], captured, strict=True)
            if outer.contents is not None
        }
        inputs = [*types, *(value.type for value in captured)]
        scope = f"{self._scope}{index}/"
        inner, apart = body.inputs[own:], self.context.assumptions.apart()
        made = Graph(assumptions=apart, scope=scope)
        extract(list(body), body.inputs, inputs, body.outputs, replaced, made, inner)
        made.name = body.name
        for value in made.inputs:
            made.bind_sizes(value)
        for a, b in made.assumptions if not apart.demands_only else ():
            if not any(map(told_by_run, variables(a) | variables(b))):
                self.context.assume_equal(a, b)  # it is looked at before the run: who demands it may never be run
        self.graphs[index] = made
        return [value.type for value in made.outputs]

    def attempt(self, index: int, types: Sequence[Type]) -> list[Type] | None:
        """What `infer` gives; None if the body does not fit these types. It stays as it is then, and fails if it is
        run."""
        try:
            return self.infer(index, types)
        except (GraphError, InferenceError):
            return None

    def opened(self, index: int, types: Sequence[Type]) -> list[Type]:
        """Types for a body's inputs, with variables of the body for sizes that are None."""
        inputs = self.graphs[index].inputs
        return [self._own_sizes(index, value.name, type) for value, type in zip(inputs, types, strict=False)]

    def carried(
        self,
        index: int,
        first: int,
        given: Sequence[Type],
        behind: int,
        leading: Sequence[Type],
        rest: Sequence[Type] = (),
    ) -> list[Type]:
        """The types of what a loop carries, so that one iteration gives what the next one takes.

        first: which of the body's inputs is the first carried value; leading, rest: the types of those before and
        behind it. given: the types that the loop begins with. behind: which of the body's outputs is the first carried.
        """
        types = list(given)
        for _ in range(ROUNDS):
            outputs = self.infer(index, [*leading, *types, *rest])[behind : behind + len(types)]
            if len(outputs) < len(types):
                raise InferenceError(f"its body gives {len(outputs)} of the {len(types)} values that it carries")
            names = [value.name for value in self.graphs[index].inputs[first : first + len(types)]]
            merged = [self._merged(index, name, a, b) for name, a, b in zip(names, types, outputs, strict=True)]
            if merged == types:
                return types
            types = merged
        raise InferenceError("Bug: the types that its body carries do not settle")

    def _merged(self, index: int, name: str, before: Type, behind: Type) -> Type:
        """The type of a carried value that is `before` in the first iteration and then `behind`."""
        return self._own_sizes(index, name, merged(before, behind))

    def _own_sizes(self, index: int, name: str, type: Type) -> Type:
        return with_sizes(type, f"{self._scope}{index}/{name}")

    def hidden(self, type: Type) -> Type:
        """The type as the outside may know it: without the variables of a body."""
        if isinstance(type, SequenceType):
            return SequenceType(self.hidden(type.element), type.empty)
        if isinstance(type, OptionalType):
            return OptionalType(self.hidden(type.element))
        if type.shape is None:
            return type
        return TensorType(type.dtype, tuple(map(self._hidden_size, type.shape)))

    def _hidden_size(self, dim: Any) -> Any:
        return None if dim is None or any(name.startswith(self._scope) for name in variables(dim)) else dim


def _constant(name: str, outer: Value) -> Value:
    """What a body reads in the place of a captured value whose elements are known."""
    value = Value(name, outer.type, outer.contents)
    value.measured = outer.measured
    return value


def with_sizes(type: Type, name: str) -> Type:
    """The type with variables, named after a value, for sizes that are None."""
    if type.shape is None:
        return type
    sizes = tuple(variable(f"{name}.{axis}") if dim is None else dim for axis, dim in enumerate(type.shape))
    return TensorType(type.dtype, sizes)


def merged(a: Type, b: Type) -> Type:
    """The type of what is of one type or the other; sizes that differ are None. InferenceError if none can be."""
    if a == b:
        return a
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        if a.empty or b.empty:
            return b if a.empty else a
        return SequenceType(merged(a.element, b.element))
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        inner = [type.element if isinstance(type, OptionalType) else type for type in (a, b)]
        return OptionalType(merged(*inner))
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if a.dtype is None or b.dtype is None:
            return TensorType(a.dtype or b.dtype, None)
        if a.dtype is not b.dtype:
            raise InferenceError(f"one value would be both {a} and {b}")
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return TensorType(a.dtype, None)
        return TensorType(a.dtype, tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)))  # type: ignore[misc]
    raise InferenceError(f"one value would be both {a} and {b}")


def infer_bodies(node: Node, context: InferenceContext, scope: str) -> tuple[Type, ...]:
    """The types of a node's outputs; its bodies are exchanged for ones made for its inputs.

    One that does not fit them, or that is never run, stays as it is, but is a graph of this node's alone, too: rewrites
    change bodies in place, and other copies of the node may run it.
    """
    bodies = Bodies(node, context, scope)
    types = as_tuple(node.operator.infer_bodies(bodies, *node.arguments))
    given = zip(bodies.graphs, node.bodies, strict=True)
    node.bodies = tuple(made.copied() if made is source else made for made, source in given)
    return tuple(bodies.hidden(type) for type in types)


def contents_taken(node: Node, scope: str, limit: int, count: int) -> tuple[np.ndarray | None, ...]:
    """The elements of a node's `count` outputs that are known before the run, as the body that it runs is and gives
    them.

    limit: how many elements an output may have. None for others.
    """
    taken = node.operator.taken(*node.arguments)
    if taken is None:
        return (None,) * count

    def known(value: Value) -> bool:
        contents = value.contents
        if contents is None or value.measured or contents.size > limit:
            return False
        names = set().union(*map(variables, contents.flat)) if is_symbolic(contents) else ()
        return not any(name.startswith(scope) for name in names)

    return tuple(value.contents if known(value) else None for value in node.bodies[taken].outputs)


def prune_captures(graph: Graph) -> bool:
    """Take out what bodies capture and do not read; whether there was any."""
    pruned = False
    for node in graph:
        if not node.captures:
            continue
        own = len(node.inputs) - node.captures
        reads = [
            any(body.inputs[len(body.inputs) - node.captures + place] in _read(body) for body in node.bodies)
            for place in range(node.captures)
        ]
        if all(reads):
            continue
        for body in node.bodies:
            start = len(body.inputs) - node.captures
            body.inputs[start:] = [value for value, read in zip(body.inputs[start:], reads, strict=True) if read]
        kept = [value for value, read in zip(node.captured, reads, strict=True) if read]
        arguments = node.inputs[:own]
        node.captures = len(kept)
        graph.set_inputs(node, [*arguments, *kept])
        pruned = True
    return pruned


def _read(body: Graph) -> set[Value]:
    return {value for node in body for value in node.inputs if value is not None} | set(body.results)


def left_to_sizes(graph: Graph) -> Node | None:
    """A node, perhaps in a body, that gives values of one rank or another as the inputs' sizes tell; None without one.

    Such a graph is inferred for examples of these sizes.
    """
    for node in graph:
        if node.operator.decides and any(isinstance(v.type, TensorType) and v.type.shape is None for v in node.outputs):
            condition = node.inputs[0]
            if condition is not None and condition.constant is None and _told_by_sizes(condition):
                return node
        for body in node.bodies:
            found = left_to_sizes(body)
            if found is not None:
                return found
    return None


def _told_by_sizes(value: Value) -> bool:
    if value.contents is not None:
        return not value.measured
    node = value.producer
    if node is None or node.bodies or not (node.operator.symbolic or node.operator.elementwise):
        return False
    return all(given is None or _told_by_sizes(given) for given in node.inputs)
