"""From a checked model to a `Graph`: names become values, nodes become operators with inferred types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx import errors
from jitonnx.errors import Fail, InvalidGraph
from jitonnx.ir.graph import Graph, GraphError, Value
from jitonnx.ir.operator import Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.strings import string_scalar, strings_of
from jitonnx.model.check import (
    FIRST_IR_WITH_OPSETS,
    FunctionKey,
    Opsets,
    captured,
    describe,
    domain_of,
    function_key,
    sorted_nodes,
)
from jitonnx.model.functions import Scope, enter
from jitonnx.model.tensors import TensorReader
from jitonnx.model.types import Dimensions, declaration, tensor_type
from jitonnx.ops.registry import build
from jitonnx.proto import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto


class Builder:
    """Builds the graphs of one model."""

    def __init__(self, model: ModelProto, reader: TensorReader) -> None:
        self._reader = reader
        self._functions: dict[FunctionKey, FunctionProto] = {function_key(f): f for f in model.functions}
        self._opsets = Opsets.of(model)
        if model.ir_version < FIRST_IR_WITH_OPSETS and not self._opsets.versions:
            self._opsets = Opsets({"": 1})
        self.dimensions = Dimensions()

    def main(self, proto: GraphProto) -> Graph:
        """The model's graph. An input that is also an initializer becomes a constant."""
        graph = Graph(proto.name)
        scope = Scope(self._opsets)
        self._add_initializers(graph, proto, scope)
        for info in proto.input:
            if info.name not in scope.values:
                declared = declaration(info)
                if not declared.is_tensor:
                    raise errors.NotImplemented(
                        f"graph input {info.name!r} is a {declared.type}; jitonnx takes tensors only as yet"
                    )
                if declared.dtype is None:
                    raise Fail(f"graph input {info.name!r} has no element type")
                scope.values[info.name] = graph.add_input(info.name, tensor_type(declared, self.dimensions))
        self._finish(graph, proto, scope)
        return graph

    def _subgraph(self, proto: GraphProto, outer: Scope, node: NodeProto) -> Graph:
        """A graph among a node's attributes, if it needs nothing of the graph around it but constants."""
        graph = Graph(proto.name)
        scope = Scope(outer.opsets, attributes=outer.attributes, prefix=outer.prefix, calls=outer.calls)
        for name in captured(proto):
            value = outer.values.get(name)
            if value is None or value.constant is None:
                raise errors.NotImplemented(
                    f"{describe(node)}: its subgraph {proto.name!r} reads {name!r} of the graph around it; "
                    "jitonnx does not support that yet"
                )
            scope.values[name] = graph.add_constant(value.constant, name)
        self._add_initializers(graph, proto, scope)
        for info in proto.input:
            scope.values[info.name] = graph.add_input(info.name, tensor_type(declaration(info), self.dimensions))
        self._finish(graph, proto, scope)
        return graph

    def _add_initializers(self, graph: Graph, proto: GraphProto, scope: Scope) -> None:
        for tensor in proto.initializer:
            scope.values[tensor.name] = graph.add_constant(self._reader.array(tensor), tensor.name)
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            scope.values[name] = graph.add_constant(self._reader.dense(sparse), name)

    def _finish(self, graph: Graph, proto: GraphProto, scope: Scope) -> None:
        self._body(graph, proto.node, scope)
        for info in proto.output:
            value = scope.values.get(info.name)
            if value is None:
                raise Fail(
                    f"This is an invalid model. Error: Graph output ({info.name}) does not exist in the graph. "
                    "No node, initializer or input has that name"
                )
            graph.outputs.append(value)

    def _body(self, graph: Graph, nodes: Sequence[NodeProto], scope: Scope) -> None:
        for node in sorted_nodes(nodes, set(scope.values)):
            function = self._functions.get(function_key(node))
            if function is not None:
                self._call(graph, node, function, scope)
            elif node.op_type == "Constant" and domain_of(node.domain) == "":
                (name,) = node.output
                array = self._constant(node, scope)
                scope.values[name] = graph.add_constant(array, scope.name(name))
            else:
                self._node(graph, node, scope)

    def _call(self, graph: Graph, node: NodeProto, function: FunctionProto, scope: Scope) -> None:
        label = node.name or f"{function.name}_{next(filter(None, node.output), '')}"
        inner = enter(node, function, scope, label)
        self._body(graph, function.node, inner)
        for formal, actual in zip(function.output, node.output, strict=False):
            if not actual:
                continue
            if formal not in inner.values:
                raise InvalidGraph(
                    f"This is an invalid model. The function {function.name} defines no value for its output {formal!r}"
                )
            scope.values[actual] = inner.values[formal]

    def _node(self, graph: Graph, node: NodeProto, scope: Scope) -> None:
        where = describe(node)
        outputs = [scope.name(name) if name else "" for name in node.output]
        stem = next(filter(None, outputs), node.op_type)
        origin = (f"{scope.prefix}{node.name}" if node.name else where,)

        def add_constant(array: np.ndarray) -> Value:
            return graph.add_constant(np.asarray(array), f"{stem}_constant")

        def add(operator: Operator, inputs: list[Value | None]) -> Value:
            return graph.add(operator, inputs, origin=origin)[0]

        raw = RawNode(
            operator=node.op_type,
            domain=domain_of(node.domain),
            version=0,
            name=f"{scope.prefix}{node.name}" if node.name else "",
            attributes=self._attributes(node, scope),
            inputs=[scope.values[name] if name else None for name in node.input],
            outputs=outputs,
            add_constant=add_constant,
            add=add,
        )
        operator = _invalid_graph_of(lambda: build(raw, scope.opsets.versions.get(raw.domain, 1)), where)
        results = _failing(lambda: graph.add(operator, raw.inputs, name=raw.name, outputs=raw.outputs, origin=origin))
        scope.values.update((name, value) for name, value in zip(node.output, results, strict=False) if name)

    # ------------------------------------------------------------ attributes

    def _attributes(self, node: NodeProto, scope: Scope) -> dict[str, Any]:
        return {attribute.name: self._value(attribute, node, scope) for attribute in scope.resolve(node)}

    def _value(self, attribute: AttributeProto, node: NodeProto, scope: Scope) -> Any:
        """An attribute as Python has it: numbers, text, arrays, Graphs, and tuples of these."""
        kind = attribute.type or _kind_by_field(attribute)
        what = f"{describe(node)}, attribute {attribute.name!r}"
        readers: dict[int, Callable[[], Any]] = {
            AttributeProto.UNDEFINED: tuple,
            AttributeProto.FLOAT: lambda: attribute.f,
            AttributeProto.INT: lambda: attribute.i,
            AttributeProto.STRING: lambda: _text(attribute.s),
            AttributeProto.TENSOR: lambda: self._reader.array(attribute.t, what),
            AttributeProto.GRAPH: lambda: self._subgraph(attribute.g, scope, node),
            AttributeProto.SPARSE_TENSOR: lambda: self._reader.dense(attribute.sparse_tensor, what),
            AttributeProto.FLOATS: lambda: tuple(attribute.floats),
            AttributeProto.INTS: lambda: tuple(attribute.ints),
            AttributeProto.STRINGS: lambda: tuple(map(_text, attribute.strings)),
            AttributeProto.TENSORS: lambda: tuple(self._reader.array(tensor, what) for tensor in attribute.tensors),
            AttributeProto.GRAPHS: lambda: tuple(self._subgraph(graph, scope, node) for graph in attribute.graphs),
        }
        if kind not in readers:
            raise errors.NotImplemented(f"{what} is of a kind that jitonnx does not support yet")
        return readers[kind]()

    def _constant(self, node: NodeProto, scope: Scope) -> np.ndarray:
        """What a Constant node holds: exactly one of its attributes is there."""
        attributes = self._attributes(node, scope)
        if len(attributes) != 1 or not (reader := _CONSTANTS.get(next(iter(attributes)))):
            raise InvalidGraph(
                f"This is an invalid model. {describe(node)} has the attributes {', '.join(attributes) or 'none'}; "
                f"exactly one of {', '.join(_CONSTANTS)} is needed"
            )
        (value,) = attributes.values()
        return reader(value)


