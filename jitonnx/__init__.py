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
    from jitonnx.api.adapters import AdapterFormat as AdapterFormat
    from jitonnx.api.adapters import LoraAdapter as LoraAdapter
    from jitonnx.api.binding import IOBinding as IOBinding
    from jitonnx.api.binding import SessionIOBinding as SessionIOBinding
    from jitonnx.api.devices import OrtAllocatorType as OrtAllocatorType
    from jitonnx.api.devices import OrtArenaCfg as OrtArenaCfg
    from jitonnx.api.devices import OrtDevice as OrtDevice
    from jitonnx.api.devices import OrtDeviceMemoryType as OrtDeviceMemoryType
    from jitonnx.api.devices import OrtDeviceVendorId as OrtDeviceVendorId
    from jitonnx.api.devices import OrtEpAssignedNode as OrtEpAssignedNode
    from jitonnx.api.devices import OrtEpAssignedSubgraph as OrtEpAssignedSubgraph
    from jitonnx.api.devices import OrtEpDevice as OrtEpDevice
    from jitonnx.api.devices import OrtHardwareDevice as OrtHardwareDevice
    from jitonnx.api.devices import OrtHardwareDeviceType as OrtHardwareDeviceType
    from jitonnx.api.devices import OrtMemoryInfo as OrtMemoryInfo
    from jitonnx.api.devices import OrtMemoryInfoDeviceType as OrtMemoryInfoDeviceType
    from jitonnx.api.devices import OrtMemType as OrtMemType
    from jitonnx.api.devices import create_and_register_allocator as create_and_register_allocator
    from jitonnx.api.devices import create_and_register_allocator_v2 as create_and_register_allocator_v2
    from jitonnx.api.devices import get_ep_devices as get_ep_devices
    from jitonnx.api.enumerations import ExecutionMode as ExecutionMode
    from jitonnx.api.enumerations import ExecutionOrder as ExecutionOrder
    from jitonnx.api.enumerations import GraphOptimizationLevel as GraphOptimizationLevel
    from jitonnx.api.enumerations import OrtExecutionProviderDevicePolicy as OrtExecutionProviderDevicePolicy
    from jitonnx.api.environment import disable_telemetry_events as disable_telemetry_events
    from jitonnx.api.environment import enable_telemetry_events as enable_telemetry_events
    from jitonnx.api.environment import get_all_providers as get_all_providers
    from jitonnx.api.environment import get_available_providers as get_available_providers
    from jitonnx.api.environment import get_build_info as get_build_info
    from jitonnx.api.environment import get_device as get_device
    from jitonnx.api.environment import get_version_string as get_version_string
    from jitonnx.api.environment import has_collective_ops as has_collective_ops
    from jitonnx.api.environment import preload_dlls as preload_dlls
    from jitonnx.api.environment import print_debug_info as print_debug_info
    from jitonnx.api.environment import set_default_logger_verbosity as set_default_logger_verbosity
    from jitonnx.api.environment import set_global_thread_pool_sizes as set_global_thread_pool_sizes
    from jitonnx.api.environment import set_seed as set_seed
    from jitonnx.api.model_compiler import ModelCompiler as ModelCompiler
    from jitonnx.api.model_package import ModelPackage as ModelPackage
    from jitonnx.api.model_package import ModelPackageComponentContext as ModelPackageComponentContext
    from jitonnx.api.model_package import ModelPackageContext as ModelPackageContext
    from jitonnx.api.model_package import ModelPackageOptions as ModelPackageOptions
    from jitonnx.api.model_package import ModelPackageWriteMode as ModelPackageWriteMode
    from jitonnx.api.options import RunOptions as RunOptions
    from jitonnx.api.options import SessionOptions as SessionOptions
    from jitonnx.api.session import InferenceSession as InferenceSession
    from jitonnx.api.session import load as load
    from jitonnx.api.sparse import OrtSparseFormat as OrtSparseFormat
    from jitonnx.api.sparse import SparseTensor as SparseTensor
    from jitonnx.api.training import TrainingSession as TrainingSession
    from jitonnx.api.unsupported import OrtCompileApiFlags as OrtCompileApiFlags
    from jitonnx.api.unsupported import OrtEpContextData as OrtEpContextData
    from jitonnx.api.unsupported import OrtEpContextDataBuffer as OrtEpContextDataBuffer
    from jitonnx.api.unsupported import OrtExternalInitializerInfo as OrtExternalInitializerInfo
    from jitonnx.api.unsupported import OrtSyncStream as OrtSyncStream
    from jitonnx.api.unsupported import register_execution_provider_library as register_execution_provider_library
    from jitonnx.api.unsupported import unregister_execution_provider_library as unregister_execution_provider_library
    from jitonnx.api.values import OrtValue as OrtValue
    from jitonnx.api.values import copy_tensors as copy_tensors
    from jitonnx.compat.alias import install_as_onnxruntime as install_as_onnxruntime
    from jitonnx.custom import register as register
    from jitonnx.errors import Error as Error
    from jitonnx.opsets import register_opset as register_opset
    from jitonnx.support.log import set_default_logger_severity as set_default_logger_severity
    from jitonnx.support.log_callback import set_default_logger_callback as set_default_logger_callback
    from jitonnx.support.metadata import ModelMetadata as ModelMetadata
    from jitonnx.support.metadata import NodeArg as NodeArg

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
    "api.adapters": "AdapterFormat LoraAdapter",
    "api.binding": "IOBinding SessionIOBinding",
    "api.devices": (
        "OrtAllocatorType OrtArenaCfg OrtDevice OrtDeviceMemoryType OrtDeviceVendorId OrtEpAssignedNode "
        "OrtEpAssignedSubgraph OrtEpDevice OrtHardwareDevice OrtHardwareDeviceType OrtMemType OrtMemoryInfo "
        "OrtMemoryInfoDeviceType create_and_register_allocator create_and_register_allocator_v2 get_ep_devices"
    ),
    "api.enumerations": "ExecutionMode ExecutionOrder GraphOptimizationLevel OrtExecutionProviderDevicePolicy",
    "api.environment": (
        "disable_telemetry_events enable_telemetry_events get_all_providers get_available_providers "
        "get_build_info get_device get_version_string has_collective_ops preload_dlls print_debug_info "
        "set_default_logger_verbosity set_global_thread_pool_sizes set_seed"
    ),
    "api.model_compiler": "ModelCompiler",
    "api.model_package": (
        "ModelPackage ModelPackageComponentContext ModelPackageContext ModelPackageOptions ModelPackageWriteMode"
    ),
    "api.options": "RunOptions SessionOptions",
    "api.session": "InferenceSession load",
    "api.sparse": "OrtSparseFormat SparseTensor",
    "api.training": "TrainingSession",
    "api.unsupported": (
        "OrtCompileApiFlags OrtEpContextData OrtEpContextDataBuffer OrtExternalInitializerInfo OrtSyncStream "
        "register_execution_provider_library unregister_execution_provider_library"
    ),
    "api.values": "OrtValue copy_tensors",
    "compat.alias": "install_as_onnxruntime",
    "custom": "register",
    "errors": "Error",
    "opsets": "register_opset",
    "support.log": "set_default_logger_severity",
    "support.log_callback": "set_default_logger_callback",
    "support.metadata": "ModelMetadata NodeArg",
}
"""The public names of each module, which is imported when one of its is first asked for."""
_MODULE_OF = {name: f"jitonnx.{place}" for place, names in _PLACES.items() for name in names.split()}

__all__ = [*_MODULE_OF, "__version__"]

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


def __getattr__(name: str) -> Any:
    if name in ("__version__", "version"):
        value: Any = importlib.import_module("jitonnx.api.environment").get_version_string()
    elif name in _MODULE_OF:
        with importlib.import_module("jitonnx.support.fork_safety").critical:
            value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name in _PARTS or name in SHORT_NAMES:
        with importlib.import_module("jitonnx.support.fork_safety").critical:
            value = importlib.import_module(f"jitonnx.{name}")
    else:
        raise AttributeError(f"module 'jitonnx' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
