"""A language model behind OpenAI's interface over HTTP: `jitonnx serve FOLDER`.

`application` makes an ASGI application of a `LanguageModel` (`asgi`), `serve` runs it by uvicorn. One thread makes the
steps of an `Engine` for all requests (`worker`); `protocol` says what bodies mean and what answers look like.

Needs the packages of the extra `jitonnx[serve]`.
"""

from jitonnx.serve.server import application, serve

__all__ = ["application", "serve"]
