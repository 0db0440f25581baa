"""Operator-set documents (OperatorSetProto): read, checked, written, and registered for the models that import them.

    from jitonnx import opsets

    jitonnx.register_opset("org.example.3.onnxopset")
    document = opsets.read("org.example.3.onnxopset")
    opsets.write(document, "copy.onnxopset")

docs/operators.md says what a document holds and which version of an operator a model gets.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jitonnx.errors import Error, Fail, InvalidGraph, InvalidProtobuf
from jitonnx.ir.schema import Parameter, Schema
from jitonnx.model.checker import functions
from jitonnx.model.checker.nodes import all_nodes, all_tensors, repeated
from jitonnx.model.checker.operators import called_by
from jitonnx.model.checker.report import Report, quoted
from jitonnx.model.checker.rules import RULES
from jitonnx.model.checker.walk import Walk
from jitonnx.model.external import ExternalData
from jitonnx.model.load import content_of
from jitonnx.model.tensors import TensorReader
from jitonnx.model.wire import Tickets
from jitonnx.ops.operator_sets import Declared, OperatorSet
from jitonnx.ops.registry import FOLDERS, Registry, canonical
from jitonnx.ops.registry import registry as default_registry
from jitonnx.proto import (
    EXPERIMENTAL,
    IR_VERSION,
    AttributeProto,
    FunctionProto,
    ModelProto,
    OperatorProto,
    OperatorSetIdProto,
    OperatorSetProto,
    TensorProto,
)
from jitonnx.support.records import NamedTuple

__all__ = ["MAGIC", "RegisteredSet", "read", "register_opset", "write"]

MAGIC = "ONNXOPSET"
"""What each document begins with."""


class RegisteredSet(NamedTuple):
    """What `register_opset` has made usable."""

    domain: str
    version: int
    operators: tuple[str, ...]
    """Names."""
    missing: tuple[str, ...]
    """Operators among them that can't be run before they are written in Python: the document has no function."""


def read(source: Any) -> OperatorSetProto:
    """An operator-set document, found to be sound in itself; who uses it may have it without `register_opset`.

    source: a path, the file's bytes, an open binary file, or an OperatorSetProto of jitonnx.proto or of the onnx
    package. NoSuchFile, InvalidProtobuf or Fail say what is wrong with it.
    """
    from google.protobuf.message import DecodeError

    content, path = content_of(source)
    what = f"Operator set {path}: " if path else ""
    try:
        proto = OperatorSetProto.FromString(bytes(content))
    except DecodeError as error:
        raise InvalidProtobuf(f"{what}Protobuf parsing failed: this is no operator-set document") from error
    for text in _faults(proto):
        raise Fail(f"{what}{text}")
    return proto


def write(proto: Any, path: str | os.PathLike[str]) -> None:
    """Write an operator-set document, which `read` would take. Fail says what is wrong with it.

    proto: an OperatorSetProto of jitonnx.proto or of the onnx package.
    """
    Path(path).write_bytes(read(proto).SerializeToString(deterministic=True))


def register_opset(source: Any, *, registry: Registry = default_registry) -> RegisteredSet:
    """Let models of all sessions made from now on use the operators that a document declares.

    source: as of `read`. An operator of which the document has a function is that function; others have to be written
    in Python (`jitonnx.register`) before a model that uses them is loaded. Several versions of a domain may be
    registered, in any order; the same document twice is registered once.

    Besides the errors of `read`: InvalidGraph or others where a function is not sound, Fail where the document
    contradicts one that is registered.
    """
    proto = read(source)
    where = f"operator set {proto.opset_version} of {proto.domain}"
    made = _operator_set(proto)
    known = registry.domain(made.domain)
    for other in () if known is None else known.sets:
        if other.content == made.content:
            return _described(other, registry)
        for text in _contradictions(*sorted((other, made), key=lambda each: each.version)):
            raise Fail(f"{where}: {text}")
    candidate = Registry(registry)
    candidate.add_set(made)
    try:
        _check_functions(proto, candidate)
        _measure(candidate)
    except Error as error:
        raise type(error)(f"{where}: {error.text.removeprefix('This is an invalid model. ')}") from error
    registry.add_set(made)
    return _described(made, registry)


