"""Quantised numbers beside ONNX's own: sums, products, poolings and activations of 8-bit integers.

An element-wise operator dequantises its inputs, computes in float32 and quantises the result. Products of matrices are
exact sums of integers, scaled afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError, shared_attributes
from jitonnx.ir.types import Shape
from jitonnx.ops.composite import Parts
from jitonnx.ops.fused import Pointwise
from jitonnx.ops.microsoft.base import Contributed, of_type
from jitonnx.ops.onnx.activation import LeakyRelu, Sigmoid
from jitonnx.ops.onnx.arithmetic import Add, Div, Mul, Sub
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.convolution import ConvolutionAttributes
from jitonnx.ops.onnx.logic import Where
from jitonnx.ops.onnx.pooling import AveragePool, GlobalAveragePool
from jitonnx.ops.onnx.quantization import DequantizeLinear as _DequantizeLinear
from jitonnx.ops.onnx.quantization import DynamicQuantizeLinear, MatMulInteger
from jitonnx.ops.onnx.quantization import QLinearConv as _QLinearConv
from jitonnx.ops.onnx.quantization import QuantizeLinear as _QuantizeLinear
from jitonnx.ops.onnx.shape import Reshape, Transpose
from jitonnx.ops.onnx.softmax import Softmax

_FLOAT = Cast(to=int(DType.FLOAT))


class QuantizeLinear(Contributed):
    """ONNX's QuantizeLinear, here also for integers of 16 and 4 bits."""

    axis: int | None = None

    def compose(self, parts: Parts, x: Value, scale: Value, zero: Value | None = None) -> Value:
        return parts.add(_QuantizeLinear(axis=1 if self.axis is None else self.axis), *_present(x, scale, zero))


class DequantizeLinear(Contributed):
    """ONNX's DequantizeLinear, here also for integers of 16 and 4 bits."""

    axis: int | None = None

    def compose(self, parts: Parts, x: Value, scale: Value, zero: Value | None = None) -> Value:
        return parts.add(_DequantizeLinear(axis=1 if self.axis is None else self.axis), *_present(x, scale, zero))


# ---------------------------------------------------------------- element by element


class _Pair(Contributed):
    """Takes two tensors, broadcast. As in onnxruntime factors of all scales are worked out first, and the zero point
    is added before the result is rounded, which tells where it lies half way between two integers. A zero point that is
    absent is 0."""

    def compose(self, parts: Parts, a: Value, a_scale: Value, a_zero: Value | None, b: Value, *others: Any) -> Value:
        b_scale, b_zero, c_scale, c_zero = (*others, None)[:4]
        scales = [_single(parts, scale) for scale in (a_scale, b_scale, c_scale)]
        zeros = [
            parts.constant(np.float32(0)) if zero is None else _float(parts, zero) for zero in (a_zero, b_zero, c_zero)
        ]
        result = self._combined(parts, parts.add(_FLOAT, a), parts.add(_FLOAT, b), scales, zeros)
        return parts.add(_QuantizeLinear(), result, parts.constant(np.float32(1)), _zero(parts, a.dtype))

    def _combined(self, parts: Parts, a: Value, b: Value, scales: Sequence[Value], zeros: Sequence[Value]) -> Value:
        """The result in float32, before it is rounded. scales, zeros: of a, b and the result."""
        raise NotImplementedError


_NUMBERS = tuple(e.operand(position, DType.FLOAT) for position in range(5))
_FIXED = Pointwise(expression=_NUMBERS[4] - e.fma(_NUMBERS[0], _NUMBERS[1], _NUMBERS[2] * _NUMBERS[3]))
"""The fifth operand, less the sum of the products of the first two and of the next two."""
_SCALED_SUM = Pointwise(expression=e.fma(_NUMBERS[0], _NUMBERS[2], e.fma(_NUMBERS[1], _NUMBERS[3], _NUMBERS[4])))
"""The first operand times the third, the second times the fourth, and the fifth."""


