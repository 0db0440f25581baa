"""What a user may choose of how computations are done; everything else the planner decides by cost."""

from __future__ import annotations

from jitonnx.records import dataclass


@dataclass(frozen=True)
class Choices:
    """Algorithms that a session allows or asks for."""

    winograd: bool = True
    """3x3 convolutions may use Winograd's algorithm (errors up to 5e-6 of the largest value; direct sums: 5e-7)."""
    blas: bool = False
    """Plain matrix products of float and double call a BLAS (SciPy's); what follows them is a region of its own."""
