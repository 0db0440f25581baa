"""Work behind the runs: jobs that one thread of the process does in turn, and that end when nobody wants them.

What a job makes is found when it is done; until then whoever asks gets None and does without. A job is given an event
that is set when it is to stop: its session was closed or collected, what it makes was thrown out, or the interpreter
ends. After a fork the child begins its unfinished jobs anew, when they are next asked for.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from jitonnx.errors import Error, Fail
from jitonnx.support import fork_safety
from jitonnx.support.short_turns import short_turns

_T = TypeVar("_T")

EXIT_SECONDS = 2.0
"""How long the end of the interpreter waits for a job to notice that it is called off."""

LAST_SECONDS = 10.0
"""How long it waits for one that is always done."""


class StoppedError(RuntimeError):
    """Work was called off before it was done."""


class Job(Generic[_T]):
    """One thing to be made. `make(stop)` is called on the background thread and should look at the event now and then.

    Made by `BackgroundExecutor.submit`. always: whether it is done, too, if it was called off before it began.
    """

    def __init__(self, make: Callable[[threading.Event], _T], *, always: bool = False) -> None:
        self._make, self.always = make, always
        self._outcome: tuple[_T | None, BaseException | None] | None
        self._ended: threading.Event
        self.stop: threading.Event
        self._begin()

    def found(self) -> _T | None:
        """What was made; None if it is not ready yet, or was called off. Fail tells why it could not be made."""
        self._resume()
        outcome = self._outcome
        return None if outcome is None or isinstance(outcome[1], StoppedError) else self._result(*outcome)

    def wait(self, timeout: float | None = None) -> _T | None:
        """What was made, after a wait of up to `timeout` seconds (None: as long as it takes); None if it is not ready
        by then. Fail tells why it could not be made, also where it was called off.
        """
        self._resume()
        if self._outcome is None:
            with fork_safety.safepoint:
                self._ended.wait(timeout)
        return None if self._outcome is None else self._result(*self._outcome)

    @property
    def state(self) -> str:
        """compiling, compiled or failed."""
        outcome = self._outcome
        if outcome is None:
            return "compiling"
        return "compiled" if outcome[1] is None else "failed"

    def cancel(self) -> None:
        """Ask it to stop."""
        self._resume(stopped=True)
        self.stop.set()

    def work(self) -> None:
        """Carry out the job, on the background thread."""
        with fork_safety.critical:
            try:
                if self.stop.is_set() and not self.always:
                    raise StoppedError("it was called off")
                self._outcome = self._make(self.stop), None
            except BaseException as error:  # whoever asks for what was to be made meets it
                self._outcome = None, error
            self._ended.set()

    @staticmethod
    def _result(made: _T | None, error: BaseException | None) -> _T | None:
        if error is not None:
            text = error.text if isinstance(error, Error) else str(error) or type(error).__name__
            raise Fail(f"the model could not be compiled in the background: {text}") from error
        return made

    def _begin(self, *, stopped: bool = False) -> None:
        self._outcome = None
        self._ended, self.stop = threading.Event(), threading.Event()
        self._process = os.getpid()
        if stopped:
            self.stop.set()
        _thread.add(self)

    def _resume(self, *, stopped: bool = False) -> None:
        """Begin anew in a process that was forked before the job was done."""
        if self._outcome is None and self._process != os.getpid():
            with _resuming:
                if self._outcome is None and self._process != os.getpid():
                    self._begin(stopped=stopped or self.stop.is_set())


class BackgroundExecutor:
    """The jobs of one session: `close` calls all of them off."""

    def __init__(self) -> None:
        self._lock = fork_safety.lock()
        self._jobs: weakref.WeakSet[Job[Any]] = weakref.WeakSet()
        self._closed = False

    def submit(self, make: Callable[[threading.Event], _T], *, always: bool = False) -> Job[_T]:
        """A job that is done after those submitted before it, of all sessions. always: see `Job`."""
        job = Job(make, always=always)
        with self._lock:
            self._jobs.add(job)
            closed = self._closed
        if closed:
            job.cancel()
        return job

    def close(self) -> None:
        """Call off all jobs, also those submitted later."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs)
        for job in jobs:
            job.cancel()


class _Thread:
    """The background thread: started when there is a job, ended when there is none."""

    def __init__(self) -> None:
        self._lock = fork_safety.lock()
        self._jobs: deque[Job[Any]] = deque()
        self._thread: threading.Thread | None = None
        self._doing: Job[Any] | None = None

    @property
    def is_current(self) -> bool:
        """Whether it is this thread."""
        return self._thread is threading.current_thread()

    def add(self, job: Job[Any]) -> None:
        with self._lock:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jitonnx-background", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        with short_turns:
            while True:
                with self._lock:
                    if not self._jobs:
                        self._thread = self._doing = None
                        return
                    job = self._doing = self._jobs.popleft()
                job.work()
                del job

    def stop(self) -> None:
        """Call everything off and wait a little, so that no native code is cut short when the interpreter ends."""
        with self._lock:
            thread, jobs = self._thread, [*self._jobs, self._doing]
        for job in jobs:
            if job is not None:
                job.cancel()
        if thread is not None:
            last = any(job is not None and job.always for job in jobs)
            thread.join(EXIT_SECONDS + LAST_SECONDS * last)


def behind_runs() -> bool:
    """Whether this is the thread that does the jobs: who works there leaves the CPUs to the runs."""
    return _thread.is_current


LOOK_SECONDS = 0.02
"""How often who waits looks whether it should stop."""

_thread = _Thread()
_resuming = fork_safety.lock()


def _after_fork() -> None:
    global _thread
    _thread = _Thread()


fork_safety.in_child(_after_fork)
atexit.register(lambda: _thread.stop())
