"""Names that `driver` asks for, which loads without what writes native code: onnxruntime's C interface."""

C_API = (
    "KernelContext_GetInputCount",
    "KernelContext_GetOutputCount",
    "KernelContext_GetInput",
    "GetTensorMutableData",
    "GetTensorData",
    "GetTensorMemoryInfo",
    "MemoryInfoGetName",
    "GetTensorTypeAndShape",
    "GetTensorElementType",
    "GetDimensionsCount",
    "GetDimensions",
    "GetTensorShapeElementCount",
    "ReleaseTensorTypeAndShapeInfo",
    "GetStringTensorDataLength",
    "GetStringTensorContent",
    "GetStringTensorElementLength",
    "GetStringTensorElement",
)

HANDLES_NAME = "jitonnx_handles"
"""The name by which these know the record `HANDLES`, which `loader.provided` has the address of."""
