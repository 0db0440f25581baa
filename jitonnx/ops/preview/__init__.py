"""Operators that ONNX tries out: domain ai.onnx.preview."""

NEWEST = 1
"""The newest operator-set version."""

FAMILIES = {
    "attention": "FlexAttention",
}
"""The modules of this folder, and the names of the operators that each declares, which are those of its classes."""
