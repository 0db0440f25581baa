"""What all servers of models have in OpenAI's form: keys, bodies, the list of models, errors."""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from jitonnx.errors import Error, InvalidArgument
from jitonnx.serve.metrics import CONTENT_TYPE, Counters
from jitonnx.serve.protocol import ApiError, Body

LARGEST_BODY = 16 << 20
"""Bytes."""


class Paths:
    """One model under a name, behind a key if there is one."""

    def __init__(self, name: str, api_key: str | None, counters: Counters) -> None:
        self.name, self._api_key, self._counters = name, api_key, counters
        self._began = int(time.time())

    def starlette(self, routes: list[Route], lifespan: Any) -> Starlette:
        """An application of some paths, and those of all servers. lifespan: what begins and ends with it."""
        every = [
            *routes,
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model_told),
            Route("/metrics", self.metrics_told),
        ]
        handlers: dict[Any, Any] = {ApiError: _told, HTTPException: _told_of_http, Error: _told_of_model}
        return Starlette(routes=every, exception_handlers=handlers, lifespan=lifespan)

    async def counted(self, request: Request, answer: Awaitable[Response]) -> Response:
        """The answer to a request, counted by its status, be it an error or not."""
        path = request.url.path
        try:
            response = await answer
        except ApiError as error:
            self._counters.responses.labels(path, error.status).inc()
            raise
        self._counters.responses.labels(path, response.status_code).inc()
        return response

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        self.check_key(request)
        return JSONResponse({"object": "list", "data": [self._described()]})

    async def model_told(self, request: Request) -> Response:
        """GET /v1/models/NAME."""
        self.check_key(request)
        if request.path_params["name"] != self.name:
            raise ApiError(404, f"there is the model {self.name!r} alone", param="model", code="model_not_found")
        return JSONResponse(self._described())

    async def metrics_told(self, _: Request) -> Response:
        """GET /metrics."""
        return Response(self._counters.text(), media_type=CONTENT_TYPE)

    async def body(self, request: Request) -> Body:
        """The body of a request, for this model."""
        self.check_key(request)
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > LARGEST_BODY:
                raise ApiError(413, f"the body is larger than {LARGEST_BODY} bytes")
        body = Body(bytes(data))
        self.check_model(body.get("model", str, "a model's name"))
        return body

    def check_model(self, told: Any) -> None:
        """Refuse another model than that of this name."""
        if told not in (None, self.name):
            raise ApiError(
                404, f"the model {told!r} does not exist: there is {self.name!r}", param="model", code="model_not_found"
            )

    def check_key(self, request: Request) -> None:
        """Refuse who has not the key, if there is one."""
        if self._api_key is not None:
            told = request.headers.get("authorization", "")
            if not hmac.compare_digest(told.encode(), f"Bearer {self._api_key}".encode()):
                raise ApiError(401, "a wrong API key was given, or none", code="invalid_api_key")

    def _described(self) -> dict[str, Any]:
        return {"id": self.name, "object": "model", "created": self._began, "owned_by": "jitonnx"}


async def _told(_: Request, error: ApiError) -> Response:
    return JSONResponse(error.body(), error.status)


async def _told_of_http(request: Request, error: HTTPException) -> Response:
    return await _told(request, ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}"))


async def _told_of_model(request: Request, error: Error) -> Response:
    return await _told(request, ApiError(400 if isinstance(error, InvalidArgument) else 500, error.text))
