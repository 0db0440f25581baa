"""What a graph declares of its values: types, shapes, and the names of dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitonnx.ir.dtypes import DType
from jitonnx.model.checker.names import is_identifier
from jitonnx.model.checker.report import quoted
from jitonnx.proto import GraphProto, TypeProto, ValueInfoProto

if TYPE_CHECKING:
    from jitonnx.model.checker.walk import Body, Walk

_TYPES = frozenset(dtype.value for dtype in DType)
_KEYS = frozenset(dtype.value for dtype in DType if dtype is DType.STRING or (dtype.text.lstrip("u").startswith("int")))
"""The element types that a map's keys may have."""


def check_declarations(walk: Walk, proto: GraphProto, body: Body) -> None:
    """The types of a graph's inputs and outputs; the model's own graph has to declare them."""
    is_main = body.around is None
    for what, infos in (("input", proto.input), ("output", proto.output)):
        for info in infos:
            kind = info.type.WhichOneof("value")
            if kind == "tensor_type" and info.type.tensor_type.elem_type in _TYPES:
                if not is_main or info.type.tensor_type.HasField("shape"):
                    continue
            elif not is_main and kind is None:
                continue
            _check_declaration(walk, info, kind, what, body, is_main=is_main)
    if is_main:
        _check_defaults(walk, proto, body)


def _check_declaration(
    walk: Walk, info: ValueInfoProto, kind: str | None, what: str, body: Body, *, is_main: bool
) -> None:
    place = body.place(value=info.name)
    who = f"graph {what} {quoted(info.name)}"
    if kind is None:
        rule = "types.input" if what == "input" else "types.missing"
        walk.add(rule, f"{who} has no type", place, "declare its element type and rank")
        return
    for text in _type_faults(info.type):
        walk.add("types.kind", f"{who} {text}", place)
        return
    tensor = info.type.tensor_type if kind == "tensor_type" else None
    if tensor is not None and not tensor.elem_type:
        rule = "types.input" if is_main and what == "input" else "types.missing"
        walk.add(rule, f"{who} has no element type", place)
    elif tensor is not None and is_main and not tensor.HasField("shape"):
        text = f"{who} has no shape, so that its rank is not known"
        walk.add("types.missing", text, place, "declare one; sizes may be left open")


def _type_faults(type: TypeProto) -> Iterator[str]:
    """What is wrong with a type; a tensor without element type is not."""
    kind = type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        number = getattr(type, kind).elem_type
        if number not in _TYPES and (number or kind == "sparse_tensor_type"):
            yield f"has the element type {number or 'undefined'}, which there is not"
    elif kind == "map_type":
        if type.map_type.key_type not in _KEYS:
            yield "is a map whose keys are neither integers nor strings"
        yield from _inner_faults(type.map_type.value_type, "is a map whose values")
    elif kind in ("sequence_type", "optional_type"):
        what = "sequence" if kind == "sequence_type" else "optional"
        yield from _inner_faults(
            getattr(type, kind).elem_type, f"is a{'n' * (what == 'optional')} {what} whose element"
        )


def _inner_faults(type: TypeProto, what: str) -> Iterator[str]:
    if type.WhichOneof("value") is None:
        yield f"{what} has no type"
    else:
        yield from (f"{what} {text}" for text in _type_faults(type))


def _check_defaults(walk: Walk, proto: GraphProto, body: Body) -> None:
    """Initializers that are inputs, too, are of the type and shape that the input declares."""
    if not proto.initializer or not proto.input:
        return
    declared = {info.name: info.type.tensor_type for info in proto.input if info.type.HasField("tensor_type")}
    for tensor in proto.initializer:
        expected = declared.get(tensor.name)
        if expected is None:
            continue
        name, place = tensor.name, body.place(value=tensor.name)
        if expected.elem_type != tensor.data_type:
            types = f"{_name(tensor.data_type)}, but the input is of {_name(expected.elem_type)}"
            text = f"Type Error: Data in initializer '{name}' has element type {types}"
            walk.add("initializers.declared", text, place)
        elif expected.HasField("shape") and not _fits(list(tensor.dims), expected.shape.dim):
            sizes = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in expected.shape.dim]
            text = f"Type Error: Shape of initializer {name} does not match. {list(tensor.dims)} != {sizes}"
            walk.add("initializers.declared", text, place, "the input and its default are of one shape")


def _fits(dims: list[int], declared: Any) -> bool:
    return len(dims) == len(declared) and all(
        not dim.HasField("dim_value") or dim.dim_value < 0 or dim.dim_value == size
        for size, dim in zip(dims, declared, strict=True)
    )


def _name(number: int) -> str:
    return DType(number).text if number in _TYPES else f"type {number}"


# ---------------------------------------------------------------------------------------------- all values


def check_value_info(walk: Walk, proto: GraphProto, body: Body, local: set[str]) -> None:
    """Declarations of all values: each once, of a value that there is; sizes and dimensions' names."""
    seen: set[str] = set()
    for info in proto.value_info:
        name = info.name
        if name in seen:
            walk.add("values.twice", f"value_info has two entries for {quoted(name)}", body.place(value=name))
        elif name not in local:
            text = f"value_info has an entry for {quoted(name)}, which is no value of the graph"
            walk.add("values.unknown", text, body.place(value=name))
        seen.add(name)
    wrong: dict[str, str] = {}
    for infos in (proto.input, proto.output, proto.value_info):
        for info in infos:
            for dim in _dims(info.type):
                if dim.dim_value < 0:
                    text = f"{quoted(info.name)} is declared with the size {dim.dim_value}"
                    hint = "leave a size that is not known out, or give it a name"
                    walk.add("shapes.negative", text, body.place(value=info.name), hint)
                if dim.dim_param and not is_identifier(dim.dim_param):
                    wrong.setdefault(dim.dim_param, info.name)
    if wrong:
        name, value = next(iter(wrong.items()))
        others = f", and {len(wrong) - 1} others" if len(wrong) > 1 else ""
        text = f"the dimension {quoted(name)} of {quoted(value)} is not named as identifiers in C are{others}"
        walk.add("shapes.variable", text, body.place(value=value), "jitonnx takes any name")


def _dims(type: TypeProto) -> Iterator[Any]:
    """The dimensions of the tensors in a type."""
    kind = type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        yield from getattr(type, kind).shape.dim
    elif kind in ("sequence_type", "optional_type"):
        yield from _dims(getattr(type, kind).elem_type)
    elif kind == "map_type":
        yield from _dims(type.map_type.value_type)