class QLinearAdd(_Pair):
    """A + B: a multiply-add each, B first, as in onnxruntime's kernel for AVX2 (MLAS, qladd_avx2.cpp), which takes an
    operand that is one number along the rows of the other as B."""

    def _combined(self, parts: Parts, a: Value, b: Value, scales: Sequence[Value], zeros: Sequence[Value]) -> Value:
        factors = [parts.add(Div(), scale, scales[2]) for scale in scales[:2]]
        terms = list(zip((a, b), factors, zeros, strict=False))
        if _is_one_along_rows(a.shape, b.shape):
            terms.reverse()
        (a, by_a, a_zero), (b, by_b, b_zero) = terms
        fixed = parts.add(_FIXED, by_a, a_zero, by_b, b_zero, zeros[2])
        return parts.add(_SCALED_SUM, a, b, by_a, by_b, fixed)


def _is_one_along_rows(a: Shape, b: Shape) -> bool:
    """Whether, of operands that are broadcast, a has one element along the innermost axis where either has more."""
    for x, y in itertools.zip_longest(reversed(a), reversed(b), fillvalue=1):
        if x != 1 or y != 1:
            return x == 1
    return False


class QLinearMul(_Pair):
    """A * B."""

    def _combined(self, parts: Parts, a: Value, b: Value, scales: Sequence[Value], zeros: Sequence[Value]) -> Value:
        factor = parts.add(Div(), parts.add(Mul(), *scales[:2]), scales[2])
        numbers = (parts.add(Sub(), x, zero) for x, zero in zip((a, b), zeros, strict=False))
        return parts.add(Add(), parts.add(Mul(), parts.add(Mul(), *numbers), factor), zeros[2])


class QLinearSigmoid(Contributed):
    """The sigmoid of X."""

    def compose(
        self, parts: Parts, x: Value, scale: Value, zero: Value | None, y_scale: Value, y_zero: Value | None = None
    ) -> Value:
        return _quantised(parts, parts.add(Sigmoid(), _numbers(parts, x, scale, zero)), y_scale, y_zero, x.dtype)


class QLinearLeakyRelu(Contributed):
    """X where X >= 0, else alpha * X."""

    alpha: float = 0.01

    def compose(
        self, parts: Parts, x: Value, scale: Value, zero: Value | None, y_scale: Value, y_zero: Value | None = None
    ) -> Value:
        y = parts.add(LeakyRelu(alpha=self.alpha), _numbers(parts, x, scale, zero))
        return _quantised(parts, y, y_scale, y_zero, x.dtype)


class QLinearWhere(Contributed):
    """X where the condition is true, else Y."""

    def compose(self, parts: Parts, condition: Value, *others: Value) -> Value:
        x, x_scale, x_zero, y, y_scale, y_zero, z_scale, z_zero = others
        numbers = _numbers(parts, x, x_scale, x_zero), _numbers(parts, y, y_scale, y_zero)
        # Each is quantised on its own, so that it is a table of bytes.
        chosen = (_quantised(parts, number, z_scale, z_zero, x.dtype) for number in numbers)
        return parts.add(Where(), condition, *chosen)


class QLinearConcat(Contributed):
    """Inputs one behind the other along `axis`, each with a scale and a zero point of its own."""

    axis: int

    def compose(self, parts: Parts, y_scale: Value, y_zero: Value, *inputs: Any) -> Value:
        if not inputs or len(inputs) % 3:
            raise InferenceError(f"{len(inputs)} inputs behind the first two; three a tensor are needed")
        tensors = [_numbers(parts, *inputs[n : n + 3]) for n in range(0, len(inputs), 3)]
        return _quantised(parts, parts.add(Concat(axis=self.axis), *tensors), y_scale, y_zero, y_zero.dtype)


# ---------------------------------------------------------------- over many elements


