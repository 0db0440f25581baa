"""Matrix products with transposes, a factor, and an activation behind them."""

from __future__ import annotations

from typing import ClassVar

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, activated, of_type
from jitonnx.ops.onnx.arithmetic import Mul
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.shape import Transpose
from jitonnx.ops.parts import as_type


class TransposeMatMul(Contributed):
    """alpha times the product of A and B, whose last two axes are exchanged before by transA and transB."""

    alpha: float = 1.0
    transA: bool = False
    transB: bool = False

    batches_inside: ClassVar[tuple[str, str] | None] = None
    """The attributes by which the first axis of A or B is the row, and the batch follows it."""

    def compose(self, parts: Parts, a: Value, b: Value) -> Value:
        moved = [getattr(self, name) for name in self.batches_inside] if self.batches_inside else [False, False]
        a = _turned(parts, a, exchange=self.transA, batch_inside=moved[0])
        b = _turned(parts, b, exchange=self.transB, batch_inside=moved[1])
        product = parts.add(MatMul(), a, b)
        return product if self.alpha == 1 else parts.add(Mul(), product, of_type(parts, self.alpha, product))


class FusedMatMul(TransposeMatMul):
    """TransposeMatMul; with transBatchA and transBatchB the first axis of A and B moves behind those of the batch."""

    transBatchA: bool = False
    transBatchB: bool = False

    batches_inside = ("transBatchA", "transBatchB")


def _turned(parts: Parts, x: Value, *, exchange: bool, batch_inside: bool) -> Value:
    """x with its last two axes exchanged, after its first axis has been moved in front of its last."""
    order = list(range(len(x.shape)))
    if len(order) < 2:
        return x
    if batch_inside:
        order = [*order[1:-1], order[0], order[-1]]
    if exchange:
        order[-2:] = order[:-3:-1]
    return x if order == sorted(order) else parts.add(Transpose(perm=tuple(order)), x)


class FusedGemm(Contributed):
    """Gemm with an activation behind it."""

    activation: str | None = None
    activation_alpha: float | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None
    alpha: float = 1.0
    beta: float = 1.0
    transA: bool = False
    transB: bool = False

    def compose(self, parts: Parts, a: Value, b: Value, c: Value | None = None) -> Value:
        gemm = Gemm(alpha=self.alpha, beta=self.beta, transA=self.transA, transB=self.transB)
        y = parts.add(gemm, a, b, *([] if c is None else [c]))
        if not self.activation:
            return y
        given = [value for value in (self.activation_alpha, self.activation_beta) if value is not None]
        return activated(parts, y, self.activation, given)


class MatMulInteger16(Contributed):
    """The product of matrices of 16-bit integers, in 32 bits."""

    def compose(self, parts: Parts, a: Value, b: Value) -> Value:
        signed = DType.INT16 in (a.dtype, b.dtype)
        wide = DType.INT32 if signed else DType.UINT32
        return parts.add(MatMul(), as_type(parts, a, wide), as_type(parts, b, wide))
