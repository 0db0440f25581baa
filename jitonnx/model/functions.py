"""Model-local functions: a call is replaced by the function's body, built in a scope of its own.

A scope says what names mean inside one body. So nothing is renamed or copied: the same body is read anew for each call,
its formal inputs bound to the call's values, its attribute references to the call's attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from jitonnx.checker.nodes import Opsets
from jitonnx.ir.graph import Value
from jitonnx.proto import AttributeProto, FunctionProto, NodeProto
from jitonnx.records import dataclass


@dataclass
class Scope:
    """The names of one body: the model's graph, a function in one of its calls, or a subgraph."""

    opsets: Opsets
    values: dict[str, Value | None] = field(default_factory=dict)
    """What each name stands for; None for an optional input that a call leaves out."""
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    """What `ref_attr_name` refers to."""
    prefix: str = ""
    """Put before the names of values and nodes, so that two calls do not get the same ones."""
    public: Mapping[str, str] = field(default_factory=dict)
    """Names of a function's outputs in the calling graph."""

    def name(self, local: str) -> str:
        """The graph-wide name of a value defined in this body."""
        return self.public.get(local) or f"{self.prefix}{local}"

    def resolve(self, node: NodeProto) -> list[AttributeProto]:
        """A node's attributes with references exchanged for what they refer to; an unbound one is left out."""
        resolved = []
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                resolved.append(attribute)
            elif attribute.ref_attr_name in self.attributes:
                bound = AttributeProto()
                bound.CopyFrom(self.attributes[attribute.ref_attr_name])
                bound.name = attribute.name
                resolved.append(bound)
        return resolved


def enter(call: NodeProto, function: FunctionProto, caller: Scope) -> Scope:
    """The scope of a function's body in one call, which the checker found to fit."""
    label = call.name or f"{function.name}_{next(filter(None, call.output), '')}"
    values: dict[str, Value | None] = {formal: None for formal in function.input}
    for formal, actual in zip(function.input, call.input, strict=False):
        values[formal] = caller.values[actual] if actual else None
    public = {
        formal: caller.name(actual) for formal, actual in zip(function.output, call.output, strict=False) if actual
    }
    return Scope(
        opsets=Opsets.of(function),
        values=values,
        attributes=_bind(call, function, caller),
        prefix=f"{caller.prefix}{label}/",
        public=public,
    )


def _bind(call: NodeProto, function: FunctionProto, caller: Scope) -> dict[str, AttributeProto]:
    defaults = {attribute.name: attribute for attribute in function.attribute_proto}
    return {**defaults, **{attribute.name: attribute for attribute in caller.resolve(call)}}
