"""Packages of extras, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from jitonnx.errors import Fail


class MissingPackage(Fail, ImportError):
    """A package of the extra is not installed."""


def needed(package: str, purpose: str, *, extra: str = "genai") -> Any:
    """A package of an extra. ImportError that says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        name = package.partition(".")[0]
        if (error.name or "").partition(".")[0] != name:
            raise
        raise MissingPackage(f"{purpose} needs the package {name!r}: pip install 'jitonnx[{extra}]'") from error
