"""An engine that is made in the background, while runs are evaluated on NumPy."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx import jobs
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.engine.ready import Ready, Runner
from jitonnx.ir.extract import specialise
from jitonnx.ir.graph import Graph
from jitonnx.jobs import Job, Workshop
from jitonnx.model.evaluate import on_numpy
from jitonnx.runtime.cache import KernelCache
from jitonnx.runtime.program import Shapes

if TYPE_CHECKING:
    import logging


class BackgroundEngine:
    """An engine that is made in the background, behind the methods that a session uses of one.

    graph: the model as it was loaded, which runs are evaluated with on NumPy until the engine is there.
    """

    def __init__(
        self, graph: Graph, settings: Settings, cache: KernelCache, workshop: Workshop, logger: logging.Logger
    ) -> None:
        self._graph: Graph | None = graph
        self._engine: Engine | None = None
        self._logger = logger
        self._progress = progress = [0, 0]
        """Kernels compiled, and to compile."""
        self._shapes: dict[Shapes, None] = {}
        """Of the runs that were evaluated on NumPy."""
        self.numpy_runs = 0
        """Runs that were evaluated on NumPy."""

        def note(done: int, total: int) -> None:
            progress[:] = done, total

        def make(stop: threading.Event) -> Engine:
            engine = Engine(specialise(graph, [v.type for v in graph.inputs]), settings, cache, note, workshop, stop)
            if engine.only_shapes is not None:
                engine.program(engine.only_shapes)
            engine.progress = None
            return engine

        self._job: Job[Engine] = workshop.submit(make)

    def status(self) -> tuple[str, int, int, int]:
        """compiling, compiled or failed; kernels compiled, and to compile; runs on NumPy."""
        state = "compiled" if self._engine else self._job.state
        return (state, *self._progress, self.numpy_runs)  # type: ignore[return-value]

    def found(self) -> Engine | None:
        """The engine once it is made, else None. Fail tells why it could not be made."""
        return self._engine or self._keep(self._job.found())

    def wait(self, timeout: float | None = None) -> Engine | None:
        """As `found`, after a wait of up to `timeout` seconds (None: as long as it takes)."""
        return self._engine or self._keep(self._job.wait(timeout))

    def known_program(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes if there is one already."""
        return None if self._engine is None else self._engine.known_program(shapes)

    def program(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes; None while there is no engine."""
        engine = self.found()
        return None if engine is None else engine.program(shapes)

    def runner(self, shapes: Shapes) -> Runner | None:
        """As the engine's; None also while there is none."""
        engine = self.found()
        return None if engine is None else engine.runner(shapes)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs whose types have been checked."""
        graph, engine = self._graph, self.found()
        if engine is not None:
            return engine.run(inputs)
        assert graph is not None, "Bug: there is neither an engine nor a graph"
        self.numpy_runs += 1
        self._shapes[tuple(np.shape(array) for array in inputs)] = None
        if self.numpy_runs > 1:
            return on_numpy(graph, inputs)
        with jobs.first_runs:
            return on_numpy(graph, inputs)

    def _keep(self, made: Engine | None) -> Engine | None:
        if made is not None and self._engine is None:
            made.note_shapes(self._shapes)
            self._engine, self._graph = made, None
            self._logger.info("the model is compiled; %d runs were evaluated on NumPy", self.numpy_runs)
        return made
