"""The ASGI application of a model of speech: transcripts as OpenAI's interface has them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from jitonnx.genai import LanguageModel, Transcript, subtitles
from jitonnx.serve.metrics import Counters
from jitonnx.serve.paths import Paths
from jitonnx.serve.protocol import ApiError

LARGEST_FILE = 64 << 20
"""Bytes."""

_FORMS = ("json", "text", "srt", "verbose_json", "vtt")
_DEFAULTS: dict[str, tuple[str, ...]] = {
    "prompt": ("",),
    "stream": ("false", "False"),
    "temperature": ("0", "0.0"),
    "timestamp_granularities[]": ("segment",),
}
"""Parameters that are accepted with the values that ask for nothing alone."""
_KNOWN = ("file", "language", "model", "response_format")


class TranscriptionService(Paths):
    """One model of speech, and what the paths do. Transcripts are made one after the other."""

    def __init__(self, model: LanguageModel, name: str, api_key: str | None, most_waiting: int) -> None:
        counters = Counters()
        super().__init__(name, api_key, counters)
        self._model, self._most_waiting = model, most_waiting
        self._seconds = counters.made("Counter", "audio_seconds", "Seconds of audio that were transcribed.")
        self._waiting = 0
        self._executor = ThreadPoolExecutor(1, "jitonnx.serve")

    def application(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route(f"/v1/audio/{path}", partial(self.transcribe, task), methods=["POST"])
            for path, task in (("transcriptions", "transcribe"), ("translations", "translate"))
        ]
        return self.starlette([*routes, Route("/health", self.health)], self.lifespan)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Ends the thread with the server."""
        try:
            yield
        finally:
            await asyncio.to_thread(self._executor.shutdown, cancel_futures=True)

    async def health(self, _: Request) -> Response:
        """GET /health."""
        return JSONResponse({"status": "ok", "waiting": self._waiting})

    async def transcribe(self, task: str, request: Request) -> Response:
        """POST /v1/audio/transcriptions and /v1/audio/translations."""
        return await self.counted(request, self._answer(task, request))

    async def _answer(self, task: str, request: Request) -> Response:
        self.check_key(request)
        if int(request.headers.get("content-length") or 0) > LARGEST_FILE:
            raise ApiError(413, f"the body is larger than {LARGEST_FILE} bytes")
        async with request.form() as fields:
            for name, value in fields.multi_items():
                if name in _DEFAULTS and value not in _DEFAULTS[name]:
                    raise ApiError(400, f"{name} is not supported", param=name, code="unsupported_parameter")
                if name not in _KNOWN and name not in _DEFAULTS:
                    raise ApiError(400, f"{name} is no parameter", param=name, code="unknown_parameter")
            self.check_model(fields.get("model"))
            form = fields.get("response_format") or "json"
            if form not in _FORMS:
                raise ApiError(
                    400, f"response_format is {form!r}: {', '.join(_FORMS)} are known", param="response_format"
                )
            file = fields.get("file")
            if not isinstance(file, UploadFile):
                raise ApiError(400, "you must provide file: audio", param="file", code="missing_required_parameter")
            data = await file.read()
            language = str(fields.get("language") or "") or None
        if len(data) > LARGEST_FILE:
            raise ApiError(413, f"the file is larger than {LARGEST_FILE} bytes", param="file")
        if self._waiting > self._most_waiting:
            raise ApiError(429, f"{self._most_waiting} requests wait already: try again later", code="overloaded")
        self._waiting += 1
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._executor,
                partial(
                    self._model.transcribe,
                    data,
                    language=language,
                    task=task,
                    timestamps=form not in ("json", "text"),
                ),
            )
        finally:
            self._waiting -= 1
        self._seconds.inc(found.seconds)
        return _told(found, str(form), task)


def _told(found: Transcript, form: str, task: str) -> Response:
    """A transcript in one of the forms."""
    if form == "json":
        return JSONResponse({"text": found.text})
    if form == "verbose_json":
        segments = [
            {"id": number, "start": one.start, "end": one.end, "text": one.text}
            for number, one in enumerate(found.segments)
        ]
        told: dict[str, Any] = {"task": task, "language": found.language, "duration": found.seconds}
        return JSONResponse({**told, "text": found.text, "segments": segments})
    write = {"text": lambda _: f"{found.text}\n", "srt": subtitles.srt, "vtt": subtitles.vtt}[form]
    return PlainTextResponse(write(found.segments))
