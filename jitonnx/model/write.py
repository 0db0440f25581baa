"""Writing: a graph as an ONNX model.

The graph's operators are newest forms (`ops/`), in ONNX's words (`passes/standard.py`). What is written has the
operator-set versions of the model that it came from, or the next ones under which all of its nodes mean what they mean
in the graph: a node is read back under a version, as the loader would, to see whether it does.

Large initializers can go to a file of their own, straight from where they lie: protobuf's messages end at 2 GB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.attributes import kind_of
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.errors import GraphError, InferenceError
from jitonnx.ir.graph import Graph, Node, Value, describe
from jitonnx.ir.operator import Operator, attributes_of
from jitonnx.ir.raw import RawNode
from jitonnx.ir.schema import LENIENT, Schema, attribute_faults, count_faults, schemas_of
from jitonnx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from jitonnx.model.checker.tensors import BITS
from jitonnx.model.types import Model
from jitonnx.ops.registry import Registry
from jitonnx.proto import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)
from jitonnx.support.atomic_files import replacing
from jitonnx.support.metadata import UNSET_VERSION
from jitonnx.support.records import NamedTuple

_LIMIT = (1 << 31) - 1
"""Bytes of a message at most."""
_SHARED = 128
"""Bytes from which on a constant of a body is one of the model, which several bodies may read."""
_IR_VERSIONS = {21: 10, 23: 11, 24: 12, 25: 13, 28: 14}
"""The IR version that came with an operator-set version of ai.onnx."""
_LEAST_IR = 8
_SAID = frozenset(["keepdims"])
"""Attributes that are written with their defaults, too: tools take a node without them for one that has not."""
_PAGE, _LINE, _LARGE = 4096, 64, 1 << 16
"""Tensors in a file of their own begin at cache lines, large ones at pages."""


class ExternalFile(NamedTuple):
    """The file that large initializers are written to."""

    name: str
    """It lies in the model's folder, or below it."""
    least: int = 1024
    """Bytes of an initializer that goes there, at least."""


Placement = Callable[[str, np.ndarray], tuple[str, int, int] | None]
"""Gives the place of a named tensor's elements: a location, an offset and bytes; None: they go into the model."""


def write_model(
    model: Model,
    path: str | os.PathLike[str],
    registry: Registry,
    defaults: Mapping[str, np.ndarray] | None = None,
    external: ExternalFile | Placement | None = None,
) -> None:
    """Write a model to a file, which appears as a whole or not at all.

    registry: what the model's operators are looked up in. defaults: of inputs that need not be fed, which are the last
    ones of the graph.

    InvalidArgument for a folder that does not exist; Fail for what no operator-set version says, and for more than 2 GB
    without an external file.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InvalidArgument(f"SystemError : 2: {os.fspath(path)!r} cannot be written: there is no such folder")
    if target.is_dir():
        raise InvalidArgument(f"SystemError : 21: {os.fspath(path)!r} cannot be written: it is a folder")
    if not isinstance(external, ExternalFile):
        tensors = _Inline() if external is None else _Elsewhere(external)
        data = _Writer(model, registry, tensors).model(defaults or {})
        with replacing(target) as file:
            file.write(data)
        return
    beside = target.parent / external.name
    outside = os.path.isabs(external.name) or ".." in Path(external.name).parts
    if outside or not external.name or beside == target or not beside.parent.is_dir():
        raise InvalidArgument(
            f"external initializers cannot be written to {external.name!r}: give a file in the folder of the model"
        )
    with replacing(target) as file, replacing(beside) as rest:
        file.write(_Writer(model, registry, _Beside(external, rest)).model(defaults or {}))


# ---------------------------------------------------------------- tensors


class _Inline:
    """Tensors in the model's own file."""

    def __init__(self) -> None:
        self._bytes = 0

    def put(self, array: np.ndarray, tensor: TensorProto) -> None:
        """Put a tensor's elements in its message."""
        self._bytes += array.nbytes
        if self._bytes > _LIMIT:
            raise Fail(
                "the model takes more than 2 GB, which no file without external data holds: name a file for these "
                "with the session configuration entry session.optimized_model_external_initializers_file_name"
            )
        tensor.raw_data = packed_elements(array).tobytes()


