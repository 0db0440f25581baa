"""Loading: from whatever holds a model to a `Model`."""

from __future__ import annotations

import functools
import os
import stat
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jitonnx.errors import Error, Fail, InvalidProtobuf, NoSuchFile
from jitonnx.ir.assumptions import Assumptions
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.graph import Graph
from jitonnx.ir.schema import LENIENT
from jitonnx.model.build import Builder
from jitonnx.model.checker.nodes import Opsets, initializer_names
from jitonnx.model.checker.report import Report
from jitonnx.model.checker.walk import Walk
from jitonnx.model.external import ExternalData
from jitonnx.model.tensors import TensorReader
from jitonnx.model.types import Model, contradiction, declaration, declared_input, other_shape
from jitonnx.model.wire import Tickets, parse
from jitonnx.ops.registry import Registry
from jitonnx.ops.registry import registry as default_registry
from jitonnx.proto import AttributeProto, ModelProto
from jitonnx.support import fork_safety
from jitonnx.support.mapped_files import OpenFile
from jitonnx.support.mapped_files import content_of as content_of_file
from jitonnx.support.metadata import UNSET_VERSION, ModelMetadata

if TYPE_CHECKING:
    from jitonnx.model.overrides import Overrides

FIRST_IR_WITH_OVERRIDABLE_INITIALIZERS = 4


def load(  # noqa: PLR0913 - everything about a file that its bytes do not say
    source: Any,
    *,
    external_data_folder: str | os.PathLike[str] | None = None,
    registry: Registry = default_registry,
    strict: bool = False,
    verify: bool = False,
    overrides: Overrides | None = None,
    format: str | None = None,
    composed: bool = True,
) -> Model:
    """Read, check and build a model.

    source: a path (str or os.PathLike), an `OpenFile` of one, the file's bytes (bytes, bytearray, memoryview), an open
    binary file, or a ModelProto of jitonnx.proto or of the onnx package.
    external_data_folder: where the locations of external data start; by default the folder of the path.
    registry: the operators that the model may use.
    strict: outputs of other shapes than they are declared with are an error, and not only warned of.
    overrides: what takes the place of what the model says.
    format: "ONNX" or "ORT" (onnxruntime's own); None: whichever the bytes are of.
    composed: whether the parts of operators that others say stand in their places, as engines want it.
    verify: files with external data are compared with the digests that the model has of them, which reads all of them.

    A file of more than 1 MB is mapped into memory and its weights are views into it, read when first used; `mapped`
    says what becomes of one that is overwritten in place. `bytes` are kept and viewed in the same way; buffers that
    somebody may change are copied.

    NoSuchFile, InvalidProtobuf, InvalidGraph, InvalidArgument, NotImplemented or Fail (of jitonnx.errors, all of them
    Error) say what is wrong with a model; TypeError: with the source.
    """
    proto, reader = parsed(source, external_data_folder, format)
    if overrides is not None:
        overrides.apply(proto, reader.tickets)
    walk = Walk(proto, registry, Report(), reader, thorough=False)
    walk.run()
    walk.report.raise_first()
    if verify:
        _verify(walk, reader)
    if "names.constants-twice" in walk.report.counts:
        _take_last_constants(proto)
    builder, graph = _built(proto, reader, registry, in_order=walk.sorted, composed=composed)
    outputs = [declaration(info) for info in proto.graph.output]
    texts = list(dict.fromkeys(each.text for each in walk.report if each.rule in _WARNED))
    for text in texts:
        warnings.warn(text, stacklevel=2)
    for value, info, declared in zip(graph.outputs, proto.graph.output, outputs, strict=True):
        if text := contradiction(value.type, info):
            raise Fail(text)
        text = other_shape(value, declared, certain=graph.assumptions.certain)
        if text and strict:
            raise Fail(text)
        if text:
            warnings.warn(text, stacklevel=2)
        texts.append(text)
    inputs, overridable = _split_inputs(proto, free=builder.free)
    return Model(
        graph=graph,
        opset_imports=dict(Opsets.of(proto).versions),
        ir_version=proto.ir_version,
        metadata=_metadata(proto),
        inputs=inputs,
        outputs=outputs,
        overridable=overridable,
        dimensions=builder.dimensions.original,
        external=reader.external.used,
        files=reader.external.files,
        custom=frozenset(builder.custom),
        documented=builder.documented,
        described=frozenset() if composed else frozenset(info.name for info in proto.graph.value_info),
        initializers=() if composed else tuple(one.name for one in proto.graph.initializer),
        lenient={} if composed else _lenient(proto),
        warnings=tuple(filter(None, texts)),
    )


