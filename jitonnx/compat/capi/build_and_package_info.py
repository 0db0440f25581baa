"""Tells code that asks here which package we are known as."""

from jitonnx.api.environment import INTERFACE_VERSION

package_name = "onnxruntime"
__version__ = INTERFACE_VERSION
cuda_version = ""
