"""A server of KServe's parts: its endpoints over HTTP and gRPC, begun when models are ready, ended when all is told.

(KServe's own `ModelServer` listens at all addresses, lets anybody unload models, and ends with what is under way.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import grpc
import grpc_interceptor
import orjson
import prometheus_client
import uvicorn
from kserve import InferRequest, ModelRepository
from kserve.constants.constants import INFERENCE_CONTENT_LENGTH_HEADER
from kserve.errors import InferenceError, InvalidInput, ModelNotFound, ModelNotReady, ServerNotReady
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import add_GRPCInferenceServiceServicer_to_server
from kserve.protocol.grpc.servicer import InferenceServicer
from kserve.protocol.model_repository_extension import ModelRepositoryExtension
from kserve.protocol.rest.v2_endpoints import V2Endpoints
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from jitonnx.serving.model import Model
from jitonnx.serving.tensors import read_request
from jitonnx.support.log import logger

LARGEST_REQUEST = 64 << 20
"""Bytes."""
_INFER = re.compile("/v2/models/([^/]+)/infer")
_JSON_LENGTH = INFERENCE_CONTENT_LENGTH_HEADER.lower().encode()
_SWITCH_SECONDS = 0.0005
"""For which a thread may keep others from Python: runs that have ended are to be answered soon."""

_ERRORS: tuple[tuple[type[Exception], int, grpc.StatusCode], ...] = (
    (InvalidInput, 400, grpc.StatusCode.INVALID_ARGUMENT),
    (ModelNotFound, 404, grpc.StatusCode.NOT_FOUND),
    (ModelNotReady, 503, grpc.StatusCode.UNAVAILABLE),
    (ServerNotReady, 503, grpc.StatusCode.UNAVAILABLE),
    (NotImplementedError, 501, grpc.StatusCode.UNIMPLEMENTED),
    (InferenceError, 500, grpc.StatusCode.INTERNAL),
)
"""What errors are over HTTP and gRPC."""


class _Models(ModelRepository):
    """The models that the server was started with."""

    def load(self, name: str) -> bool:
        raise NotImplementedError("models are those that the server was started with")

    def unload(self, name: str) -> None:
        raise NotImplementedError("models are those that the server was started with")


class _Plane(DataPlane):
    async def get_model(self, name: str) -> Model:
        """The model, which says itself that it is being ended; KServe's own would load it once more."""
        model: Model = self.get_model_from_registry(name)
        return model

    async def ready(self) -> bool:
        """Ready when all models are."""
        return all(model.ready for model in self.model_registry.get_models().values())


