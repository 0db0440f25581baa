"""All that a model's file says about the model, and what a run of it costs.

    info = describe("model.onnx")
    info.operators                      # which operators, of which version, how often
    work = work_of("model.onnx", shapes={"x": (1, 3, 224, 224)})
    work.flops

`describe` reads messages alone, so it tells of models that no session would run, too. `work_of` loads, rewrites and
plans the model for sizes that are given, and compiles nothing.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jitonnx.errors import Error, InvalidArgument
from jitonnx.ir.dtypes import DType
from jitonnx.model.checker.nodes import Opsets, all_nodes, function_key, initializer_names, subgraphs
from jitonnx.model.checker.tensors import byte_size
from jitonnx.model.load import parsed
from jitonnx.model.types import declaration
from jitonnx.ops.registry import Registry, canonical
from jitonnx.ops.registry import registry as default_registry
from jitonnx.proto import FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto
from jitonnx.support.records import NamedTuple
from jitonnx.versioning import operator_version, semver_of

_Tensor = TensorProto | SparseTensorProto


class Argument(NamedTuple):
    """An input or output, as it is declared."""

    name: str
    type: str
    """It is named in ONNX's words: tensor(float), seq(tensor(int64)), ..."""
    shape: tuple[int | str | None, ...] | None
    """Sizes, names of dimensions, and None for a size that nothing is known of; None where no shape is declared."""
    has_default: bool
    doc_string: str


class OperatorCount(NamedTuple):
    """How often an operator stands in a model, its nested graphs and functions."""

    domain: str
    """ "" is ai.onnx."""
    name: str
    version: int | None
    """The version that the imported set means; None for a function of the model, and for what nobody knows."""
    nodes: int
    is_function: bool


class Storage(NamedTuple):
    """Elements of tensors and the bytes that they take."""

    tensors: int
    elements: int
    bytes: int
    types: Mapping[str, int]
    """Elements by type."""


class Info(NamedTuple):
    """What a file says of its model."""

    ir_version: int
    producer_name: str
    producer_version: str
    domain: str
    model_version: int
    semver: str | None
    """`model_version` where it packs a semantic version."""
    doc_string: str
    graph_name: str
    graph_doc_string: str
    metadata: Mapping[str, str]
    opsets: Mapping[str, int]
    """The imported operator sets; "" is ai.onnx."""
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    nodes: int
    """Those of the model's graph, of nested graphs and of functions, each counted once."""
    operators: tuple[OperatorCount, ...]
    """The most frequent ones come first."""
    functions: tuple[str, ...]
    """domain:name of each function of the model."""
    training_infos: int
    parameters: Storage
    """Initializers."""
    constants: Storage
    """Tensors in attributes of nodes."""
    external_files: tuple[str, ...]
    """Locations of data outside of the file."""
    file_bytes: int | None
    """None for a model that is no file."""

    def as_json(self) -> dict[str, Any]:
        """The fields above as machines read them."""
        content = self._asdict()
        for name in ("inputs", "outputs", "operators"):
            content[name] = [each._asdict() for each in content[name]]
        for name in ("parameters", "constants"):
            content[name] = content[name]._asdict()
        return content


class Work(NamedTuple):
    """What the kernels of one run do."""

    shapes: Mapping[str, tuple[int, ...]]
    """They are those of the inputs."""
    assumed: tuple[str, ...]
    """Dimensions that nobody gave a size, and which were taken as 1."""
    flops: int
    """Operations on numbers, after rewriting: a product of M x K by K x N has 2 M N K. Convolutions are counted as they
    are written, also where they run by a transform with fewer multiplications."""
    notes: tuple[str, ...]
    """What `flops` leaves out."""

    def as_json(self) -> dict[str, Any]:
        """The fields above as machines read them."""
        return {**self._asdict(), "shapes": {name: list(shape) for name, shape in self.shapes.items()}}


