"""Which operators there are: declarations by (domain, name), ONNX's and others', and how a model's node becomes one.

    declaration = registry.find("com.microsoft", "FusedMatMul")
    operator = registry.build(node, opset)

A domain that comes with jitonnx is a folder beside this module, whose `__init__` names the domain's newest version and
its families, each a module with the classes of those names. A family is read when one of its operators is first asked
for: all of them together would take a sixth of the time in which a small model is loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from jitonnx.ir.attributes import kind_of, plain
from jitonnx.ir.dtypes import DType
from jitonnx.ir.errors import GraphError
from jitonnx.ir.operator import Operator, is_custom
from jitonnx.ir.raw import RawNode
from jitonnx.ir.schema import LENIENT, Schema, check_types, count_faults, schemas_in, schemas_of
from jitonnx.ops.base import FLOATS, NUMBERS, Elementwise
from jitonnx.ops.composite import Composite
from jitonnx.ops.operator_sets import Declared, OperatorSet, declared_in, other_version
from jitonnx.ops.registered import FOLDERS as FOLDERS
from jitonnx.ops.registered import PutOff, hand_over, taken
from jitonnx.ops.registered import canonical as canonical
from jitonnx.support import fork_safety

WITHOUT_DECLARATION = {("", "Constant"), ("ai.onnx.preview.training", "Gradient")}
"""Operators that never become nodes: whoever builds the graph knows what to do with them."""


class Domain:
    """A domain's operators by name.

    newest: its newest operator-set version; None for a domain of users without documents, of which models may import
    any. families: of an operator that is read when it is asked for, the module that declares it.
    """

    def __init__(self, name: str, newest: int | None, families: Mapping[str, str]) -> None:
        self.name, self.newest = name, newest
        self._operators: dict[str, str | PutOff | type[Operator]] = {**families}
        """Declarations by name, or the modules that they are to be read from, or what makes them."""
        self.sets: tuple[OperatorSet, ...] = ()
        """The versions that documents declare, oldest first."""

    def copy(self) -> Domain:
        """One of its own, to add to."""
        made = Domain(self.name, self.newest, {})
        made._operators, made.sets = {**self._operators}, self.sets
        return made

    @property
    def operators(self) -> Collection[str]:
        """The names of the operators."""
        return self._operators.keys()

    def find(self, name: str) -> type[Operator] | None:
        """The declaration of an operator, or None if there is none. LookupError where its family does not have it."""
        found = self._operators.get(name)
        if isinstance(found, str):
            declaration = getattr(importlib.import_module(found), name, None)
            if declaration is None:
                raise LookupError(f"FAMILIES promises {name} in {found}, which has no class of that name")
            found = self._operators[name] = declaration
        elif found is not None and not isinstance(found, type):
            declaration = found.declaration()
            complete(declaration)
            found = self._operators[name] = declaration
        return found

    def __iter__(self) -> Iterator[type[Operator]]:
        """Every declaration."""
        for name in [*self._operators]:
            found = self.find(name)
            assert found is not None, f"Bug: {name} is not declared"
            yield found

    def add(self, declaration: type[Operator] | PutOff) -> None:
        """Take a declaration in. ValueError for one of another domain, or of a name that is taken."""
        if canonical(declaration.domain) != self.name:
            raise ValueError(f"{declaration.name} is of domain {declaration.domain!r}, not of {self.name!r}")
        if declaration.name in self._operators:
            raise taken(self.name, declaration.name)
        self._operators[declaration.name] = declaration


class Registry:
    """Operators by domain and name. Domains are given as in model files; "ai.onnx" is the same as "".

    base: where operators are looked up that this one does not have; what is added here is not added there.
    """

    def __init__(self, base: Registry | None = None) -> None:
        self._base = base
        self._domains: dict[str, Domain] = {}
        self._signatures: dict[tuple[str, str, int], Schema | None] = {}

    def add(self, declaration: type[Operator] | PutOff) -> None:
        """Take a user's declaration in. ValueError where its name is taken, TypeError where it lacks a part."""
        if isinstance(declaration, type) or not isinstance(declaration, PutOff):
            complete(declaration)
        own = self._own(canonical(declaration.domain))
        own.add(declaration)
        self._take(own)

    def add_set(self, one: OperatorSet) -> None:
        """Take a version of a domain in, which a document declares and which is not there yet."""
        own = self._own(one.domain)
        own.sets = tuple(sorted((*own.sets, one), key=lambda each: each.version))
        own.newest = own.sets[-1].version
        self._take(own)

    def _own(self, name: str) -> Domain:
        """A domain of this registry, or a copy of that of its base."""
        if name in self._domains:
            return self._domains[name]
        known = self.domain(name)
        return Domain(name, None, {}) if known is None else known.copy()

    def _take(self, domain: Domain) -> None:
        self._domains[domain.name] = domain
        self._signatures.clear()

    def domain(self, name: str) -> Domain | None:
        """A domain, or None if it is not known."""
        name = canonical(name)
        if name in self._domains:
            return self._domains[name]
        if self._base is not None:
            return self._base.domain(name)
        return _built_in(name) if name in FOLDERS else None

    def domains(self) -> list[Domain]:
        """Every domain that is known."""
        base = [domain.name for domain in self._base.domains()] if self._base is not None else FOLDERS
        names = dict.fromkeys([*base, *self._domains])
        return [domain for name in names if (domain := self.domain(name)) is not None]

    def find(self, domain: str, name: str) -> type[Operator] | None:
        """The declaration of an operator, or None if there is none."""
        known = self.domain(domain)
        return None if known is None else known.find(name)

    def names(self, domain: str) -> list[str]:
        """The names of a domain's operators."""
        known = self.domain(domain)
        return [] if known is None else [*known.operators, *(name for one in known.sets for name in one.operators)]

    def __iter__(self) -> Iterator[type[Operator]]:
        """Every declaration."""
        for domain in self.domains():
            yield from domain

    def build(self, node: RawNode, opset: int) -> Operator:
        """The operator of a model's node under operator set `opset`; `node` is brought to the newest version in place.

        GraphError, or InferenceError, for types that it does not take; that the operator exists, and has such
        attributes and as many inputs, the checker has seen to.
        """
        declaration = self.find(node.domain, node.operator)
        where = f"{node.operator} node {node.name!r}"
        assert declaration is not None, f"Bug: the checker let {where} pass"
        known = schemas_of(declaration)
        signature = [schema for schema in known if schema.version <= opset][-1]
        node.version = signature.version
        # A function's call may have left out what the body's node names, and the function of a document may name what
        # was written later.
        if None in node.inputs or is_custom(declaration):
            given = [value is not None for value in node.inputs]
            for text in count_faults(signature, given, list(map(bool, node.outputs))):
                raise GraphError(f"{where}: {text}")
        check_types(signature, node, where)
        if node.version < known[-1].version:
            node.drop("consumed_inputs")  # which version 1 of many has, and which never meant anything
            declaration.upgrade(node)
        while node.inputs and node.inputs[-1] is None:
            node.inputs.pop()
        if declaration.any_attributes:
            return declaration.of_node(node)
        return declaration(**_parse_attributes(declaration, node, where))

    def signature(self, domain: str, name: str, opset: int) -> Schema | None:
        """The signature of an operator under operator set `opset`; None for an operator that nobody knows.

        It is the newest that is not above `opset`, the oldest where all are.
        """
        key = (canonical(domain), name, opset)
        if key not in self._signatures:
            self._signatures[key] = self._signature(*key)
        return self._signatures[key]

    def declared(self, domain: str, name: str, opset: int) -> Declared | None:
        """What a document declares to be an operator under operator set `opset`; None if none does."""
        known = self.domain(domain)
        return declared_in(known.sets, name, opset) if known is not None and known.sets else None

    def function(self, domain: str, name: str, opset: int) -> Declared | None:
        """The operator if its calls become the nodes of a function that a document has: nobody wrote it otherwise."""
        declared = self.declared(domain, name, opset)
        return None if declared is None or declared.function is None or self._is_written(declared) else declared

    def is_implemented(self, declared: Declared) -> bool:
        """Whether there is a function, or a declaration of that version, for what a document declares."""
        return declared.function is not None or self._is_written(declared)

    def _is_written(self, declared: Declared) -> bool:
        written = self.find(declared.schema.domain, declared.schema.name)
        return written is not None and any(each.version == declared.schema.version for each in schemas_of(written))

    def _signature(self, domain: str, name: str, opset: int) -> Schema | None:
        declaration = self.find(domain, name)
        known = self.domain(domain)
        if known is not None and known.sets:
            declared = declared_in(known.sets, name, opset)
            if declared is None:
                other = other_version(known.sets, name, opset)
                if other is not None:
                    return other
            elif not self._is_written(declared):
                return declared.schema
        if declaration is None and (domain, name) not in WITHOUT_DECLARATION:
            return None
        ours = domain in FOLDERS and not (declaration is not None and is_custom(declaration))
        versions = schemas_in(f"jitonnx.ops.{FOLDERS[domain]}", domain, name) if ours else ()
        if not versions and declaration is not None:
            versions = schemas_of(declaration)
        usable = [schema for schema in versions if schema.version <= opset]
        return usable[-1] if usable else versions[0]

    def describe(self, domain: str) -> str:
        """What is registered, for an error about a domain."""
        known = self.domain(domain)
        if known is None:
            names = ", ".join(sorted(one.name or "ai.onnx" for one in self.domains()))
            return f"the domains that are registered are {names}"
        have = sorted({*known.operators, *(name for one in known.sets for name in one.operators)})
        names = ", ".join(have[:_SHOWN]) + (", …" if len(have) > _SHOWN else "")
        return f"the operators of {domain or 'ai.onnx'} that are registered are {names or 'none'}"