class _Beside(_Inline):
    """Large tensors in a file of their own."""

    def __init__(self, external: ExternalFile, file: BinaryIO) -> None:
        super().__init__()
        self._external, self._file, self._end = external, file, 0

    def put(self, array: np.ndarray, tensor: TensorProto) -> None:
        if array.nbytes < max(self._external.least, 1):
            return super().put(array, tensor)
        data = packed_elements(array)
        boundary = _PAGE if len(data) >= _LARGE else _LINE
        start = -(-self._end // boundary) * boundary
        self._file.write(bytes(start - self._end))
        self._file.write(data.data)
        self._end = start + len(data)
        _refer(tensor, self._external.name.replace(os.sep, "/"), start, len(data))
        return None


class _Elsewhere(_Inline):
    """Tensors where somebody else puts them."""

    def __init__(self, placement: Placement) -> None:
        super().__init__()
        self._placement = placement

    def put(self, array: np.ndarray, tensor: TensorProto) -> None:
        place = self._placement(tensor.name, array) if tensor.name and array.size else None
        if place is None:
            return super().put(array, tensor)
        _refer(tensor, *place)
        return None


def _refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Write down which file a tensor's elements are in."""
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def packed_elements(array: np.ndarray) -> np.ndarray:
    """The bytes of an array as raw_data and other files have them: little-endian, small numbers several a byte."""
    bits = BITS.get(of_numpy(array.dtype))
    if bits is None:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    each = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    places = np.unpackbits(each[:, None], axis=1, bitorder="little")[:, :bits]
    return np.packbits(places.reshape(-1), bitorder="little")


def _fill(tensor: TensorProto, name: str, array: np.ndarray, data: _Inline) -> None:
    """Make a tensor of an array, in its place: messages that are put into others are copied."""
    tensor.data_type = int(of_numpy(array.dtype))
    if name:
        tensor.name = name
    tensor.dims.extend(array.shape)
    if of_numpy(array.dtype) is DType.STRING:
        tensor.string_data.extend(str(text).encode("utf-8", "surrogateescape") for text in array.flat)
    else:
        data.put(array, tensor)


# ---------------------------------------------------------------- types


def _of_text(text: str, shape: Sequence[int | str | None] | None) -> TypeProto:
    """A type in onnxruntime's words, as `tensor(float)` or `seq(map(int64,tensor(float)))`."""
    kind, _, inner = text.removesuffix(")").partition("(")
    made = TypeProto()
    if kind in ("tensor", "sparse_tensor"):
        tensor = made.tensor_type if kind == "tensor" else made.sparse_tensor_type
        tensor.elem_type = 0 if inner == "undefined" else int(DType[inner.upper()])
        _set_shape(tensor, shape)
    elif kind == "map":
        key, _, value = inner.partition(",")
        made.map_type.key_type = int(DType[key.upper()])
        made.map_type.value_type.CopyFrom(_of_text(value, None))
    elif kind in ("seq", "optional"):
        each = made.sequence_type if kind == "seq" else made.optional_type
        each.elem_type.CopyFrom(_of_text(inner, None))
    return made


def _set_shape(tensor: Any, shape: Sequence[int | str | None] | None) -> None:
    if shape is None:
        return
    tensor.shape.SetInParent()
    for size in shape:
        dim = tensor.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size:
            dim.dim_param = size


def _type_proto(type: Type) -> TypeProto:
    """A type as far as it is known, variables for sizes left out."""
    made = TypeProto()
    if isinstance(type, TensorType | SparseTensorType):
        dtype = type.dtype if isinstance(type, TensorType) else type.element
        tensor = made.tensor_type if isinstance(type, TensorType) else made.sparse_tensor_type
        if dtype is not None:
            tensor.elem_type = int(dtype)
            shape = type.shape
            _set_shape(tensor, None if shape is None else [dim if isinstance(dim, int) else None for dim in shape])
    elif isinstance(type, MapType):
        made.map_type.key_type = int(type.key)
        made.map_type.value_type.CopyFrom(_type_proto(type.value))
    elif isinstance(type, SequenceType):
        made.sequence_type.elem_type.CopyFrom(_type_proto(type.element))
    elif isinstance(type, OptionalType):
        made.optional_type.elem_type.CopyFrom(_type_proto(type.element))
    return made


# ---------------------------------------------------------------- nodes


class _NoForm(Exception):
    """A node of an older version would become more than the node itself."""


class _Forms:
    """How nodes are written under the versions of their operators."""

    def __init__(self, graph: Graph, registry: Registry) -> None:
        self._registry, self._results = registry, set(_results(graph))
        self._known: dict[tuple[Node, int], Mapping[str, Any] | None] = {}

    def attributes(self, node: Node, opset: int) -> Mapping[str, Any] | None:
        """The attributes under an operator-set version, by name; None if the node means something else there."""
        schema = self.schema(node, opset)
        if schema is None:
            return None
        key = (node, schema.version)
        if key not in self._known:
            given = _given(node.operator)
            default = {entry.name: entry.default for entry in fields(node.operator)}  # type: ignore[arg-type]
            told = {name: value for name, value in given.items() if value != default[name]}
            said = {name: value for name, value in given.items() if name in told or name in _SAID}
            found = next((one for one in (said, told, given) if self._reads_as(node, opset, schema, one)), None)
            self._known[key] = found
        return self._known[key]

    def schema(self, node: Node, opset: int) -> Schema | None:
        """The operator's signature under an operator-set version; None if it is not there."""
        if self._registry.domain(node.operator.domain) is None:
            return None
        found = self._registry.signature(node.operator.domain, node.operator.name, opset)
        return None if found is None or found.deprecated or found.version > opset else found

    def wanted(self, node: Node, schema: Schema) -> list[Value | None]:
        """A node's outputs, None for those that nobody reads and the operator need not give."""
        last = len(schema.outputs) - 1
        wanted = [
            value if value.users or value in self._results or not schema.outputs[min(place, last)].optional else None
            for place, value in enumerate(node.outputs)
        ]
        while wanted and wanted[-1] is None:
            wanted.pop()
        return wanted

    def versions(self, node: Node) -> Iterable[int]:
        """The versions in which the operator changed."""
        return [schema.version for schema in schemas_of(type(node.operator))]

    def _reads_as(self, node: Node, opset: int, schema: Schema, given: Mapping[str, Any]) -> bool:
        """Whether the loader makes this node of one with these attributes."""
        operator = node.operator
        kinds = {name: _kind_name(operator, name) for name in given}
        kinds |= {name.removesuffix("?"): "GRAPH" for name, body in _bodies(node)}
        inputs = list(node.arguments)
        while inputs and inputs[-1] is None:
            inputs.pop()
        outputs = self.wanted(node, schema)
        if any(attribute_faults(schema, kinds)):
            return False
        if any(count_faults(schema, [value is not None for value in inputs], list(map(bool, outputs)))):
            return False
        raw = RawNode(
            operator=operator.name,
            domain=operator.domain,
            version=0,
            name=node.name,
            attributes={name: _plain(value) for name, value in given.items()},
            inputs=list(inputs),
            outputs=[value.name if value is not None else "" for value in outputs],
            add_constant=_no_form,
            add=_no_form,
        )
        try:
            built = self._registry.build(raw, opset)
        except (_NoForm, GraphError, InferenceError):
            return False
        return built == operator and raw.inputs == inputs


def _no_form(*_: Any) -> NoReturn:
    raise _NoForm


def _given(operator: Operator) -> dict[str, Any]:
    """The attributes that an operator has a value of."""
    internal = {entry.name for entry in fields(operator) if entry.metadata.get("internal")}  # type: ignore[arg-type]
    return {
        name: value for name, value in attributes_of(operator).items() if value is not None and name not in internal
    }


def _kind_name(operator: Operator, name: str) -> str:
    (annotation,) = (entry.type for entry in fields(operator) if entry.name == name)  # type: ignore[arg-type]
    kind = kind_of(annotation)
    assert kind is not None, f"Bug: {operator.name} declares {name} as {annotation!r}"
    return kind.name


def _plain(value: Any) -> Any:
    """An attribute's value as it is read from a file."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return getattr(value, "array", value)


def _bodies(node: Node) -> list[tuple[str, Graph]]:
    """The bodies of a node that are written, by the names of their attributes: not what stands for an absent one."""
    named = zip(node.operator.bodies, node.bodies, strict=True)
    return [
        (name, body) for name, body in named if not (name.endswith("?") and body.name == "absent" and not len(body))
    ]


def _results(graph: Graph) -> Iterator[Value]:
    """The outputs of a graph and of its bodies."""
    yield from graph.outputs
    for node in graph:
        for body in node.bodies:
            yield from _results(body)


def _attribute(name: str, kind: str, value: Any) -> AttributeProto:
    made = AttributeProto(name=name, type=getattr(AttributeProto, kind))
    if kind == "FLOAT":
        made.f = value
    elif kind == "INT":
        made.i = int(value)
    elif kind == "STRING":
        made.s = _bytes(value)
    elif kind == "TENSOR":
        _fill(made.t, "", value.array, _Inline())
    elif kind == "TYPE_PROTO":
        made.tp.CopyFrom(_type_proto(value))
    elif kind == "FLOATS":
        made.floats.extend(value)
    elif kind == "INTS":
        made.ints.extend(map(int, value))
    elif kind == "STRINGS":
        made.strings.extend(map(_bytes, value))
    elif kind == "TENSORS":
        for one in value:
            _fill(made.tensors.add(), "", one.array, _Inline())
    elif kind == "TYPE_PROTOS":
        made.type_protos.extend(map(_type_proto, value))
    else:
        raise Fail(f"the attribute {name!r} is of the kind {kind}, which is not written")
    return made


def _places(order: Sequence[str], left: Collection[str]) -> dict[str, int]:
    """Where onnxruntime has those initializers that are left of a model's: the last one takes the place of one that
    goes. Tools take the first for a product's weight."""
    kept, places = list(order), {name: place for place, name in enumerate(order)}
    for name in order:
        if name not in left:
            place, last = places.pop(name), kept.pop()
            if last != name:
                kept[place], places[last] = last, place
    return places


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# ---------------------------------------------------------------- the model


class _Writer:
    """One model that is written."""

    def __init__(self, model: Model, registry: Registry, data: _Inline) -> None:
        self._model, self._data = model, data
        self._forms = _Forms(model.graph, registry)
        self._opsets = self._chosen_opsets(registry)
        self._taken: set[str] = set()
        self._named: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._shared: dict[tuple[Any, ...], str] = {}
        """Names of constants of the model by where their elements lie."""
        self._kept: list[np.ndarray] = []
        self._main: GraphProto

    def model(self, defaults: Mapping[str, np.ndarray]) -> bytes:
        """The file's bytes."""
        source = self._model
        made = ModelProto(ir_version=self._ir_version(), producer_name=source.metadata.producer_name)
        made.domain, made.doc_string = source.metadata.domain, source.metadata.description
        if source.metadata.version != UNSET_VERSION:
            made.model_version = source.metadata.version
        for domain, version in sorted(self._opsets.items()):
            made.opset_import.add(domain=domain, version=version)
        for key, value in source.metadata.custom_metadata_map.items():
            made.metadata_props.add(key=key, value=value)
        self._main = made.graph
        self._graph(defaults)
        if made.ByteSize() > _LIMIT:
            raise Fail("the model takes more than 2 GB even without its large initializers")
        return made.SerializeToString()

    def _graph(self, defaults: Mapping[str, np.ndarray]) -> None:
        source, graph, proto = self._model, self._model.graph, self._main
        proto.name = source.metadata.graph_name or "graph"
        if source.metadata.graph_description:
            proto.doc_string = source.metadata.graph_description
        names: dict[Value, str] = {}
        declared = [*source.inputs, *source.overridable][: len(graph.inputs)]
        for value, said in zip(graph.inputs, declared, strict=True):
            names[value] = self._claim(said.name)
            proto.input.append(self._declared(said, value.type))
        for value, said in zip(graph.outputs, source.outputs, strict=True):
            names[value] = self._claim(said.name)
        for name, array in defaults.items():
            _fill(proto.initializer.add(), name, array, self._data)
        self._nodes(graph, proto, names)
        for value, said in zip(graph.outputs, source.outputs, strict=True):
            proto.output.append(self._declared(said, value.type))
        places = _places(source.initializers, {one.name for one in proto.initializer})
        proto.initializer.sort(key=lambda one: (places.get(one.name, len(places)), one.name))
        for node in graph:
            for value in node.outputs:
                if names[value] in source.described and isinstance(value.type, TensorType):
                    self._describe(proto.value_info, names[value], value.type)

    def _describe(self, infos: Any, name: str, type: TensorType) -> None:
        """Say what is known of an inner value, for tools that look for it instead of inferring it."""
        if type.dtype is not None and type.shape is not None:
            infos.add(name=name).type.CopyFrom(_of_text(f"tensor({type.dtype.text})", self._sizes(type)))

    def _sizes(self, type: TensorType) -> list[int | str | None]:
        """Sizes of a tensor as a model declares them: numbers, the names that it has for them, None for others."""
        return [dim if isinstance(dim, int) else self._model.dimensions.get(str(dim)) for dim in type.shape or ()]

    def _declared(self, said: Declaration, type: Type) -> ValueInfoProto:
        """An input or output as the model declares it; of an output what is known besides."""
        text, shape = said.type, said.shape
        if isinstance(type, TensorType) and type.shape is not None and said.is_tensor:
            known = self._sizes(type)
            same = shape is not None and len(shape) == len(known)
            pairs = zip(known, shape if same and shape is not None else known, strict=True)
            shape = tuple(one if isinstance(one, int) or other is None else other for one, other in pairs)
            if "undefined" in text and type.dtype is not None:
                text = f"tensor({type.dtype.text})"
        made = ValueInfoProto(name=said.name)
        made.type.CopyFrom(_of_text(text, shape))
        return made

    def _nodes(self, graph: Graph, proto: GraphProto, names: dict[Value, str]) -> None:
        """The nodes of a graph and the constants that they read. names: of values by now."""
        for node in graph:
            for value in node.outputs:
                if value not in names:
                    names[value] = self._claim(value.name)
        for node in graph:
            proto.node.append(self._node(node, proto, names))

    def _node(self, node: Node, proto: GraphProto, names: dict[Value, str]) -> NodeProto:
        operator, opset = node.operator, self._opsets[node.operator.domain]
        attributes = self._forms.attributes(node, opset)
        schema = self._forms.schema(node, opset)
        assert attributes is not None and schema is not None, f"Bug: {describe(node)} has no form"
        made = NodeProto(op_type=operator.name, name=self._claim(node.name, self._named))
        if operator.domain:  # which tools compare with nodes that do not say that they are ONNX's own
            made.domain = operator.domain
        given = [self._read(value, proto, names) for value in node.inputs]
        inputs = given[: len(given) - node.captures]
        while len(inputs) > len(schema.inputs) and not inputs[-1]:  # what later versions of the operator read
            inputs.pop()
        made.input.extend(inputs)
        made.output.extend("" if value is None else names[value] for value in self._forms.wanted(node, schema))
        for name, value in attributes.items():
            made.attribute.append(_attribute(name, _kind_name(operator, name), value))
        if operator.name in LENIENT and not operator.domain:  # whose attributes that mean nothing onnxruntime writes
            told = self._model.lenient.get(node.outputs[0].name, ())
            made.attribute.extend(one for one in told if one.name not in schema.attributes)
        captured = given[len(given) - node.captures :]
        for name, body in _bodies(node):
            attribute = made.attribute.add(name=name.removesuffix("?"), type=AttributeProto.GRAPH)
            self._body(body, attribute.g, captured)
        return made

    def _body(self, body: Graph, proto: GraphProto, captured: Sequence[str]) -> None:
        proto.name = body.name or "body"
        own = len(body.inputs) - len(captured)
        names = dict(zip(body.inputs[own:], captured, strict=True))
        for value in body.inputs[:own]:
            names[value] = self._claim(value.name)
            proto.input.append(ValueInfoProto(name=names[value], type=_type_proto(value.type)))
        self._nodes(body, proto, names)
        for value in body.outputs:
            proto.output.append(ValueInfoProto(name=names[value], type=_type_proto(value.type)))

    def _read(self, value: Value | None, proto: GraphProto, names: dict[Value, str]) -> str:
        """The name of a value that a node of `proto` reads; a constant is written when it is first read."""
        if value is None:
            return ""
        if value not in names:
            array = value.constant
            assert array is not None, f"Bug: {value} is neither computed nor known"
            if value.dtype is not DType.STRING and array.dtype != value.dtype.numpy:
                array = array.astype(value.dtype.numpy)
            names[value] = self._constant(value.name, array, proto)
        return names[value]

    def _constant(self, name: str, array: np.ndarray, proto: GraphProto) -> str:
        if array.dtype == object or array.nbytes < _SHARED:
            made = self._claim(name)
            _fill(proto.initializer.add(), made, array, self._data)
            return made
        place = (array.__array_interface__["data"][0], array.dtype, array.shape, array.strides)
        if place not in self._shared:
            self._kept.append(array)  # or another one may come to lie there
            self._shared[place] = self._claim(name)
            _fill(self._main.initializer.add(), self._shared[place], array, self._data)
        return self._shared[place]

    def _claim(self, name: str, taken: set[str] | None = None) -> str:
        """A name that no other value has in the model, bodies included. taken: the names of nodes, for one of those."""
        others = self._taken if taken is None else taken
        made = name or "value"
        while made in others:
            self._numbers[name] = self._numbers.get(name, 0) + 1
            made = f"{name}_{self._numbers[name]}"
        others.add(made)
        return made

    # ------------------------------------------------------------ versions

    def _chosen_opsets(self, registry: Registry) -> dict[str, int]:
        """The operator-set versions: the model's own, or the next under which all nodes mean what they mean."""
        by_domain: dict[str, list[Node]] = {"": []}
        for node in _all_nodes(self._model.graph):
            by_domain.setdefault(node.operator.domain, []).append(node)
        return {domain: self._chosen(domain, nodes, registry) for domain, nodes in by_domain.items()}

    def _chosen(self, domain: str, nodes: Sequence[Node], registry: Registry) -> int:
        known = registry.domain(domain)
        if known is None:
            raise Fail(f"{describe(nodes[0])} cannot be written: ONNX has no such operator")
        own = self._model.opset_imports.get(domain, 1)
        changed = sorted({version for node in nodes for version in self._forms.versions(node)})
        for opset in [own, *(v for v in changed if v > own), *(v for v in reversed(changed) if v < own)]:
            if all(self._forms.attributes(node, opset) is not None for node in nodes):
                return opset
        for node in nodes:
            if all(self._forms.attributes(node, version) is None for version in changed):
                raise Fail(f"{describe(node)}: {node.operator} cannot be written: no operator-set version says that")
        raise Fail(f"no version of the operator set {domain or 'ai.onnx'!r} has all of the model's operators")

    def _ir_version(self) -> int:
        opset = self._opsets[""]
        needed = max((ir for version, ir in _IR_VERSIONS.items() if version <= opset), default=_LEAST_IR)
        return max(needed, self._model.ir_version, _LEAST_IR)


def _all_nodes(graph: Graph) -> Iterator[Node]:
    for node in graph:
        yield node
        for body in node.bodies:
            yield from _all_nodes(body)
