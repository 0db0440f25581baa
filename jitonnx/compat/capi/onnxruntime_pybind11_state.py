"""The names of onnxruntime's extension module: its errors, types, and functions about the installation.

Its inner classes `InferenceSession` and `SessionIOBinding` are not those of the package, and have other arguments.
"""

from types import ModuleType as _ModuleType

from jitonnx.api.adapters import AdapterFormat as AdapterFormat
from jitonnx.api.adapters import LoraAdapter as LoraAdapter
from jitonnx.api.binding import SessionIOBinding as SessionIOBinding
from jitonnx.api.block_quantization import pack_fp4_weights_for_cuda_moe_gemm as pack_fp4_weights_for_cuda_moe_gemm
from jitonnx.api.block_quantization import quantize_matmul_2bits as quantize_matmul_2bits
from jitonnx.api.block_quantization import quantize_matmul_4bits as quantize_matmul_4bits
from jitonnx.api.block_quantization import quantize_matmul_8bits as quantize_matmul_8bits
from jitonnx.api.block_quantization import quantize_matmul_bnb4 as quantize_matmul_bnb4
from jitonnx.api.block_quantization import quantize_qdq_matmul_2bits as quantize_qdq_matmul_2bits
from jitonnx.api.block_quantization import quantize_qdq_matmul_4bits as quantize_qdq_matmul_4bits
from jitonnx.api.devices import ArenaExtendStrategy as ArenaExtendStrategy
from jitonnx.api.devices import OrtAllocatorType as OrtAllocatorType
from jitonnx.api.devices import OrtArenaCfg as OrtArenaCfg
from jitonnx.api.devices import OrtDevice as OrtDevice
from jitonnx.api.devices import OrtDeviceMemoryType as OrtDeviceMemoryType
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
from jitonnx.api.devices import get_hardware_devices as get_hardware_devices
from jitonnx.api.dlpack import is_uint8 as _is_uint8
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
from jitonnx.api.environment import has_collective_ops as has_collective_ops
from jitonnx.api.environment import interface_version as _interface_version
from jitonnx.api.environment import set_default_logger_verbosity as set_default_logger_verbosity
from jitonnx.api.environment import set_global_thread_pool_sizes as set_global_thread_pool_sizes
from jitonnx.api.environment import set_seed as set_seed
from jitonnx.api.inner_session import InnerSession as _InnerSession
from jitonnx.api.model_compiler import ModelCompiler as ModelCompiler
from jitonnx.api.model_package import ModelPackage as ModelPackage
from jitonnx.api.model_package import ModelPackageComponentContext as ModelPackageComponentContext
from jitonnx.api.model_package import ModelPackageContext as ModelPackageContext
from jitonnx.api.model_package import ModelPackageOptions as ModelPackageOptions
from jitonnx.api.model_package import ModelPackageWriteMode as ModelPackageWriteMode
from jitonnx.api.operator_schemas import KernelDef as _KernelDef
from jitonnx.api.operator_schemas import OpSchema as _OpSchema
from jitonnx.api.operator_schemas import get_all_operator_schema as get_all_operator_schema
from jitonnx.api.operator_schemas import get_all_opkernel_def as get_all_opkernel_def
from jitonnx.api.operator_schemas import get_registered_ep_kernel_defs as get_registered_ep_kernel_defs
from jitonnx.api.options import RunOptions as RunOptions
from jitonnx.api.options import SessionOptions as SessionOptions
from jitonnx.api.sparse import OrtSparseFormat as OrtSparseFormat
from jitonnx.api.sparse import SparseBlockSparseView as SparseBlockSparseView
from jitonnx.api.sparse import SparseCooView as SparseCooView
from jitonnx.api.sparse import SparseCsrView as SparseCsrView
from jitonnx.api.sparse import SparseTensor as SparseTensor
from jitonnx.api.unsupported import OrtCompileApiFlags as OrtCompileApiFlags
from jitonnx.api.unsupported import OrtCompiledModelCompatibility as OrtCompiledModelCompatibility
from jitonnx.api.unsupported import OrtDeviceEpIncompatibilityReason as OrtDeviceEpIncompatibilityReason
from jitonnx.api.unsupported import OrtEpContextData as OrtEpContextData
from jitonnx.api.unsupported import OrtEpContextDataBuffer as OrtEpContextDataBuffer
from jitonnx.api.unsupported import OrtExternalInitializerInfo as OrtExternalInitializerInfo
from jitonnx.api.unsupported import OrtSyncStream as OrtSyncStream
from jitonnx.api.unsupported import SessionObjectInitializer as SessionObjectInitializer
from jitonnx.api.unsupported import get_compatibility_info_from_model as get_compatibility_info_from_model
from jitonnx.api.unsupported import get_compatibility_info_from_model_bytes as get_compatibility_info_from_model_bytes
from jitonnx.api.unsupported import (
    get_hardware_device_ep_incompatibility_details as get_hardware_device_ep_incompatibility_details,
)
from jitonnx.api.unsupported import get_model_compatibility_for_ep_devices as get_model_compatibility_for_ep_devices
from jitonnx.api.unsupported import get_session_initializer as get_session_initializer
from jitonnx.api.unsupported import register_execution_provider_library as register_execution_provider_library
from jitonnx.api.unsupported import unregister_execution_provider_library as unregister_execution_provider_library
from jitonnx.api.values import OrtValue as OrtValue
from jitonnx.api.values import OrtValueVector as OrtValueVector
from jitonnx.api.values import copy_tensors as copy_tensors
from jitonnx.errors import DeviceReset as DeviceReset
from jitonnx.errors import EngineError as EngineError
from jitonnx.errors import EPFail as EPFail
from jitonnx.errors import Fail as Fail
from jitonnx.errors import InvalidArgument as InvalidArgument
from jitonnx.errors import InvalidGraph as InvalidGraph
from jitonnx.errors import InvalidProtobuf as InvalidProtobuf
from jitonnx.errors import ModelLoadCanceled as ModelLoadCanceled
from jitonnx.errors import ModelLoaded as ModelLoaded
from jitonnx.errors import ModelRequiresCompilation as ModelRequiresCompilation
from jitonnx.errors import NoModel as NoModel
from jitonnx.errors import NoSuchFile as NoSuchFile
from jitonnx.errors import NotFound as NotFound
from jitonnx.errors import NotImplemented as NotImplemented
from jitonnx.errors import RuntimeException as RuntimeException
from jitonnx.support.log import set_default_logger_severity as set_default_logger_severity
from jitonnx.support.log_callback import set_default_logger_callback as set_default_logger_callback
from jitonnx.support.metadata import ModelMetadata as ModelMetadata
from jitonnx.support.metadata import NodeArg as NodeArg

InferenceSession = _InnerSession
get_version_string = _interface_version
is_dlpack_uint8_tensor = _is_uint8
kNextPowerOfTwo = ArenaExtendStrategy.kNextPowerOfTwo
kSameAsRequested = ArenaExtendStrategy.kSameAsRequested
schemadef = _ModuleType(f"{__name__}.schemadef", "The class of what `get_all_operator_schema` gives.")
vars(schemadef).update(OpSchema=_OpSchema)
opkernel = _ModuleType(f"{__name__}.opkernel", "The class of what `get_all_opkernel_def` gives.")
vars(opkernel).update(KernelDef=_KernelDef)


def get_default_session_options() -> SessionOptions:
    """Options of which nothing is set."""
    return SessionOptions()
