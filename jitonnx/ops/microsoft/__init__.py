"""Operators that onnxruntime has beside ONNX's, its contributed ones: domain com.microsoft."""

NEWEST = 1
"""The newest operator-set version."""

FAMILIES = (
    "activation",
    "attention",
    "convolution",
    "matmul",
    "nbits",
    "normalization",
    "quantization",
    "recurrent",
    "text",
)
"""The modules of this folder, each of which lists its declarations in OPERATORS."""
