"""The names of onnxruntime's extension module, under the name by which its own package imports them."""

from jitonnx.compat.capi import _ld_preload as _ld_preload
from jitonnx.compat.capi.onnxruntime_pybind11_state import *  # noqa: F403
