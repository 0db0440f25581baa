"""Members that an inner object of onnxruntime's has as its outer one has them."""

from __future__ import annotations

from typing import Any


class PassedOn:
    """A member of a class whose instances have an `outer` object: that object's, of the same name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else getattr(instance.outer, self._name)
