"""The Numba source of a kernel call, for those that stand for computations which the planner fused.

Calls of library kernels (products, convolutions, …) have none: they run beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jitonnx.codegen.numba.kernel import KernelWriter, Source
from jitonnx.codegen.numba.region import write_region
from jitonnx.plan.calls import KernelCall

WRITERS: dict[str, Callable[[KernelWriter], str]] = {"region": write_region}
"""What writes the calls of a family of kernels: it gives a line that says what is computed."""


def is_region(call: KernelCall) -> bool:
    """Whether a call is one of a region's, of which there is a source, or a note why not."""
    return call.spec.family in WRITERS


def write(call: KernelCall, *, named: bool = True, operators: Mapping[str, str] | None = None) -> Source:
    """The source of a region's call. Arguments: those of `KernelWriter`.

    Raises: Uncovered with what has no source.
    """
    kernel = KernelWriter(call, named, operators or {})
    return kernel.finish(WRITERS[call.spec.family](kernel))
