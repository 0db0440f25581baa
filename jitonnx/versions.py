"""What tells one state of our sources, and of what compiles with them, from another: for keys of the kernel cache.

Imports neither Numba nor LLVM.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path


@functools.cache
def versions() -> str:
    """The versions of Numba, llvmlite and NumPy."""
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


def source_stamps(folder: str) -> list[tuple[str, int, int]]:
    """Path, time of change in nanoseconds and size of the Python files of a folder and those in it, sorted."""
    return sorted((path, status.st_mtime_ns, status.st_size) for path, status in _sources(folder))


def _sources(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as listing:
        for entry in listing:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _sources(entry.path)
