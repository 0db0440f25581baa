"""Runs of a schedule on inputs of the same sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jitonnx.support import fork_safety

if TYPE_CHECKING:
    from jitonnx.engine.schedule import Schedule
    from jitonnx.engine.straight_run import StraightRun


class LikeRuns:
    """Does runs of a schedule on inputs of some sizes: the first by `follow`; those behind it, where the steps are the
    same each time, with all settled that does not change (`straight_run.py`)."""

    def __init__(
        self, schedule: Schedule, sizes: Mapping[str, int], follow: Callable[[Sequence[Any]], list[Any]]
    ) -> None:
        self._schedule, self._sizes, self._follow = schedule, sizes, follow
        self._straight: StraightRun | None = None
        self._begun = self._settled = False

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, each memory of its own."""
        straight = self._straight
        if straight is None and self._begun and not self._settled:
            with fork_safety.critical:
                from jitonnx.engine.straight_run import straight_run  # few models have nodes on the host

            straight = self._straight = straight_run(self._schedule, self._sizes)
            self._settled = True
        self._begun = True
        outputs = None if straight is None else straight(inputs)
        return self._follow(inputs) if outputs is None else outputs
