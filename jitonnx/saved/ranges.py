"""Programs for ranges of shapes, made of the plans in an artifact as a session makes them of its own.

Imported where an artifact has ranges, and nothing else of it needs the planner's arithmetic.
"""

from __future__ import annotations

from functools import partial

from jitonnx.engine.kept import Kept
from jitonnx.engine.ready import PROGRAMS_KEPT, Ready, common
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.assumptions import holds
from jitonnx.plan.outline import Outline
from jitonnx.plan.outline_message import OutlineError, from_message
from jitonnx.runtime.artifact import Artifact
from jitonnx.runtime.frames import FramePool
from jitonnx.runtime.program import Shapes
from jitonnx.runtime.tables import Common


class SavedRanges:
    """The ranges of an artifact. table_bytes: memory that the programs kept may hold. frames: to run in."""

    def __init__(self, artifact: Artifact, threads: int, table_bytes: int, frames: FramePool) -> None:
        self._artifact, self._threads, self._frames = artifact, threads, frames
        self._plans: Kept[tuple[Common, Outline]] = Kept(len(artifact.ranges))
        self._programs: Kept[Ready] = Kept(PROGRAMS_KEPT, Ready.memory_bytes, table_bytes)

    def find(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes if it has been made and kept."""
        return self._programs.find(shapes)

    def program(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes; None if they are in no range. InvalidArgument if no plan holds for them."""
        found = self._programs.find(shapes)
        if found is not None:
            return found
        unmet: list[str] = []
        for one in self._artifact.ranges:
            if one.misfit(shapes) is None:
                shared, outline = self._plan(one.plan)
                sizes = outline.sizes(shapes)
                if sizes is not None:
                    return self._programs.get(shapes, partial(self._made, shared, outline, sizes))
                unmet.append(_unmet(outline, shapes))
        if unmet:
            listed = ", ".join(map(str, map(list, shapes)))
            raise InvalidArgument(
                f"{self._artifact.name} has no program for inputs of the shapes {listed}, although they lie within its "
                f"ranges: {'; '.join(dict.fromkeys(unmet))}. Compile the model for these shapes too (jitonnx compile "
                "--shape NAME=1,2,3), or load it instead of the artifact"
            )
        return None

    def _plan(self, number: int) -> tuple[Common, Outline]:
        def made() -> tuple[Common, Outline]:
            saved = self._artifact.plan(number)
            try:
                outline = from_message(saved.message, saved.constants)
            except OutlineError as error:
                raise Fail(f"{self._artifact.name} is damaged: {error}") from error
            return common(outline, saved.symbols, self._artifact.addresses, self._artifact.flags), outline

        return self._plans.get(number, made)

    def _made(self, shared: Common, outline: Outline, sizes: dict[str, int]) -> Ready:
        program = outline.instantiate(sizes, shared.wiring)
        return Ready(program, shared, self._threads, outline.is_short(program, sizes), self._frames)


def _unmet(outline: Outline, shapes: Shapes) -> str:
    """What a plan assumes that does not hold for the shapes."""
    sizes = outline.sizes.bound(shapes)
    if sizes is None:
        return "inputs disagree on the size of a dimension that they share"
    wrong = [f"{a} = {b}" for a, b in outline.assumed() if not holds((a, b), sizes)]
    return f"the code is for {' and '.join(wrong)}"
