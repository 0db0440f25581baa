"""An engine that is made in the background, while runs are evaluated on NumPy."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jitonnx.engine.pending import PendingCode
from jitonnx.engine.pipeline import Engine, Settings, files_read, with_less
from jitonnx.engine.programs import RunnableProgram, Runner, shape_of
from jitonnx.engine.protocol import CompileStatus, ModelEngine
from jitonnx.engine.resized import Resized
from jitonnx.ir.extract import specialise
from jitonnx.ir.graph import Graph
from jitonnx.runtime.program import Shapes
from jitonnx.support import fork_safety
from jitonnx.support.background_jobs import BackgroundExecutor, Job
from jitonnx.support.kernel_cache import KernelCache

if TYPE_CHECKING:
    import logging


class BackgroundEngine(ModelEngine):
    """An engine that is made in the background, behind the methods that a session uses of one.

    graph: the model as it was loaded, which runs are evaluated with on NumPy until the engine is there.
    """

    def __init__(
        self, graph: Graph, settings: Settings, cache: KernelCache, executor: BackgroundExecutor, logger: logging.Logger
    ) -> None:
        self._lock = fork_safety.lock()
        """Held where the attributes below change that runs share."""
        self._graph: Graph | None = graph
        self._engine: Engine | None = None
        self._logger = logger
        for file in files_read(graph):
            file.is_read = True
        self._pending = pending = PendingCode(settings.threads)
        self._shapes: dict[Shapes, None] = {}
        """The keys are the shapes of runs that were evaluated on NumPy."""

        def make(stop: threading.Event) -> Engine:
            less = settings
            while True:
                copy = specialise(graph, [v.type for v in graph.inputs])
                try:
                    engine = Engine(copy, less, cache, pending.counter(), executor, stop, pending=pending)
                    if engine.only_shapes is not None:
                        engine.program(engine.only_shapes)
                    engine.progress = None
                    return engine
                except Exception as error:
                    less = with_less(less, error, "compiling the model")

        self._job: Job[Engine] = executor.submit(make)

    def status(self) -> CompileStatus:
        """What the engine's tells; also failed, if there is none to come."""
        pending = self._pending
        state = pending.state if self._job.state == "compiled" else self._job.state
        return CompileStatus(state, *pending.kernels, pending.numpy_runs)

    def found(self) -> Engine | None:
        """The engine once it is made, else None. Fail tells why it could not be made."""
        return self._engine or self._keep(self._job.found())

    def wait(self, timeout: float | None = None) -> Engine | None:
        """What `found` gives after a wait of up to `timeout` seconds (None: as long as it takes)."""
        return self._engine or self._keep(self._job.wait(timeout))

    def complete(self, timeout: float | None = None) -> bool:
        """What the engine's gives, after a wait for the engine."""
        deadline = None if timeout is None else time.monotonic() + timeout
        made = self.wait(timeout)
        return made is not None and made.complete(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def known_program(self, shapes: Shapes) -> RunnableProgram | None:
        """The program for these shapes if there is one already."""
        return None if self._engine is None else self._engine.known_program(shapes)

    def program(self, shapes: Shapes) -> RunnableProgram | None:
        """The program for these shapes; None while there is no engine."""
        engine = self.found()
        return None if engine is None else engine.program(shapes)

    def runner(self, shapes: Shapes) -> Runner | None:
        """What the engine's gives; None also while there is none."""
        engine = self.found()
        return None if engine is None else engine.runner(shapes)

    def resized(self, shapes: Shapes) -> Resized | None:
        """What the engine's gives; None also while there is none."""
        return None if self._engine is None else self._engine.resized(shapes)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs whose types have been checked."""
        graph, engine = self._graph, self.found()
        if engine is not None:
            return engine.run(inputs)
        assert graph is not None, "Bug: there is neither an engine nor a graph"
        with self._lock:
            self._shapes[tuple(shape_of(array) for array in inputs)] = None
        return self._pending.on_numpy(graph, inputs)

    def _keep(self, made: Engine | None) -> Engine | None:
        if made is None:
            return None
        with self._lock:
            new = self._engine is None
            if new:
                made.note_shapes(self._shapes)
                self._engine, self._graph = made, None
        if new:
            self._logger.info("the model is compiled; %d runs were evaluated on NumPy", self._pending.numpy_runs)
        return made
