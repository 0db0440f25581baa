"""What a kernel's code depends on, as a key, computed without Numba: a start with a filled cache never imports it."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.calls import KernelCall, Stage
from jitonnx.records import dataclass
from jitonnx.runtime.cache import KernelCache
from jitonnx.runtime.digest import sha256
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
    return sha256(text.encode()).hexdigest()


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
    """A digest of the kernel library and of this package: code written anew is never taken from the cache.

    Reading a hundred files takes 5 ms. So their digest is kept with the kernels, by the files' times and sizes, as
    Python keeps compiled modules.
    """
    import jitonnx.kernels

    folders = (jitonnx.kernels.__path__[0], os.path.dirname(__file__))
    files = {folder: sorted(_sources(folder)) for folder in folders}
    stamps = [(path, status.st_mtime_ns, status.st_size) for paths in files.values() for path, status in paths]
    cache, key = KernelCache(), f"sources {stamps!r}"
    known = cache.get(key)
    if known is not None:
        return known.decode()
    digest = sha256()
    for folder, paths in files.items():
        for path, _ in paths:
            digest.update(Path(path).relative_to(folder).as_posix().encode())
            digest.update(Path(path).read_bytes())
    cache.put(key, digest.hexdigest().encode())
    return digest.hexdigest()


def _sources(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The Python files of a folder and those in it."""
    with os.scandir(folder) as listing:
        for entry in listing:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _sources(entry.path)
