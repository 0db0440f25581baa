"""Operator sets that documents declare (OperatorSetProto): what they hold, and which operator a version means.

`jitonnx.opsets` reads them and hands them to a registry, which asks here. A set is a snapshot: the operators that a
version of a domain has, each with the version since which it is as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jitonnx.ir.schema import Schema
from jitonnx.support.records import NamedTuple, dataclass


@dataclass(eq=False)
class Declared:
    """An operator that a document declares, in one of its versions."""

    schema: Schema
    """Its version is that since which the operator is as it is. Types are not declared: nodes of the body tell them."""
    experimental: bool
    function: Any
    """The FunctionProto that says what it computes; None where the document has none."""
    nodes: int = 1
    """How many nodes a call stands for, those of calls within it included."""


class OperatorSet(NamedTuple):
    """A version of a domain."""

    domain: str
    version: int
    operators: Mapping[str, Sequence[Declared]]
    """The keys are names; each has the versions of an operator that the document has, oldest first."""
    content: bytes
    """The document."""


def declared_in(sets: Sequence[OperatorSet], name: str, version: int) -> Declared | None:
    """The operator that `version` of a domain means by a name: the newest not above it; None if it has none.

    sets: those of the domain that are registered, oldest first. Of a version that is not among them the next older one
    tells, and the next newer one where it says that the operator was there already.
    """
    newer = next((one for one in sets if one.version >= version), None)
    older = next((one for one in reversed(sets) if one.version < version), None)
    for one in (newer, older):
        if one is None:
            continue
        usable = [each for each in one.operators.get(name, ()) if each.schema.version <= version]
        if usable:
            return usable[-1]
        if one.version == version:
            return None
    return None


def other_version(sets: Sequence[OperatorSet], name: str, version: int) -> Schema | None:
    """The first signature of an operator that `version` of a domain does not have, if it came later; if it was
    there before, its last one, marked as dropped in the version that dropped it. None for one that no version has."""
    having = [one for one in sets if name in one.operators]
    if not having:
        return None
    gone = next((one.version for one in sets if having[0].version < one.version <= version and one not in having), None)
    if gone is not None:
        return having[0].operators[name][-1].schema._replace(deprecated=True, version=gone)
    return min((each.schema for one in having for each in one.operators[name]), key=lambda schema: schema.version)
