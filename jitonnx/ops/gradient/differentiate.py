"""Reverse-mode differentiation: from a result back to variables, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import spelled
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.errors import GraphError
from jitonnx.ir.graph import Graph, Node, Value, describe
from jitonnx.ops.gradient.decompositions import SPELLED
from jitonnx.ops.gradient.rules import RULES
from jitonnx.ops.gradient.scalars import derivatives
from jitonnx.ops.gradient.tape import Tape

HANDLED = (*RULES, *SPELLED)


def gradients(
    graph: Graph, result: Value, variables: Sequence[Value], given: Mapping[Value, Value], origin: tuple[str, ...]
) -> list[Value]:
    """The derivatives of the sum of `result`'s elements by `variables`, in new nodes of the graph, each of the type of
    its variable.

    given: what stands for the variables and other values where the derivative is taken, if not they themselves: what
    follows from them is computed anew. GraphError names a node on the way that has no derivative.
    """
    tape = Tape(graph, origin)
    for value in (result, *variables):
        if not _differentiable(value):
            raise GraphError(f"{value.name!r} is {value.type}: only floating-point tensors have derivatives")
    values = {value: given.get(value, value) for value in variables} | dict(given)
    nodes = _forward(tape, result, variables, values)
    parts = {values.get(result, result): tape.full(1, result.shape, result.dtype)}
    for node in reversed(nodes):
        outputs = [parts.pop(value, None) for value in node.outputs]
        if not any(outputs):
            continue
        for given_to, part in zip(node.inputs, _handed_back(tape, node, outputs), strict=False):
            if given_to is not None and part is not None and _differentiable(given_to):
                parts[given_to] = tape.plus(parts[given_to], part) if given_to in parts else part
    found = (parts.get(values[value]) for value in variables)
    return [tape.zeros(value) if part is None else part for value, part in zip(variables, found, strict=True)]


def _differentiable(value: Value) -> bool:
    return value.dtype in (DType.FLOAT, DType.DOUBLE, *HALVES)


def _forward(tape: Tape, result: Value, variables: Sequence[Value], values: dict[Value, Value]) -> list[Node]:
    """The nodes from the variables to the result, in order, those that are spelled out as what they are spelled out in.

    `values` gets what stands for each value that is computed anew.
    """
    wanted = _between(tape.graph, result, set(variables) | set(values))
    nodes: list[Node] = []
    for node in [node for node in tape.graph if node in wanted]:
        inputs = [None if value is None else values.get(value, value) for value in node.inputs]
        if type(node.operator) not in SPELLED and inputs == list(node.inputs):
            nodes.append(node)
            continue
        outputs = _computed(tape, node, inputs, nodes)
        values.update(zip(node.outputs, outputs, strict=False))
    return nodes


def _computed(tape: Tape, node: Node, inputs: Sequence[Value | None], nodes: list[Node]) -> Sequence[Value]:
    """A node's outputs for other inputs, or spelled out; what computes them is appended to `nodes`."""
    before = len(tape.graph)
    if type(node.operator) in SPELLED:
        made = SPELLED[type(node.operator)](tape, node, *inputs)
        outputs = [made] if isinstance(made, Value) else list(made)
        added = list(tape.graph)[before:]
    else:
        names = [f"{value.name}_again_{before}" for value in node.outputs]
        outputs = list(
            tape.graph.add(
                node.operator,
                inputs,
                outputs=names,
                origin=node.origin or (node.name,),
                bodies=node.bodies,
                captures=node.captures,
            )
        )
        added = list(tape.graph)[before:]
    nodes.extend(added)
    return outputs


def _between(graph: Graph, result: Value, variables: set[Value]) -> set[Node]:
    """The nodes that the result needs and that need one of the variables."""
    reached, nodes = set(variables), []
    for node in graph:
        if any(value in reached for value in node.inputs) and not any(value in variables for value in node.outputs):
            reached.update(node.outputs)
            nodes.append(node)
    needed, found = {result}, set()
    for node in reversed(nodes):
        if any(value in needed for value in node.outputs):
            found.add(node)
            needed.update(value for value in node.inputs if value is not None)
    return found


def _handed_back(tape: Tape, node: Node, outputs: Sequence[Value | None]) -> Sequence[Value | None]:
    """What each input of a node gets of what its outputs have."""
    rule = RULES.get(type(node.operator))
    if rule is not None:
        handed = rule(tape, node, *outputs)
        return [handed] if isinstance(handed, Value) else handed
    if node.operator.elementwise and outputs[0] is not None:
        return _elementwise(tape, node, outputs[0])
    raise GraphError(
        f"{describe(node)} has no derivative: known are those of elementwise operators and of "
        f"{', '.join(sorted({operator.__name__ for operator in HANDLED}))}"
    )


def _elementwise(tape: Tape, node: Node, part: Value) -> list[Value | None]:
    """An elementwise operator by the derivative of its scalar expression."""
    statements, _ = spelled(node)
    *views, last = statements
    if not isinstance(last.computation, c.Map) or not all(isinstance(view.computation, c.Reshape) for view in views):
        raise GraphError(f"{describe(node)} has no derivative: it is not one expression of its inputs' elements")
    sources = {view.outputs[0]: view.inputs[0] for view in views}
    operands = [value for value in last.inputs if value is not None]
    count = len(operands)
    seed = e.operand(count, part.dtype)
    wide = e.cast(seed, DType.FLOAT) if part.dtype in HALVES else seed
    root = last.computation.expr
    try:
        found = derivatives(root, e.cast(wide, root.dtype))
    except KeyError as error:
        raise GraphError(f"{describe(node)} has no derivative: the function {error} has none") from error
    handed: dict[Value, Value] = {}
    for place, derivative in found.items():
        source = sources.get(operands[place], operands[place])
        if source is None or source not in node.inputs:  # a constant of the code
            continue
        expression = e.cast(derivative, operands[place].dtype)
        summed = tape.sum_to(tape.map(expression, *_operands(tape, operands, sources), part), operands[place].shape)
        summed = tape.reshape(summed, source.shape)
        handed[source] = tape.plus(handed[source], summed) if source in handed else summed
    # An input that is read twice is handed all of it once.
    return [handed.pop(value, None) if value is not None else None for value in node.inputs]


def _operands(tape: Tape, operands: Sequence[Value], sources: Mapping[Value, Value | None]) -> list[Value]:
    """The operands of a node's expression as values of the graph: views and constants of its code among them."""
    return [
        tape.reshape(source, value.shape)
        if (source := sources.get(value)) is not None
        else tape.constant(value.constant)
        if value.producer is None and value.constant is not None and not value.users
        else value
        for value in operands
    ]
