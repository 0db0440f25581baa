"""What ONNX says of the versions of an operator (their signatures), and whether nodes keep to it.

The checker (`jitonnx.model.checker.operators`) asks for attributes and counts, whoever builds a node for types: a
model's nodes are checked in the form in which they stand there, before `Operator.upgrade`. An input or attribute that
another version has is refused, and a type that this version does not list for an input, or that contradicts another
input of the same type variable. Wherever a graph's types are inferred, inputs are checked once more (`check_inputs`):
some types are known only then; no declaration looks at them. `jitonnx.ops.generate` says how the schemas are written
down.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

from jitonnx.ir.attributes import KINDS, kind_of, plain
from jitonnx.ir.dtypes import DType
from jitonnx.ir.errors import GraphError, InferenceError
from jitonnx.ir.operator import Operator, is_custom
from jitonnx.ir.types import UNKNOWN, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.ir.graph import Node, Value
    from jitonnx.ir.raw import RawNode


class Parameter(NamedTuple):
    """An input or output."""

    name: str
    type: str
    """A type variable, or a type; of users' operators also nothing: any tensor."""
    kinds: frozenset[DType | str]
    """The types that it may have: element types of tensors, and others in ONNX's words, as `seq(tensor(int64))`."""
    optional: bool = False
    variadic: bool = False
    homogeneous: bool = True
    """Whether all values of a variadic one have one type."""
    least: int = 0
    """How many values a variadic one has at least."""
    bound: bool = False
    """Whether it has the type of others, which its type variable stands for."""


class Schema(NamedTuple):
    """A version of an operator."""

    domain: str
    name: str
    version: int
    deprecated: bool
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, tuple[str, bool]]
    """The kind of each attribute in ONNX's words (`INT`, `FLOATS`; "": a function does not tell it), and whether it is
    required."""
    any_attributes: bool = False
    """Whether nodes may have others, of any kind."""


@fork_safety.once
def schemas_of(declaration: type[Operator]) -> tuple[Schema, ...]:
    """The signatures of an operator's versions, the oldest first.

    Those of operators that come with jitonnx are in the module `schemas` beside their own; a user's declaration says
    its own, and so does that of an operator which neither ONNX nor onnxruntime has. Operators that only rewrites make
    have none.
    """
    found = () if is_custom(declaration) else _beside(declaration)
    if not found and (is_custom(declaration) or declaration.outputs):
        return tuple(_declared_schema(declaration, version) for version in declaration.versions or (1,))
    return found[:-1] if found and found[-1].deprecated else found


def _beside(declaration: type[Operator]) -> tuple[Schema, ...]:
    folder = declaration.__module__.rpartition(".")[0]
    return () if folder == "jitonnx.ops" else schemas_in(folder, declaration.domain, declaration.name)


def versions_of(declaration: type[Operator]) -> tuple[int, ...]:
    """The operator-set versions in which an operator changed, the oldest first."""
    return tuple(schema.version for schema in schemas_of(declaration))


@fork_safety.once
def schemas_in(folder: str, domain: str, name: str) -> tuple[Schema, ...]:
    """The versions of an operator in the module `schemas` of a package, that which dropped it among them; the oldest
    first, none for an unknown one."""
    types = importlib.import_module(f"{folder}.schemas").TYPES
    return tuple(schema for line in lines_in(folder).get(name, ()) for schema in _parsed(domain, name, line, types))


@fork_safety.once
def lines_in(folder: str) -> dict[str, list[str]]:
    """The lines of each operator in the module `schemas` of a package, without the names."""
    found: dict[str, list[str]] = {}
    for row in importlib.import_module(f"{folder}.schemas").SCHEMAS.splitlines():
        names, _, line = row.partition(" ")
        for name in names.split(","):
            found.setdefault(name, []).append(line)
    return found


def _parsed(domain: str, name: str, line: str, tables: Sequence[str]) -> Iterator[Schema]:
    signature, variables, attributes = (part.strip() for part in line.split("|"))
    versions, _, parameters = signature.partition(" ")
    places = {variable: told.split(",") for variable, _, told in (text.partition("=") for text in variables.split())}
    kinds = {}
    for text in attributes.split():
        attribute, _, kind = text.partition(":")
        kinds[attribute] = (kind.rstrip("!"), kind.endswith("!"))
    for number, version in enumerate(versions.split(",")):
        types = {variable: _kinds(tables[int(told[number % len(told)])]) for variable, told in places.items()}
        inputs, outputs = (tuple(_parameter(one, types) for one in part.split()) for part in parameters.split(">"))
        yield Schema(domain, name, int(version.rstrip("-")), version.endswith("-"), _bound(inputs), outputs, kinds)


@fork_safety.once
def _kinds(text: str) -> frozenset[DType | str]:
    return frozenset(map(_kind, text.split()))


def _kind(text: str) -> DType | str:
    """A type in ONNX's words; of tensors their element type."""
    return _BY_TEXT.get(text, text)


