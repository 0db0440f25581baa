"""Requests of many clients as batches of rows: whoever asks while others are worked on shares the next run.

A request waits while all runs that may be under way are, and besides no longer than `delay` for others; the oldest goes
first, and takes with it what came behind it with rows of the same shapes, up to `most_rows`. So a lone client is
answered at once, many share runs, and nobody is passed over. A run that fails is made again for each of its requests
alone: the error of one is no other's.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], Arrays]
"""Outputs by name of inputs by name."""
_TOO_LONG_SECONDS = 0.005
"""For a run by the event loop: no others follow it."""


class Refused(Exception):
    """A request that is not taken: too many wait already, or the server is being ended."""


class Observer(Protocol):
    """What is told about batches; called by the event loop."""

    def ran(self, requests: int, rows: int, seconds: float) -> None:
        """A batch has ended."""

    def waits(self, requests: int) -> None:
        """So many requests wait."""


class BatchCounters:
    """An `Observer` that counts, by Prometheus' histograms and a gauge."""

    def __init__(self, requests: Any, rows: Any, seconds: Any, waiting: Any) -> None:
        """requests, rows: histograms of how many share a run; seconds: of its time; waiting: a gauge of requests."""
        self._requests, self._rows, self._seconds, self._waiting = requests, rows, seconds, waiting

    def ran(self, requests: int, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._requests.observe(requests)
        self._rows.observe(rows)
        self._seconds.observe(seconds)

    def waits(self, requests: int) -> None:
        """Set how many requests wait."""
        self._waiting.set(requests)


class Limits(NamedTuple):
    """What a batcher holds to.

    most_rows: of a batch; 1 where requests are not to be joined. delay: seconds that a request waits for others while a
    run could begin. most_waiting: requests; others are refused. runs: that may be under way at once. short_rows: up to
    so many rows are run by the event loop itself, as that takes less than handing them to a thread.
    """

    most_rows: int
    delay: float = 0.0
    most_waiting: int = 1024
    runs: int = 1
    short_rows: int = 0


@dataclass(eq=False, slots=True)
class _Request:
    arrays: Arrays
    rows: int
    number: int
    since: float
    answer: asyncio.Future[Arrays]


class Batcher:
    """Joins the requests of one event loop; its methods are called there."""

    def __init__(self, run: Run, limits: Limits, observer: Observer) -> None:
        self._run, self.limits, self._observer = run, limits, observer
        self._executor = ThreadPoolExecutor(limits.runs, "jitonnx-serving")
        self._waiting: dict[Any, deque[_Request]] = {}
        """The requests that wait, by the shapes and types of their rows, each in the order in which they came."""
        self._count = self._running = 0
        self._numbers = itertools.count()
        self._short_rows = limits.short_rows
        self._look: asyncio.Handle | None = None
        self._is_closed = False
        self._idle = asyncio.Event()

    async def submit(self, arrays: Arrays) -> Arrays:
        """The outputs for one request. arrays: by input; [rows, ...] where requests may be joined.

        Refused at once where too many wait. Errors are those of the run.
        """
        if self._is_closed:
            raise Refused("the server is being ended")
        if self._count >= self.limits.most_waiting:
            raise Refused(f"{self._count} requests wait already: try again later")
        loop = asyncio.get_running_loop()
        joins = self.limits.most_rows > 1
        key = tuple((name, array.shape[1:], array.dtype) for name, array in arrays.items()) if joins else None
        rows = len(next(iter(arrays.values()))) if joins else 1
        request = _Request(arrays, rows, next(self._numbers), loop.time(), loop.create_future())
        self._waiting.setdefault(key, deque()).append(request)
        self._count += 1
        self._idle.clear()
        self._look_soon(loop)
        return await request.answer

    async def drain(self) -> None:
        """Refuse requests from now on, and return when those that were taken are answered."""
        self._is_closed = True
        while self._count or self._running:
            self._idle.clear()
            await self._idle.wait()
        self._executor.shutdown(wait=False)

    def _look_soon(self, loop: asyncio.AbstractEventLoop, seconds: float = 0.0) -> None:
        """Look for a batch when what has come with this request is taken in, too, or in some seconds."""
        if self._look is not None:
            if seconds:
                return
            self._look.cancel()
        self._look = loop.call_later(seconds, self._begin) if seconds else loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin all batches that may be."""
        if self._look is not None:
            self._look.cancel()
        self._look = None
        loop = asyncio.get_running_loop()
        while self._count and self._running < self.limits.runs:
            key, queue = min(self._waiting.items(), key=lambda item: item[1][0].number)
            left = queue[0].since + self.limits.delay - loop.time()
            if left > 0 and sum(request.rows for request in queue) < self.limits.most_rows and not self._is_closed:
                self._look_soon(loop, left)
                break
            batch = self._taken(key, queue)
            if not batch:
                continue
            began = time.perf_counter()
            if sum(request.rows for request in batch) <= self._short_rows:
                self._end(batch, began, _answers(self._run, [request.arrays for request in batch]))
                if time.perf_counter() - began > _TOO_LONG_SECONDS:  # its time depends on what the rows hold
                    self._short_rows = 0
                continue
            self._running += 1
            working = loop.run_in_executor(self._executor, _answers, self._run, [request.arrays for request in batch])
            working.add_done_callback(functools.partial(self._ended, batch, began))
        self._observer.waits(self._count)
        if not self._count and not self._running:
            self._idle.set()

    def _taken(self, key: Any, queue: deque[_Request]) -> list[_Request]:
        """The next batch of a queue; nothing if those in front of it have gone away."""
        batch: list[_Request] = []
        rows = 0
        while queue and (not batch or rows + queue[0].rows <= self.limits.most_rows):
            request = queue.popleft()
            self._count -= 1
            if not request.answer.done():  # its client has not gone away
                batch.append(request)
                rows += request.rows
            if self.limits.most_rows == 1 and batch:
                break
        if not queue:
            del self._waiting[key]
        return batch

    def _ended(self, batch: list[_Request], began: float, done: asyncio.Future[list[Any]]) -> None:
        self._running -= 1
        error = done.exception()
        self._end(batch, began, [error] * len(batch) if error is not None else done.result())
        self._begin()

    def _end(self, batch: list[_Request], began: float, answers: list[Any]) -> None:
        for request, answer in zip(batch, answers, strict=True):
            if request.answer.done():
                continue
            if isinstance(answer, BaseException):
                request.answer.set_exception(answer)
            else:
                request.answer.set_result(answer)
        self._observer.ran(len(batch), sum(request.rows for request in batch), time.perf_counter() - began)


def _answers(run: Run, requests: list[Arrays]) -> list[Any]:
    """The outputs for each request, or the error of its own run."""
    if len(requests) == 1:
        return [_answer(run, requests[0])]
    ends = list(itertools.accumulate(len(next(iter(one.values()))) for one in requests))
    try:
        made = run({name: np.concatenate([one[name] for one in requests]) for name in requests[0]})
    except Exception:  # of one of them: each is told its own
        return [_answer(run, one) for one in requests]
    if any(len(array) != ends[-1] for array in made.values()):  # how many there are depends on what the rows hold
        return [_answer(run, one) for one in requests]
    return [
        {name: array[begin:end] for name, array in made.items()} for begin, end in zip([0, *ends], ends, strict=False)
    ]


def _answer(run: Run, arrays: Arrays) -> Any:
    try:
        return run(arrays)
    except Exception as error:
        return error
