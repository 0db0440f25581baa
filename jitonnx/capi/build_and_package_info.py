"""As which package code that asks here knows us."""

from jitonnx.api.environment import INTERFACE_VERSION

package_name = "onnxruntime"
__version__ = INTERFACE_VERSION
cuda_version = ""
