"""The ONNX file format as protobuf messages: `onnx.proto` and the module generated from it.

The schema is this project's own text, wire-compatible with ONNX up to IR version 14: `ModelProto.FromString(data)`
reads any `.onnx` file, and what `SerializeToString()` writes is read by every ONNX tool. The messages are registered
under the protobuf package `jitonnx`, so the `onnx` package can be imported in the same process, before or after.

`messages.py` makes the classes.

The folder stands at the top of the repository and is installed as `jitonnx.proto`. `generate.py` writes what is
generated.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitonnx.proto.onnx_pb2 import (
        EXPERIMENTAL,
        IR_VERSION,
        STABLE,
        AttributeProto,
        DeviceConfigurationProto,
        FunctionProto,
        GraphProto,
        IntIntListEntryProto,
        MapProto,
        ModelProto,
        NodeDeviceConfigurationProto,
        NodeProto,
        OperatorProto,
        OperatorSetIdProto,
        OperatorSetProto,
        OperatorStatus,
        OptionalProto,
        SequenceProto,
        ShardedDimProto,
        ShardingSpecProto,
        SimpleShardedDimProto,
        SparseTensorProto,
        StringStringEntryProto,
        TensorAnnotation,
        TensorProto,
        TensorShapeProto,
        TrainingInfoProto,
        TypeProto,
        ValueInfoProto,
        Version,
    )

__all__ = [
    "EXPERIMENTAL",
    "IR_VERSION",
    "STABLE",
    "AttributeProto",
    "DeviceConfigurationProto",
    "FunctionProto",
    "GraphProto",
    "IntIntListEntryProto",
    "MapProto",
    "ModelProto",
    "NodeDeviceConfigurationProto",
    "NodeProto",
    "OperatorProto",
    "OperatorSetIdProto",
    "OperatorSetProto",
    "OperatorStatus",
    "OptionalProto",
    "SequenceProto",
    "ShardedDimProto",
    "ShardingSpecProto",
    "SimpleShardedDimProto",
    "SparseTensorProto",
    "StringStringEntryProto",
    "TensorAnnotation",
    "TensorProto",
    "TensorShapeProto",
    "TrainingInfoProto",
    "TypeProto",
    "ValueInfoProto",
    "Version",
]


def __getattr__(name: str) -> Any:
    """The messages, made when they are first used: opening a compiled model does not need them."""
    if name not in __all__:
        raise AttributeError(f"module 'jitonnx.proto' has no attribute {name!r}")
    value: Any
    if name in ("OperatorStatus", "Version"):
        from jitonnx.proto import onnx_pb2

        value = getattr(onnx_pb2, name)
    else:
        from jitonnx.proto.messages import schema

        onnx = schema("onnx")
        value = onnx.messages[name] if name in onnx.messages else onnx.constants[name]
    globals()[name] = value
    return value
