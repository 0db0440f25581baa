"""A model behind the Open Inference Protocol (V2), over HTTP and gRPC: `jitonnx serve MODEL`.

The protocol is KServe's: its Python runtime reads and answers requests. Ours are the model that it asks (`model`), the
batches that requests of many clients become (`batching`), and a start and an end without a lost request (`server`).
`Model` stands in KServe's own server as well:

    import kserve
    from jitonnx.serving import Model

    model = Model("digits", "digits.onnx")
    model.load()
    kserve.ModelServer().start([model])

Needs the packages of the extra `jitonnx[serving]`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitonnx.serving.model import Model as Model
    from jitonnx.serving.server import serve as serve

_PLACES = {"Model": "jitonnx.serving.model", "serve": "jitonnx.serving.server"}


def __getattr__(name: str) -> Any:  # what batches requests needs no KServe
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
