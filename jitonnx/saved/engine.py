"""An artifact behind the methods that a session uses of an engine. Imports nothing that compiles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jitonnx.engine.kept import Kept
from jitonnx.engine.ready import PROGRAM_BYTES, Ready, split_memory
from jitonnx.errors import InvalidArgument
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.dtypes import DType
from jitonnx.runtime.artifact import Argument, Artifact
from jitonnx.runtime.frames import FramePool
from jitonnx.runtime.program import Shapes
from jitonnx.runtime.tables import Common

if TYPE_CHECKING:
    from jitonnx.saved.ranges import SavedRanges

_LISTED = 8
"""How many sets of shapes an error lists."""


class RunSettings(NamedTuple):
    """What of an engine's settings an artifact has."""

    threads: int


class SavedEngine:
    """The programs of an artifact; each is made ready when its shapes are first fed.

    program_bytes: memory that programs made for ranges of shapes may hold, of which the least recently used go, and
    the frames that all run in. zeros: whether runs take denormal numbers for zeros.
    """

    def __init__(
        self, artifact: Artifact, threads: int, program_bytes: int = PROGRAM_BYTES, zeros: bool = False
    ) -> None:
        self.artifact = artifact
        self.settings = RunSettings(threads)
        self.declared = [_declaration(argument) for argument in artifact.model.inputs]
        self._numbers = {shapes: number for number, shapes in enumerate(artifact.shapes)}
        self._ready: Kept[Ready] = Kept(max(1, len(self._numbers)))
        table_bytes, frame_bytes = split_memory(program_bytes)
        self._frames = FramePool(frame_bytes, zeros)
        self._ranges = _ranges(artifact, threads, table_bytes, self._frames) if artifact.ranges else None
        self.foreign: str | None = None
        """Nothing speaks against running the code: opening an artifact has made sure of that."""

    @property
    def only_shapes(self) -> Shapes | None:
        """The shapes of the inputs where there is one program."""
        return self.artifact.shapes[0] if len(self.artifact.shapes) == 1 and self._ranges is None else None

    @property
    def usual_sizes(self) -> dict[str, list[int | None]]:
        """Sizes that operators tell: of an artifact they are all in the declarations."""
        return {}

    @property
    def report(self) -> str:
        """What was made of the model, for logs."""
        ranges = f" and {len(self.artifact.ranges)} ranges of shapes" if self.artifact.ranges else ""
        return f"{len(self.artifact.shapes)} programs{ranges} by jitonnx {self.artifact.writer}"

    def explanation(self) -> str:
        """What `jitonnx explain` prints; it was kept when the artifact was made, for the first program."""
        lines = [
            f"{self.artifact.name}: compiled by jitonnx {self.artifact.writer} for the CPU {self.artifact.cpu.name}",
            f"programs for: {'; '.join(self._served())}",
        ]
        return "\n".join([*lines, "", self.artifact.explanation()])

    def runner(self, shapes: Shapes) -> None:
        """An engine's way of running what is evaluated on NumPy in part: nothing of an artifact is."""
        return None

    def known_program(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes if it has been used before."""
        found = self._ready.find(shapes)
        return self._ranges.find(shapes) if found is None and self._ranges is not None else found

    def program(self, shapes: Shapes) -> Ready:
        """The program for these shapes. InvalidArgument, with the shapes that there are, if there is none."""
        if shapes not in self._numbers:
            made = None if self._ranges is None else self._ranges.program(shapes)
            if made is None:
                raise InvalidArgument(self._missing(shapes))
            return made
        return self._ready.get(shapes, partial(self._made, self._numbers[shapes]))

    def status(self) -> tuple[str, int, int, int]:
        """As an engine's: all code is there."""
        return "compiled", 0, 0, 0

    def complete(self, timeout: float | None = None) -> bool:
        """As an engine's."""
        return True

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs whose types have been checked."""
        return self.program(tuple(np.shape(array) for array in inputs)).run(inputs)

    def _made(self, number: int) -> Ready:
        saved = self.artifact.program(number)
        program = saved.program
        common = Common(
            program.steps.wiring,
            program.constants,
            program.inputs.kinds,
            program.outputs.kinds,
            self.artifact.addresses,
            self.artifact.flags,
        )
        return Ready(program, common, self.settings.threads, saved.keeps_gil, self._frames)

    def _missing(self, shapes: Shapes) -> str:
        known = self._served()
        more = f"; and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
        return (
            f"{self.artifact.name} has no program for the shapes {self._text(shapes)}{self._misfit(shapes)}. It was "
            f"compiled for: {'; '.join(known[:_LISTED])}{more}. Compile the model for these shapes too (jitonnx "
            "compile --shape NAME=1,2,3), or load it instead of the artifact"
        )

    def _misfit(self, shapes: Shapes) -> str:
        """Which input is to blame, where there is one range and nothing else."""
        if len(self.artifact.ranges) != 1 or self.artifact.shapes:
            return ""
        number = self.artifact.ranges[0].misfit(shapes)
        return "" if number is None else f" (input {self.declared[number].name!r} is outside of the range)"

    def _served(self) -> list[str]:
        """Every set of shapes, and every range."""
        programs = [self._text(shapes) for shapes in self.artifact.shapes]
        return programs + [self._text(one.low, one.high) for one in self.artifact.ranges]

    def _text(self, low: Shapes, high: Shapes | None = None) -> str:
        """Shapes, or a range of them, by input."""
        names = [entry.name for entry in self.declared]
        ends = zip(names, low, high or low, strict=True)
        return ", ".join(f"{name} {range_text(least, largest)}" for name, least, largest in ends)


def _ranges(artifact: Artifact, threads: int, table_bytes: int, frames: FramePool) -> SavedRanges:
    from jitonnx.saved.ranges import SavedRanges

    return SavedRanges(artifact, threads, table_bytes, frames)


def range_text(low: Sequence[int], high: Sequence[int]) -> str:
    """A shape, each size that has a range as LEAST:LARGEST."""
    return "[" + ", ".join(f"{a}" if a == b else f"{a}:{b}" for a, b in zip(low, high, strict=True)) + "]"


def _declaration(argument: Argument) -> Declaration:
    element = argument.type.removeprefix("tensor(").removesuffix(")")
    return Declaration(argument.name, argument.type, DType[element.upper()], argument.shape)
