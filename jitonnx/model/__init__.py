"""Reading models: bytes to a checked `Graph` whose types are inferred. `load` is the door."""

from jitonnx.model.load import load
from jitonnx.model.types import Declaration, Model

__all__ = ["Declaration", "Model", "load"]
