"""A plan with its machine code."""

from __future__ import annotations

from collections.abc import Mapping

from jitonnx.codegen.objects import Objects
from jitonnx.engine.programs import CompiledParametricProgram
from jitonnx.plan.plan import Plan


class CompiledPlan(CompiledParametricProgram):
    """A plan with its machine code.

    symbols, image: as for `CompiledParametricProgram`. objects: gives the object code by symbol, from the kernel cache
    or compiled again: only saving needs it.
    """

    def __init__(self, plan: Plan, symbols: list[str], image: Mapping[str, int], objects: Objects) -> None:
        super().__init__(plan.outline, symbols, image, plan.flags)
        self.plan, self.objects = plan, objects