_CONSTANTS: Mapping[str, Callable[[Any], np.ndarray]] = {
    "value": lambda value: value,
    "sparse_value": lambda value: value,
    "value_float": lambda value: np.asarray(value, np.float32),
    "value_floats": lambda value: np.asarray(value, np.float32),
    "value_int": lambda value: np.asarray(value, np.int64),
    "value_ints": lambda value: np.asarray(value, np.int64),
    "value_string": string_scalar,
    "value_strings": lambda value: strings_of(value, (len(value),)),
}
"""The attributes of Constant, and how each becomes an array."""


def _text(data: bytes) -> str:
    # Attributes that hold text in other encodings exist; what can't be decoded survives as surrogates.
    return data.decode("utf-8", "surrogateescape")


def _kind_by_field(attribute: AttributeProto) -> int:
    """The kind of an attribute without one (IR version 1): by the field that is set."""
    fields = {
        "f": AttributeProto.FLOAT,
        "i": AttributeProto.INT,
        "s": AttributeProto.STRING,
        "t": AttributeProto.TENSOR,
        "g": AttributeProto.GRAPH,
        "floats": AttributeProto.FLOATS,
        "ints": AttributeProto.INTS,
        "strings": AttributeProto.STRINGS,
        "tensors": AttributeProto.TENSORS,
        "graphs": AttributeProto.GRAPHS,
    }
    return next((fields[field.name] for field, _ in attribute.ListFields() if field.name in fields), 0)


def _invalid_graph_of(make: Callable[[], Operator], where: str) -> Operator:
    try:
        return make()
    except GraphError as error:
        raise InvalidGraph(f"This is an invalid model. In {where}: {error}") from error


def _failing(make: Callable[[], tuple[Value, ...]]) -> tuple[Value, ...]:
    try:
        return make()
    except GraphError as error:
        raise Fail(str(error)) from error
