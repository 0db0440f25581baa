"""ONNX's backend interface: `prepare(model).run(inputs)`, under the names of `onnxruntime.backend`."""

from jitonnx.compat.backend.backend import OnnxRuntimeBackend

is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device

__all__ = ["is_compatible", "prepare", "run", "supports_device"]
