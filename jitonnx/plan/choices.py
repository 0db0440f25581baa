"""What a user may choose of how computations are done; everything else the planner decides by cost."""

from __future__ import annotations

import enum
from typing import Literal, TypeAlias

from jitonnx.support.records import dataclass
from jitonnx.target.choosing import Measured

Precision: TypeAlias = Literal["float32", "bfloat16"]


class Caution(enum.IntEnum):
    """What a plan does without, where one with more of it failed (`jitonnx.ir.defects`)."""

    NONE = 0
    FUSION = 1
    """Nothing is done for several nodes at once."""
    KERNELS = 2
    """All nodes are left to the host."""


@dataclass(frozen=True)
class Choices:
    """Algorithms that a session allows or asks for."""

    winograd: bool = True
    """Convolutions of several taps may use Winograd's algorithm, with errors of 3e-6 of the largest value for 256
    channels and 1.1e-5 for 4096; direct sums: 2e-6 for 256, as products are added one after the other."""
    fixed24: bool = True
    """Weights that a kernel is bound by reading may lie as 24-bit fixed-point numbers (`kernels.fixed24`)."""
    precision: Precision = "float32"
    """What products and convolutions round their operands to: float32 or bfloat16. They are summed in float32, and all
    else is computed in float32, either way."""
    blas: bool = False
    """Plain matrix products of float and double call a BLAS (SciPy's); what follows them is a region of its own."""
    measured: tuple[Measured, ...] | None = None
    """What measuring has settled of the choices between kernels; None: they go by cost alone, and are not noted."""
    caution: Caution = Caution.NONE
    """Set where a plan that does more failed, and for nothing else."""