class QLinearSoftmax(Contributed):
    """Softmax over `axis`; of models before operator set 13 (`opset`), over all axes from `axis` on."""

    axis: int = -1
    opset: int

    def compose(self, parts: Parts, x: Value, scale: Value, zero: Value | None, y_scale: Value, y_zero: Value) -> Value:
        softmax = Softmax(axis=self.axis, flatten=self.opset < 13)
        return _quantised(parts, parts.add(softmax, _numbers(parts, x, scale, zero)), y_scale, y_zero, x.dtype)


class QLinearAveragePool(Contributed):
    """AveragePool, row by row of a window; channels_last: the axis of channels is the last one. As in onnxruntime the
    zero point is added before the result is rounded."""

    auto_pad: str = "NOTSET"
    ceil_mode: bool = False
    channels_last: bool = False
    count_include_pad: bool = False
    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def compose(
        self, parts: Parts, x: Value, scale: Value, zero: Value | None, y_scale: Value, y_zero: Value | None = None
    ) -> Value:
        pool = AveragePool(**shared_attributes(self, AveragePool))
        images = _channels_first(parts, _numbers(parts, x, scale, zero), channels_last=self.channels_last)
        y = parts.add(Div(), parts.add(pool, images), _single(parts, y_scale))
        if y_zero is not None:
            y = parts.add(Add(), y, _float(parts, y_zero))
        y = parts.add(_QuantizeLinear(), y, parts.constant(np.float32(1)), _zero(parts, x.dtype))
        return _channels_behind(parts, y, channels_last=self.channels_last)


class QLinearGlobalAveragePool(Contributed):
    """GlobalAveragePool; channels_last: the axis of channels is the last one."""

    channels_last: bool = False

    def compose(self, parts: Parts, x: Value, scale: Value, zero: Value, y_scale: Value, y_zero: Value) -> Value:
        images = _channels_first(parts, _numbers(parts, x, scale, zero), channels_last=self.channels_last)
        y = _quantised(parts, parts.add(GlobalAveragePool(), images), y_scale, y_zero, x.dtype)
        return _channels_behind(parts, y, channels_last=self.channels_last)


class QLinearConv(ConvolutionAttributes, Contributed):
    """ONNX's QLinearConv; channels_last: the axis of channels of x and y is the last one."""

    channels_last: bool = False

    def compose(self, parts: Parts, x: Value, *others: Value) -> Value:
        conv = _QLinearConv(**shared_attributes(self, _QLinearConv))
        y = parts.add(conv, _channels_first(parts, x, channels_last=self.channels_last), *others)
        return _channels_behind(parts, y, channels_last=self.channels_last)


# ---------------------------------------------------------------- products of matrices


class MatMulIntegerToFloat(Contributed):
    """MatMulInteger's sums times a_scale * b_scale, plus a bias."""

    def compose(self, parts: Parts, a: Value, b: Value, a_scale: Value, b_scale: Value, *others: Any) -> Value:
        a_zero, b_zero, bias = (*others, None, None, None)[:3]
        sums = parts.add(MatMulInteger(), *_present(a, b, a_zero, b_zero))
        return _scaled(parts, sums, a_scale, b_scale, bias)


class DynamicQuantizeMatMul(Contributed):
    """MatMulIntegerToFloat of A as DynamicQuantizeLinear gives it."""

    def compose(
        self, parts: Parts, a: Value, b: Value, b_scale: Value, b_zero: Value | None = None, bias: Value | None = None
    ) -> Value:
        numbers, a_scale, a_zero = parts.add_many(DynamicQuantizeLinear(), [a], 3)
        sums = parts.add(MatMulInteger(), *_present(numbers, b, a_zero, b_zero))
        return _scaled(parts, sums, a_scale, b_scale, bias)


