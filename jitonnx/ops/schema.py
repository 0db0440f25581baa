"""What ONNX says of a version of an operator (its signature), and whether a model's node keeps to it.

The checker (`jitonnx.checker.operators`) asks for attributes and counts, whoever builds a node for types: nodes are
checked in the form in which they stand in the model, before `Operator.upgrade`: an input or attribute that
another version has is refused, and so is a type that this version does not list for an input, or that contradicts
another input of the same type variable. `generate` says how the schemas are written down.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import NamedTuple

from jitonnx import forks
from jitonnx.ir.dtypes import DType
from jitonnx.ir.errors import GraphError, InferenceError
from jitonnx.ir.operator import Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type


class Parameter(NamedTuple):
    """An input or output."""

    name: str
    type: str
    """A type variable, or a type; of users' operators also nothing: any type."""
    optional: bool = False
    variadic: bool = False
    homogeneous: bool = True
    """Whether all values of a variadic one have one type."""
    least: int = 0
    """How many values a variadic one has at least."""


class Schema(NamedTuple):
    """A version of an operator."""

    domain: str
    name: str
    version: int
    deprecated: bool
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    types: Mapping[str, frozenset[str]]
    """The types that each type variable stands for, in ONNX's words: `tensor(float)`, `seq(tensor(int64))`."""
    attributes: Mapping[str, tuple[str, bool]]
    """The kind of each attribute in ONNX's words (`INT`, `FLOATS`), and whether it is required."""

    def allowed(self, parameter: Parameter) -> frozenset[str]:
        """The types that a parameter may have."""
        return self.types.get(parameter.type) or frozenset({parameter.type})


@forks.once
def schemas_of(domain: str, folder: str, name: str) -> tuple[Schema, ...]:
    """The versions of an operator of a domain that comes with jitonnx, the oldest first; none for an unknown one."""
    module = importlib.import_module(f"jitonnx.ops.{folder}.schemas")
    return tuple(_parsed(domain, name, line, module.TYPES) for line in module.SCHEMAS.get(name, ()))


def _parsed(domain: str, name: str, line: str, tables: Sequence[str]) -> Schema:
    signature, variables, attributes = (part.strip() for part in line.split("|"))
    version, _, parameters = signature.partition(" ")
    inputs, outputs = (tuple(map(_parameter, part.split())) for part in parameters.split(">"))
    types = {}
    for text in variables.split():
        variable, _, place = text.partition("=")
        types[variable] = _types(tables[int(place)])
    kinds = {}
    for text in attributes.split():
        attribute, _, kind = text.partition(":")
        kinds[attribute] = (kind.rstrip("!"), kind.endswith("!"))
    return Schema(domain, name, int(version.rstrip("-")), version.endswith("-"), inputs, outputs, types, kinds)


