"""Operators that users register by functions, until `registry` is imported, which takes them in.

Imports no operators: a start that finds its model compiled needs none, and asks only what those of users are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jitonnx.support import fork_safety

if TYPE_CHECKING:
    from jitonnx.ir.operator import Operator
    from jitonnx.ops.registry import Registry

FOLDERS = {
    "": "onnx",
    "ai.onnx.ml": "ml",
    "ai.onnx.preview": "preview",
    "ai.onnx.preview.training": "training",
    "com.microsoft": "microsoft",
}
"""The folder of each domain that comes with jitonnx. "" is ai.onnx."""


@runtime_checkable
class PutOff(Protocol):
    """What becomes a declaration when it is needed."""

    domain: str
    name: str

    def declaration(self) -> type[Operator]: ...

    def identity(self) -> str:
        """All that it is made of, as `support.identity` has it."""


_lock = fork_safety.lock()
_waiting: dict[tuple[str, str], PutOff] = {}
_registry: Registry | None = None


def canonical(domain: str) -> str:
    """A domain's name as it is used here: "" for ai.onnx."""
    return "" if domain == "ai.onnx" else domain


def taken(domain: str, name: str) -> ValueError:
    """What to raise for an operator whose domain has one of its name."""
    return ValueError(f"domain {domain or 'ai.onnx'!r} has an operator {name} already")


def register(operator: PutOff) -> None:
    """Have an operator among those of all sessions. ValueError where its domain has one of its name."""
    domain = canonical(operator.domain)
    with _lock:
        if _registry is None and domain not in FOLDERS:
            if (domain, operator.name) in _waiting:
                raise taken(domain, operator.name)
            _waiting[domain, operator.name] = operator
            return
    from jitonnx.ops.registry import registry

    registry.add(operator)


def hand_over(registry: Registry) -> None:
    """Put the operators that wait into the registry of all sessions, and from now on those to come."""
    global _registry
    with _lock:
        for operator in _waiting.values():
            registry.add(operator)
        _waiting.clear()
        _registry = registry


def find(domain: str, name: str) -> PutOff | type[Operator] | None:
    """An operator that is registered for all sessions; None if there is none."""
    with _lock:
        if _registry is None:
            return _waiting.get((domain, name))
        registry = _registry
    return registry.find(domain, name)