def _described(one: OperatorSet, registry: Registry) -> RegisteredSet:
    missing = (name for name, versions in one.operators.items() if not registry.is_implemented(versions[-1]))
    return RegisteredSet(one.domain, one.version, tuple(one.operators), tuple(missing))


# ---------------------------------------------------------------------------------------------- a document in itself


def _faults(proto: OperatorSetProto) -> Iterator[str]:
    """What is wrong with the fields of a document."""
    if proto.magic != MAGIC:
        yield f"this is no operator-set document: its magic is {quoted(proto.magic)}, {MAGIC!r} is needed"
    if not 1 <= proto.ir_version <= IR_VERSION:
        yield f"the IR version is {proto.ir_version}; it is a number from 1 to {IR_VERSION}"
    if not proto.domain:
        yield "the document names no domain; only ONNX's own operator set may do without"
    elif canonical(proto.domain) in FOLDERS:
        yield f"the domain {proto.domain!r} comes with jitonnx, and no document adds to it"
    if proto.opset_version < 1:
        yield f"opset_version is {proto.opset_version}; versions begin with 1"
    for operator in proto.operator:
        name = quoted(operator.op_type)
        if not operator.op_type:
            yield "an operator has no op_type"
        elif not 1 <= operator.since_version <= proto.opset_version:
            yield (
                f"the operator {name} has since_version {operator.since_version}; it is a number from 1 to "
                f"{proto.opset_version}, the version of the set"
            )
    twice = repeated(f"{each.op_type}({each.since_version})" for each in proto.operator)
    twice += repeated(each.name for each in proto.functions)
    if twice:
        yield f"the operator {quoted(twice[0])} is declared twice; name and version are unique"
    for function in proto.functions:
        if not function.name:
            yield "a function has no name"
        elif function.domain not in ("", proto.domain):
            yield f"the function {quoted(function.name)} is of domain {quoted(function.domain)}, not of the document's"
        elif function.overload:
            yield f"the function {quoted(function.name)} has an overload, which operators of a set do not have"
        elif any(tensor.data_location == TensorProto.EXTERNAL for tensor in all_tensors(function)):
            yield f"the function {quoted(function.name)} has a tensor in another file: a document has all of it"


def _operator_set(proto: OperatorSetProto) -> OperatorSet:
    """What a sound document declares. A function is that of the newest version of its operator; one that no operator
    stands for is an operator itself, since the version of the set."""
    bodies = {function.name: _function(function, proto) for function in proto.functions}
    declared: dict[str, list[Declared]] = {}
    newest: dict[str, int] = {}
    for operator in proto.operator:
        newest[operator.op_type] = max(operator.since_version, newest.get(operator.op_type, 0))
    alone = [
        OperatorProto(op_type=name, since_version=proto.opset_version, status="STABLE")
        for name in bodies
        if name not in newest
    ]
    for operator in sorted([*proto.operator, *alone], key=lambda each: each.since_version):
        name, since = operator.op_type, operator.since_version
        body = bodies.get(name) if since == newest.get(name, since) else None
        schema = _schema(proto.domain, name, since, body)
        declared.setdefault(name, []).append(Declared(schema, operator.status == EXPERIMENTAL, body))
    return OperatorSet(proto.domain, proto.opset_version, declared, proto.SerializeToString(deterministic=True))


def _function(given: FunctionProto, proto: OperatorSetProto) -> FunctionProto:
    function = FunctionProto()
    function.CopyFrom(given)
    function.domain = proto.domain
    return function


