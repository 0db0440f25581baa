"""Operators of training: domain ai.onnx.preview.training."""

NEWEST = 1
"""The newest operator-set version."""

FAMILIES = ("optimizers",)
"""The modules of this folder, each of which lists its declarations in OPERATORS."""
