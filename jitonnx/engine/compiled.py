"""A plan with its machine code."""

from __future__ import annotations

from collections.abc import Mapping

from jitonnx import forks
from jitonnx.codegen.objects import Objects
from jitonnx.engine.ready import Ready, common
from jitonnx.plan.plan import Plan
from jitonnx.records import dataclass
from jitonnx.runtime.frames import FramePool, Loadable
from jitonnx.runtime.tables import Common


@dataclass
class Compiled:
    """A plan with its machine code."""

    plan: Plan
    symbols: list[str]
    image: Mapping[str, int]
    """Addresses of the kernels, which are in memory as long as this is."""
    objects: Objects
    """Gives the object code by symbol, from the kernel cache or compiled again: only saving needs it."""

    def ready(self, sizes: Mapping[str, int], threads: int, frames: FramePool) -> Ready:
        """The program for values of the dimension variables."""
        outline = self.plan.outline
        program = outline.instantiate(sizes, self._common.wiring)
        return Ready(program, self._common, threads, outline.is_short(program, sizes), frames)

    def loadable(self, sizes: Mapping[str, int], threads: int, frames: FramePool) -> Loadable:
        """The same as native loops run it."""
        program = self.plan.outline.instantiate(sizes, self._common.wiring)
        return Loadable(program, self._common, threads, frames.zeros)

    @forks.cached_property
    def _common(self) -> Common:
        return common(self.plan.outline, self.symbols, self.image, self.plan.flags)
