"""ONNX's backend interface: `prepare(model).run(inputs)`, under the names of `onnxruntime.backend`."""

from jitonnx.compat.backend.backend import is_compatible, prepare, run, supports_device

__all__ = ["is_compatible", "prepare", "run", "supports_device"]
