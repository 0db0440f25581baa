"""The walk over the wire format: it changes nothing but where large weights are, and no bytes make it stumble."""

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from jitonnx.errors import InvalidProtobuf
from jitonnx.model.wire import LARGE, Tickets, parse
from jitonnx.proto import GraphProto, ModelProto, TensorProto
from tests.model.models import model_of

BIG = np.arange(LARGE, dtype=np.int32)


def tensors(graph: GraphProto) -> list[TensorProto]:
    """All tensors of a graph, with those of its nodes and their subgraphs."""
    found = list(graph.initializer) + [t for s in graph.sparse_initializer for t in (s.values, s.indices)]
    for node in graph.node:
        for attribute in node.attribute:
            found += [attribute.t, *attribute.tensors]
            for inner in (attribute.g, *attribute.graphs):
                found += tensors(inner)
    return found


def redeemed(model: ModelProto, tickets: Tickets) -> ModelProto:
    """`model` with its weights back in place."""
    graphs = [model.graph, GraphProto(node=[node for function in model.functions for node in function.node])]
    for graph in graphs:
        for tensor in tensors(graph):
            if tensor.HasField("raw_data"):
                tensor.raw_data = bytes(tickets.redeem(tensor.raw_data))
    return model


def everywhere() -> onnx.ModelProto:
    """Large tensors in every place that can hold one."""
    tensor = numpy_helper.from_array(BIG, "big")
    inner = helper.make_graph([], "inner", [], [], [numpy_helper.from_array(BIG + 1, "inner")])
    node = helper.make_node("Foo", [], ["y"], value=tensor, body=inner)
    attribute = helper.make_attribute("list", [numpy_helper.from_array(BIG + 2)])
    node.attribute.append(attribute)
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(BIG, "s"), numpy_helper.from_array(np.arange(LARGE)), [LARGE * 2]
    )
    small = numpy_helper.from_array(np.arange(3), "small")
    return model_of([node], [], [], [numpy_helper.from_array(BIG + 3, "w"), small], sparse=[sparse])


def test_tickets_stand_for_what_was_there() -> None:
    data = everywhere().SerializeToString()
    model, tickets = parse(memoryview(data))
    large = [t for t in tensors(model.graph) if t.HasField("raw_data") and len(t.raw_data) < 100]
    assert sum(len(tickets.redeem(t.raw_data)) > LARGE for t in large) == 6
    assert redeemed(model, tickets) == ModelProto.FromString(data)


def test_long_lists_of_attributes_stay_as_they_are() -> None:
    """Trees have lists of a million numbers, which are not walked over."""
    lists = {
        "ints": list(range(LARGE)),
        "floats": [0.5] * LARGE,
        "strings": ["LEAF"] * LARGE,
        "tensor": numpy_helper.from_array(BIG),
    }
    model = helper.make_model(helper.make_graph([helper.make_node("Lists", [], [], **lists)], "lists", [], []))
    stripped, tickets = parse(memoryview(model.SerializeToString()))
    (tensor,) = (t for t in tensors(stripped.graph) if t.raw_data)
    assert len(tensor.raw_data) < 100
    assert (
        redeemed(stripped, tickets).SerializeToString()
        == ModelProto.FromString(model.SerializeToString()).SerializeToString()
    )


def test_a_forged_ticket_is_data() -> None:
    tickets = Tickets()
    ticket = tickets.issue(memoryview(b"secret"))
    assert tickets.redeem(ticket) == b"secret"
    forged = bytes(len(ticket))
    assert tickets.redeem(forged) is forged


@given(st.integers(0, 10**6))
def test_truncated_files(length: int) -> None:
    data = everywhere().SerializeToString()
    cut = data[: length % len(data)]
    try:
        expected = ModelProto.FromString(cut)
    except DecodeError:
        expected = None
    if expected is None:
        with pytest.raises(InvalidProtobuf):
            parse(memoryview(cut))
    else:
        assert redeemed(*parse(memoryview(cut))) == expected


@given(st.binary(max_size=40), st.integers(0, 10**6))
def test_damaged_files(noise: bytes, position: int) -> None:
    data = bytearray(everywhere().SerializeToString())
    position %= len(data)
    data[position : position + len(noise)] = noise
    try:
        model, tickets = parse(memoryview(bytes(data)))
    except InvalidProtobuf:
        return
    assert redeemed(model, tickets) == ModelProto.FromString(bytes(data))


def field(number: int, content: bytes) -> bytes:
    """A field of bytes in protobuf's wire format."""
    length, size = len(content), bytearray()
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + content


def test_nesting_has_a_limit() -> None:
    graph = field(10, bytes(LARGE))  # its doc_string
    for _ in range(40):
        attribute = field(6, graph)
        node = field(5, attribute)
        graph = field(1, node)
    with pytest.raises(InvalidProtobuf, match="nested more than 100 deep"):
        parse(memoryview(field(7, graph)))
