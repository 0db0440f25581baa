"""Operators of training: domain ai.onnx.preview.training."""

NEWEST = 1
"""The newest operator-set version."""

FAMILIES = {
    "optimizers": "Adagrad Adam Momentum",
}
"""The modules of this folder, and the names of the operators that each declares, which are those of its classes."""
