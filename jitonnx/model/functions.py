"""Model-local functions: a call is replaced by the function's body, built in a scope of its own.

A scope says what names mean inside one body. So nothing is renamed or copied: the same body is read anew for each call,
its formal inputs bound to the call's values, its attribute references to the call's attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from jitonnx.ir.graph import Value
from jitonnx.model.checker.nodes import Opsets, all_nodes, captured
from jitonnx.proto import AttributeProto, FunctionProto, GraphProto, NodeProto
from jitonnx.support.records import NamedTuple, dataclass


class ScopedAttribute(NamedTuple):
    """An attribute, and the scope in which it is written: names that a graph captures are those of that scope."""

    attribute: AttributeProto
    scope: Scope


@dataclass
class Scope:
    """The names of one body: the model's graph, a function in one of its calls, or a subgraph."""

    opsets: Opsets
    values: dict[str, Value | None] = field(default_factory=dict)
    """What each name stands for; None for an optional input that a call leaves out."""
    attributes: Mapping[str, ScopedAttribute] = field(default_factory=dict)
    """What `ref_attr_name` refers to."""
    prefix: str = ""
    """Put before the names of values and nodes, so that two calls do not get the same ones."""
    public: Mapping[str, str] = field(default_factory=dict)
    """Names of a function's outputs in the calling graph."""

    def name(self, local: str) -> str:
        """The graph-wide name of a value defined in this body."""
        return self.public.get(local) or f"{self.prefix}{local}"

    def resolve(self, node: NodeProto) -> list[ScopedAttribute]:
        """A node's attributes with references exchanged for what they refer to; an unbound one is left out."""
        resolved = []
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                resolved.append(ScopedAttribute(attribute, self))
            elif attribute.ref_attr_name in self.attributes:
                given, scope = self.attributes[attribute.ref_attr_name]
                renamed = AttributeProto()
                renamed.CopyFrom(given)
                renamed.name = attribute.name
                resolved.append(ScopedAttribute(renamed, scope))
        return resolved

    def captured(self, graph: GraphProto) -> dict[Value, None]:
        """The values that a graph reads that is written in this scope, by way of graphs that it refers to as well."""
        found = {value: None for name in captured(graph) if (value := self.values.get(name)) is not None}
        for bound in self.referred(graph):
            found |= bound.scope.captured(bound.attribute.g)
        return found

    def referred(self, graph: GraphProto) -> list[ScopedAttribute]:
        """The graphs that a graph refers to as attributes of the function that it stands in."""
        if not any(bound.attribute.HasField("g") for bound in self.attributes.values()):
            return []
        names = dict.fromkeys(
            attribute.ref_attr_name
            for node in all_nodes(graph.node)
            for attribute in node.attribute
            if attribute.ref_attr_name
        )
        bound = [self.attributes[name] for name in names if name in self.attributes]
        return [each for each in bound if each.attribute.HasField("g")]

    def within(self, inner: Callable[[Value], Value]) -> Scope:
        """The same as a graph sees it that is written elsewhere, whose own values stand for those here.

        See `ScopedAttribute`.
        """
        return Scope(
            opsets=self.opsets,
            values={name: None if value is None else inner(value) for name, value in self.values.items()},
            attributes=attributes_within(self.attributes, inner),
            prefix=self.prefix,
        )


def attributes_within(
    attributes: Mapping[str, ScopedAttribute], inner: Callable[[Value], Value]
) -> dict[str, ScopedAttribute]:
    """The attributes of a function as a graph in it sees them, whose own values stand for those around it."""
    return {
        name: ScopedAttribute(bound.attribute, bound.scope.within(inner)) if bound.attribute.HasField("g") else bound
        for name, bound in attributes.items()
    }


def enter(call: NodeProto, function: FunctionProto, caller: Scope) -> Scope:
    """The scope of a function's body in one call, which the checker found to fit."""
    label = call.name or f"{function.name}_{next(filter(None, call.output), '')}"
    values: dict[str, Value | None] = {formal: None for formal in function.input}
    for formal, actual in zip(function.input, call.input, strict=False):
        values[formal] = caller.values[actual] if actual else None
    public = {
        formal: caller.name(actual) for formal, actual in zip(function.output, call.output, strict=False) if actual
    }
    scope = Scope(Opsets.of(function), values, prefix=f"{caller.prefix}{label}/", public=public)
    declared = Scope(scope.opsets, values, prefix=scope.prefix)  # defaults refer to no attributes
    defaults = {attribute.name: ScopedAttribute(attribute, declared) for attribute in function.attribute_proto}
    scope.attributes = {**defaults, **{bound.attribute.name: bound for bound in caller.resolve(call)}}
    return scope
