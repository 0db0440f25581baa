"""Invariants of a graph, checked between passes: cheaply always, and with all types inferred anew in tests."""

from __future__ import annotations

from collections.abc import Collection

from jitonnx.ir.assumptions import Pair
from jitonnx.ir.dims import Dim, DimLike, variable
from jitonnx.ir.graph import Graph, GraphError, Node, Value, describe, infer
from jitonnx.ir.inference import inferring
from jitonnx.ir.types import TensorType, Type


def verify(graph: Graph, *, full: bool = False, after: str = "") -> None:
    """GraphError ("Bug: ...") if `graph` breaks an invariant; `after` names the pass that left it so.

    Producers come before users; uses are what nodes read; names are unique; outputs exist. With `full`, operators
    accept their inputs and give the types that the values carry.
    """
    where = f" after {after}" if after else ""
    defined: set[Value] = set(graph.inputs)
    names = {value.name: value for value in graph.inputs}
    for node in graph:
        for value in node.inputs:
            if value is None:
                continue
            if node not in value._users:
                raise GraphError(f"Bug{where}: {describe(node)} is no recorded user of its input {value.name!r}")
            if value.producer is not None and value not in defined:
                raise GraphError(f"Bug{where}: {describe(node)} reads {value.name!r} before it is made")
            if value.producer is None and value.contents is None and value not in defined:
                raise GraphError(f"Bug{where}: {describe(node)} reads {value.name!r}, which nobody makes")
        for value in node.outputs:
            if value.producer is not node:
                raise GraphError(f"Bug{where}: {value.name!r} does not know its producer {describe(node)}")
            if names.setdefault(value.name, value) is not value:
                raise GraphError(f"Bug{where}: two values are named {value.name!r}, one of {describe(node)}")
            defined.add(value)
            if any(user not in graph for user in value.users):
                raise GraphError(f"Bug{where}: {value.name!r} has a user that is not in the graph")
        if full:
            _verify_types(graph, node, where)
    for value in graph.outputs:
        if value not in defined and value.contents is None:
            raise GraphError(f"Bug{where}: nobody makes the graph output {value.name!r}")


def _verify_types(graph: Graph, node: Node, where: str) -> None:
    if node.bodies:  # each is a graph of its own, which is verified by itself
        return
    noted = graph.assumptions.apart()

    def same(output: int, axis: int) -> Dim:
        """What only a run can tell has the name that it has."""
        shape = node.outputs[output].type.shape if output < len(node.outputs) else None
        dim = shape[axis] if shape is not None and axis < len(shape) else 0
        return dim if isinstance(dim, Dim) else variable(f"{node.name}.{output}.{axis}")

    with inferring(noted) as context:
        types, _ = infer(node, context, len(node.outputs), same)
    equal = {*graph.assumptions, *noted}
    for value, inferred in zip(node.outputs, types, strict=False):
        if not same_type(value.type, inferred, equal):
            taken = f"its output {value.name!r} is taken for {value.type}"
            raise GraphError(f"Bug{where}: {describe(node)} gives {inferred}, and {taken}")


def same_type(a: Type, b: Type, assumptions: Collection[Pair]) -> bool:
    """Whether two types are equal, given pairs of dimensions that are taken to be equal. UNKNOWN equals only itself."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return a == b
    if a.dtype is not b.dtype or a.rank != b.rank:
        return False
    if a.shape is None or b.shape is None or a.shape == b.shape:
        return True
    return all(same_dim(one, other, assumptions) for one, other in zip(a.shape, b.shape, strict=False))


def same_dim(a: DimLike, b: DimLike, assumptions: Collection[Pair]) -> bool:
    """Whether two dimensions are equal under the assumptions, also where they occur inside products and sums."""
    if a == b:
        return True
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return False
    classes = _classes(assumptions)
    return _canonical(a, classes) == _canonical(b, classes)


def _classes(assumptions: Collection[Pair]) -> dict[DimLike, DimLike]:
    """The representative of each assumed dimension's class; an integer where there is one."""
    parent: dict[DimLike, DimLike] = {}

    def find(dim: DimLike) -> DimLike:
        while (above := parent.get(dim, dim)) != dim:
            dim = above
        return dim

    for one, other in assumptions:
        a, b = sorted((find(one), find(other)), key=lambda dim: (isinstance(dim, Dim), len(str(dim)), str(dim)))
        if a != b:
            parent[b] = a
    return {dim: find(dim) for pair in assumptions for dim in pair}


def _canonical(dim: DimLike, classes: dict[DimLike, DimLike]) -> DimLike:
    """`dim` with what is assumed equal exchanged for one representative, in it and in the factors of its terms."""
    if not isinstance(dim, Dim) or not classes:
        return dim
    if dim in classes:
        return classes[dim]
    total: DimLike = 0
    for atoms, coefficient in dim.terms:
        term: DimLike = coefficient
        for atom in atoms:
            factor = Dim((((atom,), 1),))
            term = term * classes.get(factor, factor)
        total = total + term
    return total
