"""ONNX's operators of classical machine learning: domain ai.onnx.ml."""

NEWEST = 5
"""The newest operator-set version."""

FAMILIES: tuple[str, ...] = ()
"""The modules of this folder, each of which lists its declarations in OPERATORS."""