def describe(source: Any, *, registry: Registry = default_registry) -> Info:
    """What a model's file says about it.

    source: as `jitonnx.model.checker.check_model` takes it.
    NoSuchFile, InvalidProtobuf or InvalidArgument for what is no model.
    """
    proto, _ = parsed(source)
    if not proto.HasField("graph"):
        raise InvalidArgument("No graph was found in the protobuf.")
    semver = semver_of(proto.model_version)
    graphs = list(_graphs(proto))
    tensors: list[_Tensor] = []
    for graph in graphs:
        tensors += [*graph.initializer, *graph.sparse_initializer]
    held: list[_Tensor] = [each for nodes in _bodies(proto) for node in all_nodes(nodes) for each in _held(node)]
    return Info(
        ir_version=proto.ir_version,
        producer_name=proto.producer_name,
        producer_version=proto.producer_version,
        domain=proto.domain,
        model_version=proto.model_version,
        semver=None if semver is None else str(semver),
        doc_string=proto.doc_string,
        graph_name=proto.graph.name,
        graph_doc_string=proto.graph.doc_string,
        metadata={entry.key: entry.value for entry in proto.metadata_props},
        opsets=dict(Opsets.of(proto).versions),
        inputs=_arguments(proto.graph.input, set(initializer_names(proto.graph))),
        outputs=_arguments(proto.graph.output, set()),
        nodes=sum(1 for nodes in _bodies(proto) for _ in all_nodes(nodes)),
        operators=_operators(proto, registry),
        functions=tuple(f"{canonical(each.domain) or 'ai.onnx'}:{each.name}" for each in proto.functions),
        training_infos=len(proto.training_info),
        parameters=_storage(tensors),
        constants=_storage(held),
        external_files=tuple(dict.fromkeys(_locations([*tensors, *held]))),
        file_bytes=os.path.getsize(source) if isinstance(source, str | os.PathLike) else None,
    )


def _arguments(infos: Sequence[Any], defaults: set[str]) -> tuple[Argument, ...]:
    declared = [(info, declaration(info)) for info in infos]
    return tuple(
        Argument(info.name, one.type, one.shape, info.name in defaults, info.doc_string) for info, one in declared
    )


def _bodies(proto: ModelProto) -> Iterator[Sequence[NodeProto]]:
    """The nodes of the model's graph, and of each function."""
    yield proto.graph.node
    for function in proto.functions:
        yield function.node


def _graphs(proto: ModelProto) -> Iterator[GraphProto]:
    yield proto.graph
    for nodes in _bodies(proto):
        for node in all_nodes(nodes):
            yield from subgraphs(node)


def _operators(proto: ModelProto, registry: Registry) -> tuple[OperatorCount, ...]:
    functions = {function_key(function) for function in proto.functions}
    counts: Counter[tuple[str, str, int | None, bool]] = Counter()
    owners: list[ModelProto | FunctionProto] = [proto, *proto.functions]
    for owner, nodes in zip(owners, _bodies(proto), strict=True):
        opsets = Opsets.of(owner).versions
        for node in all_nodes(nodes):
            domain = canonical(node.domain)
            if function_key(node) in functions:
                counts[domain, node.op_type, None, True] += 1
                continue
            version = operator_version(node.op_type, opsets.get(domain, 1), domain, registry)
            counts[domain, node.op_type, version, False] += 1
    found = [OperatorCount(*key[:3], count, key[3]) for key, count in counts.items()]
    return tuple(sorted(found, key=lambda each: (-each.nodes, each.domain, each.name, each.version or 0)))


