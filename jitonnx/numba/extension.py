"""What Numba calls when it compiles its first function, by the entry point `numba_extensions`."""

from __future__ import annotations


def init() -> None:
    """Register how bound models are typed and called in nopython code."""
    from jitonnx.numba import lowering  # noqa: F401
