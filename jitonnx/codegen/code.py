"""What a kernel's code depends on, as a key, computed without Numba: a start with a filled cache never imports it."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.calls import KernelCall, Stage
from jitonnx.target import Target


@dataclass(frozen=True)
class Code:
    """One kernel's code: equal codes are compiled once."""

    spec: KernelSpec
    prologue: Stage | None
    epilogue: Stage | None

    def key(self, target: Target) -> str:
        """Names the object code by everything that it depends on, versions and CPU included."""
        return _key(self, target)

    def symbol(self, target: Target) -> str:
        """The name of the kernel's function: unique by content, so that code of several processes never clashes."""
        return f"jitonnx_{self.spec.family}_{self.key(target)[:24]}"


def code_of(call: KernelCall) -> Code:
    """The code that a call needs."""
    return Code(call.spec, call.prologue, call.epilogue)


@functools.lru_cache(maxsize=4096)
def _key(code: Code, target: Target) -> str:
    text = "\n".join((repr(code), target.key, _versions(), _library_digest()))
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _versions() -> str:
    import llvmlite
    import numpy as np

    return f"{_numba_version()} llvmlite=={llvmlite.__version__} numpy=={np.__version__}"


def _numba_version() -> str:
    """What tells versions of Numba apart, without importing it, nor importlib.metadata, which takes 10 ms.

    A release's module of versions names it; where there is none, the installed package is asked.
    """
    spec = find_spec("numba")
    module = Path(spec.origin).with_name("_version.py") if spec is not None and spec.origin else None
    if module is not None and module.is_file():
        return module.read_text()
    from importlib.metadata import version

    return f"numba=={version('numba')}"


@functools.cache
def _library_digest() -> str:
    """A digest of the kernel library and of this package: code written anew is never taken from the cache."""
    import jitonnx.kernels

    digest = hashlib.sha256()
    for folder in (Path(jitonnx.kernels.__path__[0]), Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
