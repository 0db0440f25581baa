"""Common subexpressions: nodes that compute the same become one."""

from __future__ import annotations

from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.passes.rewriting import Edit

MERGED = 4096
"""Constants of up to so many bytes are compared by their elements."""


def merge_equal(graph: Graph, edit: Edit) -> bool:
    """Nodes with equal operators and equal inputs become one; small constants count as equal by their elements.

    before: two Shape nodes of one tensor
    after:  one
    """
    merged = False
    seen: dict[object, Node] = {}
    constants: dict[object, Value] = {}
    for node in graph:
        if not node.operator.deterministic or node.bodies:
            continue
        key = _key(node, constants)
        first = seen.setdefault(key, node)
        shared = first.outputs[: len(node.outputs)]
        if first is node or not all(_alike(a, b) for a, b in zip(shared, node.outputs, strict=False)):
            continue
        if any(value in graph.outputs for value in node.outputs) and any(v in graph.outputs for v in first.outputs):
            continue  # each graph output keeps a node of its own
        edit.begin(node)
        edit.shares([first])
        name = node.operator.name
        edit.report.note_applied("merge equal", edit.origin, f"{name} {name}", name)
        edit.substitute(node, shared)
        merged = True
    return merged


def _alike(a: Value, b: Value) -> bool:
    """Whether two values have one type, but for sizes of `b` that only a run tells and `b` is the name of."""
    if a.type.shape is None or b.type.shape is None:
        return bool(a.type == b.type)
    if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
        return False
    pairs = enumerate(zip(a.shape, b.shape, strict=True))
    return all(x == y or str(y).endswith(f"{b.name}.{axis}") for axis, (x, y) in pairs)


def _key(node: Node, constants: dict[object, Value]) -> object:
    inputs = [value if value is None else _representative(value, constants) for value in node.inputs]
    if node.operator.commutative:
        inputs.sort(key=id)
    return node.operator, tuple(inputs)


def _representative(value: Value, constants: dict[object, Value]) -> Value:
    """One value for all constants with the same few elements, or the same symbolic dimensions."""
    if value.producer is not None or value.contents is None:
        return value
    contents = value.contents
    if contents.dtype == object:
        key: object = (value.dtype, contents.shape, tuple(contents.reshape(-1).tolist()))
    elif contents.nbytes <= MERGED:
        key = (value.dtype, contents.shape, contents.tobytes())
    else:
        return value
    return constants.setdefault(key, value)
