"""A part of an artifact that is run in steps. Imported where there is one, as steps need graphs and operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from jitonnx.engine.assumptions import AssumptionError
from jitonnx.engine.like_runs import LikeRuns
from jitonnx.engine.schedule import make_schedule
from jitonnx.engine.schedule_message import from_message
from jitonnx.errors import Fail
from jitonnx.plan.parametric_program import Sizing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jitonnx.engine.pipeline import Engine
    from jitonnx.engine.programs import CompiledParametricProgram
    from jitonnx.runtime.artifact import SavedSchedule
    from jitonnx.runtime.execution_contexts import ExecutionContextPool
    from jitonnx.runtime.program import Shapes


class SavedSteps:
    """A schedule of an artifact.

    name: the artifact's. codes: those of its native parts, in order. threads, frames, table_bytes: to run with, in, and
    for the programs kept. behind: as for `SavedParts`. ScheduleError for what is no schedule.
    """

    def __init__(
        self,
        name: str,
        saved: SavedSchedule,
        codes: Iterable[CompiledParametricProgram],
        threads: int,
        frames: ExecutionContextPool,
        table_bytes: int,
        behind: Callable[[], Engine] | None,
    ) -> None:
        self._name, self._behind = name, behind
        plan, told = from_message(saved.message, saved.constants)
        self._schedule = make_schedule(plan, iter(codes), threads, frames, table_bytes)
        self._ranks = [None if given is None else len(given) for given in told.given]
        self.pairs = told.pairs
        """Sizes that have to be equal."""
        self.sizing = Sizing([shape or () for shape in told.given], told.pairs)

    def sizes(self, shapes: Shapes) -> dict[str, int] | None:
        """Values of the dimension variables; None if the steps are not for these shapes."""
        fits = all(rank in (None, len(shape)) for rank, shape in zip(self._ranks, shapes, strict=True))
        return self.sizing(shapes) if fits else None

    def runner(self, sizes: Mapping[str, int]) -> LikeRuns:
        """What does runs of these sizes."""
        return LikeRuns(self._schedule, sizes, partial(self._follow, sizes))

    def _follow(self, sizes: Mapping[str, int], inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a run. Fail if it meets sizes that it was not planned for, and there is no model."""
        try:
            return self._schedule.run_owned(inputs, sizes)
        except AssumptionError as error:
            if self._behind is not None:
                return self._behind().run(inputs)
            raise Fail(
                f"{self._name} was not compiled for what this run meets: {error}. Load the model instead of the "
                "artifact"
            ) from error
