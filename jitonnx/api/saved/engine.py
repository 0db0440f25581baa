"""An artifact behind the methods that a session uses of an engine. Imports nothing that compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from jitonnx.api.description import ModelDescription, declared_arg
from jitonnx.engine.programs import PROGRAM_BYTES, RunnableProgram, shape_of, split_memory
from jitonnx.engine.protocol import CompileStatus, ModelEngine
from jitonnx.errors import InvalidArgument
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.dtypes import DType
from jitonnx.runtime.artifact import Argument, Artifact, ModelInfo
from jitonnx.runtime.execution_contexts import ExecutionContextPool
from jitonnx.runtime.program import Shapes
from jitonnx.runtime.tables import Common
from jitonnx.support import fork_safety
from jitonnx.support.lru_cache import LRUCache
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.api.saved.parts import SavedParts
    from jitonnx.engine.pipeline import Engine
    from jitonnx.engine.programs import Runner
    from jitonnx.engine.resized import Resized

_LISTED = 8
"""How many sets of shapes an error lists."""


class RunSettings(NamedTuple):
    """What of an engine's settings an artifact has."""

    threads: int


class SavedEngine(ModelEngine):
    """The programs of an artifact; each is made ready when its shapes are first fed.

    program_bytes: memory that programs of its parts may hold, of which the least recently used go, and the frames that
    all run in. zeros: whether runs take denormal numbers for zeros.
    behind: loads the model of an open artifact, and gives its engine, for shapes that no part holds for.
    """

    def __init__(
        self,
        artifact: Artifact,
        threads: int,
        program_bytes: int = PROGRAM_BYTES,
        *,
        zeros: bool = False,
        behind: Callable[[], Engine] | None = None,
    ) -> None:
        self.artifact, self._behind = artifact, behind
        self.settings = RunSettings(threads)
        self.declared = [declaration(argument) for argument in artifact.model.inputs]
        self._numbers = {shapes: number for number, shapes in enumerate(artifact.shapes)}
        self._programs: LRUCache[RunnableProgram] = LRUCache(max(1, len(self._numbers)))
        self._table_bytes, frame_bytes = split_memory(program_bytes)
        self._frames = ExecutionContextPool(frame_bytes, zeros=zeros)
        self.foreign: str | None = None
        """Nothing speaks against running the code: opening an artifact has made sure of that."""

    @property
    def only_shapes(self) -> Shapes | None:
        """The shapes of the inputs where there is one program."""
        return self.artifact.shapes[0] if len(self.artifact.shapes) == 1 and not self.artifact.parts else None

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

    def runner(self, shapes: Shapes) -> Runner | None:
        """What does as `run` for inputs of these shapes, where that is more than one native call; else None."""
        serving = self._serving(shapes)
        if isinstance(serving, RunnableProgram):
            return None
        return self._behind().runner(shapes) if serving is None and self._behind is not None else serving

    def known_program(self, shapes: Shapes) -> RunnableProgram | None:
        """The program for these shapes if it has been used before."""
        found = self._programs.find(shapes)
        return self._parts.find(shapes) if found is None and self.artifact.parts else found

    def program(self, shapes: Shapes) -> RunnableProgram | None:
        """The program for these shapes, None where a run is more than one native call: `run` knows what to do.

        InvalidArgument, with the shapes that there are, if the artifact is not for these.
        """
        serving = self._serving(shapes)
        if serving is None and self._behind is not None:
            return self._behind().program(shapes)
        return serving if isinstance(serving, RunnableProgram) else None

    def resized(self, shapes: Shapes) -> Resized | None:
        """What runs inputs of new sizes, like these; None if nothing here does."""
        return self._parts.resized(shapes) if self.artifact.parts else None

    def status(self) -> CompileStatus:
        """What an engine's tells when all code is there."""
        return CompileStatus("compiled", 0, 0, 0)

    def complete(self, timeout: float | None = None) -> bool:
        """True: a saved model has nothing compiled in the background."""
        return True

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs whose types have been checked."""
        serving = self._serving(tuple(map(shape_of, inputs)))
        if isinstance(serving, RunnableProgram):
            return serving.run(inputs)
        if serving is None:
            assert self._behind is not None, "Bug: nothing serves a run, and nobody was told"
            return self._behind().run(inputs)
        return serving(inputs)

    def _serving(self, shapes: Shapes) -> RunnableProgram | Runner | None:
        """What runs inputs of these shapes; None if that is left to the engine behind the artifact."""
        number = self._numbers.get(shapes)
        if number is not None:
            return self._programs.get(shapes, partial(self._made, number))
        serving = self._parts.serving(shapes) if self.artifact.parts else None
        if serving is None and self._behind is None:
            raise InvalidArgument(self._missing(shapes))
        return serving

    @fork_safety.cached_property
    def _parts(self) -> SavedParts:
        with fork_safety.critical:
            from jitonnx.api.saved.parts import SavedParts

        return SavedParts(self.artifact, self.settings.threads, self._table_bytes, self._frames, self._behind)

    def _made(self, number: int) -> RunnableProgram:
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
        return RunnableProgram(program, common, self.settings.threads, keep_gil=saved.keeps_gil, frames=self._frames)

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


def range_text(low: Sequence[int], high: Sequence[int]) -> str:
    """A shape, each size that has a range as LEAST:LARGEST."""
    return "[" + ", ".join(f"{a}" if a == b else f"{a}:{b}" for a, b in zip(low, high, strict=True)) + "]"


def described(info: ModelInfo) -> ModelDescription:
    """What an artifact tells about its model."""
    return ModelDescription(
        [declaration(argument) for argument in info.inputs],
        {argument.name: declaration(argument) for argument in info.overridable},
        [declared_arg(declaration(argument)) for argument in info.outputs],
        [declaration(argument) for argument in info.declared_outputs],
        [],
        info.metadata,
        info.opsets,
        info.warnings,
    )


def declaration(argument: Argument) -> Declaration:
    """An input or output as sessions know it."""
    element = argument.type.removeprefix("tensor(").removesuffix(")").upper()
    dtype = DType[element] if argument.type.startswith("tensor(") and element in DType.__members__ else None
    return Declaration(argument.name, argument.type, dtype, argument.shape)
