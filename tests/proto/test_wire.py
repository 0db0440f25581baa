"""`jitonnx.proto` against the `onnx` package: same schema, same bytes, and no clash within a process."""

import os
import random
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto
from google.protobuf.message import Message
from onnx import numpy_helper, onnx_data_pb2, onnx_ml_pb2, onnx_operators_ml_pb2
from onnx.backend.test.loader import load_model_tests

from jitonnx import proto
from jitonnx.proto import onnx_pb2

THEIR_MODULES = (onnx_ml_pb2, onnx_data_pb2, onnx_operators_ml_pb2)
THEIR_MESSAGES = {
    name: getattr(module, name) for module in THEIR_MODULES for name in module.DESCRIPTOR.message_types_by_name
}
THEIR_ENUMS = {
    name: descriptor for module in THEIR_MODULES for name, descriptor in module.DESCRIPTOR.enum_types_by_name.items()
}
OUR_FILE = onnx_pb2.DESCRIPTOR
STORED_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


# ----------------------------------------------------------------------------------------------------------- comparing


def assert_same_message(theirs: Message, ours: Message, where: str) -> None:
    """Both have the same fields present, with the same values, all the way down."""
    their_fields = {field.name: value for field, value in theirs.ListFields()}
    our_fields = {field.name: value for field, value in ours.ListFields()}
    assert list(their_fields) == list(our_fields), where
    for name, value in their_fields.items():
        assert_same_value(value, our_fields[name], f"{where}.{name}")


def assert_same_value(theirs: object, ours: object, where: str) -> None:
    if isinstance(theirs, Message):
        assert_same_message(theirs, ours, where)
    elif isinstance(theirs, (str, bytes, bool, int)):
        assert type(theirs) is type(ours) and theirs == ours, where
    elif isinstance(theirs, float):
        assert isinstance(ours, float) and np.float64(theirs).tobytes() == np.float64(ours).tobytes(), where
    else:
        assert len(theirs) == len(ours), where
        for index, (their_element, our_element) in enumerate(zip(theirs, ours, strict=True)):
            assert_same_value(their_element, our_element, f"{where}[{index}]")


def assert_same_wire(theirs: Message, where: str) -> None:
    """Our class reads what theirs wrote, holds the same, and writes the same bytes."""
    data = theirs.SerializeToString(deterministic=True)
    ours = getattr(proto, type(theirs).__name__).FromString(data)
    assert_same_message(theirs, ours, where)
    assert ours.SerializeToString(deterministic=True) == data, where


# -------------------------------------------------------------------------------------------------------------- schema


def normalised(descriptor: DescriptorProto) -> DescriptorProto:
    """The descriptor with what may differ taken out: the package's name and the order of declarations."""
    for field in descriptor.field:
        field.type_name = re.sub(r"^\.(onnx|jitonnx)\.", "", field.type_name)
        field.ClearField("json_name")
    descriptor.field.sort(key=lambda field: field.number)
    descriptor.reserved_range.sort(key=lambda reserved: reserved.start)
    descriptor.reserved_name.sort()
    descriptor.enum_type.sort(key=lambda enum: enum.name)
    descriptor.nested_type.sort(key=lambda nested: nested.name)
    for enum in descriptor.enum_type:
        enum.value.sort(key=lambda value: value.number)
    for nested in descriptor.nested_type:
        normalised(nested)
    return descriptor


def message_schema(descriptor: Descriptor) -> DescriptorProto:
    schema = DescriptorProto()
    descriptor.CopyToProto(schema)
    return normalised(schema)


@pytest.mark.parametrize("name", sorted(THEIR_MESSAGES))
def test_message_schema(name: str) -> None:
    """Names, numbers, types, labels, defaults, packing, oneofs, what is nested, reserved numbers and names."""
    assert message_schema(OUR_FILE.message_types_by_name[name]) == message_schema(THEIR_MESSAGES[name].DESCRIPTOR)


@pytest.mark.parametrize("name", sorted(THEIR_ENUMS))
def test_enum_schema(name: str) -> None:
    schemas = []
    for descriptor in (OUR_FILE.enum_types_by_name[name], THEIR_ENUMS[name]):
        schema = EnumDescriptorProto()
        descriptor.CopyToProto(schema)
        schemas.append(schema)
    assert schemas[0] == schemas[1]