_SHOWN = 20
"""How many operators an error names at most."""

registry = Registry()
"""What a model's operators are looked up in."""


def complete(declaration: type[Operator]) -> None:
    """Put in what a user's declaration may leave out. TypeError for one that lacks a part."""
    if not (isinstance(declaration, type) and issubclass(declaration, Operator)):
        raise TypeError(
            f"{declaration!r} is no operator: derive a class from jitonnx.custom.Operator, Elementwise or Composite"
        )
    if not declaration.outputs:
        raise TypeError(f"{declaration.name} names no outputs")
    of_bodies = ("body_inputs", "infer_bodies", "evaluate")
    parts = of_bodies if declaration.bodies else ("infer", "evaluate")
    for part in ("compose",) if issubclass(declaration, Composite) else parts:
        if getattr(declaration, part) is getattr(Composite if part == "compose" else Operator, part):
            raise TypeError(f"{declaration.name} has no method {part!r}, which every operator needs")
    methods = (getattr(declaration, "scalar", None), declaration.evaluate)
    if methods == (Elementwise.scalar, Elementwise.evaluate):
        raise TypeError(f"{declaration.name} has neither a method 'scalar' nor 'evaluate', of which it needs one")
    schemas_of(declaration)


@fork_safety.once
def _built_in(name: str) -> Domain:
    place = f"jitonnx.ops.{FOLDERS[name]}"
    folder = importlib.import_module(place)
    families = {each: f"{place}.{family}" for family, names in folder.FAMILIES.items() for each in names.split()}
    return Domain(name, folder.NEWEST, families)


