"""Which operators there are: declarations by (domain, name), ONNX's and others', and how a model's node becomes one.

    declaration = registry.find("com.microsoft", "FusedMatMul")
    operator = registry.build(node, opset)

A domain that comes with jitonnx is a folder beside this module, whose `__init__` names the domain's newest version and
its families, each a module that lists its declarations in OPERATORS. It is read when it is first asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from jitonnx import forks
from jitonnx.ir.errors import GraphError
from jitonnx.ir.operator import Operator, Tensor
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Type

FOLDERS = {
    "": "onnx",
    "ai.onnx.ml": "ml",
    "ai.onnx.preview": "preview",
    "ai.onnx.preview.training": "training",
    "com.microsoft": "microsoft",
}
"""The folder of each domain that comes with jitonnx. "" is ai.onnx."""


class Domain:
    """A domain's operators by name.

    newest: its newest operator-set version.
    """

    def __init__(self, name: str, newest: int, declarations: tuple[type[Operator], ...] = ()) -> None:
        self.name, self.newest = name, newest
        self.operators: dict[str, type[Operator]] = {}
        for declaration in declarations:
            self.add(declaration)

    def add(self, declaration: type[Operator]) -> None:
        """Take a declaration in. ValueError for one of another domain, or of a name that is taken."""
        if declaration.domain != self.name:
            raise ValueError(f"{declaration.name} is of domain {declaration.domain!r}, not of {self.name!r}")
        if declaration.name in self.operators:
            raise ValueError(f"domain {self.name or 'ai.onnx'!r} has an operator {declaration.name} already")
        self.operators[declaration.name] = declaration


class Registry:
    """Operators by domain and name. Domains are given as in model files; "ai.onnx" is the same as ""."""

    def __init__(self) -> None:
        self._domains: dict[str, Domain] = {}

    def domain(self, name: str) -> Domain | None:
        """A domain, or None if it is not known."""
        name = canonical(name)
        if name not in self._domains and name in FOLDERS:
            self._domains[name] = _built_in(name)
        return self._domains.get(name)

    def domains(self) -> dict[str, int]:
        """The newest operator-set version of each domain that is known."""
        names = dict.fromkeys([*FOLDERS, *self._domains])
        return {name: domain.newest for name in names if (domain := self.domain(name)) is not None}

    def find(self, domain: str, name: str) -> type[Operator] | None:
        """The declaration of an operator, or None if there is none."""
        known = self.domain(domain)
        return None if known is None else known.operators.get(name)

    def names(self, domain: str) -> list[str]:
        """The names of a domain's operators."""
        known = self.domain(domain)
        return [] if known is None else list(known.operators)

    def __iter__(self) -> Iterator[type[Operator]]:
        """Every declaration."""
        for name in self.domains():
            known = self.domain(name)
            assert known is not None
            yield from known.operators.values()

    def build(self, node: RawNode, opset: int) -> Operator:
        """The operator of a model's node under operator set `opset`; `node` is brought to the newest version in place.

        GraphError for an unknown operator, an attribute that it does not have, lacks or mistypes, too many or too few
        inputs.
        """
        declaration = self.find(node.domain, node.operator)
        where = f"{node.operator} node {node.name!r}"
        if declaration is None:
            raise GraphError(f"{where}: {self._unknown(node, opset)}")
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

    def _unknown(self, node: RawNode, opset: int) -> str:
        import difflib

        close = difflib.get_close_matches(node.operator, self.names(node.domain), 3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        return f"no operator {node.operator!r} in domain {node.domain or 'ai.onnx'!r}, version {opset}{hint}"


registry = Registry()
"""What a model's operators are looked up in."""


def canonical(domain: str) -> str:
    """A domain's name as it is used here: "" for ai.onnx."""
    return "" if domain == "ai.onnx" else domain


@forks.once
def _built_in(name: str) -> Domain:
    place = f"jitonnx.ops.{FOLDERS[name]}"
    folder = importlib.import_module(place)
    families = [importlib.import_module(f"{place}.{family}") for family in folder.FAMILIES]
    return Domain(name, folder.NEWEST, tuple(declared for family in families for declared in family.OPERATORS))


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