def test_nothing_but_onnx_is_declared() -> None:
    assert set(OUR_FILE.message_types_by_name) == set(THEIR_MESSAGES)
    assert set(OUR_FILE.enum_types_by_name) == set(THEIR_ENUMS)
    assert OUR_FILE.package == "jitonnx"


def test_everything_is_exported() -> None:
    exported = {name for name in proto.__all__ if hasattr(getattr(proto, name), "DESCRIPTOR")}
    assert exported == {*THEIR_MESSAGES, *THEIR_ENUMS}


def declared_numbers(descriptors: Iterator[Descriptor]) -> Iterator[tuple[str, int]]:
    for descriptor in descriptors:
        yield from ((field.name, field.number) for field in descriptor.fields)
        for enum in descriptor.enum_types:
            yield from ((value.name, value.number) for value in enum.values)
        yield from declared_numbers(iter(descriptor.nested_types))


def test_generated_module_is_up_to_date() -> None:
    """Every `name = number` of onnx.proto is in onnx_pb2.py; `proto/generate.py --check` compares the rest."""
    text = (Path(proto.__file__).parent / "onnx.proto").read_text(encoding="utf-8")
    statements = re.sub(r"//.*", "", text)
    written = Counter((name, int(number)) for name, number in re.findall(r"(\w+)\s*=\s*(\d+)", statements))
    generated = Counter(declared_numbers(iter(OUR_FILE.message_types_by_name.values())))
    for enum in OUR_FILE.enum_types_by_name.values():
        generated.update((value.name, value.number) for value in enum.values)
    assert written == generated


# --------------------------------------------------------------------------------------------------------------- bytes

# Whatever a field may hold at its limits; the value is drawn by the field's type.
SCALARS = {
    FieldDescriptor.CPPTYPE_INT32: (0, 1, -1, 2**31 - 1, -(2**31)),
    FieldDescriptor.CPPTYPE_INT64: (0, 1, -1, 2**63 - 1, -(2**63)),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 2**64 - 1),
    FieldDescriptor.CPPTYPE_FLOAT: (0.0, -0.0, 1.5, float("inf"), float("nan"), 2.0**-149),
    FieldDescriptor.CPPTYPE_DOUBLE: (0.0, -0.0, 1.5, float("-inf"), float("nan"), 5e-324),
}
STRINGS = {FieldDescriptor.TYPE_STRING: ("", "name", "größer ≥ 0"), FieldDescriptor.TYPE_BYTES: (b"", b"\x00\xff raw")}


def draw_scalar(field: FieldDescriptor, generator: random.Random) -> object:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return generator.choice(field.enum_type.values).number
    return generator.choice(SCALARS.get(field.cpp_type) or STRINGS[field.type])


def fill(message: Message, generator: random.Random, depth: int) -> None:
    """Set every field of the message to random values; of a oneof, one field. Messages nest to `depth`."""
    skipped = set()
    for oneof in message.DESCRIPTOR.oneofs:
        skipped |= {field.name for field in oneof.fields} - {generator.choice(oneof.fields).name}
    for field in message.DESCRIPTOR.fields:
        if field.name in skipped:
            continue
        value = getattr(message, field.name)
        if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
            if field.is_repeated:
                value.extend(draw_scalar(field, generator) for _ in range(generator.randint(1, 3)))
            else:
                setattr(message, field.name, draw_scalar(field, generator))
        elif depth:
            child = value.add() if field.is_repeated else value
            child.SetInParent()
            fill(child, generator, depth - 1)


@pytest.mark.parametrize("name", sorted(THEIR_MESSAGES))
def test_every_field_survives(name: str) -> None:
    """Messages with every field set go both ways."""
    generator = random.Random(name)
    ours_class, theirs_class = getattr(proto, name), THEIR_MESSAGES[name]
    for _ in range(3):
        theirs = theirs_class()
        fill(theirs, generator, depth=2)
        assert_same_wire(theirs, name)
        ours = ours_class()
        fill(ours, generator, depth=2)
        assert_same_message(theirs_class.FromString(ours.SerializeToString()), ours, name)


