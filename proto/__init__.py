"""The ONNX file format as protobuf messages: `onnx.proto` and the module generated from it.

The schema is this project's own text, wire-compatible with ONNX up to IR version 14: `ModelProto.FromString(data)`
reads any `.onnx` file, and what `SerializeToString()` writes is read by every ONNX tool. The messages are registered
under the protobuf package `jitonnx`, so the `onnx` package can be imported in the same process, before or after.

The folder stands at the top of the repository and is installed as `jitonnx.proto`. `generate.py` makes `onnx_pb2.py`.
"""

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
