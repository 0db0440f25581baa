"""Packages of the extra `jitonnx[genai]`, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from jitonnx.errors import Fail


class MissingPackage(Fail, ImportError):
    """A package of the extra is not installed."""


def needed(package: str, purpose: str) -> Any:
    """A package of the extra. ImportError that says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        raise MissingPackage(f"{purpose} needs the package {error.name!r}: pip install 'jitonnx[genai]'") from error
