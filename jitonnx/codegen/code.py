"""What a kernel's code depends on, as a key, computed without Numba: a start with a filled cache never imports it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from dataclasses import dataclass
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
    return " ".join(f"{name}=={importlib.metadata.version(name)}" for name in ("numba", "llvmlite", "numpy"))


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