_WARNED = ("operators.experimental", "names.constants-twice")
"""Rules that a session does not insist on, and warns of."""


def _take_last_constants(proto: ModelProto) -> None:
    """Of several Constants of one name leave one, where the first is, with the value of the last."""
    nodes, first, others = proto.graph.node, dict[str, int](), list[int]()
    for place, node in enumerate(nodes):
        if node.op_type == "Constant" and first.setdefault(node.output[0], place) != place:
            nodes[first[node.output[0]]].CopyFrom(node)
            others.append(place)
    for place in reversed(others):
        del nodes[place]


def _lenient(proto: ModelProto) -> dict[str, Sequence[AttributeProto]]:
    """`Model.lenient`."""
    return {
        node.output[0]: node.attribute
        for node in proto.graph.node
        if node.op_type in LENIENT and node.domain in ("", "ai.onnx") and node.output
    }


def _built(
    proto: ModelProto, reader: TensorReader, registry: Registry, *, in_order: bool, composed: bool
) -> tuple[Builder, Graph]:
    """The model's graph: for sizes as models usually have them, or where no sizes are as it takes for granted then, as
    that 100 before the end of an axis is behind its start, with nothing but demands."""
    make = functools.partial(Builder, proto, reader, registry, in_order=in_order, composed=composed)
    builder = make()
    try:
        return builder, builder.main(proto.graph)
    except Error:
        if builder.certain:
            raise
        try:
            other = make(assumptions=Assumptions(demands_only=True))
            return other, other.main(proto.graph)
        except Error:
            pass  # for the usual sizes the message says more
        raise


def _verify(walk: Walk, reader: TensorReader) -> None:
    """Fail for external data that is not what the model says."""
    from jitonnx.model.examine import check_files

    check_files(walk, reader)
    for finding in walk.report:
        if finding.rule in ("external.checksum", "external.range"):
            raise finding.error()


def report_of(
    source: Any, *, external_data_folder: str | os.PathLike[str] | None = None, registry: Registry | None = None
) -> Report:
    """What is wrong with a model: see `jitonnx.model.checker.check_model`."""
    return examined(*parsed(source, external_data_folder), default_registry if registry is None else registry)


def examined(proto: ModelProto, reader: TensorReader, known: Registry = default_registry) -> Report:
    """What is wrong with a model that is parsed."""
    from jitonnx.model.examine import check_built, check_files

    walk = Walk(proto, known, Report(), reader, thorough=True)
    walk.run()
    check_files(walk, reader)
    check_built(walk, Builder(proto, reader, known, in_order=walk.sorted))
    return walk.report


def parsed(
    source: Any, external_data_folder: str | os.PathLike[str] | None = None, format: str | None = None
) -> tuple[ModelProto, TensorReader]:
    """A model's message, large weights left where they are, and what reads its tensors. Arguments as of `load`."""
    data, path = content_of(source)
    try:
        proto, tickets = _read(data, format)
    except InvalidProtobuf as error:
        raise InvalidProtobuf(f"Load model from {path} failed:{error.text}" if path else error.text) from error
    external = _external(path, external_data_folder)
    external.model = data
    return proto, TensorReader(tickets, external)


def _read(data: memoryview, format: str | None) -> tuple[ModelProto, Tickets]:
    """A model's message, from ONNX's format or onnxruntime's."""
    if format == "ORT" or (format is None and bytes(data[4:8]) == b"ORTM"):
        from jitonnx.model import ort_format

        return ort_format.parse(data)
    return parse(data)


def content_of(source: Any) -> tuple[memoryview, Path | None]:
    """The bytes of a source, and the path if it is one."""
    if isinstance(source, str | os.PathLike):
        path = Path(os.fsdecode(source))
        return _map(path, os.fspath(source)), path
    if isinstance(source, OpenFile):
        return source.content(), Path(source.path)
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
            with fork_safety.safepoint:  # whoever writes to a pipe may have to be forked yet
                return memoryview(file.read())  # pipes and empty files cannot be mapped
        return content_of_file(file.fileno(), os.fspath(path))


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


def _split_inputs(proto: ModelProto, *, free: bool) -> tuple[list[Declaration], list[Declaration]]:
    """The inputs to feed, and those with a default. Before IR 4 every initializer was an input, and none was fed.

    free: see `declared_input`.
    """
    defaults = set(initializer_names(proto.graph))
    declared = [declared_input(info, free=free) for info in proto.graph.input]
    inputs = [entry for entry in declared if entry.name not in defaults]
    overridable = [entry for entry in declared if entry.name in defaults]
    return inputs, overridable if proto.ir_version >= FIRST_IR_WITH_OVERRIDABLE_INITIALIZERS else []
