"""The ASGI application of a language model: OpenAI's paths, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from jitonnx.genai import FinishReason, LanguageModel
from jitonnx.serve import forms, protocol
from jitonnx.serve.forms import Form
from jitonnx.serve.metrics import Metrics
from jitonnx.serve.paths import Paths
from jitonnx.serve.protocol import Asked, Body
from jitonnx.serve.reading import Piece, Reading
from jitonnx.serve.worker import Answer, Finished, Worker

_GONE = 499
"""The status of an answer whose client went away, as nginx has it."""

_REASONS = {
    FinishReason.EOS: "stop",
    FinishReason.STOP_STRING: "stop",
    FinishReason.MAX_GENERATED_TOKENS: "length",
    FinishReason.MAX_SESSION_TOKENS: "length",
}


class Service(Paths):
    """One language model, and what the paths do."""

    def __init__(
        self, model: LanguageModel, name: str, api_key: str | None, most_waiting: int, max_batch_size: int | None
    ) -> None:
        self._metrics = Metrics()
        super().__init__(name, api_key, self._metrics)
        self._model = model
        self._worker = Worker(model, self._metrics, most_waiting, max_batch_size)

    def application(self) -> Starlette:
        """The ASGI application, which starts the worker and stops it."""
        routes = [
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/embeddings", self.embed, methods=["POST"]),
            Route("/health", self.health),
        ]
        return self.starlette(routes, self.lifespan)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Starts the worker, and stops it when the server ends."""
        self._worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._worker.stop)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self.counted(request, self._answered(request, protocol.read_chat, is_chat=True))

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self.counted(request, self._answered(request, protocol.read_completion, is_chat=False))

    async def embed(self, request: Request) -> Response:
        """POST /v1/embeddings."""
        body = await self.body(request)
        body.check_names(["input", "encoding_format", "dimensions"])
        prompts = protocol.read_texts(self._model, body, "input")
        encoding = protocol.read_encoding(body)
        rows = [await self._worker.call(partial(self._model.embed, prompt)) for prompt in prompts]
        return JSONResponse(forms.embeddings(rows, encoding, self.name, sum(map(len, prompts))))

    async def health(self, _: Request) -> Response:
        """GET /health: 200, or 503 where no more answers can be made."""
        running, waiting = self._worker.load
        failed = self._worker.failure is not None
        told = {"status": "failed" if failed else "ok", "running": running, "waiting": waiting}
        return JSONResponse(told, 503 if failed else 200)

    # ------------------------------------------------------------ answers

    async def _answered(
        self, request: Request, read: Callable[[LanguageModel, Body], Asked], *, is_chat: bool
    ) -> Response:
        try:
            asked = read(self._model, await self.body(request))
            form = Form(uuid.uuid4().hex, self.name, is_chat=is_chat)
            answers = await self._begun(asked)
            if asked.stream:
                return _Stream(self._streamed(answers, asked, form), answers)
            whole = self._whole(answers, asked, form)
            return JSONResponse(await _unless_gone(request, whole, answers))
        except ClientDisconnect:
            return Response(status_code=_GONE)  # which nobody reads

    async def _begun(self, asked: Asked) -> list[Answer]:
        """All answers that a request asks for; none if one of them cannot be."""
        answers: list[Answer] = []
        try:
            for prompt in asked.prompts:
                for choice in range(asked.choices):
                    seed = None if asked.seed is None else (asked.seed + choice) & 0x7FFFFFFF
                    answers.append(await self._worker.begin(prompt, asked, seed))
        except BaseException:
            _cancel(answers)
            raise
        return answers

    async def _whole(self, answers: Sequence[Answer], asked: Asked, form: Form) -> dict[str, Any]:
        pieces, reasons, usages = [], [], []
        for answer in answers:
            reading, piece = Reading(self._model.tokenizer, asked), Piece()
            while not isinstance(told := await answer.next(), Finished):
                piece.add(reading.push(told))
            if told.error is not None:
                raise told.error
            piece.add(reading.rest())
            pieces.append(piece)
            reasons.append(_reason(told, piece))
            usages.append(told.usage)
        return form.whole(pieces, reasons, forms.used(usages, asked.choices))

    async def _streamed(self, answers: Sequence[Answer], asked: Asked, form: Form) -> AsyncIterator[str]:
        """The events of a stream: pieces of all answers as they come."""
        readings = [Reading(self._model.tokenizer, asked) for _ in answers]
        usages: dict[int, Any] = {}
        waits = {asyncio.ensure_future(answer.next()): index for index, answer in enumerate(answers)}
        begun: set[int] = set()
        try:
            while waits:
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    index, told = waits.pop(task), task.result()
                    reason = None
                    if isinstance(told, Finished):
                        if told.error is not None:
                            yield forms.event(told.error.body())
                            return
                        usages[index] = told.usage
                        piece = readings[index].rest()
                        reason = _reason(told, piece)
                    else:
                        piece = readings[index].push(told)
                        waits[asyncio.ensure_future(answers[index].next())] = index
                    if piece or (reason and index not in begun):
                        yield forms.event(form.piece(index, piece, is_first=index not in begun))
                        begun.add(index)
                    if reason:
                        yield forms.event(form.end(index, reason))
            if asked.is_usage_streamed:
                told_usages = [usages[index] for index in range(len(answers))]
                yield forms.event(form.usage(forms.used(told_usages, asked.choices)))
            yield forms.END
        finally:
            for task in waits:
                task.cancel()


class _Stream(StreamingResponse):
    """Events, whose answers are ended where the client goes away."""

    def __init__(self, events: AsyncIterator[str], answers: Sequence[Answer]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._answers = answers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # A client that waits for its first token sends nothing, and is sent nothing: that it goes away is heard alone.
        sending = asyncio.ensure_future(self.stream_response(send))
        hearing = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((sending, hearing), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                with contextlib.suppress(OSError):  # of a client that is gone
                    sending.result()
        finally:
            await _ended(sending, hearing)
            _cancel(self._answers)


def _reason(end: Finished, last: Piece) -> str:
    """Why an answer has ended. last: its end, which calls are in."""
    return "tool_calls" if last.calls else _REASONS[end.reason]


def _cancel(answers: Sequence[Answer]) -> None:
    for answer in answers:
        answer.cancel()


async def _gone(receive: Callable[[], Awaitable[Any]]) -> None:
    """Wait until the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    """End tasks."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _unless_gone(request: Request, work: Any, answers: Sequence[Answer]) -> Any:
    """What work gives; ClientDisconnect if the client goes away before, with the answers ended."""
    working, hearing = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait((working, hearing), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        await _ended(working, hearing)
        _cancel(answers)
