"""What changed between two versions of a model, by the rules of ONNX's versioning document.

    comparison = compare("old.onnx", "new.onnx")
    comparison.signature, comparison.bump     # "compatible", "minor"

The document leaves shapes open. Here an input may take more than it did, and an output may promise more: the other
way is breaking. Inputs and outputs are told apart by name; their order is what callers see who go by position.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jitonnx.errors import Error, InvalidArgument
from jitonnx.ir.dtypes import DType
from jitonnx.model.checker.nodes import Opsets, all_nodes, all_tensors, initializer_names
from jitonnx.model.checker.tensors import byte_size
from jitonnx.model.load import FIRST_IR_WITH_OVERRIDABLE_INITIALIZERS, parsed
from jitonnx.model.tensors import TensorReader
from jitonnx.model.types import type_text
from jitonnx.proto import ModelProto, TensorProto, TypeProto, ValueInfoProto
from jitonnx.support.records import NamedTuple
from jitonnx.versioning import operator_version, semver_of

BREAKING, COMPATIBLE, CONTENT = "breaking", "compatible", "content"
NONE = "none"
_BUMPS = {BREAKING: "major", COMPATIBLE: "minor", CONTENT: "patch"}

_WIDER: Mapping[DType, tuple[DType, ...]] = {
    DType.INT8: (DType.INT16, DType.INT32, DType.INT64),
    DType.INT16: (DType.INT32, DType.INT64),
    DType.INT32: (DType.INT64,),
    DType.UINT8: (DType.UINT16, DType.UINT32, DType.UINT64, DType.INT16, DType.INT32, DType.INT64),
    DType.UINT16: (DType.UINT32, DType.UINT64, DType.INT32, DType.INT64),
    DType.UINT32: (DType.UINT64, DType.INT64),
    DType.FLOAT16: (DType.FLOAT, DType.DOUBLE),
    DType.BFLOAT16: (DType.FLOAT, DType.DOUBLE),
    DType.FLOAT: (DType.DOUBLE,),
    DType.COMPLEX64: (DType.COMPLEX128,),
}
"""The types that hold every number of another, of its own kind."""


class Change(NamedTuple):
    """A difference between two models."""

    severity: str
    """"breaking", "compatible", or "content": nothing that a signature says."""
    place: str
    """"input 'x'", "output 'y'", or "graph"."""
    text: str


class Comparison(NamedTuple):
    """How a model differs from an older one."""

    changes: tuple[Change, ...]
    """The gravest come first."""
    notes: tuple[str, ...]
    """What the rules say nothing of: versions of the IR and of operator sets."""
    versions: tuple[int, int]
    """`model_version` of both."""

    @property
    def signature(self) -> str:
        """How inputs and outputs changed: "breaking", "compatible" or "none"."""
        grades = {change.severity for change in self.changes}
        return next((grade for grade in (BREAKING, COMPATIBLE) if grade in grades), NONE)

    @property
    def bump(self) -> str:
        """Which number of the model's version the rules ask to be raised: "major", "minor", "patch" or "none"."""
        return _BUMPS[self.changes[0].severity] if self.changes else NONE

    @property
    def is_bumped(self) -> bool:
        """Whether `model_version` was raised so. Of a plain number any raise will do."""
        old, new = self.versions
        first, second = semver_of(old), semver_of(new)
        if first is None or second is None:
            return new > old or (new == old and self.bump == NONE)
        length = {"major": 1, "minor": 2, "patch": 3, NONE: 0}[self.bump]
        return second >= first if not length else second[:length] > first[:length]

    def as_json(self) -> dict[str, Any]:
        """The same as machines read it: see docs/versioning.md."""
        return {
            "signature": self.signature,
            "bump": self.bump,
            "bumped": self.is_bumped,
            "old_version": self.versions[0],
            "new_version": self.versions[1],
            "changes": [change._asdict() for change in self.changes],
            "notes": list(self.notes),
        }


def compare(old: Any, new: Any) -> Comparison:
    """How a model differs from an older one.

    old, new: as `jitonnx.model.checker.check_model` takes models.
    NoSuchFile, InvalidProtobuf or InvalidArgument for what is no model. The models are not checked otherwise.
    """
    (before, first), (after, second) = (_read(source) for source in (old, new))
    changes = [*_inputs(before, after), *_outputs(before, after), *_dimensions(before, after)]
    notes = _notes(before, after)
    versions = before.model_version, after.model_version
    if _fingerprint(before, first) != _fingerprint(after, second):
        changes.append(Change(CONTENT, "graph", "nodes, constants or default values are others"))
    order = list(_BUMPS)
    return Comparison(tuple(sorted(changes, key=lambda each: order.index(each.severity))), tuple(notes), versions)


def _read(source: Any) -> tuple[ModelProto, TensorReader]:
    proto, reader = parsed(source)
    if not proto.HasField("graph"):
        raise InvalidArgument(
            f"{source if isinstance(source, str) else 'a model'}: No graph was found in the protobuf."
        )
    return proto, reader