def _held(node: NodeProto) -> Iterator[_Tensor]:
    """The tensors among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        if attribute.HasField("sparse_tensor"):
            yield attribute.sparse_tensor
        yield from attribute.tensors
        yield from attribute.sparse_tensors


def _parts(tensors: Sequence[_Tensor]) -> Iterator[TensorProto]:
    for tensor in tensors:
        if isinstance(tensor, SparseTensorProto):
            yield from (tensor.values, tensor.indices)
        else:
            yield tensor


def _storage(tensors: Sequence[_Tensor]) -> Storage:
    elements = size = 0
    types: Counter[str] = Counter()
    for tensor in _parts(tensors):
        count = math.prod(max(dim, 0) for dim in tensor.dims)
        try:
            dtype = DType(tensor.data_type)
        except ValueError:
            continue  # no element type that there is
        elements += count
        types[dtype.text] += count
        size += sum(map(len, tensor.string_data)) if dtype is DType.STRING else byte_size(dtype, count)
    return Storage(len(tensors), elements, size, dict(types.most_common()))


def _locations(tensors: Sequence[_Tensor]) -> Iterator[str]:
    for tensor in _parts(tensors):
        if tensor.data_location == TensorProto.EXTERNAL:
            yield from (entry.value for entry in tensor.external_data if entry.key == "location")


# ---------------------------------------------------------------------------------------------- work


def work_of(
    source: Any,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dimensions: Mapping[str, int] | None = None,
    *,
    registry: Registry = default_registry,
) -> Work:
    """What the kernels of a run do, for sizes of inputs that are given by shape or by the name of a dimension.

    Sizes that neither the file, nor its operators, nor the caller tell are 1. Errors are those of loading the model,
    and InvalidArgument for sizes that do not fit it.
    """
    from jitonnx.api.inputs import choose_shapes
    from jitonnx.engine.planning import plan_schedule
    from jitonnx.ir.dims import concrete
    from jitonnx.ir.errors import GraphError, InferenceError
    from jitonnx.ir.extract import solved, specialise
    from jitonnx.ir.types import TensorType
    from jitonnx.model import load
    from jitonnx.passes.pipeline import optimize
    from jitonnx.plan.choices import Choices
    from jitonnx.target.machine import host

    model = load(source, registry=registry)
    tensors = [each for each in model.inputs if each.dtype is not None]
    try:
        usual = {value.name: list(map(concrete, value.type.shape or ())) for value in solved(model.graph).inputs}
    except GraphError:
        usual = {}
    chosen = choose_shapes(tensors, shapes, dimensions, usual)
    types = [
        TensorType(value.type.dtype, chosen.shapes[value.name]) if value.name in chosen.shapes else value.type
        for value in model.graph.inputs
    ]
    try:
        graph = specialise(model.graph, types)
        optimize(graph)
        made = plan_schedule(graph, host(), Choices(winograd=False))
    except (GraphError, InferenceError) as error:
        raise InvalidArgument(f"the model does not take these sizes: {error}") from error
    flops, notes = _summed(made)
    return Work(chosen.shapes, tuple(chosen.assumed), flops, tuple(notes))


def _summed(made: Any) -> tuple[int, list[str]]:
    """The operations of the kernels of a planned schedule, and what is not among them."""
    from jitonnx.engine.schedule_plan import HostNode, LoopNode

    flops, hosted, open_calls, bodies = 0, [], 0, 0
    for step in made.steps:
        if isinstance(step, HostNode):
            bodies += len(step.bodies)
            if not step.bodies:
                hosted.append(step.node.operator.name)
        bodies += isinstance(step, LoopNode)
    for plan in made.plans():
        if all(isinstance(number, int) for number in plan.outline.numbers):
            flops += sum(call.spec.work(complete).flops for call, complete in plan.sized({}))
        else:
            open_calls += len(plan.calls)
    notes = []
    if bodies:
        notes.append("what loops and branches run is counted once each")
    if open_calls:
        notes.append(f"{open_calls} kernel calls are left out, whose sizes only a run tells")
    if hosted:
        names = ", ".join(f"{name} x {count}" for name, count in Counter(hosted).items())
        notes.append(f"nodes that are evaluated on NumPy are left out: {names}")
    return flops, notes


def known_work(source: Any, shapes: Mapping[str, tuple[int, ...]], dimensions: Mapping[str, int]) -> Work | str:
    """What `work_of` gives; print why nothing is known of a model that cannot be run.

    InvalidArgument for sizes that do not fit, if any were given.
    """
    try:
        return work_of(source, shapes, dimensions)
    except Error as error:
        if isinstance(error, InvalidArgument) and (shapes or dimensions):
            raise
        return error.text
