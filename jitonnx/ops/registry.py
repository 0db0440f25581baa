"""All operators by (domain, name), and how a model's node becomes one of them.

The list of families is explicit: an operator exists because its module is named here and lists it in OPERATORS.
"""

from __future__ import annotations

import importlib
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from jitonnx import forks
from jitonnx.ir.errors import GraphError
from jitonnx.ir.operator import Operator, Tensor
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Type

DOMAINS = {"": 28}
"""Domains known here, with the newest operator-set version of each."""


_FAMILIES = (
    "activation",
    "arithmetic",
    "attention",
    "blocks",
    "cast",
    "control",
    "convolution",
    "einsum",
    "filling",
    "gather",
    "logic",
    "matmul",
    "normalization",
    "pieces",
    "pooling",
    "quantization",
    "recurrent",
    "reduction",
    "resize",
    "scatter",
    "selection",
    "sequence",
    "shape",
    "spectral",
    "softmax",
    "trigonometry",
)
"""The modules of this folder that declare ONNX's operators."""


@forks.once
def registry() -> dict[tuple[str, str], type[Operator]]:
    """Every declared operator by (domain, name)."""
    modules = [importlib.import_module(f"jitonnx.ops.{family}") for family in _FAMILIES]
    return {(operator.domain, operator.__name__): operator for module in modules for operator in module.OPERATORS}


def build(node: RawNode, opset: int) -> Operator:
    """The operator of a model's node under operator set `opset`; `node` is brought to the newest version in place.

    GraphError for an unknown operator, an attribute that it does not have, lacks or mistypes, too many or too few
    inputs.
    """
    declaration = registry().get((_domain(node.domain), node.operator))
    where = f"{node.operator} node {node.name!r}"
    if declaration is None:
        raise GraphError(f"{where}: {_unknown(node, opset)}")
    usable = [version for version in declaration.versions if version <= opset]
    if not usable:
        raise GraphError(
            f"{where}: {node.operator} exists since operator set {declaration.versions[0]}, the model uses {opset}"
        )
    if declaration.removed is not None and opset >= declaration.removed:
        raise GraphError(
            f"{where}: ONNX removed {node.operator} in operator set {declaration.removed}, the model uses {opset}"
        )
    node.version = usable[-1]
    if node.version < declaration.versions[-1]:
        declaration.upgrade(node)
    _check_inputs(declaration, node, where)
    return declaration(**_parse_attributes(declaration, node, where))


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _unknown(node: RawNode, opset: int) -> str:
    import difflib

    names = [name for domain, name in registry() if domain == _domain(node.domain)]
    close = difflib.get_close_matches(node.operator, names, 3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"no operator {node.operator!r} in domain {node.domain or 'ai.onnx'!r}, version {opset}{hint}"


def _check_inputs(declaration: type[Operator], node: RawNode, where: str) -> None:
    names = declaration.inputs
    required = sum(not name.endswith(("?", "*")) for name in names)
    limit = None if names and names[-1].endswith("*") else len(names)
    given = len(node.inputs)
    while node.inputs and node.inputs[-1] is None and given > required:
        node.inputs.pop()
        given -= 1
    if given < required or (limit is not None and given > limit):
        raise GraphError(f"{where} has {given} inputs; {node.operator} takes {', '.join(names) or 'none'}")


def _parse_attributes(declaration: type[Operator], node: RawNode, where: str) -> dict[str, Any]:
    known = {entry.name: entry for entry in fields(declaration)}  # type: ignore[arg-type]
    parsed = {}
    for name, value in node.attributes.items():
        if name not in known:
            public = [entry.name for entry in known.values() if not entry.metadata.get("internal")]
            raise GraphError(f"{where} has attribute {name!r}; {node.operator} knows {', '.join(public) or 'none'}")
        parsed[name] = _convert(value, str(known[name].type), f"{where}, attribute {name!r}")
    missing = [entry.name for entry in known.values() if entry.default is MISSING and entry.name not in parsed]
    if missing:
        raise GraphError(f"{where} lacks the attribute {missing[0]!r}")
    return parsed


def _convert(value: Any, annotation: str, where: str) -> Any:
    """An attribute's value as its declaration's annotation has it (the annotations that declarations use)."""
    kind = annotation.removesuffix(" | None")
    checks: dict[str, tuple[Any, Any]] = {
        "int": (int, int),
        "bool": (int, bool),
        "float": (float | int, float),
        "str": (str, str),
        "tuple[int, ...]": (tuple, tuple),
        "tuple[float, ...]": (tuple, tuple),
        "tuple[str, ...]": (tuple, tuple),
        "Tensor": (np.ndarray, Tensor),
        "Type": (Type, lambda type: type),
    }
    expected, convert = checks[kind]
    if not isinstance(value, expected):
        raise GraphError(f"{where}: {value!r} given, {kind} expected")
    return convert(value)
