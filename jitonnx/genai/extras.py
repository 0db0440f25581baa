"""Packages of the extra `jitonnx[genai]`, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any


def needed(package: str, purpose: str) -> Any:
    """A package of the extra. ImportError that says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ImportError(
            f"{purpose} needs the package {package!r}: pip install 'jitonnx[genai]'", name=package
        ) from error
