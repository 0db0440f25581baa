"""Our version; and what tells one state of our sources, and of what compiles with them, from another: for cache keys.

Imports no LLVM.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

VERSION = "0.1.0"
"""jitonnx's version; pyproject.toml reads it from here."""


@functools.cache
def versions() -> str:
    """The versions of llvmlite and NumPy."""
    import llvmlite
    import numpy as np

    return f"llvmlite=={llvmlite.__version__} numpy=={np.__version__}"


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