# ---------------------------------------------------------------------------------------------- inputs and outputs


def _required(proto: ModelProto) -> dict[str, ValueInfoProto]:
    """The inputs that have to be fed, in order."""
    defaults = set(initializer_names(proto.graph))
    return {info.name: info for info in proto.graph.input if info.name not in defaults}


def _optional(proto: ModelProto) -> dict[str, ValueInfoProto]:
    """The inputs with a default."""
    if proto.ir_version < FIRST_IR_WITH_OVERRIDABLE_INITIALIZERS:
        return {}
    defaults = set(initializer_names(proto.graph))
    return {info.name: info for info in proto.graph.input if info.name in defaults}


def _inputs(old: ModelProto, new: ModelProto) -> Iterator[Change]:
    needed, needs = _required(old), _required(new)
    before, after = {**needed, **_optional(old)}, {**needs, **_optional(new)}
    for name, info in before.items():
        place = f"input {name!r}"
        if name not in after:
            yield Change(BREAKING, place, "it is gone: who feeds it is refused")
            continue
        if name in needed and name not in needs:
            yield Change(COMPATIBLE, place, "it has a default now")
        elif name in needs and name not in needed:
            yield Change(BREAKING, place, "it has no default any more, and has to be fed")
        for wider, text in _types(info.type, after[name].type):
            yield Change(COMPATIBLE if wider else BREAKING, place, text)
    for name in after:
        if name in before:
            continue
        if name in needs:
            yield Change(BREAKING, f"input {name!r}", "it is new, and has no default")
        else:
            yield Change(COMPATIBLE, f"input {name!r}", "it is new, and has a default")
    yield from _order("input", [name for name in needed if name in needs], [name for name in needs if name in needed])


def _outputs(old: ModelProto, new: ModelProto) -> Iterator[Change]:
    before, after = ({info.name: info for info in proto.graph.output} for proto in (old, new))
    for name, info in before.items():
        place = f"output {name!r}"
        if name not in after:
            yield Change(BREAKING, place, "it is gone")
            continue
        for wider, text in _types(info.type, after[name].type, is_output=True):
            yield Change(COMPATIBLE if wider else BREAKING, place, text)
    kept = [name for name in after if name in before]
    yield from _order("output", [name for name in before if name in after], kept)
    for position, name in enumerate(after):
        if name not in before:
            behind = all(other not in before for other in list(after)[position:])
            text = "it is new" if behind else "it is new, and stands in front of others, which get other positions"
            yield Change(COMPATIBLE if behind else BREAKING, f"output {name!r}", text)


def _order(what: str, before: list[str], after: list[str]) -> Iterator[Change]:
    for old, new in zip(before, after, strict=True):
        if old != new:
            yield Change(BREAKING, f"{what} {new!r}", f"it stands where {old!r} stood: the order is another")
            return


# ---------------------------------------------------------------------------------------------- types


def _types(old: TypeProto, new: TypeProto, *, is_output: bool = False) -> Iterator[tuple[bool, str]]:
    """How a type changed: whether each difference is one that callers need not know of, and what it is."""
    kind, other = old.WhichOneof("value"), new.WhichOneof("value")
    if kind != other:
        wrapped = other == "optional_type" and not is_output and new.optional_type.elem_type == old
        yield wrapped, f"it is {type_text(new)}, and was {type_text(old)}"
    elif kind in ("tensor_type", "sparse_tensor_type"):
        first, second = getattr(old, kind), getattr(new, kind)
        if first.elem_type != second.elem_type:
            yield _is_wider(first.elem_type, second.elem_type), f"it is {type_text(new)}, and was {type_text(old)}"
        yield from _shapes(first, second, is_output=is_output)
    elif kind == "map_type":
        if old.map_type.key_type != new.map_type.key_type:
            wider = _is_wider(old.map_type.key_type, new.map_type.key_type)
            yield wider, f"it is {type_text(new)}, and was {type_text(old)}"
        yield from _types(old.map_type.value_type, new.map_type.value_type, is_output=is_output)
    elif kind is not None:
        yield from _types(getattr(old, kind).elem_type, getattr(new, kind).elem_type, is_output=is_output)


def _is_wider(old: int, new: int) -> bool:
    return any(old == narrow.value and new in [each.value for each in wide] for narrow, wide in _WIDER.items())


