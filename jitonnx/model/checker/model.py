"""The fields of a model: versions, operator sets, metadata, and which fields an IR version has."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from jitonnx.model.checker.nodes import Opsets, all_nodes, repeated, subgraphs
from jitonnx.model.checker.operators import IMPORTED_ANYWAY
from jitonnx.model.checker.report import Place, quoted
from jitonnx.ops.registry import canonical
from jitonnx.proto import IR_VERSION, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

if TYPE_CHECKING:
    from jitonnx.model.checker.walk import Walk

FIRST_IR_WITH_OPSETS = 3


def check(walk: Walk) -> bool:
    """The model's own fields; False if there is nothing more to look at."""
    proto = walk.proto
    if not proto.HasField("graph"):
        walk.add("model.graph", "No graph was found in the protobuf.", Place(), "is the file an ONNX model?")
        return False
    version = proto.ir_version
    if version > IR_VERSION:
        text = f"Unsupported model IR version: {version}, max supported IR version: {IR_VERSION}"
        walk.add("model.ir-version", text, Place(), "export with an older onnx package, or upgrade jitonnx")
    elif version < 1:
        what = f"is {version}" if proto.HasField("ir_version") else "is absent"
        text = f"the model's IR version {what}; it is a number from 1 to {IR_VERSION}"
        walk.add("model.ir-version", text, Place(), "set ir_version to that of the onnx package that made the model")
    check_opsets(walk, {canonical(each.domain) for each in proto.functions})
    if repeated(entry.key for entry in proto.metadata_props):
        keys = ", ".join(map(quoted, repeated(entry.key for entry in proto.metadata_props)[:5]))
        walk.add("model.metadata", f"several metadata properties have the key {keys}", Place(), "keys are distinct")
    if walk.thorough:
        if not proto.domain:
            text = "the model names no domain"
            walk.add("model.domain", text, Place(), "ONNX asks for a reversed domain name, such as org.example")
        _check_newer_fields(walk)
    return True


def check_opsets(walk: Walk, own: Collection[str] = ()) -> None:
    """The versions of operator sets that the model and its functions import.

    own: domains whose versions are the model's affair, as it has functions of them.
    """
    proto, registry = walk.proto, walk.registry
    if not proto.opset_import and proto.ir_version >= FIRST_IR_WITH_OPSETS:
        text = (
            "Missing opset in the model. All ModelProtos MUST have at least one entry that specifies which version of "
            "the ONNX OperatorSet is being imported."
        )
        walk.add("model.opsets", text, Place())
    elif proto.opset_import and 1 <= proto.ir_version < FIRST_IR_WITH_OPSETS:
        text = f"operator sets are imported, which IR version {proto.ir_version} does not have"
        walk.add("model.opsets-early", text, Place(), f"set ir_version to {FIRST_IR_WITH_OPSETS} or later")
    owners: list[tuple[ModelProto | FunctionProto, Place]] = [(proto, Place())]
    owners += [(each, Place(f"function {each.domain}:{each.name}")) for each in proto.functions]
    for owner, place in owners:
        for name, version in Opsets.of(owner).versions.items():
            domain = registry.domain(name)
            newest = None if domain is None or (domain.sets and name in own) else domain.newest
            if version < 1 or (newest is not None and version > newest):
                known = f"jitonnx knows 1 to {newest}" if newest is not None else "versions begin with 1"
                if domain is not None and domain.sets:
                    known = f"registered are {', '.join(str(one.version) for one in domain.sets)}"
                text = f"operator set {version} of domain {name or 'ai.onnx'!r} is unknown: {known}"
                walk.add("model.opsets", text, place, "export the model for one of these, or upgrade jitonnx")
        if walk.thorough:
            for name in repeated(canonical(entry.domain) for entry in owner.opset_import):
                text = f"the operator set of domain {name or 'ai.onnx'!r} is imported several times"
                walk.add("model.opset-twice", text, place, "the highest version counts")
    if walk.thorough:
        _check_unknown(walk, own)


