"""The attributes of a node: each name once, a type, and one value where the type says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jitonnx.model.checker import tensors
from jitonnx.model.checker.report import quoted
from jitonnx.proto import AttributeProto, GraphProto
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.model.checker.walk import Body, Walk

FIRST_IR_WITH_TYPES = 2
FIELDS: Mapping[str, int] = {
    "f": AttributeProto.FLOAT,
    "i": AttributeProto.INT,
    "s": AttributeProto.STRING,
    "t": AttributeProto.TENSOR,
    "g": AttributeProto.GRAPH,
    "sparse_tensor": AttributeProto.SPARSE_TENSOR,
    "tp": AttributeProto.TYPE_PROTO,
    "floats": AttributeProto.FLOATS,
    "ints": AttributeProto.INTS,
    "strings": AttributeProto.STRINGS,
    "tensors": AttributeProto.TENSORS,
    "graphs": AttributeProto.GRAPHS,
    "sparse_tensors": AttributeProto.SPARSE_TENSORS,
    "type_protos": AttributeProto.TYPE_PROTOS,
}
"""The fields of an attribute that hold a value, with the kind of each."""
KINDS: Mapping[int, str] = {kind: AttributeProto.AttributeType.Name(kind) for kind in FIELDS.values()}
"""The kinds in ONNX's words."""
_BY_NUMBER: Mapping[int, int] = {
    field.number: FIELDS[field.name] for field in AttributeProto.DESCRIPTOR.fields if field.name in FIELDS
}
_FIELD_OF = {kind: name for name, kind in FIELDS.items()}
_NAME, _TYPE, _REFERENCE = (
    AttributeProto.DESCRIPTOR.fields_by_name[name].number for name in ("name", "type", "ref_attr_name")
)
_PLAIN = {AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.STRING}
"""Kinds whose value may be left out where it is 0 or "": other writers than protobuf 2 do."""
_LISTS = {kind for name, kind in FIELDS.items() if name.endswith("s") and name != "s"}
"""Kinds whose value may be empty."""


def kind_by_field(attribute: AttributeProto) -> int:
    """The kind of an attribute without one (IR version 1): by the field that is set."""
    return next((FIELDS[field.name] for field, _ in attribute.ListFields() if field.name in FIELDS), 0)


def check(
    walk: Walk, given: Sequence[AttributeProto], body: Body, index: int
) -> tuple[tuple[tuple[str, str], ...], list[tuple[str, GraphProto]]]:
    """The attributes of node `index` of a body.

    Returns name and kind of each that is right ("" where it has none), and the graphs among them with their names.
    """
    kinds: dict[str, str] = {}
    graphs: list[tuple[str, GraphProto]] = []
    for attribute in given:
        name, kind, reference = "", 0, ""
        held: list[tuple[int, Any]] = []
        for field, value in attribute.ListFields():
            number = field.number
            if number == _NAME:
                name = value
            elif number == _TYPE:
                kind = value
            elif number == _REFERENCE:
                reference = value
            elif number in _BY_NUMBER:
                held.append((_BY_NUMBER[number], value))
        if len(held) == 1 and held[0][0] == kind and name and name not in kinds and not reference:
            kinds[name] = KINDS[kind]
        elif not _is_sound(walk, _Read(name, kind, reference, held), kinds, body, index):
            continue
        else:
            kind = kind or (held[0][0] if held else 0)
            kinds[name] = KINDS.get(kind, "")
        if kind >= AttributeProto.TENSOR and kind not in (AttributeProto.FLOATS, AttributeProto.INTS):
            for holds, value in held:
                _check_contents(walk, name, holds, value, body, index, graphs)
    return tuple(kinds.items()), graphs


class _Read(NamedTuple):
    """An attribute as it stands in a file; what it lacks is empty."""

    name: str
    kind: int
    reference: str
    held: list[tuple[int, Any]]
    """The kinds of its fields that have values, with these."""


def _is_sound(walk: Walk, attribute: _Read, before: Mapping[str, str], body: Body, index: int) -> bool:
    """Whether an attribute can be told that is not the usual one, which has a name, a type and its value."""
    name, kind, reference, held = attribute

    def wrong(rule: str, text: str, hint: str = "") -> bool:
        walk.add(rule, f"This is an invalid model. {text}", body.place(index, name), hint)
        return False

    what = f"attribute {quoted(name)}"
    if not name:
        return wrong("attributes.name", "an attribute has no name")
    if name in before:
        return wrong("attributes.twice", f"{what} is there twice", "take one of them away")
    if kind and kind not in KINDS:
        return wrong("attributes.type", f"{what} is of type {kind}, which there is not")
    if not kind and walk.ir_version >= FIRST_IR_WITH_TYPES:
        return wrong("attributes.type", f"{what} has no type", "files of IR version 1 alone leave it out")
    if reference:
        if body.attributes is None:
            text = f"{what} refers to the attribute {quoted(reference)} of a function, and stands in none"
            return wrong("attributes.reference", text, "give it a value")
        if reference not in body.attributes:
            known = ", ".join(sorted(body.attributes)[:20]) or "none"
            text = f"{what} refers to {quoted(reference)}, which the function does not declare; it has {known}"
            return wrong("attributes.reference", text)
        if held:
            return wrong("attributes.value", f"{what} has both a value and a reference to {quoted(reference)}")
        walk.refer(body, reference, KINDS.get(kind, ""))
        return True
    fields = [_FIELD_OF[holds] for holds, _ in held]
    other = next((_FIELD_OF[holds] for holds, _ in held if holds != kind), None)
    if other is not None and kind:
        return wrong("attributes.value", f"{what} is of kind {KINDS[kind]}, but has a value in the field {other!r}")
    if len(held) > 1:
        return wrong("attributes.value", f"{what} has values in the fields {', '.join(fields)}", "one is needed")
    if not held and kind and kind not in _PLAIN | _LISTS:
        return wrong("attributes.value", f"{what} is of kind {KINDS[kind]}, but has no value")
    return True


def _check_contents(
    walk: Walk, name: str, kind: int, value: Any, body: Body, index: int, graphs: list[tuple[str, GraphProto]]
) -> None:
    """The tensors, graphs and types that an attribute holds."""
    if kind == AttributeProto.GRAPH:
        graphs.append((name, value))
    elif kind == AttributeProto.GRAPHS:
        graphs += [(f"{name}[{place}]", graph) for place, graph in enumerate(value)]
    elif kind in (AttributeProto.TENSOR, AttributeProto.TENSORS):
        for tensor in [value] if kind == AttributeProto.TENSOR else value:
            for rule, text in tensors.faults(tensor, walk.reader.raw):
                walk.add(rule, f"the tensor of attribute {quoted(name)} {text}", body.place(index, name))
    elif kind in (AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS):
        for sparse in [value] if kind == AttributeProto.SPARSE_TENSOR else value:
            walk.sparse(sparse, f"the sparse tensor of attribute {quoted(name)}", body.place(index, name))
