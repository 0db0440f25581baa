"""What the checker asks beyond a walk over the messages: files beside the model, and what building its graph tells.

Types and shapes follow from building: the loader's own way, which goes on behind a node that cannot be built.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

from jitonnx.errors import Error
from jitonnx.ir.dtypes import DType
from jitonnx.model.build import Builder
from jitonnx.model.checker.nodes import subgraphs
from jitonnx.model.checker.report import Finding, Place, quoted
from jitonnx.model.checker.tensors import byte_size
from jitonnx.model.checker.walk import Walk
from jitonnx.model.tensors import TensorReader
from jitonnx.model.types import contradiction, declaration, other_shape
from jitonnx.proto import ModelProto, NodeProto, TensorProto

_CHECKSUM = "checksum"


def check_files(walk: Walk, reader: TensorReader) -> None:
    """External data: the files that there are, the bytes in them, and their digests where the model has them."""
    digests: dict[str, str] = {}
    for tensor, graph in _tensors(walk.proto):
        if tensor.data_location != TensorProto.EXTERNAL or tensor.data_type not in _TYPES:
            continue
        place = Place(graph, value=tensor.name)
        what = f"tensor {quoted(tensor.name)}"
        try:
            size = byte_size(DType(tensor.data_type), math.prod(tensor.dims))
            reader.external.read(tensor, size, what)
            entries = {entry.key: entry.value for entry in tensor.external_data}
            if entries.get(_CHECKSUM):
                location = entries["location"]
                if location not in digests:
                    digests[location] = hashlib.sha1(reader.external.whole(location, what)).hexdigest()
                if digests[location] != entries[_CHECKSUM].lower():
                    named = quoted(entries[_CHECKSUM])
                    text = f"{what} has the digest {named} for {quoted(location)}, which is {digests[location]} (SHA-1)"
                    walk.add("external.checksum", text, place, "the file is not the model's")
        except Error as error:
            walk.add("external.range", error.text, place)


_TYPES = frozenset(dtype.value for dtype in DType if dtype is not DType.STRING)


def _tensors(proto: ModelProto) -> Iterator[tuple[TensorProto, str]]:
    """Every tensor of a model, and where it is."""
    for tensor in proto.graph.initializer:
        yield tensor, f"graph {quoted(proto.graph.name)}"
    waiting: list[tuple[NodeProto, str]] = [(node, f"graph {quoted(proto.graph.name)}") for node in proto.graph.node]
    waiting += [(node, f"function {each.domain}:{each.name}") for each in proto.functions for node in each.node]
    while waiting:
        node, where = waiting.pop()
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t, where
            for tensor in attribute.tensors:
                yield tensor, where
        for graph in subgraphs(node):
            inner = f"{where} / {node.op_type} node {quoted(node.name)}"
            for tensor in graph.initializer:
                yield tensor, inner
            waiting += [(each, inner) for each in graph.node]


def check_built(walk: Walk, builder: Builder) -> None:
    """What is wrong with operators' inputs, and declarations that contradict what was inferred.

    Nothing is built of a model whose names, functions or tensors are broken.
    """
    if walk.report.refused:
        return
    graph = walk.proto.graph
    where = f"graph {quoted(graph.name)}"

    def failed(index: int, error: Error) -> None:
        node = graph.node[index]
        place = Place(where, index, node.name, node.op_type, tuple(node.output[:4]))
        walk.report.add(Finding("build", error.text, place))

    try:
        values, certain = builder.try_main(graph, failed)
    except Error as error:
        walk.report.add(Finding("build", error.text, Place(where)))
        return
    for infos in (graph.value_info, graph.output):
        for info in infos:
            value = values.get(info.name)
            if value is None:
                continue
            place = Place(where, value=info.name)
            if text := contradiction(value.type, info):
                walk.add("types.mismatch", text, place)
            elif text := other_shape(value, declaration(info), certain=certain):
                walk.add("shapes.mismatch", text, place)
