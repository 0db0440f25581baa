"""jitonnx in the place of onnxruntime: what other people's code gets when it imports `onnxruntime`.

Two ways lead here. `install_as_onnxruntime()` is for a program that can be changed. For one that cannot, this folder
is put in front of Python's path (`jitonnx exec` does it, by PYTHONPATH): it holds a package `onnxruntime`, which does
nothing but call that function. Both reach the processes that multiprocessing starts, which take over the path, and
neither costs anything to a process that does not import onnxruntime.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

import jitonnx

FOLDER = os.path.dirname(os.path.abspath(__file__))
"""What is put in front of Python's path."""

_NAME = "onnxruntime"
_PARTS = ("capi", "backend")
"""The packages below onnxruntime that there are here."""
_GENAI = "onnxruntime_genai"
"""The package beside onnxruntime that there is here, too."""
_TOOLS = {_NAME: ("datasets", "quantization", "tools", "transformers"), _GENAI: ("models",)}
"""Packages below each that are Python alone: where it is installed, it lends them."""


def install_as_onnxruntime() -> None:
    """Let `import onnxruntime`, and imports from the modules below it, mean jitonnx from now on.

    It holds for this process and for those that multiprocessing starts from it. The package has onnxruntime's version
    (of the interface; `jitonnx.__version__` is ours), also for who asks importlib.metadata. Packages of tools that
    jitonnx lacks, as `onnxruntime.quantization`, are those of an installed onnxruntime, if there is one. So is
    `onnxruntime_genai` from now on `jitonnx.genai`, which is imported when somebody asks for it. RuntimeError if one of
    the two is imported already.
    """
    if isinstance(sys.modules.get(_NAME), _Alias):
        return
    for name in (_NAME, _GENAI):
        present = sys.modules.get(name)
        if present is not None and os.path.dirname(os.path.dirname(present.__file__ or "")) != FOLDER:
            raise RuntimeError(
                f"{name} is imported already, from {present.__file__}, and modules hold its names: call "
                "install_as_onnxruntime() before anything imports it"
            )
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Finder())
    if FOLDER not in sys.path:
        sys.path.insert(0, FOLDER)
    importlib.import_module(_NAME)


class _Alias(ModuleType):
    """The module `onnxruntime`: jitonnx's names, and the version of the interface."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {_NAME!r} has no attribute {name!r}")
        return getattr(jitonnx, name)

    def __dir__(self) -> Iterable[str]:
        return sorted({*self.__dict__, *dir(jitonnx)})


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `onnxruntime` and what is below it, and tells importlib.metadata of the package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == _NAME:
            spec = importlib.machinery.ModuleSpec(fullname, _AliasLoader(), is_package=True)
            spec.origin = os.path.join(FOLDER, _NAME, "__init__.py")
            spec.has_location = True
            return spec
        first, _, below = fullname.partition(".")
        if fullname == _GENAI:
            return importlib.machinery.ModuleSpec(fullname, _PartLoader("jitonnx.genai"), is_package=False)
        if first not in _TOOLS:
            return None
        part = below.partition(".")[0]
        if first == _GENAI or part not in _PARTS:
            return _lent(fullname) if part == below else None  # what is below finds itself
        ours = f"jitonnx.compat.{below}"
        if importlib.util.find_spec(ours) is None:
            raise ModuleNotFoundError(f"No module named {fullname!r}, as there is no {ours!r}", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, _PartLoader(ours), is_package=False)

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        """onnxruntime's, for who asks for it by name."""
        if context is not None and (context.name or "").lower() == _NAME:
            yield _Distribution()


def _lent(fullname: str) -> importlib.machinery.ModuleSpec:
    """A package of tools as the installed package has it. ModuleNotFoundError if there is none."""
    package, _, name = fullname.partition(".")
    others = [place for place in sys.path if place != FOLDER]
    real = importlib.machinery.PathFinder.find_spec(package, others) if name in _TOOLS[package] else None
    found = importlib.machinery.PathFinder.find_spec(fullname, real.submodule_search_locations) if real else None
    if found is None:
        is_tool = name in _TOOLS[package]
        advice = f"install {package} too, which lends it" if is_tool else f"use {package} itself for it"
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: jitonnx stands in the place of {package} here and lacks it; {advice}",
            name=fullname,
        )
    return found


class _AliasLoader(importlib.abc.Loader):
    """Makes the module `onnxruntime`."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Alias(spec.name, jitonnx.__doc__)

    def exec_module(self, module: ModuleType) -> None:
        from jitonnx.api.environment import interface_version

        module.__dict__.update(
            __version__=interface_version(),
            version=interface_version(),
            get_version_string=interface_version,
            package_name=_NAME,
            cuda_version="",
            import_capi_exception=None,
            __author__="jitonnx",
        )


class _PartLoader(importlib.abc.Loader):
    """The loader of a module of jitonnx, the very same, under a name below onnxruntime: there is one of each class."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # which importing under the other name has replaced


class _Distribution(importlib.metadata.Distribution):
    """onnxruntime as an installed package: a name and a version."""

    def read_text(self, filename: str) -> str | None:
        from jitonnx.api.environment import INTERFACE_VERSION

        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {INTERFACE_VERSION}\nSummary: jitonnx in its place\n"

    def locate_file(self, path: Any) -> Any:
        return os.path.join(FOLDER, path)
