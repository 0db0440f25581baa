"""The application of a model, and a server that runs it until it is told to end."""

from __future__ import annotations

import os
from typing import Any

from jitonnx.errors import InvalidArgument
from jitonnx.genai import Embedder, LanguageModel, Reranker, load
from jitonnx.genai.config import FILE, read_object
from jitonnx.genai.extras import needed

_PACKAGES = ("starlette", "uvicorn", "prometheus_client")


def application(
    model: LanguageModel | Embedder | Reranker,
    *,
    name: str,
    api_key: str | None = None,
    most_waiting: int = 256,
    max_batch_size: int | None = None,
) -> Any:
    """The ASGI application of one model.

    name: what clients call the model. api_key: what they have to bring along (default: nothing). most_waiting: answers
    beside those that are worked on; others are refused (429). max_batch_size: as `Engine` takes it; of an encoder, the
    texts of a run.

    NotImplemented for models that an `Engine` is not for; ImportError without the packages of `jitonnx[serve]`.
    """
    for package in _PACKAGES:
        needed(package, "a server", extra="serve")
    if isinstance(model, LanguageModel) and model.is_speech:
        from jitonnx.serve.transcriptions import TranscriptionService

        needed("python_multipart", "a server of transcripts", extra="serve")
        return TranscriptionService(model, name, api_key, most_waiting).application()
    if isinstance(model, LanguageModel):
        from jitonnx.serve.asgi import Service

        return Service(model, name, api_key, most_waiting, max_batch_size).application()
    from jitonnx.serve.encoders import EncoderService

    return EncoderService(model, name, api_key, most_waiting, max_batch_size).application()


def loaded(
    folder: str | os.PathLike[str], threads: int | None, cache_type: str | None
) -> LanguageModel | Embedder | Reranker:
    """The model of a folder: a language model's where it has genai_config.json, one of speech (Whisper), or an
    encoder's; one that classifies texts, as its config.json says, ranks them."""
    place = os.path.join(folder, "config.json")
    if os.path.isfile(os.path.join(folder, FILE)) or not os.path.isfile(place):
        return load(folder, threads=threads, cache_type=cache_type)
    if cache_type is not None:
        raise InvalidArgument(f"the type of caches is one of language models, and {folder} has no {FILE}")
    told = read_object(place)
    if told.get("is_encoder_decoder"):
        return load(folder, threads=threads)
    if any("ForSequenceClassification" in str(one) for one in told.get("architectures") or ()):
        return Reranker(folder, threads=threads)
    return Embedder(folder, threads=threads)


def serve(
    folder: str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str | None = None,
    threads: int | None = None,
    cache_type: str | None = None,
    shutdown_seconds: int = 30,
    **options: Any,
) -> None:
    """Serve a folder's model, a language model or an encoder of texts, until Ctrl-C or SIGTERM; then answers that are
    worked on have some seconds to end.

    name: what clients call the model (default: the folder's name). threads, cache_type: as `load` takes them. options:
    of `application`. Errors are as those of `load` and `application`.
    """
    uvicorn = needed("uvicorn", "a server", extra="serve")
    model = loaded(folder, threads, cache_type)
    made = application(model, name=name or os.path.basename(os.path.abspath(folder)), **options)
    uvicorn.run(made, host=host, port=port, timeout_graceful_shutdown=shutdown_seconds)