def feed_message(value: object, value_info: onnx.ValueInfoProto) -> Message:
    """A feed or result of a node test as the message that its .pb file would hold."""
    if isinstance(value, Message):
        return value
    kind = value_info.type.WhichOneof("value")
    if kind == "map_type":
        return numpy_helper.from_dict(value, value_info.name)
    if kind == "sequence_type":
        return numpy_helper.from_list(value, value_info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, value_info.name)
    return numpy_helper.from_array(np.asarray(value), value_info.name)


def test_node_models() -> None:
    """All node-test models of the onnx package, with their feeds and expected results."""
    with warnings.catch_warnings():
        # onnx computes the expected results while it collects the cases: NumPy warns of overflows that are meant.
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    assert len(cases) > 1500
    for case in cases:
        assert_same_wire(case.model, case.name)
        for feeds, results in case.data_sets:
            for values, infos in ((feeds, case.model.graph.input), (results, case.model.graph.output)):
                for value, info in zip(values, infos, strict=True):
                    assert_same_wire(feed_message(value, info), f"{case.name} {info.name}")


@pytest.mark.parametrize("folder", ["light", "pytorch-converted", "pytorch-operator", "simple"])
def test_stored_files(folder: str) -> None:
    """All models that the onnx package ships as files."""
    paths = sorted((STORED_DATA / folder).rglob("*.onnx"))
    assert paths
    for path in paths:
        assert_same_wire(onnx.ModelProto.FromString(path.read_bytes()), str(path))


@pytest.mark.parametrize("folder", ["light", "pytorch-converted", "pytorch-operator"])
def test_stored_tensors(folder: str) -> None:
    """All feeds and results that the onnx package ships as files; in these folders all are tensors."""
    paths = sorted((STORED_DATA / folder).rglob("*.pb"))
    assert paths
    for path in paths:
        assert_same_wire(onnx.TensorProto.FromString(path.read_bytes()), str(path))


def test_unknown_fields_are_kept() -> None:
    """A field of a future IR version is carried along, not lost and not an error."""
    data = proto.ModelProto(ir_version=15).SerializeToString() + b"\xfa\x3e\x03new"  # field 1007, 3 bytes
    assert proto.ModelProto.FromString(data).SerializeToString() == data


def test_text_that_is_not_utf8_can_be_parsed() -> None:
    """ONNX is proto2, where text is not checked while parsing: a stray byte in a doc_string spoils nothing else."""
    data = proto.ModelProto(ir_version=8).SerializeToString() + b"\x32\x02\xff\xfe"  # field 6, doc_string
    assert proto.ModelProto.FromString(data).ir_version == 8


# ------------------------------------------------------------------------------------------------------------- process

SHARED_PROCESS = """
import {first}
import {second}
import onnx
import jitonnx.proto

theirs = onnx.helper.make_tensor("x", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
ours = jitonnx.proto.TensorProto.FromString(theirs.SerializeToString())
assert list(ours.float_data) == [1.0, 2.0]
assert onnx.TensorProto.FromString(ours.SerializeToString()) == theirs
assert type(ours) is not type(theirs)
"""


def run_python(source: str, **environment: str) -> None:
    """Run the source in a fresh interpreter in which every warning is an error."""
    subprocess.run([sys.executable, "-W", "error", "-c", source], check=True, env={**os.environ, **environment})


@pytest.mark.parametrize("first, second", [("onnx", "jitonnx.proto"), ("jitonnx.proto", "onnx")])
def test_onnx_in_the_same_process(first: str, second: str) -> None:
    run_python(SHARED_PROCESS.format(first=first, second=second))


def test_onnx_is_not_imported() -> None:
    run_python("import sys, jitonnx.proto; assert 'onnx' not in sys.modules")


def test_pure_python_protobuf() -> None:
    """protobuf falls back to an implementation in Python where it has no compiled one; packing works there too."""
    source = """
from google.protobuf.internal import api_implementation
from jitonnx import proto
assert api_implementation.Type() == "python"
data = proto.TensorProto(float_data=[1.0, 2.0]).SerializeToString()
assert data == b"\\x22\\x08\\x00\\x00\\x80\\x3f\\x00\\x00\\x00\\x40", data
assert proto.TensorProto.FromString(data).float_data == [1.0, 2.0]
"""
    run_python(source, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
