"""Programs for shapes that were open when an artifact was made: of its plans, as a session makes them of its own.

Imported when such a shape is first run: nothing else of an artifact needs the planner's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from jitonnx.engine.programs import PROGRAMS_KEPT, CompiledParametricProgram, RunnableProgram, Runner
from jitonnx.engine.resized import Resized
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.assumptions import Pair, holds
from jitonnx.plan.parametric_program import ParametricProgram, Sizing
from jitonnx.plan.parametric_program_message import from_message
from jitonnx.runtime.artifact import Artifact, Part
from jitonnx.runtime.execution_contexts import ExecutionContextPool
from jitonnx.runtime.program import Shapes
from jitonnx.support import fork_safety
from jitonnx.support.lru_cache import LRUCache

if TYPE_CHECKING:
    from jitonnx.api.saved.steps import SavedSteps
    from jitonnx.engine.pipeline import Engine


class SavedParts:
    """The parts of an artifact.

    table_bytes: memory that the programs kept may hold. frames: to run in. behind: loads the model of an open artifact,
    and gives its engine, for runs that meet what a schedule is not for.
    """

    def __init__(
        self,
        artifact: Artifact,
        threads: int,
        table_bytes: int,
        frames: ExecutionContextPool,
        behind: Callable[[], Engine] | None = None,
    ) -> None:
        self._artifact, self._threads, self._table_bytes, self._frames = artifact, threads, table_bytes, frames
        self._behind = behind
        self._made: LRUCache[CompiledParametricProgram | SavedSteps] = LRUCache(len(artifact.parts))
        self._resized: LRUCache[Resized] = LRUCache(len(artifact.parts))
        self._programs: LRUCache[RunnableProgram] = LRUCache(PROGRAMS_KEPT, RunnableProgram.memory_bytes, table_bytes)

    def find(self, shapes: Shapes) -> RunnableProgram | None:
        """The program for these shapes if it has been made and kept."""
        return self._programs.find(shapes)

    def serving(self, shapes: Shapes) -> RunnableProgram | Runner | None:
        """The program for these shapes, or what follows the steps; None if they are in no range, or no part of an open
        artifact holds for them.

        InvalidArgument if they are in a range and its part does not hold for them.
        """
        found = self._programs.find(shapes)
        if found is not None:
            return found
        unmet: list[str] = []
        for number in self._candidates(shapes):
            part = self._made.get(number, partial(self._part, self._artifact.parts[number]))
            if isinstance(part, CompiledParametricProgram):
                sizes = part.outline.sizes(shapes) if _ranks_fit(part.outline, shapes) else None
                if sizes is not None:
                    return self._programs.get(shapes, partial(part.program, sizes, self._threads, self._frames))
                unmet_here = partial(_unmet, part.outline.assumed(), part.outline.sizes)
            else:
                sizes = part.sizes(shapes)
                if sizes is not None:
                    return part.runner(sizes)
                unmet_here = partial(_unmet, part.pairs, part.sizing)
            if not self._artifact.open:
                unmet.append(unmet_here(shapes))
        if unmet:
            listed = ", ".join(map(str, map(list, shapes)))
            raise InvalidArgument(
                f"{self._artifact.name} has no program for inputs of the shapes {listed}, although they lie within its "
                f"ranges: {'; '.join(dict.fromkeys(unmet))}. Compile the model for these shapes too (jitonnx compile "
                "--shape NAME=1,2,3), or load it instead of the artifact"
            )
        return None

    def resized(self, shapes: Shapes) -> Resized | None:
        """What runs inputs of new sizes, like these; None for ranges, outside of which there is no code."""
        if not self._artifact.open:
            return None
        for number in self._candidates(shapes):
            part = self._made.find(number)
            if (
                isinstance(part, CompiledParametricProgram)
                and _ranks_fit(part.outline, shapes)
                and part.outline.sizes(shapes)
            ):
                resized = self._resized.get(number, partial(Resized, part, self._threads, self._frames))
                return resized if resized.possible else None
        return None

    def _candidates(self, shapes: Shapes) -> Iterable[int]:
        """The parts that may hold for the shapes."""
        artifact = self._artifact
        if artifact.open:
            return range(len(artifact.parts))
        return [one.part for one in artifact.ranges if one.misfit(shapes) is None]

    def _part(self, part: Part) -> CompiledParametricProgram | SavedSteps:
        try:
            return self._code(part.number) if part.kind == "plan" else self._steps(part.number)
        except ValueError as error:  # ParametricProgramError, ScheduleError
            raise Fail(f"{self._artifact.name} is damaged: {error}") from error

    def _steps(self, number: int) -> SavedSteps:
        with fork_safety.critical:
            from jitonnx.api.saved.steps import SavedSteps

        saved = self._artifact.schedule(number)
        codes = map(self._code, saved.plans)
        behind, bytes = self._behind, self._table_bytes
        return SavedSteps(self._artifact.name, saved, codes, self._threads, self._frames, bytes, behind)

    def _code(self, number: int) -> CompiledParametricProgram:
        """That of a plan."""
        saved = self._artifact.plan(number)
        outline = from_message(saved.message, saved.constants)
        return CompiledParametricProgram(outline, saved.symbols, self._artifact.addresses, self._artifact.flags)


def _ranks_fit(outline: ParametricProgram, shapes: Shapes) -> bool:
    return all(len(tensor.shape) == len(shape) for tensor, shape in zip(outline.inputs, shapes, strict=True))


def _unmet(pairs: Iterable[Pair], sizing: Sizing, shapes: Shapes) -> str:
    """What a part assumes that does not hold for the shapes."""
    sizes = sizing.bound(shapes)
    if sizes is None:
        return "inputs disagree on the size of a dimension that they share"
    wrong = [f"{a} = {b}" for a, b in pairs if not holds((a, b), sizes)]
    return f"the code is for {' and '.join(wrong)}"
