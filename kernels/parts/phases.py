"""Where the words lie that threads share in a kernel of several phases (`meeting`); without LLVM."""

from __future__ import annotations

SEPARATION_BYTES = 128
"""What threads write at the same time lies this far apart: CPUs fetch cache lines in pairs."""


def shared_bytes(parts: int) -> int:
    """Bytes of the words that threads share for phases of so many parts, int64s SEPARATION_BYTES apart."""
    return (1 + parts) * SEPARATION_BYTES
