"""ONNX's operators of classical machine learning: domain ai.onnx.ml."""

NEWEST = 5
"""The newest operator-set version."""

FAMILIES = ("features", "labels", "linear", "maps", "svm", "trees")
"""The modules of this folder, each of which lists its declarations in OPERATORS."""
