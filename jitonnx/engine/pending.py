"""Code of a model that is not there yet: being compiled behind the runs, or left until its shapes come back."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jitonnx.engine.interpreter import on_numpy
from jitonnx.ir.graph import Graph
from jitonnx.runtime import blas
from jitonnx.runtime.threads import allowed_cpus
from jitonnx.support import fork_safety

if TYPE_CHECKING:
    from jitonnx.support.lru_cache import BackgroundLRUCache


class PendingCode:
    """The code that is missing of an engine and of all engines that are made of it, and the runs that do without.

    threads: that runs may take.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = fork_safety.lock()
        self.numpy_runs = 0
        """Runs that were evaluated on NumPy, in whole or in part, because there was no code for them."""
        self._caches: weakref.WeakSet[BackgroundLRUCache[Any]] = weakref.WeakSet()
        self._counts: list[list[int]] = []

    def on_numpy(self, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        """The graph's outputs in a run that there is no code for. Where there are several CPUs, one is left to what
        compiles: beside threads that wait for each other by spinning, it would hardly come to it.
        """
        with self._lock:
            self.numpy_runs += 1
        with blas.limited(max(1, min(self._threads, allowed_cpus() - 1))):
            return on_numpy(graph, inputs)

    def watch(self, cache: BackgroundLRUCache[Any]) -> None:
        """Count what is to be made and kept there."""
        with self._lock:
            self._caches.add(cache)

    def counter(self) -> Callable[[int, int], None]:
        """What to call as counter(done, all) of the kernels of one compile behind the runs."""
        counts = [0, 0]
        with self._lock:
            self._counts.append(counts)

        def count(done: int, total: int) -> None:
            counts[:] = done, total

        return count

    @property
    def kernels(self) -> tuple[int, int]:
        """Kernels compiled behind the runs, and to compile."""
        done, total = (sum(counts[i] for counts in list(self._counts)) for i in (0, 1))
        return done, total

    @property
    def state(self) -> str:
        """compiling; waiting, for shapes that NumPy served to come back; compiled, if no code is missing."""
        caches = self._watched()
        if any(cache.unfinished() for cache in caches):
            return "compiling"
        return "waiting" if any(cache.waiting() for cache in caches) else "compiled"

    def wait(self, timeout: float | None = None) -> bool:
        """Have all compiled that is missing; whether that was done within `timeout` seconds (None: any time).

        Fail tells why it could not be done.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            jobs = []
            for cache in self._watched():
                cache.start_waiting()
                jobs += cache.unfinished()
            if not jobs:
                return True
            for job in jobs:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if job.wait(left) is None:
                    return False

    def _watched(self) -> list[BackgroundLRUCache[Any]]:
        with self._lock:
            return list(self._caches)
