"""Models in onnxruntime's own format (`.ort` files, FlatBuffers), as the message that ONNX has for models.

Weights stay where they are: the message gets tickets for them (`jitonnx.model.wire`). A file holds what onnxruntime
made of a model at some optimisation level, so nodes may be operators of its own, which are looked up as any others.
Files with rewrites that are left to the start (`RuntimeOptimizations`) are refused: what they are is known to
onnxruntime alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jitonnx import errors
from jitonnx.errors import InvalidProtobuf
from jitonnx.model.wire import LARGE, Tickets
from jitonnx.proto import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto
from jitonnx.support.flatbuffers import FlatbufferError, Table, root

IDENTIFIER = b"ORTM"
_DEPTH = 64
"""How deep graphs and types may lie in one another."""
_MOST = 1 << 20
"""Tables of a model at most: several places of a file may point to one, which is then read for each."""
_LONGEST = 1 << 22
"""Bytes of a text, and numbers of a list, at most."""
_TENSOR, _SEQUENCE, _MAP = 1, 2, 3
_SIZE, _NAME = 1, 2


def parse(data: memoryview) -> tuple[ModelProto, Tickets]:
    """The model in `data`, its large weights as tickets.

    InvalidProtobuf for bytes that are no such model, NotImplemented for one with rewrites for onnxruntime's start.
    """
    tickets = Tickets()
    try:
        file = root(data, IDENTIFIER)
        model = file.table(1)
        if model is None:
            raise FlatbufferError("there is no model in it")
        return _Reader(tickets).model(model), tickets
    except (FlatbufferError, ValueError, RecursionError) as error:
        raise InvalidProtobuf(f"this is no model in onnxruntime's format (.ort): {error}") from error


class _Reader:
    def __init__(self, tickets: Tickets) -> None:
        self._tickets, self._left = tickets, _MOST

    def _read(self, tables: Iterable[Table]) -> Iterable[Table]:
        for table in tables:
            self._left -= 1
            if self._left < 0:
                raise FlatbufferError(f"it has more than {_MOST} tables")
            yield table

    def model(self, table: Table) -> ModelProto:
        proto = ModelProto(ir_version=table.integer(0, size=8), model_version=table.integer(5, size=8))
        for entry in self._read(table.tables(1)):
            proto.opset_import.add(domain=entry.text(0), version=entry.integer(1, size=8))
        proto.producer_name, proto.producer_version, proto.domain = (table.text(field) for field in (2, 3, 4))
        proto.doc_string = table.text(6, _LONGEST)
        for entry in self._read(table.tables(9)):
            proto.metadata_props.add(key=entry.text(0), value=entry.text(1, _LONGEST))
        graph = table.table(7)
        if graph is None:
            raise FlatbufferError("there is no graph in it")
        self._graph(graph, proto.graph, 0)
        proto.graph.doc_string = table.text(8, _LONGEST)
        return proto

    def _graph(self, table: Table, proto: GraphProto, depth: int) -> None:
        if depth > _DEPTH:
            raise FlatbufferError(f"graphs lie more than {_DEPTH} deep in one another")
        self._check_rewrites(table)
        for tensor in self._read(table.tables(0)):
            self._tensor(tensor, proto.initializer.add())
        for sparse in self._read(table.tables(7)):
            made = proto.sparse_initializer.add()
            for field, part in ((0, made.values), (1, made.indices)):
                found = sparse.table(field)
                if found is not None:
                    self._tensor(found, part)
            made.dims.extend(sparse.integers(2, _LONGEST))
        values = {one.text(0, _LONGEST): one for one in self._read(table.tables(1))}
        inputs, outputs = table.texts(5, _LONGEST), table.texts(6, _LONGEST)
        for names, target in ((inputs, proto.input), (outputs, proto.output)):
            for name in names:
                self._value(name, values.get(name), target.add())
        given = {*inputs, *outputs, *(tensor.name for tensor in proto.initializer)}
        for name, value in values.items():
            if name and name not in given and value.table(2) is not None:
                self._value(name, value, proto.value_info.add())
        for node in self._read(table.tables(2)):
            self._node(node, proto.node.add(), depth)

    def _check_rewrites(self, graph: Table) -> None:
        later = graph.table(8)
        names = [entry.text(0) for entry in self._read(later.tables(0))] if later is not None else []
        if names:
            raise errors.NotImplemented(
                f"the .ort file leaves rewrites to onnxruntime's start ({', '.join(names)}), which are its own; "
                "convert the model with the optimization style Fixed, or give the ONNX model"
            )

    def _node(self, table: Table, proto: NodeProto, depth: int) -> None:
        proto.name, proto.doc_string = table.text(0, _LONGEST), table.text(1, _LONGEST)
        proto.domain, proto.op_type = table.text(2), table.text(5)
        proto.input.extend(table.texts(8, _LONGEST))
        proto.output.extend(table.texts(9, _LONGEST))
        for attribute in self._read(table.tables(10)):
            self._attribute(attribute, proto.attribute.add(), depth)

    def _attribute(self, table: Table, proto: AttributeProto, depth: int) -> None:
        kind = table.integer(2)
        proto.name, proto.doc_string = table.text(0), table.text(1, _LONGEST)
        proto.type = kind  # type: ignore[assignment]
        kinds = AttributeProto
        if kind == kinds.FLOAT:
            proto.f = table.number(3)
        elif kind == kinds.INT:
            proto.i = table.integer(4, size=8)
        elif kind == kinds.STRING:
            proto.s = bytes(table.bytes(5))
        elif kind == kinds.FLOATS:
            proto.floats.extend(table.numbers(8, _LONGEST))
        elif kind == kinds.INTS:
            proto.ints.extend(table.integers(9, _LONGEST))
        elif kind == kinds.STRINGS:
            proto.strings.extend(text.encode() for text in table.texts(10, _LONGEST))
        elif kind == kinds.TENSOR and (tensor := table.table(6)) is not None:
            self._tensor(tensor, proto.t)
        elif kind == kinds.GRAPH and (graph := table.table(7)) is not None:
            self._graph(graph, proto.g, depth + 1)
        elif kind == kinds.TENSORS:
            for each in self._read(table.tables(11)):
                self._tensor(each, proto.tensors.add())
        elif kind == kinds.GRAPHS:
            for each in self._read(table.tables(12)):
                self._graph(each, proto.graphs.add(), depth + 1)
        else:
            raise FlatbufferError(f"the attribute {proto.name!r} has no value of its kind, {kind}")

    def _tensor(self, table: Table, proto: TensorProto) -> None:
        proto.name, proto.doc_string = table.text(0, _LONGEST), table.text(1, _LONGEST)
        proto.dims.extend(table.integers(2, _LONGEST))
        proto.data_type = table.integer(3)
        if table.integer(6, -1, size=8) >= 0:
            raise errors.NotImplemented(
                f"the weights of {proto.name!r} lie in a file beside the .ort file; give the ONNX model, or convert it "
                "with its weights inside"
            )
        if proto.data_type == TensorProto.STRING:
            proto.string_data.extend(text.encode() for text in table.texts(5, _LONGEST))
            return
        data = table.bytes(4)
        proto.raw_data = self._tickets.issue(data) if len(data) >= LARGE else bytes(data)

    def _value(self, name: str, table: Table | None, proto: ValueInfoProto) -> None:
        proto.name = name
        info = table.table(2) if table is not None else None
        if table is not None:
            proto.doc_string = table.text(1, _LONGEST)
        if info is not None:
            self._type(info, proto.type, 0)

    def _type(self, table: Table, proto: TypeProto, depth: int) -> None:
        if depth > _DEPTH:
            raise FlatbufferError(f"types lie more than {_DEPTH} deep in one another")
        proto.denotation = table.text(0)
        kind, value = table.integer(1, size=1), table.table(2)
        if value is None:
            return
        if kind == _TENSOR:
            proto.tensor_type.elem_type = value.integer(0)
            shape = value.table(1)
            if shape is not None:
                proto.tensor_type.shape.SetInParent()
                for dim in self._read(shape.tables(0)):
                    self._dimension(dim, proto.tensor_type.shape.dim.add())
        elif kind == _SEQUENCE:
            self._inner(value.table(0), proto.sequence_type.elem_type, depth)
        elif kind == _MAP:
            proto.map_type.key_type = value.integer(0)
            self._inner(value.table(1), proto.map_type.value_type, depth)
        else:
            raise FlatbufferError(f"there is no kind {kind} of types")

    def _inner(self, table: Table | None, proto: TypeProto, depth: int) -> None:
        if table is not None:
            self._type(table, proto, depth + 1)

    def _dimension(self, table: Table, proto: Any) -> None:
        proto.denotation = table.text(1)
        value = table.table(0)
        kind = value.integer(0, size=1) if value is not None else 0
        if value is not None and kind == _SIZE:
            proto.dim_value = value.integer(1, size=8)
        elif value is not None and kind == _NAME:
            proto.dim_param = value.text(2)