class _Application:
    """What uvicorn calls: requests for answers are answered here, all others by Starlette, whose way to an endpoint and
    back takes longer than a small model's run."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane, self._others = plane, _other_endpoints(plane)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or (asked := _INFER.fullmatch(scope["path"])) is None:
            await self._others(scope, receive, send)
            return
        try:
            made, json_length = await self._answer(asked[1], scope, receive)
        except ClientDisconnect:
            return
        except tuple(kind for kind, *_ in _ERRORS) as error:
            await _told(error)(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json")]
        if json_length is None:
            made = orjson.dumps(made)
        else:
            headers = [(b"content-type", b"application/octet-stream"), (_JSON_LENGTH, b"%d" % json_length)]
        headers.append((b"content-length", b"%d" % len(made)))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": made})

    async def _answer(self, name: str, scope: Scope, receive: Receive) -> tuple[Any, int | None]:
        """The answer of a model to a request, JSON or bytes that begin with JSON, and how many bytes are JSON; None if
        all are. (KServe's own endpoint reads tensors of bytes as lists of numbers.)"""
        length = next((value.decode("latin-1") for key, value in scope["headers"] if key == _JSON_LENGTH), None)
        if length is not None and not (length.isascii() and length.isdecimal()):
            raise InvalidInput(f"{INFERENCE_CONTENT_LENGTH_HEADER} is {length!r}; a number of bytes is needed")
        body, is_more = bytearray(), True
        while is_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            is_more = message.get("more_body", False)
            if len(body) > LARGEST_REQUEST:
                raise InvalidInput(f"the request is larger than {LARGEST_REQUEST} bytes")
        request: InferRequest = read_request(bytes(body), None if length is None else int(length), name)
        answer, _ = await self._plane.infer(name, request)
        made: tuple[Any, int | None] = answer.to_rest()
        return made


def _told(error: Exception) -> JSONResponse:
    """An error over HTTP."""
    status = next(status for kind, status, _ in _ERRORS if isinstance(error, kind))
    return JSONResponse({"error": str(error)}, status)


class _Interceptor(grpc_interceptor.AsyncExceptionToStatusInterceptor):
    async def handle_exception(self, ex: Exception, request_or_iterator: Any, context: Any, method_name: str) -> None:
        """Tell the client what is wrong."""
        for kind, _, status in _ERRORS:
            if isinstance(ex, kind):
                await context.abort(status, str(ex))
        logger.error("%s", method_name, exc_info=ex)
        await context.abort(grpc.StatusCode.INTERNAL, f"{type(ex).__name__}: {ex}")


class _HttpServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end both servers: see `_served`."""
        yield


def _other_endpoints(plane: DataPlane) -> Starlette:
    async def told(_: Request, error: Exception) -> JSONResponse:
        return _told(error)

    async def metrics(_: Request) -> Response:
        made = prometheus_client.generate_latest()
        return Response(made, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    def route(path: str, endpoint: Callable[..., Awaitable[Any]]) -> Route:
        async def get(request: Request) -> JSONResponse:
            return JSONResponse((await endpoint(**request.path_params)).model_dump())

        return Route(path, get)

    endpoints = V2Endpoints(plane)
    routes = [
        route("/v2", endpoints.metadata),
        route("/v2/health/live", endpoints.live),
        route("/v2/health/ready", endpoints.ready),
        route("/v2/models", endpoints.models),
        route("/v2/models/{model_name}", endpoints.model_metadata),
        route("/v2/models/{model_name}/ready", endpoints.model_ready),
        Route("/metrics", metrics),
    ]
    handlers: dict[Any, Any] = {kind: told for kind, *_ in _ERRORS}
    return Starlette(routes=routes, exception_handlers=handlers)


def serve(
    models: Sequence[Model],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    grpc_port: int = 8001,
    shutdown_seconds: float = 30,
) -> None:
    """Load models and serve them over HTTP and gRPC until Ctrl-C or SIGTERM.

    Then requests are refused (503, UNAVAILABLE), those that were taken have `shutdown_seconds` to be answered, and it
    returns. port, grpc_port: 0 for any that is free. Errors are those of `Model.load`; OSError or RuntimeError for a
    port that is taken.
    """
    for model in models:
        if not model.ready:
            model.load()
    sys.setswitchinterval(_SWITCH_SECONDS)
    logging.getLogger("kserve").setLevel(logging.WARNING)
    work = _served(models, host, port, grpc_port, shutdown_seconds)
    try:
        import uvloop
    except ModuleNotFoundError:  # Windows
        asyncio.run(work)
    else:
        uvloop.run(work)


async def _served(models: Sequence[Model], host: str, port: int, grpc_port: int, shutdown_seconds: float) -> None:
    repository = _Models()
    for model in models:
        repository.update(model)
    plane = _Plane(repository)
    told_host = f"[{host}]" if ":" in host else host
    listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    over_grpc = grpc.aio.server(
        interceptors=(_Interceptor(),), options=[("grpc.max_receive_message_length", LARGEST_REQUEST)]
    )
    servicer = InferenceServicer(plane, ModelRepositoryExtension(repository))
    add_GRPCInferenceServiceServicer_to_server(servicer, over_grpc)
    grpc_port = over_grpc.add_insecure_port(f"{told_host}:{grpc_port}")
    config = uvicorn.Config(
        _Application(plane),
        lifespan="off",
        proxy_headers=False,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=65,  # longer than proxies', as KServe has it
        timeout_graceful_shutdown=max(1, int(shutdown_seconds)),
    )
    http = _HttpServer(config)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await over_grpc.start()
    serving = asyncio.ensure_future(http.serve([listening]))
    port = listening.getsockname()[1]
    names = ", ".join(model.name for model in models)
    print(f"{names}: http://{told_host}:{port}/v2, gRPC at {told_host}:{grpc_port}", flush=True)
    await asyncio.wait((serving, asyncio.ensure_future(stop.wait())), return_when=asyncio.FIRST_COMPLETED)
    draining = asyncio.gather(*(model.drain() for model in models))
    try:
        await asyncio.wait_for(draining, shutdown_seconds)
    except asyncio.TimeoutError:
        logger.warning("requests are left without an answer after %s s", shutdown_seconds)
    http.should_exit = True
    await asyncio.gather(serving, over_grpc.stop(1))
