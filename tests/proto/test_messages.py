"""The messages made without protobuf's Python are those of the generated modules."""

import subprocess
import sys
from typing import Any

import pytest

from jitonnx import proto
from jitonnx.proto import generate, messages, onnx_pb2, schemas
from tests.session.models import model, node, tensor


def described(descriptor: Any) -> Any:
    """A message's fields and what is declared in it."""
    fields = [(f.name, f.number, f.type, f.is_repeated, f.has_presence) for f in descriptor.fields]
    enumerations = [[(v.name, v.number) for v in each.values] for each in descriptor.enum_types]
    return descriptor.full_name, fields, enumerations, [described(each) for each in descriptor.nested_types]


def test_same_schema() -> None:
    made, generated = messages.schema("onnx"), onnx_pb2
    for message in generated.DESCRIPTOR.message_types_by_name:
        assert described(made.messages[message].DESCRIPTOR) == described(getattr(generated, message).DESCRIPTOR)
    for enumeration in generated.DESCRIPTOR.enum_types_by_name.values():
        for value in enumeration.values:
            assert made.constants[value.name] == value.number
    assert generated.DESCRIPTOR.serialized_pb == schemas.ONNX


def test_schemas_are_up_to_date() -> None:
    folder = generate.FOLDER
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in generate.GENERATED}
    assert generate.schemas(texts) == (folder / "schemas.py").read_text(encoding="utf-8")


def test_same_bytes() -> None:
    data = model([node("Relu", ["x"], ["y"])], [tensor("x", (2,))], [tensor("y", (2,))])
    ours, generated = proto.ModelProto.FromString(data), onnx_pb2.ModelProto.FromString(data)
    assert ours.SerializeToString(deterministic=True) == generated.SerializeToString(deterministic=True)
    assert str(ours) == str(generated) and ours.graph.node[0].op_type == "Relu"
    assert isinstance(ours.graph.node[0], proto.NodeProto) and proto.TensorProto.FLOAT == 1


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_with_every_implementation(implementation: str) -> None:
    script = "import jitonnx.proto as p, sys; print(p.IR_VERSION, p.ModelProto().ir_version, *sys.modules)"
    environment = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.startswith(f"{proto.IR_VERSION} 0 ")
    if implementation == "python":
        assert "jitonnx.proto.onnx_pb2" in done.stdout.split()