class QGemm(Contributed):
    """alpha * a_scale * b_scale * (A' B' + C) of the integers less their zero points, A' and B' being the matrices or
    their transposes; as float, or quantised where y_zero_point is given."""

    alpha: float = 1.0
    transA: bool = False
    transB: bool = False

    def compose(self, parts: Parts, a: Value, a_scale: Value, a_zero: Value, b: Value, *others: Any) -> Value:
        b_scale, b_zero, c, y_scale, y_zero = (*others, None, None, None)[:5]
        if len(a.shape) != 2 or len(b.shape) != 2:
            raise InferenceError(f"A and B must be matrices: {a.type} and {b.type} given")
        if (y_scale is None) != (y_zero is None):
            raise InferenceError("y_scale and y_zero_point are given together, or neither")
        left, right = (
            parts.add(Transpose(perm=(1, 0)), x) if turned else x for x, turned in ((a, self.transA), (b, self.transB))
        )
        sums = parts.add(MatMulInteger(), left, right, a_zero, b_zero)
        if c is not None:
            sums = parts.add(Add(), sums, c)
        scale = parts.add(Mul(), _single(parts, a_scale), b_scale)
        if self.alpha != 1:
            scale = parts.add(Mul(), scale, of_type(parts, self.alpha, scale))
        if y_scale is not None:
            scale = parts.add(Div(), scale, y_scale)
        numbers = parts.add(Mul(), parts.add(Cast(to=int(DType.FLOAT)), sums), scale)
        if y_zero is None:
            return numbers
        return parts.add(_QuantizeLinear(), numbers, parts.constant(np.float32(1)), _single(parts, y_zero))


# ---------------------------------------------------------------- parts


def _present(*values: Value | None) -> list[Value | None]:
    """The values up to the last that is there."""
    given = list(values)
    while given[-1] is None:
        given.pop()
    return given


def _float(parts: Parts, zero: Value) -> Value:
    """A zero point as float32."""
    return parts.add(_FLOAT, _single(parts, zero))


def _single(parts: Parts, x: Value) -> Value:
    """A scalar that may be given as a vector of one element."""
    return parts.add(Reshape(), x, parts.constant(np.zeros(0, np.int64))) if x.shape == (1,) else x


def _numbers(parts: Parts, x: Value, scale: Value, zero: Value | None) -> Value:
    """(x - zero) * scale; x itself if it is of float already."""
    if x.dtype is DType.FLOAT:
        return x
    return parts.add(_DequantizeLinear(), *_present(x, _single(parts, scale), zero and _single(parts, zero)))


def _quantised(parts: Parts, x: Value, scale: Value, zero: Value | None, dtype: DType) -> Value:
    """x / scale, rounded, plus a zero point; without one, as `dtype` about 0."""
    zero = _zero(parts, dtype) if zero is None else _single(parts, zero)
    return parts.add(_QuantizeLinear(), x, _single(parts, scale), zero)


def _zero(parts: Parts, dtype: DType) -> Value:
    """The zero point 0."""
    return parts.constant(dtype.numpy.type(0))


def _scaled(parts: Parts, sums: Value, a_scale: Value, b_scale: Value, bias: Value | None) -> Value:
    """int32 sums times the product of two scales, plus a bias, in the scales' type."""
    scale = parts.add(Mul(), *(_wide(parts, _single(parts, value)) for value in (a_scale, b_scale)))
    y = parts.add(Mul(), parts.add(Cast(to=int(DType.FLOAT)), sums), scale)
    if bias is not None:
        y = parts.add(Add(), y, _wide(parts, bias))
    return y if b_scale.dtype is DType.FLOAT else parts.add(Cast(to=int(b_scale.dtype)), y)


def _wide(parts: Parts, x: Value) -> Value:
    return x if x.dtype is DType.FLOAT else parts.add(Cast(to=int(DType.FLOAT)), x)


def _channels_first(parts: Parts, x: Value, *, channels_last: bool) -> Value:
    """x with its last axis as the second, if that has the channels."""
    if not channels_last:
        return x
    rank = len(x.shape)
    return parts.add(Transpose(perm=(0, rank - 1, *range(1, rank - 1))), x)


def _channels_behind(parts: Parts, x: Value, *, channels_last: bool) -> Value:
    """The inverse of `_channels_first`."""
    if not channels_last:
        return x
    return parts.add(Transpose(perm=(0, *range(2, len(x.shape)), 1)), x)