def _schema(domain: str, name: str, since: int, body: FunctionProto | None) -> Schema:
    """What calls of an operator are held to. Nothing is known of one without a function; who writes it says it."""
    if body is None:
        return Schema(domain, name, since, deprecated=False, inputs=(), outputs=(), attributes={})
    inputs, outputs = (
        tuple(Parameter(each, "", frozenset(), optional=True) for each in names) for names in (body.input, body.output)
    )
    kinds = dict.fromkeys(body.attribute, "")
    for node in all_nodes(body.node):
        for attribute in node.attribute:
            if attribute.ref_attr_name in kinds and attribute.type:
                kinds[attribute.ref_attr_name] = _kind(attribute)
    kinds |= {attribute.name: _kind(attribute) for attribute in body.attribute_proto}
    attributes = {name: (kind, False) for name, kind in kinds.items()}
    return Schema(domain, name, since, deprecated=False, inputs=inputs, outputs=outputs, attributes=attributes)


def _kind(attribute: AttributeProto) -> str:
    return AttributeProto.AttributeType.Name(attribute.type)


# ---------------------------------------------------------------------------------------------- beside others


def _contradictions(older: OperatorSet, newer: OperatorSet) -> Iterator[str]:
    """What two sets of a domain say that is not true of both."""
    if older.version == newer.version:
        yield "another document of this domain and version is registered"
        return
    for name, versions in newer.operators.items():
        before = {each.schema.version: each for each in older.operators.get(name, ())}
        for one in versions:
            since = one.schema.version
            if since > older.version:
                continue
            same = before.get(since)
            if same is None and since == older.version:
                yield f"{name} has been there since {since}, but set {since}, which is registered, does not have it"
            elif same is not None and not same.experimental and _body(same) != _body(one):
                yield (
                    f"{name}, stable since {since}, is another function in set {newer.version} than in set "
                    f"{older.version}: an operator that changes gets a new since_version"
                )


def _body(declared: Declared) -> bytes | None:
    """What a function computes, without what is said about it."""
    if declared.function is None:
        return None
    plain = FunctionProto()
    plain.CopyFrom(declared.function)
    plain.ClearField("doc_string")
    plain.ClearField("metadata_props")
    return bytes(plain.SerializeToString(deterministic=True))


def _check_functions(proto: OperatorSetProto, registry: Registry) -> None:
    """The bodies are sound, and name operators that there are. registry: has the document's operators by now."""
    imports = [OperatorSetIdProto(domain=proto.domain, version=proto.opset_version)]
    holder = ModelProto(ir_version=IR_VERSION, opset_import=imports)
    holder.functions.extend(_function(each, proto) for each in proto.functions)
    walk = Walk(holder, registry, Report(), TensorReader(Tickets(), ExternalData(None)), thorough=False)
    walk.run_functions()
    refused = Report()
    for finding in walk.report:
        if RULES[finding.rule].refused and finding.rule != "operators.body":
            refused.add(finding)
    refused.raise_first()


def _measure(registry: Registry) -> None:
    """Note how many nodes each function stands for. InvalidGraph where functions call one another in a circle, Fail
    where calls make too many nodes: of all documents, as one that comes between others may change what calls mean."""
    every = [
        declared
        for domain in registry.domains()
        for one in domain.sets
        for versions in one.operators.values()
        for declared in versions
    ]
    called = {declared: Counter(called_by(registry, declared)) for declared in every}
    for circle in functions.circles(called):
        names = " -> ".join(each.schema.name for each in [*circle, circle[0]])
        raise InvalidGraph(f"the function calls itself: {names}. ONNX has no recursion; use a Loop")
    own = {declared: 1 if declared.function is None else len(declared.function.node) for declared in every}
    for declared, (nodes, depth) in functions.sizes_of(called, own).items():
        if nodes > functions.MOST_NODES or depth > functions.MOST_CALLS:
            raise Fail(
                f"the function {declared.schema.name} stands for {nodes} nodes or more, in calls {depth} deep; "
                f"{functions.MOST_NODES} and {functions.MOST_CALLS} are allowed"
            )
        declared.nodes = nodes
