"""Operators that ONNX tries out: domain ai.onnx.preview."""

NEWEST = 1
"""The newest operator-set version."""

FAMILIES = ("attention",)
"""The modules of this folder, each of which lists its declarations in OPERATORS."""
