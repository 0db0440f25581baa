"""How kernels over rows cut their work into tasks; for specs, without LLVM, and for kernels."""

TASK_ELEMENTS = 1 << 14
"""Elements that make a task worth handing out: about 5 microseconds of work."""


def units_per_task(unit_elements: int) -> int:
    """How many units of work (a row, say) of so many elements a task takes; kernels compute the same."""
    return max(1, TASK_ELEMENTS // max(1, unit_elements))
