"""Programs for shapes that were open when an artifact was made: of its plans, as a session makes them of its own.

Imported when such a shape is first run: nothing else of an artifact needs the planner's arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from jitonnx.engine.kept import Kept
from jitonnx.engine.ready import PROGRAMS_KEPT, Code, Ready
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.assumptions import holds
from jitonnx.plan.outline import Outline
from jitonnx.plan.outline_message import OutlineError, from_message
from jitonnx.runtime.artifact import Artifact
from jitonnx.runtime.frames import FramePool
from jitonnx.runtime.program import Shapes


class SavedParts:
    """The parts of an artifact. table_bytes: memory that the programs kept may hold. frames: to run in."""

    def __init__(self, artifact: Artifact, threads: int, table_bytes: int, frames: FramePool) -> None:
        self._artifact, self._threads, self._frames = artifact, threads, frames
        self._plans: Kept[Code] = Kept(len(artifact.parts))
        self._programs: Kept[Ready] = Kept(PROGRAMS_KEPT, Ready.memory_bytes, table_bytes)

    def find(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes if it has been made and kept."""
        return self._programs.find(shapes)

    def program(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes; None if they are in no range, or no part of an open artifact holds for them.

        InvalidArgument if they are in a range and its plan does not hold for them.
        """
        found = self._programs.find(shapes)
        if found is not None:
            return found
        unmet: list[str] = []
        for number in self._serving(shapes):
            code = self._code(self._artifact.parts[number].number)
            outline = code.outline
            sizes = outline.sizes(shapes) if _ranks_fit(outline, shapes) else None
            if sizes is not None:
                return self._programs.get(shapes, partial(code.ready, sizes, self._threads, self._frames))
            if not self._artifact.open:
                unmet.append(_unmet(outline, shapes))
        if unmet:
            listed = ", ".join(map(str, map(list, shapes)))
            raise InvalidArgument(
                f"{self._artifact.name} has no program for inputs of the shapes {listed}, although they lie within its "
                f"ranges: {'; '.join(dict.fromkeys(unmet))}. Compile the model for these shapes too (jitonnx compile "
                "--shape NAME=1,2,3), or load it instead of the artifact"
            )
        return None

    def _serving(self, shapes: Shapes) -> Iterable[int]:
        """The parts that may hold for the shapes."""
        artifact = self._artifact
        if artifact.open:
            return range(len(artifact.parts))
        return [one.part for one in artifact.ranges if one.misfit(shapes) is None]

    def _code(self, number: int) -> Code:
        """That of a plan."""

        def made() -> Code:
            saved = self._artifact.plan(number)
            try:
                outline = from_message(saved.message, saved.constants)
            except OutlineError as error:
                raise Fail(f"{self._artifact.name} is damaged: {error}") from error
            return Code(outline, saved.symbols, self._artifact.addresses, self._artifact.flags)

        return self._plans.get(number, made)


def _ranks_fit(outline: Outline, shapes: Shapes) -> bool:
    return all(len(tensor.shape) == len(shape) for tensor, shape in zip(outline.inputs, shapes, strict=True))


def _unmet(outline: Outline, shapes: Shapes) -> str:
    """What a plan assumes that does not hold for the shapes."""
    sizes = outline.sizes.bound(shapes)
    if sizes is None:
        return "inputs disagree on the size of a dimension that they share"
    wrong = [f"{a} = {b}" for a, b in outline.assumed() if not holds((a, b), sizes)]
    return f"the code is for {' and '.join(wrong)}"
