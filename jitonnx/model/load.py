"""Loading: from whatever holds a model to a `Model`."""

from __future__ import annotations

import mmap
import os
import stat
import warnings
from pathlib import Path
from typing import Any

from jitonnx import forks
from jitonnx.errors import Fail, InvalidProtobuf, NoSuchFile
from jitonnx.ir.graph import Value
from jitonnx.metadata import UNSET_VERSION, ModelMetadata
from jitonnx.model.build import Builder
from jitonnx.model.check import Opsets, check_model, initializer_names
from jitonnx.model.external import ExternalData
from jitonnx.model.tensors import TensorReader
from jitonnx.model.types import Declaration, Model, declaration
from jitonnx.model.wire import parse
from jitonnx.ops.registry import Registry, registry
from jitonnx.proto import ModelProto

FIRST_IR_WITH_OVERRIDABLE_INITIALIZERS = 4


def load(
    source: Any, *, external_data_folder: str | os.PathLike[str] | None = None, registry: Registry = registry
) -> Model:
    """Read, check and build a model.

    source: a path (str or os.PathLike), the file's bytes (bytes, bytearray, memoryview), an open binary file, or a
    ModelProto of jitonnx.proto or of the onnx package.
    external_data_folder: where the locations of external data start; by default the folder of the path.
    registry: the operators that the model may use.

    A file is mapped into memory and its weights are views into it, read when first used: it must not be overwritten in
    place while the model is in use (replacing it by another file is safe). `bytes` are kept and viewed in the same way;
    buffers that somebody may change are copied.

    NoSuchFile, InvalidProtobuf, InvalidGraph, InvalidArgument, NotImplemented or Fail (of jitonnx.errors, all of them
    Error) say what is wrong with a model; TypeError: with the source.
    """
    data, path = _read(source)
    try:
        proto, tickets = parse(data)
    except InvalidProtobuf as error:
        raise InvalidProtobuf(f"Load model from {path} failed:{error.text}" if path else error.text) from error
    check_model(proto, registry)
    external = _external(path, external_data_folder)
    builder = Builder(proto, TensorReader(tickets, external), registry)
    graph = builder.main(proto.graph)
    outputs = [declaration(info) for info in proto.graph.output]
    texts = []
    for value, declared in zip(graph.outputs, outputs, strict=True):
        texts.append(_compare(value, declared, graph.assumptions.certain))
    inputs, overridable = _split_inputs(proto)
    return Model(
        graph=graph,
        opset_imports=dict(Opsets.of(proto).versions),
        ir_version=proto.ir_version,
        metadata=_metadata(proto),
        inputs=inputs,
        outputs=outputs,
        overridable=overridable,
        dimensions=builder.dimensions.original,
        external=external.used,
        custom=builder.custom,
        warnings=tuple(filter(None, texts)),
    )


def _read(source: Any) -> tuple[memoryview, Path | None]:
    """The bytes of a source, and the path if it is one."""
    if isinstance(source, str | os.PathLike):
        path = Path(os.fsdecode(source))
        return _map(path, os.fspath(source)), path
    if isinstance(source, bytes):
        return memoryview(source), None
    if isinstance(source, bytearray | memoryview):
        view = memoryview(source)
        return (view.cast("B") if view.readonly and view.contiguous else memoryview(bytes(view))), None
    if hasattr(source, "read"):
        content = source.read()
        if not isinstance(content, bytes | bytearray):
            raise TypeError(f"the file object gives {type(content).__name__}; open it in binary mode ('rb')")
        return memoryview(bytes(content)), None
    if hasattr(source, "SerializeToString"):
        return memoryview(source.SerializeToString()), None
    raise TypeError(
        f"Unable to load from type '{type(source)}': give a path, bytes, a binary file object or a ModelProto"
    )


def _map(path: Path, given: Any) -> memoryview:
    if not os.fspath(given) or not path.exists():
        raise NoSuchFile(
            f"Load model from {given} failed:Load model {given} failed. File doesn't exist "
            f"(the working directory is {Path.cwd()})"
        )
    if path.is_dir():
        raise InvalidProtobuf(f"Load model from {given} failed:Protobuf parsing failed: the path is a folder")
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            with forks.safepoint:  # whoever writes to a pipe may have to be forked yet
                return memoryview(file.read())  # pipes and empty files cannot be mapped
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _external(path: Path | None, folder: str | os.PathLike[str] | None) -> ExternalData:
    if folder is not None:
        return ExternalData(Path(folder))
    if path is None:
        return ExternalData(None)
    real = Path(os.path.realpath(path))
    return ExternalData(path.parent, (Path(os.path.realpath(path.parent)), real.parent))


def _metadata(proto: ModelProto) -> ModelMetadata:
    return ModelMetadata(
        producer_name=proto.producer_name,
        graph_name=proto.graph.name,
        domain=proto.domain,
        description=proto.doc_string,
        graph_description=proto.graph.doc_string,
        version=proto.model_version or UNSET_VERSION,
        custom_metadata_map={entry.key: entry.value for entry in proto.metadata_props},
    )


def _split_inputs(proto: ModelProto) -> tuple[list[Declaration], list[Declaration]]:
    """The inputs to feed, and those with a default. Before IR 4 every initializer was an input, and none was fed."""
    defaults = set(initializer_names(proto.graph))
    declared = [declaration(info) for info in proto.graph.input]
    inputs = [entry for entry in declared if entry.name not in defaults]
    overridable = [entry for entry in declared if entry.name in defaults]
    return inputs, overridable if proto.ir_version >= FIRST_IR_WITH_OVERRIDABLE_INITIALIZERS else []


def _compare(value: Value, declared: Declaration, certain: bool) -> str:
    """Fail if an output has another element type than the file says; a warning, and its text, if it has another shape.

    certain: it has the shape that was inferred whatever is fed, and not only for usual sizes: the file may know better.
    """
    if value.dtype is not None and declared.dtype is not None and value.dtype is not declared.dtype:
        raise Fail(
            f"Type Error: Type (tensor({value.dtype.text})) of output arg ({declared.name}) does not match expected "
            f"type ({declared.type}): correct the model's declaration of that output"
        )
    shape = value.type.shape
    if shape is None or declared.shape is None or not certain:
        return ""
    differ = len(shape) != len(declared.shape) or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(shape, declared.shape, strict=True)
    )
    if not differ:
        return ""
    text = (
        f"output {declared.name!r} is declared with the shape {list(declared.shape)}, but is {value.type}: "
        "the declaration is ignored"
    )
    warnings.warn(text, stacklevel=3)
    return text
