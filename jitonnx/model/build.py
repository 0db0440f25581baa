"""Makes a `Graph` of a checked model: names become values, nodes become operators with inferred types."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from jitonnx import errors
from jitonnx.errors import Error, Fail, InvalidGraph
from jitonnx.ir.assumptions import Assumptions
from jitonnx.ir.bodies import with_sizes
from jitonnx.ir.graph import Graph, GraphError, Value
from jitonnx.ir.inference import unnoted
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator, as_tuple, is_custom
from jitonnx.ir.raw import RawNode
from jitonnx.ir.schema import check_inputs
from jitonnx.ir.strings import string_scalar, strings_of
from jitonnx.ir.types import Type, shapeless
from jitonnx.model.checker.attributes import kind_by_field
from jitonnx.model.checker.model import FIRST_IR_WITH_OPSETS
from jitonnx.model.checker.nodes import (
    GRADIENT,
    FunctionKey,
    Opsets,
    captured,
    describe,
    function_key,
    initializer_names,
    reads,
)
from jitonnx.model.checker.order import sorted_nodes
from jitonnx.model.functions import Scope, attributes_within, enter
from jitonnx.model.tensors import TensorReader
from jitonnx.model.types import Dimensions, contradiction, declared_input, tensor_type, value_type
from jitonnx.ops.composite import Composite, Nodes
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.registry import FOLDERS, Registry, canonical
from jitonnx.proto import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    ValueInfoProto,
)
from jitonnx.support.records import NamedTuple

_T = TypeVar("_T")


class _Call(NamedTuple):
    """A call whose function is being built: where it stands, what follows there, and which it is."""

    scope: Scope
    rest: Iterator[NodeProto]
    node: NodeProto
    function: FunctionProto


class Builder:
    """Builds the graphs of one model."""

    def __init__(
        self,
        model: ModelProto,
        reader: TensorReader,
        registry: Registry,
        *,
        in_order: bool,
        composed: bool = True,
        assumptions: Assumptions | None = None,
    ) -> None:
        """model: as the checker found it sound. in_order: whether all its nodes are in topological order.
        composed: whether the parts of operators that others say stand in their places (`ops.composite`).
        assumptions: what the graphs are to answer as, and note nothing in; without them the usual case is."""
        self._reader, self._registry, self._in_order, self._composing = reader, registry, in_order, composed
        self._assuming = Assumptions() if assumptions is None else assumptions
        self._assumed: list[Assumptions] = []
        self.custom = set[tuple[str, str]]()
        """Users' operators among the nodes, by domain and name."""
        self.documented = False
        """Whether a function of a document that a user registered is among the nodes."""
        self._functions: dict[FunctionKey, FunctionProto] = {function_key(f): f for f in model.functions}
        self._opsets = Opsets.of(model)
        if model.ir_version < FIRST_IR_WITH_OPSETS and not self._opsets.versions:
            self._opsets = Opsets({"": 1})
        self.free = self._has_library_operators(model)
        """Whether an input that is declared as a scalar is one of any shape, as onnxruntime takes it: models around
        operators of libraries declare no other shapes, where they mean none."""
        self.dimensions = Dimensions()
        self._sparse: dict[Value, SparseTensorProto] = {}
        """What values are filled up from."""
        self._replaceable: set[Value] = set()
        """The model's initializers, in bodies as well: a feed or the session's options may say what they are."""

    def main(self, proto: GraphProto) -> Graph:
        """The model's graph. An input that is also an initializer becomes a constant.

        What value_info says of an initializer does not count: converters to float16 leave float32 ones, as the scales
        of a Resize, declared as float16, and onnxruntime does not look either.
        """
        graph = self._graph(proto)
        scope = self._with_inputs(graph, proto)
        self._finish(graph, proto, scope)
        for place, info in enumerate(proto.output):
            stored = self._sparse.get(graph.outputs[place])
            if stored is not None and info.type.HasField("sparse_tensor_type"):
                graph.outputs[place] = self._sparse_output(graph, stored)
        given = {tensor.name for tensor in proto.initializer} if proto.value_info else set[str]()
        for info in proto.value_info:
            value = None if info.name in given else scope.values.get(info.name)
            if value is not None and (text := contradiction(value.type, info)):
                raise Fail(text)
        return graph

    @property
    def certain(self) -> bool:
        """Whether what was built so far assumes nothing that sizes may break and still mean something."""
        return all(assumed.certain for assumed in self._assumed)

    def _graph(self, proto: GraphProto) -> Graph:
        self._assumed.append(self._assuming.apart())
        return Graph(proto.name, self._assumed[-1])

    def _sparse_output(self, graph: Graph, proto: SparseTensorProto) -> Value:
        """What is stored of a sparse tensor, which is declared as the model's output."""
        from jitonnx.ops.fused import SparseOutput  # few models have any

        parts = (("values", proto.values), ("indices", proto.indices))
        inputs = [
            graph.add_constant(self._reader.array(tensor), f"{proto.values.name}_{part}") for part, tensor in parts
        ]
        (output,) = graph.add(SparseOutput(shape=tuple(proto.dims)), inputs, outputs=[f"{proto.values.name}_sparse"])
        return output

    def _with_inputs(self, graph: Graph, proto: GraphProto) -> Scope:
        """The scope of the model's graph in front of its first node."""
        scope = Scope(self._opsets)
        self._add_initializers(graph, proto, scope)
        self._replaceable.update(value for value in scope.values.values() if value is not None)
        for info in proto.input:
            if info.name not in scope.values:
                scope.values[info.name] = graph.add_input(info.name, self._input_type(info))
        return scope

    def try_main(self, proto: GraphProto, failed: Callable[[int, Error], None]) -> tuple[dict[str, Value], bool]:
        """Build what can be built of the model's graph; returns values by name, and whether their shapes are certain.

        failed: is told the place of each node that cannot be built, and why; what reads its outputs is left out.
        """
        graph = self._graph(proto)
        scope = self._with_inputs(graph, proto)
        left_out: set[str] = set()
        nodes = proto.node if self._in_order else sorted_nodes(proto.node)
        for index, node in enumerate(nodes):
            if not left_out.isdisjoint(reads(node)):
                left_out.update(node.output)
                continue
            try:
                self._body(graph, [node], scope)
            except Error as error:
                left_out.update(node.output)
                failed(index, error)
        values = {name: value for name, value in scope.values.items() if value is not None}
        return values, graph.assumptions.certain

    def _input_type(self, info: ValueInfoProto) -> Type:
        if not info.type.HasField("tensor_type"):
            return value_type(info.type, f"graph input {info.name!r}")
        return tensor_type(declared_input(info, free=self.free), self.dimensions)

    def _has_library_operators(self, model: ModelProto) -> bool:
        graphs: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
        used = {(canonical(node.domain), node.op_type) for graph in graphs for node in graph.node}
        found = (self._registry.find(*name) for name in used if name[0] not in FOLDERS)
        return any(declaration is not None and declaration.any_attributes for declaration in found)

    def _body_of(
        self,
        proto: GraphProto,
        types: Sequence[Type],
        shared: Sequence[Value],
        outer: Scope,
        user: Scope,
        node: NodeProto,
        *,
        ranked: bool = True,
    ) -> Graph:
        """A graph among a node's attributes, closed.

        types: of its own inputs. Initializers are none: IR 3 declares them among the inputs, and converters do so in
        later versions, too, but nothing is fed in their place. shared: values of graphs around it that are further
        inputs; constants that it reads of these are constants of its own. outer: where it is written. user: where
        `node` stands, which may refer to it. ranked: whether the shapes of these values are told.
        """
        own = _own_inputs(proto)
        if len(types) != len(own):
            raise InvalidGraph(
                f"This is an invalid model. {describe(node)}: its graph {proto.name!r} has {len(own)} inputs, "
                f"but is given {len(types)}"
            )
        graph = self._graph(proto)
        scope = Scope(outer.opsets, prefix=user.prefix)
        for info, type in zip(own, types, strict=True):
            name = scope.name(info.name)
            scope.values[info.name] = graph.add_input(name, with_sizes(type, name))
        inner: dict[Value, Value] = {}
        for value in shared:
            inner[value] = graph.add_input(value.name, value.type if ranked else shapeless(value.type))
            if ranked:
                inner[value].contents = value.contents
            if value in self._replaceable:
                self._replaceable.add(inner[value])
        for value in outer.captured(proto):
            if value not in inner and value.constant is not None:
                inner[value] = graph.add_constant(value.constant, value.name)
        for name in captured(proto):
            if name in outer.values:
                read = outer.values[name]
                scope.values[name] = None if read is None else inner[read]
        scope.attributes = attributes_within(outer.attributes, lambda value: inner.get(value, value))
        self._add_initializers(graph, proto, scope)
        self._finish(graph, proto, scope)
        for value, info in zip(graph.outputs, proto.output, strict=True):
            if text := contradiction(value.type, info):
                raise InvalidGraph(f"This is an invalid model. In the graph {proto.name!r} of {describe(node)}: {text}")
        for value in graph.inputs:
            value.contents = None
        return graph

    def _bodies(
        self, graph: Graph, operator: Operator, inputs: Sequence[Value | None], node: NodeProto, scope: Scope
    ) -> tuple[list[Graph], list[Value]]:
        """The graphs that an operator runs, and what they capture of `graph`: all but constants.

        What is computed is captured, too, where its elements are known by now: for other sizes they may be others.
        """
        graphs = {bound.attribute.name: bound for bound in scope.resolve(node) if bound.attribute.HasField("g")}
        missing = [name for name in operator.bodies if name not in graphs and not name.endswith("?")]
        if missing:
            raise InvalidGraph(f"This is an invalid model. In {describe(node)}: it lacks the attribute {missing[0]!r}")
        given = [graphs.get(name.removesuffix("?")) for name in operator.bodies]
        read = dict.fromkeys(value for bound in given if bound for value in bound.scope.captured(bound.attribute.g))
        shared = [value for value in read if not _is_constant(value, graph) or value in self._replaceable]
        context = unnoted()  # what is assumed is noted when the node's types are inferred
        bodies = []
        for index, bound in enumerate(given):
            types = operator.body_inputs(context, index, *inputs)
            if bound is None:
                bodies.append(_passing_on(types, shared))
                continue
            if operator.declared_bodies:
                types = [value_type(info.type, f"graph input {info.name!r}") for info in _own_inputs(bound.attribute.g)]
            build = functools.partial(self._body_of, bound.attribute.g, types, shared, bound.scope, scope, node)
            try:
                bodies.append(build())
            except Fail as error:
                if not operator.decides:
                    raise
                try:  # the branch may be for values of other shapes, and never be taken for these
                    bodies.append(build(ranked=False))
                except Fail:
                    raise error from None
        return bodies, shared

    def _add_initializers(self, graph: Graph, proto: GraphProto, scope: Scope) -> None:
        for tensor in proto.initializer:
            scope.values[tensor.name] = graph.add_constant(self._reader.array(tensor), tensor.name)
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            value = scope.values[name] = graph.add_constant(self._reader.dense(sparse), name)
            self._sparse[value] = sparse

    def _finish(self, graph: Graph, proto: GraphProto, scope: Scope) -> None:
        self._body(graph, proto.node, scope)
        for info in proto.output:
            value = scope.values[info.name]
            assert value is not None
            graph.outputs.append(value)

    def _body(self, graph: Graph, nodes: Sequence[NodeProto], scope: Scope) -> None:
        """Add the nodes, and in the place of a call those of its function."""
        calls: list[_Call] = []
        rest = self._ordered(nodes)
        while True:
            node = next(rest, None)
            if node is None:
                if not calls:
                    return
                call = calls.pop()
                for formal, actual in zip(call.function.output, call.node.output, strict=False):
                    if actual:
                        call.scope.values[actual] = scope.values[formal]
                scope, rest = call.scope, call.rest
                continue
            function = self._functions.get(function_key(node)) or self._declared(node, scope)
            if function is None:
                self._one(graph, node, scope)
                continue
            calls.append(_Call(scope, rest, node, function))
            scope, rest = enter(node, function, scope), self._ordered(function.node)

    def _declared(self, node: NodeProto, scope: Scope) -> FunctionProto | None:
        """The function of a registered document that a node calls, if it calls one."""
        if not node.domain:
            return None
        version = scope.opsets.versions.get(canonical(node.domain), 1)
        found = self._registry.function(node.domain, node.op_type, version)
        if found is None:
            return None
        self.documented = True
        function: FunctionProto = found.function
        return function

    def _ordered(self, nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
        return iter(nodes if self._in_order else sorted_nodes(nodes))

    def _one(self, graph: Graph, node: NodeProto, scope: Scope) -> None:
        """Add a node that is no call."""
        if node.op_type == "Constant" and canonical(node.domain) == "":
            self._add_constant(graph, node, scope)
        elif (canonical(node.domain), node.op_type) == GRADIENT:
            self._gradient(graph, node, scope)
        else:
            self._node(graph, node, scope)

    def _add_constant(self, graph: Graph, node: NodeProto, scope: Scope) -> None:
        """A Constant node, which becomes no node of the graph."""
        (name,) = node.output
        value = graph.add_constant(_constant(self._attributes(node, scope), node), scope.name(name))
        scope.values[name] = value
        self._sparse.update(
            (value, one.sparse_tensor) for one, _ in scope.resolve(node) if one.HasField("sparse_tensor")
        )

    def _gradient(self, graph: Graph, node: NodeProto, scope: Scope) -> None:
        """The nodes that compute what a Gradient gives, which names the tensors between which it differentiates."""
        from jitonnx.ops.gradient.differentiate import gradients  # few models have any

        attributes = self._attributes(node, scope)
        xs, zs, y = attributes.get("xs", ()), attributes.get("zs", ()), attributes.get("y")
        unknown = [name for name in (*xs, *zs, y) if scope.values.get(name) is None]
        if unknown or not xs or len(node.input) != len(xs) + len(zs) or len(node.output) > len(xs):
            raise InvalidGraph(
                f"This is an invalid model. In {describe(node)}: it has {len(node.input)} inputs and "
                f"{len(node.output)} outputs for xs {list(xs)} and zs {list(zs)}"
                + (f"; no tensor in front of it has the name {unknown[0]!r}" if unknown else "")
            )
        named: list[Any] = [scope.values[name] for name in (*xs, *zs)]
        fed: list[Any] = [scope.values[name] for name in node.input]
        given = {value: other for value, other in zip(named, fed, strict=True) if value is not other}
        origin = (f"{scope.prefix}{node.name}" if node.name else describe(node),)
        result: Any = scope.values[str(y)]
        found = _failing(lambda: tuple(gradients(graph, result, named[: len(xs)], given, origin)))
        for name, value in zip(node.output, found, strict=False):
            if name:
                (scope.values[name],) = graph.add(Identity(), [value], outputs=[scope.name(name)], origin=origin)

    def _raw(self, graph: Graph, node: NodeProto, scope: Scope, origin: tuple[str, ...]) -> RawNode:
        """A node with its attributes read and its inputs looked up; what `upgrade` adds goes into the graph."""
        outputs = [scope.name(name) if name else "" for name in node.output]
        stem = next(filter(None, outputs), node.op_type)

        def add_constant(array: np.ndarray) -> Value:
            return graph.add_constant(np.asarray(array), f"{stem}_constant")

        def add(operator: Operator, inputs: list[Value | None]) -> Value:
            return graph.add(operator, inputs, origin=origin)[0]

        return RawNode(
            operator=node.op_type,
            domain=canonical(node.domain),
            version=0,
            name=f"{scope.prefix}{node.name}" if node.name else "",
            attributes=self._attributes(node, scope),
            inputs=[scope.values[name] if name else None for name in node.input],
            outputs=outputs,
            add_constant=add_constant,
            add=add,
        )

    def _node(self, graph: Graph, node: NodeProto, scope: Scope) -> None:
        where = describe(node)
        origin = (f"{scope.prefix}{node.name}" if node.name else where,)
        raw = self._raw(graph, node, scope, origin)
        operator = _valid(lambda: self._registry.build(raw, scope.opsets.versions.get(raw.domain, 1)), where)
        if is_custom(type(operator)):
            self.custom.add((raw.domain, raw.operator))
        results = _failing(lambda: self._added(graph, operator, raw, origin, node, scope))
        scope.values.update((name, value) for name, value in zip(node.output, results, strict=False) if name)

    def _added(
        self, graph: Graph, operator: Operator, raw: RawNode, origin: tuple[str, ...], node: NodeProto, scope: Scope
    ) -> tuple[Value, ...]:
        if isinstance(operator, Composite) and self._composing:
            try:
                return self._composed(graph, operator, raw, origin)
            except DataDependentError:
                pass  # it is evaluated by the host
            except (InferenceError, GraphError) as error:
                raise GraphError(f"{operator.name} node {raw.name!r}: {error}") from error
        if isinstance(operator, Composite):
            raw.inputs += [None] * (len(node.input) - len(raw.inputs))  # as the model has them
        if not operator.bodies:
            return graph.add(operator, raw.inputs, name=raw.name, outputs=raw.outputs, origin=origin)
        try:
            bodies, captures = self._bodies(graph, operator, raw.inputs, node, scope)
        except InferenceError as error:
            raise InvalidGraph(f"This is an invalid model. In {describe(node)}: {error}") from error
        inputs = [*raw.inputs, *captures]
        return graph.add(
            operator,
            inputs,
            name=raw.name,
            outputs=raw.outputs,
            origin=origin,
            bodies=bodies,
            captures=len(captures),
        )

    def _composed(self, graph: Graph, operator: Composite, raw: RawNode, origin: tuple[str, ...]) -> tuple[Value, ...]:
        """The outputs of nodes that do together what `operator` says."""
        check_inputs(operator, raw.inputs, raw.name)
        parts = Nodes(graph, origin, raw.outputs)
        return as_tuple(operator.compose(parts, *raw.inputs))

    # ------------------------------------------------------------ attributes

    def _attributes(self, node: NodeProto, scope: Scope) -> dict[str, Any]:
        """The attributes but for graphs, which become bodies."""
        return {
            attribute.name: self._value(attribute, node)
            for attribute, _ in scope.resolve(node)
            if not attribute.HasField("g")
        }

    def _value(self, attribute: AttributeProto, node: NodeProto) -> Any:
        """An attribute as Python has it: numbers, text, arrays, types, and tuples of these."""
        kind = attribute.type or kind_by_field(attribute)
        what = f"{describe(node)}, attribute {attribute.name!r}"
        readers: dict[int, Callable[[], Any]] = {
            AttributeProto.UNDEFINED: tuple,
            AttributeProto.FLOAT: lambda: attribute.f,
            AttributeProto.INT: lambda: attribute.i,
            AttributeProto.STRING: lambda: _text(attribute.s),
            AttributeProto.TENSOR: lambda: self._reader.array(attribute.t, what),
            AttributeProto.SPARSE_TENSOR: lambda: self._reader.dense(attribute.sparse_tensor, what),
            AttributeProto.FLOATS: lambda: tuple(attribute.floats),
            AttributeProto.INTS: lambda: tuple(attribute.ints),
            AttributeProto.STRINGS: lambda: tuple(map(_text, attribute.strings)),
            AttributeProto.TENSORS: lambda: tuple(self._reader.array(tensor, what) for tensor in attribute.tensors),
            AttributeProto.SPARSE_TENSORS: lambda: tuple(
                self._reader.dense(one, what) for one in attribute.sparse_tensors
            ),
            AttributeProto.TYPE_PROTO: lambda: value_type(attribute.tp, what),
            AttributeProto.TYPE_PROTOS: lambda: tuple(value_type(one, what) for one in attribute.type_protos),
        }
        if kind not in readers:
            raise errors.NotImplemented(f"{what} is of a kind that jitonnx does not support yet")
        return readers[kind]()


def _constant(attributes: Mapping[str, Any], node: NodeProto) -> np.ndarray:
    """What a Constant node holds: exactly one of its attributes is there."""
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


def _own_inputs(proto: GraphProto) -> list[ValueInfoProto]:
    """What a body is given by the node that runs it."""
    initializers = set(initializer_names(proto))
    return [info for info in proto.input if info.name not in initializers]


def _is_constant(value: Value, graph: Graph) -> bool:
    """Whether a value that is read in a graph is neither computed nor given to it."""
    return value.producer is None and value.constant is not None and value not in graph.inputs


def _passing_on(types: Sequence[Type], shared: Sequence[Value]) -> Graph:
    """The body that gives what it is given, in the place of one that is left out."""
    graph = Graph("absent")
    graph.outputs = [
        graph.add_input(f"given_{place}", with_sizes(type, f"given_{place}")) for place, type in enumerate(types)
    ]
    for value in shared:
        graph.add_input(value.name, value.type)
    return graph


def _text(data: bytes) -> str:
    # Attributes that hold text in other encodings exist; what can't be decoded survives as surrogates.
    return data.decode("utf-8", "surrogateescape")


def _valid(make: Callable[[], _T], where: str) -> _T:
    """What `make` gives; its errors are those of a model that breaks the rules."""
    try:
        return make()
    except GraphError as error:
        raise InvalidGraph(f"This is an invalid model. In {where}: {error}") from error
    except InferenceError as error:
        raise Fail(str(error)) from error


def _failing(make: Callable[[], tuple[Value, ...]]) -> tuple[Value, ...]:
    try:
        return make()
    except GraphError as error:
        raise Fail(str(error)) from error
