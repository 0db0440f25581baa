"""Activation functions: one input, one output of the same shape."""

from __future__ import annotations

import numpy as np

from jitonnx.ir import expr as e
from jitonnx.ir.raw import RawNode
from jitonnx.ops.base import Elementwise


class Relu(Elementwise):
    """max(x, 0); NaN stays NaN."""

    versions = (1, 6, 13, 14)
    inputs = ("X",)
    outputs = ("Y",)

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.drop("consumed_inputs")

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, x.dtype.type(0))

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.maximum(x, 0)


class HardSigmoid(Elementwise):
    """alpha * x + beta, held to [0, 1]."""

    versions = (1, 6, 22)
    inputs = ("X",)
    outputs = ("Y",)

    alpha: float = 0.2
    beta: float = 0.5

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.drop("consumed_inputs")

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        kind = x.dtype.type
        return np.clip(x * kind(self.alpha) + kind(self.beta), kind(0), kind(1))

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.minimum(e.maximum(x * self.alpha + self.beta, 0), 1)


OPERATORS = (HardSigmoid, Relu)
