"""The module in which onnxruntime has its sessions and values."""

from jitonnx.api.adapters import AdapterFormat
from jitonnx.api.binding import IOBinding
from jitonnx.api.devices import OrtDevice, OrtDeviceVendorId, get_ort_device_type
from jitonnx.api.model_compiler import ModelCompiler
from jitonnx.api.providers import check_and_normalize_provider_args
from jitonnx.api.session import InferenceSession
from jitonnx.api.session_base import Session
from jitonnx.api.sparse import SparseTensor
from jitonnx.api.values import OrtValue, copy_tensors
from jitonnx.compat.capi import _pybind_state as C

__all__ = [
    "AdapterFormat",
    "C",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "Session",
    "SparseTensor",
    "check_and_normalize_provider_args",
    "copy_tensors",
    "get_ort_device_type",
]
