"""Modules under a second name: the very same module, so that there is one of each class."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
from types import ModuleType


def spec_of(name: str, place: str) -> importlib.machinery.ModuleSpec | None:
    """What imports `place` under `name`; None if there is no such module."""
    if importlib.util.find_spec(place) is None:
        return None
    return importlib.machinery.ModuleSpec(name, SameModule(place), is_package=False)


class SameModule(importlib.abc.Loader):
    """The loader of a module of jitonnx under another name."""

    def __init__(self, place: str) -> None:
        self._place = place

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._place)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # which importing under the other name has replaced