COUNTS = frozenset(
    (
        *("group", "offset_group", "num_groups", "num_heads", "q_num_heads", "kv_num_heads", "hidden_size"),
        *("kernel_shape", "strides", "dilations", "pooled_shape", "output_height", "output_width"),
        *("blocksize", "block_size", "num_outputs", "rotary_embedding_dim", "K", "N", "num_scan_inputs"),
    )
)
"""Attributes that count or measure something of which there is at least one, in whatever operator has them. One may be
less only where that is its default, which then stands for its absence."""

ELEMENT_TYPES: Mapping[str, frozenset[DType]] = {
    **dict.fromkeys(("to", "dtype", "output_dtype"), frozenset(DType)),
    "output_datatype": NUMBERS,
    **dict.fromkeys(("precision", "softmax_precision"), FLOATS),
}
"""Attributes that are an element type's number, in whatever operator has them, and the types that they may name."""


def _parse_attributes(declaration: type[Operator], node: RawNode, where: str) -> dict[str, Any]:
    known = {entry.name: entry for entry in fields(declaration)}  # type: ignore[arg-type]
    parsed = {}
    for name, value in node.attributes.items():
        if name not in known and declaration.domain == "" and declaration.name in LENIENT:
            continue
        if name not in known:
            public = [entry.name for entry in known.values() if not entry.metadata.get("internal")]
            raise GraphError(f"{where} has attribute {name!r}; {node.operator} knows {', '.join(public) or 'none'}")
        parsed[name] = _convert(value, known[name].type, f"{where}, attribute {name!r}")
    missing = [entry.name for entry in known.values() if entry.default is MISSING and entry.name not in parsed]
    if missing:
        raise GraphError(f"{where} lacks the attribute {missing[0]!r}")
    if not is_custom(declaration):
        for name in COUNTS & parsed.keys():
            value, default = parsed[name], known[name].default
            if value != default and min(value if isinstance(value, tuple) else (value,), default=1) < 1:
                given = list(value) if isinstance(value, tuple) else value
                raise GraphError(f"{where}: the attribute {name} is {given}; at least 1 is needed")
        for name in ELEMENT_TYPES.keys() & parsed.keys():
            value, allowed = parsed[name], ELEMENT_TYPES[name]
            if value != known[name].default and value not in allowed:
                types = (
                    f"of {', '.join(one.text for one in sorted(allowed))}"
                    if len(allowed) < len(DType)
                    else "known here"
                )
                raise GraphError(f"{where}: the attribute {name} is {value}, which is no element type {types}")
    return parsed


def _convert(value: Any, annotation: Any, where: str) -> Any:
    """An attribute's value as its declaration's annotation has it."""
    kind = kind_of(annotation)
    assert kind is not None, f"Bug: {where} is declared as {annotation!r}"
    if not isinstance(value, kind.read):
        raise GraphError(f"{where}: {value!r} given, {plain(annotation)} expected")
    return kind.convert(value)


hand_over(registry)
