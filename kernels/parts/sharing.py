"""How kernels over rows cut their work into tasks; for specs, without LLVM, and for kernels."""

from jitonnx.kernels.parts.sizes import larger
from jitonnx.target import tuning


def units_per_task(unit_elements: int) -> int:
    """How many units of work (a row, say) of so many elements a task takes; kernels compute the same."""
    return larger(1, tuning.TASK_ELEMENTS // larger(1, unit_elements))