_BY_TEXT = {f"tensor({dtype.text})": dtype for dtype in DType}
_TENSORS = frozenset(DType)
_MOVED = frozenset({DType.STRING, DType.BOOL, DType.FLOAT, DType.INT64})


def _parameter(text: str, types: Mapping[str, frozenset[DType | str]]) -> Parameter:
    name, _, type = text.partition(":")
    kinds = types.get(type) or frozenset({_kind(type)})
    if name.endswith("?"):
        return Parameter(name[:-1], type, kinds, optional=True)
    plain, star, least = name.partition("*")
    if not star:
        return Parameter(name, type, kinds)
    homogeneous = not least.startswith("*")
    return Parameter(plain, type, kinds, variadic=True, homogeneous=homogeneous, least=int(least.lstrip("*")))


def _bound(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """The parameters, those marked that have their type variable in common with other values."""
    names = [one.type for one in parameters if one.homogeneous]
    shared = {one.type for one in parameters if len(one.kinds) > 1 and (one.variadic or names.count(one.type) > 1)}
    return tuple(one._replace(bound=one.homogeneous and one.type in shared and one.type != _ANY) for one in parameters)


def _declared_schema(declaration: type[Operator], version: int) -> Schema:
    """The signature of a user's operator, as its declaration says it: see `Operator.inputs` and `Operator.types`.

    TypeError for parameters and attributes that are written otherwise.
    """
    given = declaration.types
    types = (
        {} if not isinstance(given, Mapping) else {name: frozenset(map(_plain, kinds)) for name, kinds in given.items()}
    )
    inputs, outputs = (
        tuple(_declared(entry, declaration, types) for entry in entries)
        for entries in (declaration.inputs, declaration.outputs)
    )
    outputs = tuple(parameter._replace(optional=True) for parameter in outputs)  # a node may leave any of them out
    if isinstance(given, frozenset) and inputs and inputs[0].type == _ANY:
        inputs = (inputs[0]._replace(kinds=frozenset(given)), *inputs[1:])
    if declaration.elementwise and all(parameter.type == _ANY for parameter in inputs):
        inputs = tuple(parameter._replace(type=_ALL, homogeneous=True) for parameter in inputs)
    attributes = {name.removesuffix("?"): ("GRAPH", not name.endswith("?")) for name in declaration.bodies}
    for entry in fields(declaration):  # type: ignore[arg-type]
        if entry.metadata.get("internal"):
            continue
        kind = kind_of(entry.type)
        if kind is None:
            raise TypeError(
                f"attribute {entry.name!r} of {declaration.name} is annotated as {plain(entry.type)!r}; one of "
                f"{', '.join(KINDS)} is needed, and graphs are named in `bodies`"
            )
        attributes[entry.name] = (kind.name, entry.default is MISSING)
    return Schema(
        declaration.domain,
        declaration.name,
        version,
        deprecated=False,
        inputs=_bound(inputs),
        outputs=outputs,
        attributes=attributes,
        any_attributes=declaration.any_attributes,
    )


_ANY, _ALL = "", "that of all inputs"


def _plain(kind: DType | str) -> DType | str:
    return kind if isinstance(kind, DType) else _kind(kind)


def _declared(entry: str, declaration: type[Operator], types: Mapping[str, frozenset[DType | str]]) -> Parameter:
    """A parameter as declarations write it: "X", "X: T", "bias?: T", "rest*: tensor(float)"."""
    name, _, kind = (part.strip() for part in entry.partition(":"))
    plain = name.rstrip("?*")
    if kind and kind not in types and "(" not in kind:
        raise TypeError(f"{declaration.name} declares {entry!r}, but its `types` do not say what {kind} is")
    if kind.startswith("tensor(") and kind not in _BY_TEXT:
        raise TypeError(f"{declaration.name} declares {entry!r}, but there are no tensors of that type")
    kinds = _TENSORS if kind == _ANY else types.get(kind) or frozenset({_kind(kind)})
    optional, variadic = name.endswith("?"), name.endswith("*")
    return Parameter(plain, kind, kinds, optional=optional, variadic=variadic, homogeneous=bool(kind))


# ---------------------------------------------------------------------------------------------- nodes


LENIENT = {
    *("Affine", "Crop", "ImageScaler", "LayerNormalization", "ParametricSoftplus", "Scale", "ScaledTanh"),
    "SimplifiedLayerNormalization",
}
"""Operators of ONNX's domain, which onnxruntime declares itself: it passes over attributes that they do not have."""


def attribute_faults(schema: Schema, kinds: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the attributes of a node of an operator. kinds: by name, in ONNX's words; "" if not known."""
    for name, kind in kinds.items():
        if name not in schema.attributes:
            if schema.any_attributes or (schema.name in LENIENT and schema.domain == ""):
                continue
            known = ", ".join(sorted(schema.attributes)) or "none"
            yield f"Unrecognized attribute: {name} for operator {schema.name}; version {schema.version} knows {known}"
            continue
        wanted, _ = schema.attributes[name]
        if wanted and kind not in (wanted, ""):
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
        _check_types(schema.inputs, node.inputs, schema.name, node.name, f" of version {schema.version}")
    except (GraphError, InferenceError) as error:
        raise type(error)(f"{where}: {error}") from None


def check_inputs(operator: Operator, inputs: Sequence[Value | None], name: str) -> None:
    """GraphError or InferenceError, as from `check_types`, for inputs of types that no version of an operator takes.

    name: of the node. Of operators that only rewrites make nothing is known.
    """
    known = _inputs_of(type(operator))
    if known:
        _check_types(known, inputs, operator.name, name, "")


def unranked(operator: Operator, inputs: Sequence[Value | None], wanted: int) -> tuple[Type, ...]:
    """Types of the first `wanted` outputs where not even their ranks are known: of element types that the newest
    version's signature tells, for itself or by what type variables of inputs stand for."""
    schemas = schemas_of(type(operator))
    if not schemas:
        return (UNKNOWN,) * wanted
    named = zip((parameter.type for parameter in schemas[-1].inputs), inputs, strict=False)
    given = {variable: value for variable, value in named if value is not None}
    return tuple(_unranked(schemas[-1].outputs[min(n, len(schemas[-1].outputs) - 1)], given) for n in range(wanted))


def _unranked(parameter: Parameter, given: Mapping[str, Value]) -> Type:
    like = given.get(parameter.type) if parameter.homogeneous and parameter.type != _ANY else None
    dtypes = {like.dtype} if like is not None else parameter.kinds
    (kind,) = dtypes if len(dtypes) == 1 else (None,)
    return TensorType(kind, None) if isinstance(kind, DType) else UNKNOWN


@fork_safety.once
def _inputs_of(declaration: type[Operator]) -> tuple[Parameter, ...]:
    """The inputs of the newest version, with the types that any version takes: what `upgrade` makes of old ones.

    What takes strings and numbers alike moves elements, and of any type: rewrites use it for types that ONNX added
    later, too.
    """
    schemas = schemas_of(declaration)
    inputs = []
    for place, parameter in enumerate(schemas[-1].inputs if schemas else ()):
        kinds = frozenset().union(*(older.inputs[place].kinds for older in schemas if place < len(older.inputs)))
        inputs.append(parameter._replace(kinds=kinds | _TENSORS if kinds >= _MOVED else kinds))
    return tuple(inputs)


def moved_inputs(node: Node) -> list[Value]:
    """The inputs whose elements a node hands on: of any type, to results of any type; not where it has a choice."""
    schemas = schemas_of(type(node.operator))
    parameters = _inputs_of(type(node.operator))
    if not schemas or not schemas[-1].outputs[0].kinds >= _MOVED:
        return []
    last = len(parameters) - 1
    taken = [
        (value, parameters[min(place, last)].kinds) for place, value in enumerate(node.inputs) if value is not None
    ]
    chosen = any(kinds == {DType.BOOL} for _, kinds in taken)
    return [] if chosen else [value for value, kinds in taken if kinds >= _MOVED]


def _check_types(
    parameters: Sequence[Parameter], inputs: Sequence[Value | None], operator: str, node: str, version: str
) -> None:
    bound: dict[str, tuple[DType | str, str]] = {}
    last = len(parameters) - 1
    for place, value in enumerate(inputs):
        if value is None:
            continue
        type = value.type
        kind = type.dtype if type.dtype is not None else text_of(type)
        if kind is None:
            continue
        parameter = parameters[place if place < last else last]
        if kind not in parameter.kinds:
            raise GraphError(
                f"Type Error: Type '{_text(kind)}' of input parameter ({value.name}) of operator ({operator}) in node "
                f"({node}) is invalid. {value.name!r} is of type {_short(kind)}; allowed are "
                f"{', '.join(sorted(map(_short, parameter.kinds)))} for {parameter.name}{version}"
            )
        if not parameter.bound:
            continue
        other, name = bound.setdefault(parameter.type, (kind, value.name))
        if other != kind:
            raise InferenceError(
                f"Type Error: Type parameter ({parameter.type}) of Optype ({operator}) bound to different types "
                f"({_text(other)} and {_text(kind)} in node ({node}). {name!r} and {value.name!r} have different "
                "element types"
            )


def _text(kind: DType | str) -> str:
    return f"tensor({kind.text})" if isinstance(kind, DType) else kind


def _short(kind: DType | str) -> str:
    """A type as users write it: float for tensor(float)."""
    return kind.text if isinstance(kind, DType) else kind


def text_of(type: Type) -> str | None:
    """A type in ONNX's words; None where not all is known that they say."""
    if isinstance(type, TensorType):
        return None if type.dtype is None else _text(type.dtype)
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