def _check_unknown(walk: Walk, own: Collection[str]) -> None:
    """Report domains that the model imports, that nobody knows and that no node names."""
    proto = walk.proto
    unknown = [name for name in Opsets.of(proto).versions if name not in own and walk.registry.domain(name) is None]
    unknown = [name for name in unknown if name not in IMPORTED_ANYWAY]
    if unknown:
        used = {
            node.domain for nodes in (proto.graph.node, *(f.node for f in proto.functions)) for node in all_nodes(nodes)
        }
        for name in unknown:
            if name not in used:
                text = (
                    f"the operator set of domain {quoted(name)} is imported, which is not registered; no node uses it"
                )
                walk.add("model.opset-unknown", text, Place(), walk.registry.describe(name))


# ---------------------------------------------------------------------------------------------- fields by IR version

_MODEL = {"training_info": 7, "functions": 8, "configuration": 11}
_GRAPH = {"sparse_initializer": 6, "quantization_annotation": 5, "metadata_props": 10}
_FUNCTION = {"attribute_proto": 9, "overload": 10, "value_info": 10, "metadata_props": 10}
_NODE = {"overload": 10, "metadata_props": 10, "device_configurations": 11}
"""The IR version from which on a message has a field, where that is not the first."""
_ATTRIBUTE = {"type": 2, "sparse_tensor": 6, "sparse_tensors": 6, "tp": 8, "type_protos": 8}
_TYPES = {
    TensorProto.BFLOAT16: 4,
    **dict.fromkeys(range(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2FNUZ + 1), 9),
    TensorProto.UINT4: 10,
    TensorProto.INT4: 10,
    TensorProto.FLOAT4E2M1: 11,
    TensorProto.FLOAT8E8M0: 12,
    TensorProto.UINT2: 13,
    TensorProto.INT2: 13,
    TensorProto.FLOAT6E2M3: 14,
    TensorProto.FLOAT6E3M2: 14,
}
"""The IR version from which on there is an element type."""


def _check_newer_fields(walk: Walk) -> None:
    """Report each field once that the model's IR version does not have."""
    version = walk.ir_version
    if not 1 <= version < IR_VERSION:
        return
    told: set[str] = set()
    for what, first, graph in _used(walk.proto, version):
        if first > version and what not in told:
            told.add(what)
            text = f"{what} is used, which there is from IR version {first} on; the model is of version {version}"
            walk.add("model.newer-field", text, Place(graph), f"set ir_version to {first}")


def _used(proto: ModelProto, version: int) -> Iterator[tuple[str, int, str]]:
    """What is used that is newer than a version, the version that has it, and where."""
    yield from _newer(proto, _MODEL, version, "")
    graphs: list[tuple[GraphProto | FunctionProto, str]] = [(proto.graph, f"graph {quoted(proto.graph.name)}")]
    graphs += [(each, f"function {each.domain}:{each.name}") for each in proto.functions]
    while graphs:
        graph, where = graphs.pop()
        yield from _newer(graph, _GRAPH if isinstance(graph, GraphProto) else _FUNCTION, version, where)
        if isinstance(graph, GraphProto):
            for tensor in graph.initializer:
                if (first := _TYPES.get(tensor.data_type, 1)) > version:
                    yield f"the element type {TensorProto.DataType.Name(tensor.data_type)}", first, where
        for node in graph.node:
            yield from _newer(node, _NODE, version, where)
            yield from _newer_attributes(node, version, where)
            graphs += [(inner, f"{where} / {node.op_type} node {quoted(node.name)}") for inner in subgraphs(node)]


def _newer_attributes(node: NodeProto, version: int, where: str) -> Iterator[tuple[str, int, str]]:
    for attribute in node.attribute:
        yield from _newer(attribute, _ATTRIBUTE, version, where)


def _newer(message: Any, fields: dict[str, int], version: int, where: str) -> Iterator[tuple[str, int, str]]:
    if version >= max(fields.values()):
        return
    for field, _ in message.ListFields():
        first = fields.get(field.name, 1)
        if first > version:
            yield f"{message.DESCRIPTOR.name}.{field.name}", first, where