@forks.once
def _types(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _parameter(text: str) -> Parameter:
    name, _, type = text.partition(":")
    if name.endswith("?"):
        return Parameter(name[:-1], type, optional=True)
    plain, star, least = name.partition("*")
    if not star:
        return Parameter(name, type)
    return Parameter(plain, type, variadic=True, homogeneous=not least.startswith("*"), least=int(least.lstrip("*")))


def schema_of(declaration: type[Operator], version: int) -> Schema:
    """The signature of a user's operator, as its declaration says it: see `Operator.inputs` and `Operator.types`.

    TypeError for parameters and attributes that are written otherwise.
    """
    given = declaration.types
    types = (
        {}
        if not isinstance(given, Mapping)
        else {name: frozenset(map(_tensor, kinds)) for name, kinds in given.items()}
    )
    inputs, outputs = (
        tuple(_declared(entry, declaration, types) for entry in entries)
        for entries in (declaration.inputs, declaration.outputs)
    )
    outputs = tuple(parameter._replace(optional=True) for parameter in outputs)  # a node may leave any of them out
    if isinstance(given, frozenset) and inputs and inputs[0].type == _ANY:
        types[_FIRST] = frozenset(map(_tensor, given))
        inputs = (inputs[0]._replace(type=_FIRST), *inputs[1:])
    attributes = {name: ("GRAPH", True) for name in declaration.bodies}
    for entry in fields(declaration):  # type: ignore[arg-type]
        if entry.metadata.get("internal"):
            continue
        kind = _ATTRIBUTES.get(str(entry.type).removesuffix(" | None"))
        if kind is None:
            raise TypeError(
                f"attribute {entry.name!r} of {declaration.name} is annotated as {entry.type!r}; one of "
                f"{', '.join(_ATTRIBUTES)} is needed"
            )
        attributes[entry.name] = (kind, entry.default is MISSING)
    return Schema(declaration.domain, declaration.name, version, False, inputs, outputs, types, attributes)


_ANY, _FIRST = "", "the first input"
_ATTRIBUTES = {
    "int": "INT",
    "bool": "INT",
    "float": "FLOAT",
    "str": "STRING",
    "tuple[int, ...]": "INTS",
    "tuple[float, ...]": "FLOATS",
    "tuple[str, ...]": "STRINGS",
    "Tensor": "TENSOR",
    "Type": "TYPE_PROTO",
}
"""ONNX's kind of an attribute by the annotation of its field."""


def _tensor(kind: DType | str) -> str:
    return f"tensor({kind.text})" if isinstance(kind, DType) else kind


def _declared(entry: str, declaration: type[Operator], types: Mapping[str, frozenset[str]]) -> Parameter:
    """A parameter as declarations write it: "X", "X: T", "bias?: T", "rest*: tensor(float)"."""
    name, _, kind = (part.strip() for part in entry.partition(":"))
    plain = name.rstrip("?*")
    if kind and kind not in types and "(" not in kind:
        raise TypeError(f"{declaration.name} declares {entry!r}, but its `types` do not say what {kind} is")
    return Parameter(plain, kind, optional=name.endswith("?"), variadic=name.endswith("*"), homogeneous=bool(kind))


# ---------------------------------------------------------------------------------------------- nodes


def attribute_faults(schema: Schema, kinds: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the attributes of a node of an operator. kinds: by name, in ONNX's words; "" if not known."""
    for name, kind in kinds.items():
        if name not in schema.attributes:
            known = ", ".join(sorted(schema.attributes)) or "none"
            yield f"Unrecognized attribute: {name} for operator {schema.name}; version {schema.version} knows {known}"
            continue
        wanted, _ = schema.attributes[name]
        if kind not in (wanted, ""):
            yield f"Mismatched attribute type in ' : {name}'. Expected: '{wanted}', actual: '{kind}'"
    for name, (_, required) in schema.attributes.items():
        if required and name not in kinds:
            yield f"Required attribute '{name}' is missing"


def count_faults(schema: Schema, inputs: Sequence[bool], outputs: Sequence[bool]) -> Iterator[str]:
    """What is wrong with the number of a node's inputs and outputs, of which each has a name or has none."""
    yield from _count_faults(schema, "input", schema.inputs, inputs)
    yield from _count_faults(schema, "output", schema.outputs, outputs)


def _count_faults(schema: Schema, what: str, parameters: Sequence[Parameter], given: Sequence[bool]) -> Iterator[str]:
    variadic = next((parameter for parameter in parameters if parameter.variadic), None)
    fixed = [parameter for parameter in parameters if not parameter.variadic]
    needed = [place for place, parameter in enumerate(fixed) if not parameter.optional]
    least = max((place + 1 for place in needed), default=0)
    if variadic and variadic.least:
        least = len(fixed) + variadic.least
    most = None if variadic else len(fixed)
    count = len(given)
    if count < least or (most is not None and count > most):
        names = ", ".join(parameter.name for parameter in parameters) or "none"
        yield (
            f"Node with schema({schema.domain}::{schema.name}:{schema.version}) has {what} size {count} not in range "
            f"[min={least}, max={'any' if most is None else most}]; its {what}s are: {names}"
        )
        return
    absent = next((place for place in needed if not given[place]), None)
    if absent is not None:
        yield f"{what} {fixed[absent].name!r} is absent, and not optional"
    if variadic and what == "input" and variadic.homogeneous and False in given[len(fixed) : count]:
        place = len(fixed) + list(given[len(fixed) : count]).index(False)
        yield f"input {place} is absent; {variadic.name} are not optional"


def check_types(schema: Schema, node: RawNode, where: str) -> None:
    """GraphError unless the types of a node's inputs are among those that its operator takes, InferenceError if they
    contradict one another. The texts begin as onnxruntime's do. where: the node."""
    try:
        _check_types(schema, node)
    except (GraphError, InferenceError) as error:
        raise type(error)(f"{where}: {error}") from None


def _check_types(schema: Schema, node: RawNode) -> None:
    bound: dict[str, tuple[str, str]] = {}
    for place, value in enumerate(node.inputs):
        if value is None or (text := text_of(value.type)) is None:
            continue
        parameter = schema.inputs[min(place, len(schema.inputs) - 1)]
        allowed = schema.allowed(parameter)
        if parameter.type != _ANY and text not in allowed:
            raise GraphError(
                f"Type Error: Type '{text}' of input parameter ({value.name}) of operator ({schema.name}) in node "
                f"({node.name}) is invalid. {value.name!r} is of type {short(text)}; allowed are "
                f"{', '.join(sorted(map(short, allowed)))} for {parameter.name} of version {schema.version}"
            )
        if parameter.type not in schema.types or not parameter.homogeneous:
            continue
        other, name = bound.setdefault(parameter.type, (text, value.name))
        if other != text:
            raise InferenceError(
                f"Type Error: Type parameter ({parameter.type}) of Optype ({schema.name}) bound to different types "
                f"({other} and {text} in node ({node.name}). {name!r} and {value.name!r} have different element types"
            )


def short(text: str) -> str:
    """A type as users write it: float for tensor(float)."""
    return text[7:-1] if text.startswith("tensor(") else text


def text_of(type: Type) -> str | None:
    """A type in ONNX's words; None where not all is known that they say."""
    if isinstance(type, TensorType):
        return None if type.dtype is None else f"tensor({type.dtype.text})"
    if isinstance(type, SparseTensorType):
        return f"sparse_tensor({type.element.text})"
    if isinstance(type, MapType):
        inner = text_of(type.value)
        return None if inner is None else f"map({type.key.text},{inner})"
    if isinstance(type, SequenceType | OptionalType):
        inner = text_of(type.element)
        word = "seq" if isinstance(type, SequenceType) else "optional"
        return None if inner is None else f"{word}({inner})"
    return None
