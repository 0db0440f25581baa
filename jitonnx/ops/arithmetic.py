"""Arithmetic on elements: sums, products, powers, comparisons of magnitude."""

from __future__ import annotations

import numpy as np

from jitonnx.ir import expr as e
from jitonnx.ir.raw import RawNode
from jitonnx.ops.base import Elementwise
from jitonnx.ops.shape import Unsqueeze


class _Binary(Elementwise):
    """Two inputs, broadcast. Before version 7 only the second was, and only where an attribute asked for it."""

    inputs = ("A", "B")
    outputs = ("C",)

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.drop("consumed_inputs")
        if node.version < 7:
            align_second_input(node)


def align_second_input(node: RawNode) -> None:
    """Versions before 7 line B's axes up with A's from `axis` on: B gets trailing axes of size 1."""
    asked, axis = node.attributes.pop("broadcast", 0), node.attributes.pop("axis", None)
    a, b = node.inputs
    if not asked or axis is None or a is None or b is None:
        return
    trailing = len(a.shape) - axis % len(a.shape) - len(b.shape)
    if trailing > 0:
        axes = np.arange(len(b.shape), len(b.shape) + trailing)
        node.inputs[1] = node.add(Unsqueeze(), [b, node.add_constant(axes)])


class Add(_Binary):
    """a + b."""

    versions = (1, 6, 7, 13, 14)
    commutative = True
    symbolic = True

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b

    def scalar(self, a: e.Expr, b: e.Expr) -> e.Expr:
        return a + b


OPERATORS = (Add,)