def _shapes(old: Any, new: Any, *, is_output: bool) -> Iterator[tuple[bool, str]]:
    """Compare the shapes of tensors. An input may come to take more shapes, an output to have fewer."""
    if not (old.HasField("shape") and new.HasField("shape")):
        if old.HasField("shape") != new.HasField("shape"):
            opened = old.HasField("shape")
            text = "it may have any shape now" if opened else "its rank was open, and is not any more"
            yield opened != is_output, text
        return
    before, after = (list(map(_size, type.shape.dim)) for type in (old, new))
    if len(before) != len(after):
        yield False, f"its rank is {len(after)}, and was {len(before)}"
        return
    for axis, (one, other) in enumerate(zip(before, after, strict=True)):
        if one == other:
            continue
        if one is not None and other is not None:
            yield False, f"its size along axis {axis} is {other}, and was {one}"
        else:
            text = f"was {one}, and is open now" if other is None else f"was open, and is {other} now"
            yield (other is None) != is_output, f"its size along axis {axis} {text}"


def _size(dim: Any) -> int | None:
    """A size that is a number; None for an open one."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


_Axis = tuple[str, str, int]
"""An axis of an input or output: which of both, its name, and the axis."""


def _named(proto: ModelProto) -> dict[_Axis, str]:
    """What the open axes of tensors are called, those without a name by themselves."""
    inputs = {**_required(proto), **_optional(proto)}
    found = {}
    for what, infos in (("input", inputs.values()), ("output", proto.graph.output)):
        for info in infos:
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                if _size(dim) is None:
                    found[what, info.name, axis] = dim.dim_param or f"\0{what} {info.name} {axis}"
    return found


def _dimensions(old: ModelProto, new: ModelProto) -> Iterator[Change]:
    """Which open sizes were equal, by the names of their dimensions, and are equal now. The names do not count."""
    before, after = _named(old), _named(new)
    shared = [axis for axis in before if axis in after]
    for first, second, text, of_inputs in (
        (before, after, "need not be equal any more", COMPATIBLE),
        (after, before, "have to be equal now", BREAKING),
    ):
        groups: dict[str, list[_Axis]] = {}
        for axis in shared:
            groups.setdefault(first[axis], []).append(axis)
        for axes in groups.values():
            parts: dict[str, _Axis] = {}
            for axis in sorted(axes, key=lambda each: each[0]):  # inputs in front of outputs
                parts.setdefault(second[axis], axis)
            one, *others = parts.values()
            for other in others:
                grade = of_inputs
                if other[0] == "output":  # which promises less, or more
                    grade = BREAKING if of_inputs == COMPATIBLE else COMPATIBLE
                    said = "is not known to equal" if grade == BREAKING else "equals"
                    yield Change(
                        grade, f"output {other[1]!r}", f"axis {other[2]} {said} axis {one[2]} of {one[1]!r} now"
                    )
                else:
                    yield Change(
                        grade, f"input {other[1]!r}", f"axis {other[2]} and axis {one[2]} of {one[1]!r} {text}"
                    )


# ---------------------------------------------------------------------------------------------- what is inside


def _notes(old: ModelProto, new: ModelProto) -> Iterable[str]:
    if old.ir_version != new.ir_version:
        yield f"IR version {new.ir_version}, was {old.ir_version}"
    before, after = Opsets.of(old).versions, Opsets.of(new).versions
    for domain in dict.fromkeys([*before, *after]):
        one, other = before.get(domain), after.get(domain)
        if one == other:
            continue
        name = domain or "ai.onnx"
        if one is None or other is None:
            yield f"operator set {name} {other} is imported now" if one is None else f"operator set {name} {one} is not"
            continue
        used = sorted({node.op_type for node in all_nodes(new.graph.node) if node.domain in (domain, name)})
        differ = [
            f"{each} {a or 'none'} -> {b or 'none'}"
            for each in used
            if (a := operator_version(each, one, domain)) != (b := operator_version(each, other, domain))
        ]
        yield f"operator set {name} {other}, was {one}" + (f": {', '.join(differ)}" if differ else "")


def _fingerprint(proto: ModelProto, reader: TensorReader) -> bytes:
    """What a model computes, in bytes that differ where it does. The message is spent."""
    for tensor in all_tensors(proto):
        if tensor.data_location == TensorProto.EXTERNAL:
            try:
                size = byte_size(DType(tensor.data_type), math.prod(tensor.dims))
                content: bytes | memoryview = reader.external.read(tensor, size, f"tensor {tensor.name!r}")
            except (Error, ValueError):
                continue  # the file is not there: its name and place tell models apart
            del tensor.external_data[:]
            tensor.ClearField("data_location")
        else:
            content = reader.raw(tensor)
        if len(content):
            tensor.raw_data = hashlib.sha256(content).digest()
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        for node in all_nodes(nodes):
            node.ClearField("doc_string")
    kept = ModelProto(opset_import=proto.opset_import, functions=proto.functions, training_info=proto.training_info)
    kept.graph.node.extend(proto.graph.node)
    kept.graph.initializer.extend(sorted(proto.graph.initializer, key=lambda tensor: tensor.name))
    kept.graph.sparse_initializer.extend(proto.graph.sparse_initializer)
    return bytes(kept.SerializeToString(deterministic=True))
