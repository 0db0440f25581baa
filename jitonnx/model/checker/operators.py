"""What a node names: an operator that exists in the imported version, and its signature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from jitonnx.ir import schema
from jitonnx.model.checker.names import suggestion
from jitonnx.model.checker.nodes import Opsets, all_nodes
from jitonnx.model.checker.report import shown
from jitonnx.ops.registry import canonical
from jitonnx.proto import NodeProto

if TYPE_CHECKING:
    from jitonnx.model.checker.walk import Body, Walk
    from jitonnx.ops.operator_sets import Declared
    from jitonnx.ops.registry import Registry

FIRST_IR_WITH_OPSETS = 3
IMPORTED_ANYWAY = {"ai.onnx.ml", "ai.onnx.training", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"}
"""Domains that onnxruntime takes for imported, in version 1: models made for it leave the import out."""
Fault = tuple[str, str, str]
"""The rule, the text and a hint."""


def version_of(walk: Walk, body: Body, domain: str) -> int | None:
    """The version of a domain's operator set that a body imports; None if it imports none."""
    version = body.opsets.versions.get(canonical(domain))
    if version is None and (walk.ir_version < FIRST_IR_WITH_OPSETS or canonical(domain) in IMPORTED_ANYWAY):
        return 1
    return version


def not_imported(domain: str, operator: str) -> Fault:
    """What is told of a node whose domain is not imported."""
    name = canonical(domain) or "ai.onnx"
    text = f"No opset import for domain {shown(name)!r}, which {shown(operator)} needs"
    return "operators.domain", text, f"add an entry for {shown(name)!r} to opset_import"


def faults(walk: Walk, node: NodeProto, kinds: Mapping[str, str], body: Body) -> list[Fault]:
    """What is wrong with a node's operator, or with its form. kinds: of its attributes, see `attributes.check`."""
    domain, operator = canonical(node.domain), node.op_type
    if not operator:
        return [("operators.name", "This is an invalid model. The node has no operator", "give it an op_type")]
    version = version_of(walk, body, domain)
    if version is None:
        return [not_imported(domain, operator)]
    signature = walk.registry.signature(domain, operator, version)
    if signature is None:
        return [_unknown(walk, domain, operator, version)]
    found = _of_documents(walk, domain, operator, version)
    if any(rule == "operators.body" for rule, _, _ in found):
        return found
    if signature.deprecated:
        text = f"Op registered for {operator} is deprecated in domain_version of {version}"
        returned = _returned(walk, domain, operator)
        if not returned:
            return [
                ("operators.version", text, f"it was removed in version {signature.version}: export the model anew")
            ]
        found.append(("operators.deprecated", text, f"it is there again in version {returned}"))
    if signature.version > version:
        text = f"No Op registered for {operator} with domain_version of {version}; it exists since {signature.version}"
        return [("operators.version", text, "")]
    inputs, outputs = list(map(bool, node.input)), list(map(bool, node.output))
    if (domain, operator, kinds.get("value")) == ("", "Constant", "SPARSE_TENSOR"):
        kinds = {name: kind for name, kind in kinds.items() if name != "value"}
        found.append(("sparse.constant", "a sparse tensor is the Constant's `value`", "call it sparse_value"))
    wrong = [("signature.attributes", text) for text in schema.attribute_faults(signature, kinds)]
    wrong += [("signature.counts", text) for text in schema.count_faults(signature, inputs, outputs)]
    return found + [(rule, f"This is an invalid model. {text}", "") for rule, text in wrong]


def _of_documents(walk: Walk, domain: str, operator: str, version: int) -> list[Fault]:
    """What is to be told of an operator that a registered document declares, besides its form."""
    declared = walk.registry.declared(domain, operator, version) if domain else None
    if declared is None:
        return []
    found: list[Fault] = []
    name = f"{shown(domain)}:{shown(operator)}({declared.schema.version})"
    if declared.experimental:
        text = f"{name} is experimental: what it computes may change with the next version of its operator set"
        found.append(("operators.experimental", text, ""))
    lacking = _lacking(walk, declared, set())
    if not walk.registry.is_implemented(declared):
        text = f"{name} is declared by its operator set without a function, and nobody registered it"
        found.append(("operators.body", text, "write it in Python, and register that version (jitonnx.register)"))
    elif lacking:
        text = f"the function {name} needs {', '.join(lacking)}, declared without a function and registered by nobody"
        found.append(("operators.body", text, "write it in Python, and register that version (jitonnx.register)"))
    return found


def _lacking(walk: Walk, declared: Declared, seen: set[int]) -> list[str]:
    """The operators that nobody implements among those that a function needs, in functions that it calls as well."""
    registry = walk.registry
    if id(declared) in seen:
        return []
    seen.add(id(declared))
    found: dict[str, None] = {}
    for called in called_by(registry, declared):
        if not registry.is_implemented(called):
            found[f"{called.schema.domain}:{called.schema.name}({called.schema.version})"] = None
        found |= dict.fromkeys(_lacking(walk, called, seen))
    return list(found)


def called_by(registry: Registry, declared: Declared) -> Iterator[Declared]:
    """The operators of documents that a function reads, as often as nodes name them; none for what is no function."""
    schema = declared.schema
    if registry.function(schema.domain, schema.name, schema.version) is not declared:
        return
    versions = Opsets.of(declared.function).versions
    for node in all_nodes(declared.function.node):
        domain = canonical(node.domain)
        called = registry.declared(domain, node.op_type, versions[domain]) if domain in versions else None
        if called is not None:
            yield called


def _returned(walk: Walk, domain: str, operator: str) -> int | None:
    """The version in which an operator that was dropped came back; None if it did not."""
    known = walk.registry.domain(domain)
    newest = None if known is None or known.newest is None else walk.registry.signature(domain, operator, known.newest)
    return None if newest is None or newest.deprecated else newest.version


def _unknown(walk: Walk, domain: str, operator: str, version: int) -> Fault:
    hint = suggestion(operator, walk.registry.names(domain), "did you mean", 0.8)
    if domain and not domain.startswith("ai.onnx"):  # onnxruntime's words for what ONNX does not define
        text = f"{shown(domain)}:{shown(operator)}(-1) is not a registered function/op"  # its version in onnxruntime
        what = walk.registry.describe(domain)
        return "operators.foreign", text, f"{hint} {what}".strip()
    return "operators.unknown", f"No Op registered for {shown(operator)} with domain_version of {version}", hint
