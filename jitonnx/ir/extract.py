"""Graphs made of others: some of the nodes, or all of them for other input types."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from jitonnx.ir.assumptions import Assumptions, Pair, contradictory, replacements, solve
from jitonnx.ir.dims import Dim, DimLike, rebuilt, substitute, taking, variable, variables
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.types import TensorType, Type, contents_array, is_symbolic

ROUNDS = 8
"""Sizes that are put in their places may fix others; more often than so many times they are not looked for."""


def specialise(graph: Graph, types: Sequence[Type], assumptions: Assumptions | None = None) -> Graph:
    """A copy of `graph` for other input types, everything inferred anew. Constants' arrays are shared.

    assumptions: what is taken for granted about sizes from the beginning.
    """
    return extract(list(graph), graph.inputs, types, graph.outputs, into=Graph(assumptions=assumptions))


def solved(graph: Graph) -> Graph:
    """The graph with sizes put in their places that what it assumes fixes: `k` is 7 where a matrix of 7 rows is read.

    The types of its inputs are over the variables that are left, its `given_shapes` over all. The graph itself where
    nothing is fixed. GraphError where no sizes at all are what it assumes.
    """
    declared = [value.type for value in graph.inputs]
    order = list(
        dict.fromkeys(name for type in declared for dim in type.shape or () for name in sorted(variables(dim)))
    )
    source, known = graph, 0
    for _ in range(ROUNDS):
        values, used = solve(graph.assumptions, order)
        substitutions = _settled(graph)
        if len(values) + len(substitutions) == known:
            break
        known = len(values) + len(substitutions)
        assumptions = graph.assumptions.apart()
        assumptions.taken = None
        assumptions.substitutions = {dim: size for dim, (size, _) in substitutions.items()}
        kept = {*used, *(pair for _, pair in substitutions.values())}
        for pair in graph.assumptions:
            demanded_by = graph.assumptions.demanded_by(pair)
            # A demand may rest on what is only assumed of the same sizes, and that cannot be seen any more.
            rested_on = not demanded_by and not (variables(pair[0]) | variables(pair[1])).isdisjoint(values)
            if pair in kept or rested_on:
                assumptions.note(*pair, demanded_by)
        graph = specialise(source, [substituted(type, values) for type in declared], assumptions)
        graph.given_shapes = [type.shape or () for type in declared]
    return _with_replacements(graph, source)


def _with_replacements(graph: Graph, source: Graph) -> Graph:
    """The graph inferred once more with equal expressions in the places of those that it assumes to equal them."""
    types = [value.type for value in graph.inputs]
    names = {name for type in types for dim in type.shape or () for name in variables(dim)}
    taken = replacements(graph.assumptions, names)
    if taken is None:
        return graph
    assumptions = graph.assumptions.apart()
    assumptions.taken = taken
    with taking(taken):
        assumptions.substitutions = {rebuilt(dim): size for dim, size in assumptions.substitutions.items()}
    for pair in graph.assumptions:
        assumptions.note(*pair, graph.assumptions.demanded_by(pair))
    made = specialise(source, types, assumptions)
    made.given_shapes = graph.given_shapes
    return made


def _settled(graph: Graph) -> dict[DimLike, tuple[DimLike, Pair]]:
    """Sizes in a graph, expressions, that are assumed to be certain numbers; and the assumptions that say so."""
    found: dict[DimLike, tuple[DimLike, Pair]] = {}
    given = {name for value in graph.inputs for dim in value.type.shape or () for name in variables(dim)}
    for a, b in graph.assumptions:
        expression, number = (b, a) if isinstance(a, int) else (a, b)
        if isinstance(number, int) and variables(expression) <= given:
            found[expression] = number, (a, b)
    if found:
        present = {dim for node in graph for value in node.outputs for dim in value.type.shape or ()}
        present.update(graph.assumptions.substitutions)
    return {dim: entry for dim, entry in found.items() if dim in present}


def substituted(type: Type, values: Mapping[str, DimLike]) -> Type:
    """A type with values in the places of variables."""
    if type.shape is None:
        return type
    return TensorType(type.dtype, tuple(substitute(dim, values) for dim in type.shape))


def told_numbers(graph: Graph) -> dict[str, DimLike]:
    """What variables that only a run tells have to be where the graph's assumptions take them to be numbers.

    None where the assumptions contradict each other, as where one value is added to rows of 3 and of 2 elements: a run
    finds that before it comes to the code, and gets a graph for sizes like its own.
    """
    if not graph.bindings:
        return {}
    declared = [value.type for value in graph.inputs]
    own = {name for type in declared for dim in type.shape or () for name in variables(dim)}
    values, _ = solve(graph.assumptions, [*sorted(own), *sorted(graph.bindings.keys() - own)])
    if contradictory(graph.assumptions, values):
        return {}
    return {name: size for name, size in values.items() if isinstance(size, int) and name in graph.bindings}


def extract(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    types: Sequence[Type],
    outputs: Sequence[Value],
    replaced: Mapping[Value, Value] | None = None,
    into: Graph | None = None,
    captured: Collection[Value] = (),
) -> Graph:
    """A graph of some nodes (producers first), with `inputs` of the given types as its inputs.

    `replaced`: inputs and constants, and constants to read in their place. into: an empty graph. Other constants are
    new values with the same arrays: a value that several graphs read would keep all of them alive, and take the users
    in one for users in the others. Those that hold dimension expressions hold them over the new types' variables.
    captured: inputs whose elements are not known but by `replaced`: what stood for one of them before is forgotten.
    """
    copy = Graph() if into is None else into
    sizes = _sizes([value.type for value in inputs], types)
    values: dict[Value, Value] = dict(replaced or {})
    given: dict[Value, Value] = {}
    for value, kind in zip(inputs, types, strict=True):
        given[value] = copy.add_input(value.name, kind)
        read = values.setdefault(value, given[value])
        if read is not given[value]:
            read.stands_for = given[value]
    constants = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    constants |= dict.fromkeys(value for value in outputs if value.stands_for is not None)
    for value in constants:
        if value.producer is None and value not in values:
            source = value.stands_for
            if source is not None and source in captured:
                values[value] = values[source]
                continue
            values[value] = constant = Value(value.name, value.type, with_sizes(value, sizes))
            constant.stands_for = None if source is None else given.get(source)
    for node in nodes:
        arguments = [None if value is None else values[value] for value in node.inputs]
        names = [value.name for value in node.outputs]
        made = copy.add(
            node.operator,
            arguments,
            name=node.name,
            outputs=names,
            origin=node.origin,
            bodies=node.bodies,
            captures=node.captures,
        )
        values.update(zip(node.outputs, made, strict=True))
    copy.outputs = [values.get(value, value) for value in outputs]
    return copy


def _sizes(old: Sequence[Type], new: Sequence[Type]) -> dict[str, DimLike]:
    """What the dimension variables of input types are in other types of the same inputs."""
    sizes: dict[str, DimLike] = {}
    for before, behind in zip(old, new, strict=True):
        for dim, size in zip(before.shape or (), behind.shape or (), strict=False):
            if isinstance(dim, Dim) and dim == variable(name := next(iter(variables(dim)))):
                sizes.setdefault(name, size)
    return sizes


def with_sizes(value: Value, sizes: Mapping[str, DimLike]) -> np.ndarray | None:
    """Contents with variables replaced by sizes; the same array where it holds numbers only."""
    contents = value.contents
    if contents is None or not is_symbolic(contents):
        return contents
    found = contents_array([substitute(element, sizes) for element in contents.flat], contents.shape)
    return found if is_symbolic(found) else found.astype(value.dtype.numpy)
