"""How the file of a compiled model (an artifact, docs/artifacts.md) begins, and what is said of one given as a model.

An artifact is code. So it is opened on request alone, and whatever reads models knows it by its beginning to say so.
"""

from __future__ import annotations

MAGIC = b"\x89jitonnx\r\n\x1a\n"
"""It shows a file that went through a transfer of text, as PNG's does."""

GIVEN_AS_MODEL = (
    "it is a compiled model of jitonnx (an artifact) and no ONNX model. It holds machine code, which runs on request "
    "alone: if you trust whoever wrote it as you would trust a program, open it with jitonnx.load, or with the session "
    "configuration entry session.load_model_format = 'JITONNX' (commands take --artifact)"
)
"""Why a compiled model is not opened, where a model is expected, and how it is."""


def is_artifact(content: bytes | memoryview) -> bool:
    """Whether a file's content begins as an artifact does."""
    return bytes(content[: len(MAGIC)]) == MAGIC
