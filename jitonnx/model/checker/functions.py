"""A model's functions: told apart, sound in themselves, not calling themselves, and called as they are declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from jitonnx.model.checker.nodes import FunctionKey, Opsets, function_key, repeated
from jitonnx.model.checker.operators import not_imported, version_of
from jitonnx.model.checker.report import Place, quoted
from jitonnx.ops.registry import canonical
from jitonnx.proto import AttributeProto, FunctionProto

if TYPE_CHECKING:
    from jitonnx.model.checker.walk import Body, Walk

_K = TypeVar("_K", bound=Hashable)

MOST_NODES = 1 << 20
"""Nodes that a call may stand for: those of 30 functions that call the next one twice would never end."""
MOST_CALLS = 1000
"""Functions that may be called within one another."""


def check(walk: Walk) -> None:
    """All functions, whether somebody calls them or not."""
    for proto in walk.proto.functions:
        key, place = function_key(proto), place_of(proto)
        if not proto.name:
            walk.add("functions.name", "a function has no name", place)
        if key in walk.functions:
            text = f"two functions of the model have the same domain, name and overload: {label(key)}"
            walk.add("functions.twice", text, place, "rename one of them, or take one away")
            continue
        walk.functions[key] = proto
    for proto in walk.functions.values():
        check_function(walk, proto)
        if walk.thorough:
            _check_versions(walk, proto)


def check_function(walk: Walk, proto: FunctionProto) -> None:
    """A function in itself."""
    _check_signature(walk, proto)
    if not proto.opset_import:
        text = f"the function {quoted(proto.name)} imports no operator set"
        walk.add("functions.opsets", text, place_of(proto), "a function names those of its nodes itself")
    walk.function(function_key(proto), proto)


def place_of(proto: FunctionProto) -> Place:
    """A function as a place."""
    return Place(f"function {canonical(proto.domain) or 'ai.onnx'}:{proto.name}")


def label(key: FunctionKey) -> str:
    """A function for people."""
    domain, name, overload = key
    return f"{domain or 'ai.onnx'}:{name}" + (f":{overload}" if overload else "")


def _check_signature(walk: Walk, proto: FunctionProto) -> None:
    attributes = [*proto.attribute, *(each.name for each in proto.attribute_proto)]
    for what, names in (("inputs", proto.input), ("outputs", proto.output), ("attributes", attributes)):
        for name in repeated(names):
            text = f"the function {quoted(proto.name)} has two {what} of the name {quoted(name)}"
            walk.add("functions.signature", text, place_of(proto)._replace(value=name), "rename one of them")
        if "" in names:
            text = f"the function {quoted(proto.name)} has {what} without a name"
            walk.add("functions.signature", text, place_of(proto), "name all of them")


def _check_versions(walk: Walk, proto: FunctionProto) -> None:
    """Operators that differ between the operator sets of a function and of the model."""
    main, own = Opsets.of(walk.proto).versions, Opsets.of(proto).versions
    told: set[str] = set()
    for node in proto.node:
        domain = canonical(node.domain)
        here, there = own.get(domain), main.get(domain)
        if (
            here is None
            or there is None
            or here == there
            or node.op_type in told
            or function_key(node) in walk.functions
        ):
            continue
        one, other = (walk.registry.signature(domain, node.op_type, version) for version in (here, there))
        if one is not None and other is not None and one.version != other.version:
            told.add(node.op_type)
            text = (
                f"{node.op_type} is of version {one.version} in the function {quoted(proto.name)} (set {here}), "
                f"of version {other.version} in the model (set {there})"
            )
            hint = "ONNX asks for operator sets that agree on it; jitonnx takes that of the function"
            walk.add("functions.versions", text, place_of(proto), hint)


# ---------------------------------------------------------------------------------------------- calls


def check_calls(walk: Walk) -> None:
    """Every call of a function fits it, and no function calls itself, by way of others neither."""
    callees: dict[FunctionKey, dict[FunctionKey, None]] = {key: {} for key in walk.functions}
    for body, index, key in walk.calls:
        _check_call(walk, body, index, key)
        outer = body.owner
        if outer is not None:
            callees[outer][key] = None
    for circle in circles(callees):
        chain = " -> ".join(name for _, name, _ in [*circle, circle[0]])
        text = f"This is an invalid model. The function calls itself: {chain}"
        walk.add("functions.recursion", text, place_of(walk.functions[circle[0]]), "ONNX has no recursion; use a Loop")
        return
    _check_size(walk)


def _check_call(walk: Walk, body: Body, index: int, key: FunctionKey) -> None:
    node, function = body.nodes[index], walk.functions[key]
    if version_of(walk, body, node.domain) is None:
        rule, text, hint = not_imported(node.domain, node.op_type)
        walk.add(rule, text, body.place(index), hint)
    for what, given, allowed in (("inputs", node.input, function.input), ("outputs", node.output, function.output)):
        if len(given) > len(allowed):
            text = (
                f"This is an invalid model. The call has {len(given)} {what}, but the function {function.name} has "
                f"{len(allowed)}: {', '.join(list(allowed)[:20])}"
            )
            walk.add("functions.call", text, body.place(index))
    wanted: Mapping[str, str] = {
        **walk.referred.get(key, {}),
        **{each.name: AttributeProto.AttributeType.Name(each.type) for each in function.attribute_proto},
    }
    known = [*function.attribute, *(each.name for each in function.attribute_proto)]
    for attribute in node.attribute:
        name = attribute.name
        if name not in known:
            names = ", ".join(known[:20]) or "none"
            text = f"The call has attribute {name!r}, but the function {function.name} knows {names}"
            walk.add("functions.call", f"This is an invalid model. {text}", body.place(index, name))
            continue
        kind = AttributeProto.AttributeType.Name(attribute.type)
        if attribute.type and wanted.get(name, "") not in (kind, "", "UNDEFINED"):
            text = f"The call gives attribute {name!r} as {kind}, but the function {function.name} takes {wanted[name]}"
            walk.add("functions.call", f"This is an invalid model. {text}", body.place(index, name))


def _check_size(walk: Walk) -> None:
    """What calls stand for, with those within them, is not more than any model has: nothing is inlined to know that."""
    called: dict[FunctionKey, Counter[FunctionKey]] = {key: Counter() for key in walk.functions}
    for body, _, key in walk.calls:
        if body.owner is not None:
            called[body.owner][key] += 1
    sizes = sizes_of(called, {key: _own_size(walk, proto) for key, proto in walk.functions.items()})
    for body, index, key in walk.calls:
        nodes, depth = sizes[key]
        if body.owner is not None:
            continue
        if nodes > MOST_NODES:
            walk.add("functions.size", f"the call stands for more than {MOST_NODES} nodes", body.place(index))
        if depth > MOST_CALLS:
            text = f"the call stands for functions within one another {depth} deep; {MOST_CALLS} are allowed"
            walk.add("functions.size", text, body.place(index))


def _own_size(walk: Walk, proto: FunctionProto) -> int:
    """The nodes of a function, those included that calls of functions from documents stand for."""
    versions = Opsets.of(proto).versions
    size = len(proto.node)
    for node in proto.node:
        declared = (
            walk.registry.declared(node.domain, node.op_type, versions.get(node.domain, 1)) if node.domain else None
        )
        size += 0 if declared is None else declared.nodes
    return size


def sizes_of(called: Mapping[_K, Mapping[_K, int]], own: Mapping[_K, int]) -> dict[_K, tuple[int, int]]:
    """How many nodes a call of each function stands for, `MOST_NODES` + 1 at most, and how deep calls stand in one
    another. called: how often each calls others, never in a circle. own: the nodes of each."""
    sizes: dict[_K, tuple[int, int]] = {}
    for start in called:
        stack = [start]
        while stack:
            key = stack[-1]
            missing = [callee for callee in called[key] if callee not in sizes]
            if missing:
                stack += missing
                continue
            inner = [(sizes[callee], times) for callee, times in called[key].items()]
            nodes = own[key] + sum(times * size for (size, _), times in inner)
            sizes[stack.pop()] = min(nodes, MOST_NODES + 1), 1 + max((depth for (_, depth), _ in inner), default=0)
    return sizes


def circles(callees: Mapping[_K, Iterable[_K]]) -> list[list[_K]]:
    """Functions that call one another in a circle, one circle for each that a search meets."""
    found: list[list[_K]] = []
    done: set[_K] = set()
    for start in callees:
        path: list[_K] = []
        on_path: set[_K] = set()
        stack: list[tuple[_K, bool]] = [(start, True)]
        while stack:
            key, enters = stack.pop()
            if not enters:
                path.pop()
                on_path.discard(key)
                done.add(key)
            elif key in on_path:
                found.append(path[path.index(key) :])
            elif key not in done:
                path.append(key)
                on_path.add(key)
                stack.append((key, False))
                stack += [(callee, True) for callee in callees.get(key, ())]
    return found
