"""How kernels over rows cut their work into tasks; for specs, without LLVM, and for kernels."""

from jitonnx.kernels.parts.sizes import larger

TASK_ELEMENTS = 1 << 14
"""Elements that make a task worth handing out: about 5 microseconds of work."""


def units_per_task(unit_elements: int) -> int:
    """How many units of work (a row, say) of so many elements a task takes; kernels compute the same."""
    return larger(1, TASK_ELEMENTS // larger(1, unit_elements))
