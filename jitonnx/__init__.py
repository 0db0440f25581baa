"""jitonnx runs ONNX models on CPUs: it compiles each model to native code through LLVM.

    import jitonnx

    session = jitonnx.InferenceSession("model.onnx")
    outputs = session.run(None, {"input": array})

The interface is onnxruntime's. Names are imported when they are first used, so `import jitonnx` costs next to nothing.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitonnx.api.adapters import AdapterFormat, LoraAdapter
    from jitonnx.api.binding import (
        IOBinding,
        SessionIOBinding,
    )
    from jitonnx.api.devices import (
        OrtAllocatorType,
        OrtArenaCfg,
        OrtDevice,
        OrtDeviceMemoryType,
        OrtDeviceVendorId,
        OrtEpAssignedNode,
        OrtEpAssignedSubgraph,
        OrtEpDevice,
        OrtHardwareDevice,
        OrtHardwareDeviceType,
        OrtMemoryInfo,
        OrtMemoryInfoDeviceType,
        OrtMemType,
        create_and_register_allocator,
        create_and_register_allocator_v2,
        get_ep_devices,
    )
    from jitonnx.api.enumerations import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        OrtExecutionProviderDevicePolicy,
    )
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
        print_debug_info,
        set_default_logger_verbosity,
        set_global_thread_pool_sizes,
        set_seed,
    )
    from jitonnx.api.model_compiler import (
        ModelCompiler,
    )
    from jitonnx.api.model_package import (
        ModelPackage,
        ModelPackageComponentContext,
        ModelPackageContext,
        ModelPackageOptions,
        ModelPackageWriteMode,
    )
    from jitonnx.api.options import (
        RunOptions,
        SessionOptions,
    )
    from jitonnx.api.session import (
        InferenceSession,
        load,
    )
    from jitonnx.api.sparse import (
        OrtSparseFormat,
        SparseTensor,
    )
    from jitonnx.api.training import (
        TrainingSession,
    )
    from jitonnx.api.unsupported import (
        OrtCompileApiFlags,
        OrtEpContextData,
        OrtEpContextDataBuffer,
        OrtExternalInitializerInfo,
        OrtSyncStream,
        register_execution_provider_library,
        unregister_execution_provider_library,
    )
    from jitonnx.api.values import (
        OrtValue,
        copy_tensors,
    )
    from jitonnx.compat.alias import (
        install_as_onnxruntime,
    )
    from jitonnx.custom import (
        register,
    )
    from jitonnx.errors import (
        Error,
    )
    from jitonnx.opsets import (
        register_opset,
    )
    from jitonnx.support.log import (
        set_default_logger_severity,
    )
    from jitonnx.support.log_callback import (
        set_default_logger_callback,
    )
    from jitonnx.support.metadata import (
        ModelMetadata,
        NodeArg,
    )

    __version__: str
    version: str

package_name = "jitonnx"
cuda_version = ""
import_capi_exception = None

_FOLDER = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(_FOLDER, "kernels")):
    # In a clone `kernels/` and `proto/` stand beside this folder; installing maps them into it (setup.py).
    __path__.append(os.path.dirname(_FOLDER))

_PLACES = {
    "register": "custom",
    "register_opset": "opsets",
    "InferenceSession": "api.session",
    "load": "api.session",
    "TrainingSession": "api.training",
    "Error": "errors",
    "ModelMetadata": "support.metadata",
    "NodeArg": "support.metadata",
    "set_default_logger_callback": "support.log_callback",
    "set_default_logger_severity": "support.log",
    "install_as_onnxruntime": "compat.alias",
    "RunOptions": "api.options",
    "SessionOptions": "api.options",
    "ExecutionMode": "api.enumerations",
    "ExecutionOrder": "api.enumerations",
    "GraphOptimizationLevel": "api.enumerations",
    "OrtExecutionProviderDevicePolicy": "api.enumerations",
    "OrtValue": "api.values",
    "copy_tensors": "api.values",
    "IOBinding": "api.binding",
    "SessionIOBinding": "api.binding",
    "OrtSparseFormat": "api.sparse",
    "SparseTensor": "api.sparse",
    "OrtAllocatorType": "api.devices",
    "OrtArenaCfg": "api.devices",
    "OrtDevice": "api.devices",
    "OrtDeviceMemoryType": "api.devices",
    "OrtDeviceVendorId": "api.devices",
    "OrtEpDevice": "api.devices",
    "OrtHardwareDevice": "api.devices",
    "OrtHardwareDeviceType": "api.devices",
    "OrtMemType": "api.devices",
    "OrtMemoryInfo": "api.devices",
    "OrtMemoryInfoDeviceType": "api.devices",
    "create_and_register_allocator": "api.devices",
    "create_and_register_allocator_v2": "api.devices",
    "get_ep_devices": "api.devices",
    "AdapterFormat": "api.adapters",
    "LoraAdapter": "api.adapters",
    "ModelCompiler": "api.model_compiler",
    "ModelPackage": "api.model_package",
    "ModelPackageComponentContext": "api.model_package",
    "ModelPackageContext": "api.model_package",
    "ModelPackageOptions": "api.model_package",
    "ModelPackageWriteMode": "api.model_package",
    "OrtCompileApiFlags": "api.unsupported",
    "OrtEpAssignedNode": "api.devices",
    "OrtEpAssignedSubgraph": "api.devices",
    "OrtEpContextData": "api.unsupported",
    "OrtEpContextDataBuffer": "api.unsupported",
    "OrtExternalInitializerInfo": "api.unsupported",
    "OrtSyncStream": "api.unsupported",
    "register_execution_provider_library": "api.unsupported",
    "unregister_execution_provider_library": "api.unsupported",
    "disable_telemetry_events": "api.environment",
    "enable_telemetry_events": "api.environment",
    "get_all_providers": "api.environment",
    "get_available_providers": "api.environment",
    "get_build_info": "api.environment",
    "get_device": "api.environment",
    "get_version_string": "api.environment",
    "has_collective_ops": "api.environment",
    "preload_dlls": "api.environment",
    "print_debug_info": "api.environment",
    "set_default_logger_verbosity": "api.environment",
    "set_global_thread_pool_sizes": "api.environment",
    "set_seed": "api.environment",
}
"""The module of each public name."""

_PARTS = ("api", "custom", "errors", "numba", "opsets", "versioning")
"""Modules that code reaches through the package without importing them."""

SHORT_NAMES = {
    "backend": "jitonnx.compat.backend",
    "capi": "jitonnx.compat.capi",
    "changes": "jitonnx.tools.changes",
    "checker": "jitonnx.model.checker",
    "explain": "jitonnx.tools.explain",
    "info": "jitonnx.tools.info",
    "interpreter": "jitonnx.engine.interpreter",
    "onnxruntime_validation": "jitonnx.compat.capi.onnxruntime_validation",
    "session": "jitonnx.api.session",
    "training": "jitonnx.api.training",
}
"""Names below the package under which users import modules and packages of its rooms, and where these are."""


class _ShortNames:
    """Finds `jitonnx.capi` and the like, and what is below them: the very modules of their rooms."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> Any:
        package, _, short = name.partition(".")
        if package != "jitonnx" or (first := short.partition(".")[0]) not in SHORT_NAMES:
            return None
        from jitonnx.support.module_names import spec_of

        return spec_of(name, SHORT_NAMES[first] + short.removeprefix(first))


sys.meta_path.insert(0, _ShortNames)

__all__ = [
    "AdapterFormat",
    "Error",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "ModelPackageWriteMode",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "TrainingSession",
    "__version__",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "install_as_onnxruntime",
    "load",
    "preload_dlls",
    "print_debug_info",
    "register",
    "register_execution_provider_library",
    "register_opset",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]


def __getattr__(name: str) -> Any:
    if name in ("__version__", "version"):
        value: Any = importlib.import_module("jitonnx.api.environment").get_version_string()
    elif name in _PLACES:
        with importlib.import_module("jitonnx.support.fork_safety").critical:
            value = getattr(importlib.import_module(f"jitonnx.{_PLACES[name]}"), name)
    elif name in _PARTS or name in SHORT_NAMES:
        with importlib.import_module("jitonnx.support.fork_safety").critical:
            value = importlib.import_module(f"jitonnx.{name}")
    else:
        raise AttributeError(f"module 'jitonnx' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
