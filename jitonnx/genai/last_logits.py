"""Decoders that compute logits for some tokens of each sequence: of a prompt nobody reads any but the last ones.

The last product, that with the vocabulary, is some hundred megabytes of weights, and its result for a prompt of 500
tokens as large. Exporters put it behind all tokens; here a GatherND goes in front of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from jitonnx.proto import onnx_pb2

INDICES = "jitonnx.genai.last"
"""The input that is added: int64 [sequences, number, 1], which tokens of each sequence they are."""

_NUMBER = "jitonnx.genai.number"

LARGEST_BYTES = 1 << 26
"""The most bytes of a file that is rewritten: weights lie outside of it, or there are few."""

_PRODUCTS = ("MatMul", "MatMulNBits", "Gemm")
_ELEMENTWISE = ("Add", "Cast", "Div", "Mul", "Tanh")
"""Operators between the product and the logits: a bias, a cap, a scale, another type."""


def with_last_logits(data: bytes, ids: str, logits: str) -> bytes | None:
    """A model whose `logits` are [sequences, number, vocabulary], for the tokens that `INDICES` names; None where they
    are not a product of something for each token, and for what is no model.

    ids: the input that is [sequences, tokens], or [sequences, tokens, width].
    """
    model = onnx_pb2.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return None
    graph = model.graph
    tokens = next((one for one in graph.input if one.name == ids), None)
    output = next((one for one in graph.output if one.name == logits), None)
    if tokens is None or output is None or len(output.type.tensor_type.shape.dim) != 3:
        return None
    sequences = tokens.type.tensor_type.shape.dim
    if len(sequences) not in (2, 3):
        return None
    chain = list(_chain(graph, logits))
    if not chain or chain[-1].op_type not in _PRODUCTS:
        return None
    changed = {name for node in chain for name in node.output}
    product = chain[-1]
    place = next(place for place, node in enumerate(graph.node) if node is product)
    gather = onnx_pb2.NodeProto(op_type="GatherND", name=INDICES, input=[product.input[0], INDICES])
    gather.output.append(f"{INDICES}.rows")
    gather.attribute.add(name="batch_dims", type=onnx_pb2.AttributeProto.INT, i=1)
    product.input[0] = gather.output[0]
    graph.node.insert(place, gather)
    indices = graph.input.add(name=INDICES)
    indices.type.tensor_type.elem_type = onnx_pb2.TensorProto.INT64
    indices.type.tensor_type.shape.dim.add().CopyFrom(sequences[0])
    indices.type.tensor_type.shape.dim.add(dim_param=_NUMBER)
    indices.type.tensor_type.shape.dim.add(dim_value=1)
    dimension = output.type.tensor_type.shape.dim[1]
    dimension.Clear()
    dimension.dim_param = _NUMBER
    stale = [one for one in graph.value_info if one.name in changed]
    for one in stale:
        graph.value_info.remove(one)
    made: bytes = model.SerializeToString()
    return made


def _chain(graph: onnx_pb2.GraphProto, logits: str) -> Iterator[onnx_pb2.NodeProto]:
    """The nodes from the logits back to the product, which nobody else reads in between."""
    makers = {name: node for node in graph.node for name in node.output}
    constants = {one.name for one in graph.initializer}
    constants |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    outputs = {one.name for one in graph.output}
    name = logits
    while (node := makers.get(name)) is not None:
        yield node
        if node.op_type not in _ELEMENTWISE:
            return
        computed = [given for given in node.input if given not in constants]
        if len(computed) != 1 or computed[0] in outputs:
            return
        name = computed[0]
        if sum(name in other.input for other in graph.node) > 1:
            return
