"""The ASGI application of an encoder of texts: embeddings as OpenAI has them, or ranks as Cohere and Jina have them.

Requests that come together share a run of the model (`Batcher`).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from jitonnx.genai.embedder import Embedder
from jitonnx.genai.reranker import Reranker
from jitonnx.genai.text_encoder import Encoded
from jitonnx.serve import forms, protocol
from jitonnx.serve.metrics import BatchMetrics
from jitonnx.serve.paths import Paths
from jitonnx.serve.protocol import ApiError
from jitonnx.serving.batching import Batcher, Limits, Refused

_ROWS = 64
"""The most texts of several requests that share a run."""

_TOKENS, _RESULTS = "tokens", "results"


class EncoderService(Paths):
    """One encoder, and what the paths do."""

    def __init__(
        self,
        model: Embedder | Reranker,
        name: str,
        api_key: str | None,
        most_waiting: int,
        max_batch_size: int | None,
    ) -> None:
        self._metrics = BatchMetrics()
        super().__init__(name, api_key, self._metrics)
        self._model = model
        self._limits = Limits(max_batch_size or _ROWS, most_waiting=most_waiting)
        self._batcher: Batcher | None = None

    def application(self) -> Starlette:
        """The ASGI application."""
        if isinstance(self._model, Embedder):
            routes = [Route("/v1/embeddings", self.embed, methods=["POST"])]
        else:
            paths = ("/v1/rerank", "/v2/rerank", "/rerank")
            routes = [Route(path, self.rerank, methods=["POST"]) for path in paths]
        return self.starlette([*routes, Route("/health", self.health)], self.lifespan)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Answers what was taken before the server ends."""
        self._batcher = Batcher(self._run, self._limits, self._metrics.batches)
        try:
            yield
        finally:
            await self._batcher.drain()

    async def health(self, _: Request) -> Response:
        """GET /health."""
        return JSONResponse({"status": "ok"})

    async def embed(self, request: Request) -> Response:
        """POST /v1/embeddings."""
        return await self.counted(request, self._embedded(request))

    async def rerank(self, request: Request) -> Response:
        """POST /v1/rerank."""
        return await self.counted(request, self._reranked(request))

    async def _embedded(self, request: Request) -> Response:
        body = await self.body(request)
        body.check_names(["input", "encoding_format", "dimensions"])
        given = body.needed("input", (str, list), "a text, or a list of texts,")
        texts = _texts([given] if isinstance(given, str) else given, "input")
        encoding = protocol.read_encoding(body)
        assert isinstance(self._model, Embedder)
        encoded = self._model.encode(texts)
        return JSONResponse(forms.embeddings(await self._results(encoded), encoding, self.name, _count(encoded)))

    async def _reranked(self, request: Request) -> Response:
        body = await self.body(request)
        body.check_names(["query", "documents", "top_n", "return_documents"])
        query = body.needed("query", str, "a text")
        given = body.needed("documents", list, "a list of texts, or of objects with a text,")
        texts = _texts([one.get("text") if isinstance(one, dict) else one for one in given], "documents")
        most = body.get("top_n", int, "a whole number")
        if most is not None and most < 1:
            raise ApiError(400, f"top_n is {most}: 1 or more is needed", param="top_n")
        shows = body.get("return_documents", bool, "true or false")
        encoded = self._model.encoder.encode([(query, text) for text in texts])
        scores = await self._results(encoded)
        order = np.argsort(-scores, kind="stable")[:most].tolist()
        results = [
            {
                "index": index,
                "relevance_score": float(scores[index]),
                **({"document": {"text": texts[index]}} if shows else {}),
            }
            for index in order
        ]
        usage = {"total_tokens": _count(encoded)}
        return JSONResponse({"model": self.name, "results": results, "usage": usage})

    async def _results(self, encoded: Sequence[Encoded]) -> np.ndarray:
        """A vector, or a score, of each text. ApiError: 429 while too many wait, 503 at the server's end."""
        rows = np.empty(len(encoded), object)
        for place, one in enumerate(encoded):
            rows[place] = one
        assert self._batcher is not None
        try:
            made = await self._batcher.submit({_TOKENS: rows})
        except Refused as error:
            raise ApiError(429, str(error), code="overloaded") from error
        self._metrics.tokens.inc(_count(encoded))
        return made[_RESULTS]

    def _run(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        encoded, model = list(arrays[_TOKENS]), self._model
        made = model.embed_tokens(encoded) if isinstance(model, Embedder) else model.score_tokens(encoded)
        return {_RESULTS: made}


def _texts(given: Sequence[Any], name: str) -> list[str]:
    """Texts. ApiError (400) for none, and for anything else."""
    if not given or not all(isinstance(one, str) for one in given):
        raise ApiError(400, f"{name} has {len(given)} entries: texts alone, one at least, are needed", param=name)
    return list(given)


def _count(encoded: Sequence[Encoded]) -> int:
    return sum(len(one.ids) for one in encoded)
