"""The module in which onnxruntime has its sessions and values."""

from jitonnx.api.adapters import AdapterFormat as AdapterFormat
from jitonnx.api.binding import IOBinding as IOBinding
from jitonnx.api.devices import OrtDevice as OrtDevice
from jitonnx.api.devices import OrtDeviceVendorId as OrtDeviceVendorId
from jitonnx.api.devices import get_ort_device_type as get_ort_device_type
from jitonnx.api.devices import get_vendor_id_for_device_type as get_vendor_id_for_device_type
from jitonnx.api.model_compiler import Locate as _Locate
from jitonnx.api.model_compiler import ModelCompiler as ModelCompiler
from jitonnx.api.model_compiler import (
    make_get_initializer_location_func_wrapper as make_get_initializer_location_func_wrapper,
)
from jitonnx.api.providers import check_and_normalize_provider_args as check_and_normalize_provider_args
from jitonnx.api.session import InferenceSession as InferenceSession
from jitonnx.api.session_base import Session as Session
from jitonnx.api.sparse import SparseTensor as SparseTensor
from jitonnx.api.values import OrtValue as OrtValue
from jitonnx.api.values import copy_tensors as copy_tensors
from jitonnx.compat.capi import _pybind_state

GetInitializerLocationFunc = GetInitializerLocationWrapperFunc = _Locate
C = _pybind_state
