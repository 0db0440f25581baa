"""The package that we are known as, for code that asks here."""

from jitonnx.api.environment import INTERFACE_VERSION

package_name = "onnxruntime"
__version__ = INTERFACE_VERSION
cuda_version = ""
