"""jitonnx runs ONNX models on CPUs: it compiles each model to native code through Numba and llvmlite.

    import jitonnx

    session = jitonnx.InferenceSession("model.onnx")
    outputs = session.run(None, {"input": array})

The interface is onnxruntime's. Names are imported when they are first used, so `import jitonnx` costs next to nothing.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitonnx.api.environment import (
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_build_info,
        get_device,
        get_version_string,
        has_collective_ops,
        preload_dlls,
    )
    from jitonnx.api.options import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        OrtExecutionProviderDevicePolicy,
        RunOptions,
        SessionOptions,
    )
    from jitonnx.errors import Error
    from jitonnx.log import set_default_logger_severity
    from jitonnx.metadata import ModelMetadata, NodeArg
    from jitonnx.session import InferenceSession

    __version__: str

_FOLDER = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(_FOLDER, "kernels")):
    # In a clone `kernels/` and `proto/` stand beside this folder; installing maps them into it (setup.py).
    __path__.append(os.path.dirname(_FOLDER))

_PLACES = {
    "InferenceSession": "session",
    "SessionOptions": "api.options",
    "RunOptions": "api.options",
    "GraphOptimizationLevel": "api.options",
    "ExecutionMode": "api.options",
    "ExecutionOrder": "api.options",
    "OrtExecutionProviderDevicePolicy": "api.options",
    "NodeArg": "metadata",
    "ModelMetadata": "metadata",
    "Error": "errors",
    "get_available_providers": "api.environment",
    "get_all_providers": "api.environment",
    "get_device": "api.environment",
    "get_version_string": "api.environment",
    "get_build_info": "api.environment",
    "enable_telemetry_events": "api.environment",
    "disable_telemetry_events": "api.environment",
    "preload_dlls": "api.environment",
    "has_collective_ops": "api.environment",
    "set_default_logger_severity": "log",
}
"""The module of each public name."""

__all__ = [
    "Error",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtExecutionProviderDevicePolicy",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "set_default_logger_severity",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = importlib.import_module("jitonnx.api.environment").get_version_string()
    elif name in _PLACES:
        value = getattr(importlib.import_module(f"jitonnx.{_PLACES[name]}"), name)
    else:
        raise AttributeError(f"module 'jitonnx' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
