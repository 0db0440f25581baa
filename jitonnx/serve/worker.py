"""The thread that makes an engine's steps, and what asyncio's side knows of it."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitonnx.errors import Error, InvalidArgument
from jitonnx.genai import Engine, EngineEvent, FinishReason, LanguageModel, Request, TurnOptions, TurnUsage
from jitonnx.serve.metrics import Metrics
from jitonnx.serve.protocol import ApiError, Asked
from jitonnx.serve.reading import Generated

_EVENTS = 256
"""The most events of a step: more come with the next one."""


@dataclass(frozen=True)
class Finished:
    """The end of an answer."""

    reason: FinishReason
    usage: TurnUsage
    error: ApiError | None = None


class Answer:
    """An answer that is worked on. What comes of it, tokens and at last `Finished`, is taken by `next`."""

    def __init__(self, worker: Worker, prompt: np.ndarray, asked: Asked, seed: int | None) -> None:
        self.prompt, self.asked, self.seed = prompt, asked, seed
        self.begin = time.perf_counter()
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._told: asyncio.Queue[Generated | Finished] = asyncio.Queue()
        self.is_at_end = False

    async def next(self) -> Generated | Finished:
        """The next token, or the end."""
        found = await self._told.get()
        self.is_at_end = isinstance(found, Finished)
        return found

    def cancel(self) -> None:
        """Have it end where nobody waits for it any more."""
        if not self.is_at_end:
            self.is_at_end = True
            self._worker.cancel(self)

    def tell(self, what: Generated | Finished) -> None:
        """Hand over what came; called by the worker's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._told.put_nowait, what)


class Worker:
    """Runs an `Engine` in a thread of its own, which all requests share.

    What it is to do is handed over by a queue, and done between two steps; turns alone are begun by the thread of the
    server, so that what is wrong with them is told at once.
    """

    def __init__(self, model: LanguageModel, metrics: Metrics, most_waiting: int, max_batch_size: int | None) -> None:
        """NotImplemented for models that an `Engine` is not for."""
        self._engine = Engine(model.model, max_batch_size=max_batch_size)
        self._metrics, self._most_waiting = metrics, most_waiting
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: dict[Request, Answer] = {}
        self._requests: dict[Answer, Request] = {}
        self._first: set[Request] = set()
        """Those of which no token has come."""
        self.failure: Exception | None = None
        """What ended the thread too early."""
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="jitonnx.serve", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and with it what it is at."""
        self._is_stopping = True
        self._todo.put(None)
        self._thread.join()

    @property
    def load(self) -> tuple[int, int]:
        """How many answers are worked on, and how many wait."""
        return self._engine.load

    async def begin(self, prompt: np.ndarray, asked: Asked, seed: int | None) -> Answer:
        """Have an answer made.

        ApiError: 400 for what makes no sense, 429 while too many wait, 503 where no more answers can be made.
        """
        self._check()
        lanes = self._engine.get_capabilities().configured_max_batch_size
        if sum(self._engine.load) >= lanes + self._most_waiting:
            raise ApiError(429, f"{self._most_waiting} requests wait already: try again later", code="overloaded")
        answer = Answer(self, prompt, asked, seed)
        if asked.guidance is None:
            self._begin(answer)
        else:  # a large schema takes its time
            await asyncio.to_thread(self._begin, answer)
        self._todo.put(None)
        return answer

    def _begin(self, answer: Answer) -> None:
        asked, request = answer.asked, self._engine.create_request()
        options = TurnOptions(request)
        self._answers[request], self._requests[answer] = answer, request
        self._first.add(request)
        try:
            drawn = {name: value for name, value in asked.search.items() if name != "repetition_penalty"}
            for name, value in asked.search.items():
                options.search.set(name, value)
            if drawn or answer.seed is not None:
                options.set_do_sample(asked.search.get("temperature") != 0)
            if answer.seed is not None:
                options.set_seed(answer.seed)
            options.set_max_generated_tokens(asked.most_tokens)
            options.set_stop_strings(asked.stops)
            if asked.guidance is not None:
                options.set_guidance(*asked.guidance)
            options.set_logit_adjustment(**asked.adjustment)
            options.set_logprobs(asked.logprobs)
            self._check()
            request.begin_turn(answer.prompt, options)
        except (InvalidArgument, ImportError) as error:
            self._unlist(answer)
            code = "context_length_exceeded" if len(answer.prompt) >= request.max_tokens else None
            raise ApiError(400, text_of(error), code=code) from error
        except BaseException:
            self._unlist(answer)
            raise

    def _check(self) -> None:
        if self.failure is not None or self._is_stopping:
            raise ApiError(503, "the engine has failed" if self.failure is not None else "the server is about to end")

    def _unlist(self, answer: Answer) -> Request | None:
        """Know of an answer no more; its request, if it was known."""
        request = self._requests.pop(answer, None)
        if request is not None:
            del self._answers[request]
            self._first.discard(request)
        return request

    def cancel(self, answer: Answer) -> None:
        """Have an answer end."""
        self._todo.put(lambda: self._forget(answer))

    async def call(self, what: Callable[[], Any]) -> Any:
        """What a function gives that is called between two steps."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def done(setter: Callable[[Any], None], value: Any) -> None:
            if not future.done():
                setter(value)

        def work() -> None:
            try:
                value = what()
            except Error as error:
                loop.call_soon_threadsafe(done, future.set_exception, error)
            else:
                loop.call_soon_threadsafe(done, future.set_result, value)

        self._todo.put(work)
        return await future

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        try:
            buffer = self._engine.create_event_buffer(_EVENTS)
            while self._work():
                for event in self._engine.run(buffer) or ():
                    self._tell(event)
                self._metrics.stepped(*self._engine.load)
        except Exception as error:
            self.failure = error
            raise
        finally:
            for answer in list(self._answers.values()):
                message = "the server is about to end" if self.failure is None else "the engine has failed"
                answer.tell(Finished(FinishReason.FAILED, TurnUsage(), ApiError(503, message)))

    def _work(self) -> bool:
        """Do what is to be done, waiting for something where the engine has nothing; whether to go on."""
        while not (self._is_stopping or (self._todo.empty() and self._engine.has_pending_requests())):
            if self._todo.empty():
                self._metrics.stepped(*self._engine.load)
            todo = self._todo.get()
            if todo is not None:
                todo()
        return not self._is_stopping

    def _tell(self, event: EngineEvent) -> None:
        request = event.request
        answer = self._answers[request]
        if event.token is not None:
            answer.tell(Generated(event.token, event.logprobs))
            if request in self._first:
                self._first.discard(request)
                self._metrics.first_token.observe(time.perf_counter() - answer.begin)
        if event.finish_reason != FinishReason.NONE:
            error = None
            if event.finish_reason == FinishReason.FAILED:
                error = ApiError(500, text_of(request.error))
            answer.tell(Finished(event.finish_reason, event.usage, error))
            self._metrics.finished(event.finish_reason, event.usage, time.perf_counter() - answer.begin)
            self._forget(answer)

    def _forget(self, answer: Answer) -> None:
        request = self._unlist(answer)
        if request is not None:
            if request.turn is not None:
                usage = request.turn.usage
                self._metrics.finished(FinishReason.CANCELLED, usage, time.perf_counter() - answer.begin)
            request.close()


def text_of(error: BaseException | None) -> str:
    """What an error says, without its number."""
    return str(getattr(error, "text", error))
