"""Numba, which users' functions need, and what to say where it is not there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any


def check_installed() -> None:
    """ImportError where there is no Numba, which is not imported: better told now than when a model is loaded."""
    if find_spec("numba") is None:
        imported_numba()


def imported_numba() -> Any:
    """The module `numba`. ImportError where it cannot be imported."""
    try:
        import numba
    except ImportError as error:
        raise ImportError(
            f"a compiled function needs Numba, which cannot be imported ({error}). Install versions that go together: "
            "pip install --upgrade numba llvmlite numpy"
        ) from error
    return numba
