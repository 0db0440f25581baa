"""Reading models: bytes to a checked `Graph` whose types are inferred. `load` is the door."""

from jitonnx.ir.declaration import Declaration
from jitonnx.model.load import load
from jitonnx.model.types import Model

__all__ = ["Declaration", "Model", "load"]
