"""What a session asks of that which runs its model, however it was made. It imports next to nothing: an artifact opens
with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.engine.programs import RunnableProgram, Runner
    from jitonnx.engine.resized import Resized
    from jitonnx.runtime.program import Shapes


class CompileStatus(NamedTuple):
    """How far the code of a session's model is; see `InferenceSession.compile_status`."""

    state: str
    """compiled: there is code for all that was run; compiling: some is being made in the background, while NumPy
    evaluates what needs it; waiting: some will be made when the shapes that need it come back; failed."""
    kernels_done: int
    kernels: int
    """How many kernels are to be compiled in the background; 0 until that is known, and where all were in the cache."""
    numpy_runs: int
    """Runs that were evaluated on NumPy, as a whole or behind a node whose output only a run can tell the shape of,
    because there was no code yet."""


class ModelEngine(Protocol):
    """A compiled model (`Engine`), one that is being compiled (`BackgroundEngine`), or an artifact (`SavedEngine`)."""

    def known_program(self, shapes: Shapes) -> RunnableProgram | None:
        """The program for inputs of these shapes if there is one already."""

    def program(self, shapes: Shapes) -> RunnableProgram | None:
        """The program for inputs of these shapes; None where a run is several native calls, or not compiled yet."""

    def runner(self, shapes: Shapes) -> Runner | None:
        """What does as `run` for inputs of these shapes, where that is more than one native call; else None."""

    def resized(self, shapes: Shapes) -> Resized | None:
        """What runs inputs of ever new sizes, among them such as these, by native code alone; None if nothing does."""

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for these inputs, in whatever way they are to be had."""

    def status(self) -> CompileStatus:
        """How far its code is."""

    def complete(self, timeout: float | None = None) -> bool:
        """Wait for what is compiled in the background; whether it is done."""
