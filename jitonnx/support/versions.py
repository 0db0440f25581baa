"""Our version, and those of what compiles with us, for cache keys. Imports no LLVM."""

from __future__ import annotations

import functools

VERSION = "0.2.0"
"""jitonnx's version; pyproject.toml reads it from here."""


@functools.cache
def versions() -> str:
    """The versions of llvmlite and NumPy."""
    import llvmlite
    import numpy as np

    return f"llvmlite=={llvmlite.__version__} numpy=={np.__version__}"
