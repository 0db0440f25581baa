"""`CompiledModel`: what explains, saves and measures a model is given of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.api.description import ModelDescription
    from jitonnx.api.saved.engine import SavedEngine
    from jitonnx.engine.pipeline import Engine


class CompiledModel(NamedTuple):
    """A model, described, and the engine that runs it: what a session holds, without the session."""

    title: str
    """What to call it: its file's name, else its graph's."""
    description: ModelDescription
    engine: Engine | SavedEngine
