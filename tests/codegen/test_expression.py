"""Scalar expressions in the order in which they are compiled."""

from __future__ import annotations

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType


def test_sums_and_products_have_one_order() -> None:
    a, b = e.operand(0, DType.FLOAT), e.operand(1, DType.FLOAT)
    assert e.ordered(e.maximum(b + a, 0.0)) is e.ordered(e.maximum(a + b, 0.0))
    assert e.ordered(2.0 * b * a) is a * (b * 2.0)
    assert e.ordered(b - a) is b - a
    left, right = e.exp(a), e.exp(b)
    assert e.ordered(right * left) is right * left, "what is computed stays where it is: it may be fused with a sum"
