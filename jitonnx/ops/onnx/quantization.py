"""Quantised numbers: QuantizeLinear and its inverse, and products and convolutions of small integers.

Integers are multiplied and summed exactly, as ONNX has it. With constant weights that is done in float32, whose sums of
whole numbers below 2**24 are exact and which every CPU multiplies fast: where the weights allow larger sums, in parts
that are added in int32. With other weights it is done in int32; a convolution is then the sum, over its taps, of the
products of the pixels that a tap reads with the tap's weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import ceil_divide, known
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import Shape, TensorType
from jitonnx.ops.base import normalize_axis, widen
from jitonnx.ops.im2col import convolve_unfolded
from jitonnx.ops.onnx.convolution import ConvolutionAttributes, convolve
from jitonnx.ops.windows import WindowAttributes, Windows, slide, spatial_rank

_BYTES = frozenset({DType.INT8, DType.UINT8})
_FLOAT8 = frozenset({DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ})
_NARROW_FLOATS = _FLOAT8 | {DType.FLOAT4E2M1, DType.FLOAT6E2M3, DType.FLOAT6E3M2}
_RANGES = {
    **{DType[f"UINT{bits}"]: (0, 2**bits - 1) for bits in (2, 4, 8, 16)},
    **{DType[f"INT{bits}"]: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (2, 4, 8, 16)},
}
"""The integers of each type that numbers are quantised to."""
_QUANTISED = frozenset(_RANGES) | _NARROW_FLOATS
_BOUNDED = (DType.FLOAT, DType.FLOAT, DType.INT32)
"""The least number, the largest, and the zero point behind them."""
_MOST = 2.0**21
"""More than any type's integers and zero points together; up to here float32s are rounded."""
_MOST_TAPS = 49
_EXACT = 1 << 24
"""Up to here float32 has all whole numbers."""


class _Linear(Operator):
    """What QuantizeLinear and DequantizeLinear share: scales and zero points for all of x, for each place along `axis`,
    or for each block of `block_size` places along it."""

    axis: int = 1
    block_size: int = 0
    output_dtype: int = 0

    def _check(self, context: InferenceContext, x: Value, scale: Value, zero_point: Value | None) -> None:
        # One of the two may be a scalar, and the other a vector of one element.
        if zero_point is not None and not _same_shape(context, zero_point.shape or (1,), scale.shape or (1,)):
            raise InferenceError(f"scale ({scale.type}) and zero point ({zero_point.type}) have different shapes")
        if self.block_size:
            axis = normalize_axis(self.axis, len(x.shape))
            wanted = (*x.shape[:axis], ceil_divide(x.shape[axis], self.block_size), *x.shape[axis + 1 :])
            if not _same_shape(context, scale.shape, wanted):
                raise InferenceError(
                    f"scale is {scale.type}: blocks of {self.block_size} along axis {axis} of {x.type} need "
                    f"[{','.join(map(str, wanted))}]"
                )
        elif len(scale.shape) > 1:
            raise InferenceError(
                f"scale is {scale.type}, and block_size is 0: a scalar, or a vector along the axis, is needed; scales "
                "of blocks need their block_size"
            )
        elif self._by_place(context, scale.shape, len(x.shape)):
            size = x.shape[normalize_axis(self.axis, len(x.shape))]
            if not context.demand_equal(scale.shape[0], size):
                raise InferenceError(f"scale is {scale.type}, but axis {self.axis} of {x.type} has {size} places")
        elif scale.shape and not context.demand_equal(scale.shape[0], 1):
            raise InferenceError(f"scale is {scale.type}, but {x.type} has no axis {self.axis}")

    def _by_place(self, context: InferenceContext, scale: Shape, rank: int) -> bool:
        """Whether there is a scale for each place along the axis of x; one alone is for all."""
        return len(scale) == 1 and not context.is_one(scale[0]) and -rank <= self.axis < rank

    def _spread(self, context: InferenceContext, scale: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Scales (or zero points) such that they broadcast to x of `shape`."""
        if self.block_size:
            axis = normalize_axis(self.axis, len(shape))
            return scale.repeat(self.block_size, axis).take(range(shape[axis]), axis)
        if not self._by_place(context, scale.shape, len(shape)):
            return scale.reshape(())
        axis = normalize_axis(self.axis, len(shape))
        return scale.reshape([-1 if a == axis else 1 for a in range(len(shape))])

    def _spread_value(self, to: Lowering, scale: Value, shape: Shape) -> Value:
        """What `_spread` gives, in computations."""
        if self.block_size:
            axis = normalize_axis(self.axis, len(shape))
            blocks, lead, tail = scale.shape[axis], shape[:axis], shape[axis + 1 :]
            single = to.reshape(scale, (*lead, blocks, 1, *tail))
            repeated = to.broadcast(single, (*lead, blocks, self.block_size, *tail))
            whole = to.reshape(repeated, (*lead, blocks * self.block_size, *tail))
            return to.slice(whole, (0,) * len(shape), (1,) * len(shape), shape)
        if not self._by_place(to.context, scale.shape, len(shape)):
            return to.reshape(scale, ())
        axis = normalize_axis(self.axis, len(shape))
        return to.reshape(scale, tuple(scale.shape[0] if a == axis else 1 for a in range(len(shape))))


class QuantizeLinear(_Linear):
    """x / y_scale, rounded to the nearest number (ties to even), plus y_zero_point, within the range of the result."""

    precision: int = 0
    saturate: int = 1

    def _result(self, zero_point: DType | None) -> DType:
        if zero_point is not None:
            return zero_point
        return DType(self.output_dtype) if self.output_dtype else DType.UINT8

    def infer(self, context: InferenceContext, x: Value, scale: Value, zero_point: Value | None = None) -> TensorType:
        self._check(context, x, scale, zero_point)
        dtype = self._result(None if zero_point is None else zero_point.dtype)
        if dtype not in _QUANTISED:
            raise InferenceError(f"the result would be of type {dtype.text}, which numbers are not quantised to")
        if zero_point is not None and self.output_dtype and DType(self.output_dtype) is not dtype:
            raise InferenceError(f"output_dtype is {DType(self.output_dtype).text}, the zero point {dtype.text}")
        return TensorType(dtype, x.shape)

    def evaluate(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None) -> np.ndarray:
        dtype = self._result(None if zero_point is None else of_numpy(zero_point.dtype))
        computed = DType(self.precision).numpy if self.precision else np.dtype(np.float32)
        quotient = (x.astype(computed) / self._spread(EXACT, scale, x.shape).astype(computed)).astype(np.float32)
        if dtype in _NARROW_FLOATS:
            return _to_narrow_float(quotient, dtype, saturate=bool(self.saturate))
        low, high = _RANGES[dtype]
        shifted = np.rint(quotient)
        if zero_point is not None:
            shifted = shifted + self._spread(EXACT, zero_point, x.shape).astype(np.float32)
        return np.clip(np.where(np.isnan(shifted), low, shifted), low, high).astype(dtype.numpy)

    def lower(self, to: Lowering, x: Value, scale: Value, zero_point: Value | None = None) -> Any:
        dtype = self._result(None if zero_point is None else zero_point.dtype)
        operands, number = [x], e.cast(e.operand(0, x.dtype), DType.FLOAT)
        if scale.constant is None or (scale.constant != 1).any():
            step = e.cast(e.operand(1, scale.dtype), DType.FLOAT)
            operands.append(self._spread_value(to, scale, x.shape))
            if self.precision and DType(self.precision) is not DType.FLOAT:
                narrow = DType(self.precision)
                number = e.cast(e.cast(e.cast(number, narrow) / e.cast(step, narrow), narrow), DType.FLOAT)
            elif (
                divides_by_factor(divisor := scale.constant)
                and (zeros := _one_zero_point(zero_point, dtype)) is not None
            ):
                bounds = [to.constant(one) for one in (divisor.reshape(()), *bounds_of_quotient(divisor, zeros))]
                whole = e.nearest_low(bounded_quotient(number, *(e.operand(n, DType.FLOAT) for n in range(1, 5))))
                if not zeros.any():
                    return to.map(e.cast(whole, dtype), x, *bounds)
                shift = to.constant(zeros.astype(np.int32))
                return to.map(e.cast(whole + e.operand(5, DType.INT32), dtype), x, *bounds, shift)
            else:
                number = number / step
        if zero_point is None or (zero_point.constant is not None and not zero_point.constant.any()):
            return to.map(_quantised(number, None, dtype), *operands)
        if zero_point.constant is not None and zero_point.constant.size == 1:
            # Operands and not part of the code, so that kernels of other zero points are the same.
            bounds = [to.constant(bound) for bound in bounds_about(zero_point.constant.reshape(()))]
            shift = to.constant(zero_point.constant.reshape(()).astype(np.int32))
            low, high, zero = (e.operand(len(operands) + n, kind) for n, kind in enumerate(_BOUNDED))
            return to.map(e.cast(e.nearest_low(e.within(number, low, high)) + zero, dtype), *operands, *bounds, shift)
        zero = e.cast(e.operand(len(operands), zero_point.dtype), DType.INT32)
        return to.map(_quantised(number, zero, dtype), *operands, self._spread_value(to, zero_point, x.shape))


class DequantizeLinear(_Linear):
    """(x - x_zero_point) * x_scale, in the scale's type or `output_dtype`."""

    def _result(self, scale: DType) -> DType:
        return DType(self.output_dtype) if self.output_dtype else scale

    def infer(self, context: InferenceContext, x: Value, scale: Value, zero_point: Value | None = None) -> TensorType:
        self._check(context, x, scale, zero_point)
        return TensorType(self._result(scale.dtype), x.shape)

    def evaluate(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None) -> np.ndarray:
        result = self._result(of_numpy(scale.dtype)).numpy
        if zero_point is not None and x.dtype.kind in "iu":
            numbers = (x.astype(np.int64) - self._spread(EXACT, zero_point, x.shape)).astype(np.float32)
        else:
            numbers = x.astype(np.float32)
            if zero_point is not None:
                numbers = numbers - self._spread(EXACT, zero_point, x.shape).astype(np.float32)
        return (numbers * self._spread(EXACT, scale, x.shape).astype(np.float32)).astype(result)

    def lower(self, to: Lowering, x: Value, scale: Value, zero_point: Value | None = None) -> Value:
        operands = [x, self._spread_value(to, scale, x.shape)]
        number = e.operand(0, x.dtype)
        if zero_point is not None and (zero_point.constant is None or zero_point.constant.any()):
            operands.append(self._spread_value(to, zero_point, x.shape))
            # Differences of 16 bits and less are exact in int32, as ONNX wants them.
            number = e.cast(number, DType.INT32) - e.cast(e.operand(2, x.dtype), DType.INT32)
        product = e.cast(number, DType.FLOAT) * e.cast(e.operand(1, scale.dtype), DType.FLOAT)
        return to.map(e.cast(product, self._result(scale.dtype)), *operands)


class DynamicQuantizeLinear(Operator):
    """x as uint8, with the scale and zero point that its least and largest element (and 0) ask for."""

    def infer(self, context: InferenceContext, x: Value) -> Sequence[TensorType]:
        return TensorType(DType.UINT8, x.shape), TensorType(DType.FLOAT, ()), TensorType(DType.UINT8, ())

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        high = np.float32(np.max(x, initial=0))
        low = np.float32(np.min(x, initial=0))
        scale = np.float32(1) if high == low else (high - low) / np.float32(255)
        zero = np.rint(np.clip(-low / scale, 0, 255))
        y = np.clip(np.rint(x / scale) + zero, 0, 255)
        return y.astype(np.uint8), np.asarray(scale, np.float32), np.asarray(zero, np.uint8)

    def lower(self, to: Lowering, x: Value) -> Sequence[Value]:
        types = (TensorType(DType.UINT8, x.shape), TensorType(DType.FLOAT, ()), TensorType(DType.UINT8, ()))
        return to.emit_many(c.DynamicQuantize(), [x], types)


def _check_places(context: InferenceContext, a: Value, b: Value, of_a: Value | None, of_b: Value | None) -> None:
    """InferenceError unless vectors of scales or zero points have one element, or one for each row or column."""
    for x, given, axis, what in ((a, of_a, -2, "row"), (b, of_b, -1, "column")):
        if given is None or len(given.shape) != 1 or context.is_one(given.shape[0]):
            continue
        if len(x.shape) < 2 or not context.demand_equal(given.shape[0], x.shape[axis]):
            raise InferenceError(f"{given.name!r} is {given.type}, neither one nor one for each {what} of {x.type}")


class MatMulInteger(Operator):
    """(A - a_zero_point) times (B - b_zero_point) in int32, as MatMul. Zero points are scalars, or those of each row of
    A and of each column of B."""

    def infer(
        self, context: InferenceContext, a: Value, b: Value, a_zero: Value | None = None, b_zero: Value | None = None
    ) -> TensorType:
        _check_places(context, a, b, a_zero, b_zero)
        return TensorType(DType.INT32, _product_shape(context, a, b))

    def evaluate(
        self, a: np.ndarray, b: np.ndarray, a_zero: np.ndarray | None = None, b_zero: np.ndarray | None = None
    ) -> np.ndarray:
        return _multiplied(_shifted(a, _of_rows(a_zero, a.ndim)), _shifted(b, b_zero))

    def lower(self, to: Lowering, a: Value, b: Value, *zeros: Value | None) -> Value:
        a_zero, b_zero = (*zeros, None, None)[:2]
        return _multiply(to, a, None if a_zero is None else _by_row(to, a_zero, a), b, b_zero)


class QLinearMatMul(Operator):
    """MatMulInteger's product times a_scale * b_scale / y_scale, rounded, plus y_zero_point, as y_zero_point's type.

    Where any of them is an 8-bit float, which ONNX lists without a word about it: what DequantizeLinear, MatMul and
    QuantizeLinear give, with the zero points of all three.
    """

    def infer(
        self, context: InferenceContext, a: Value, a_scale: Value, a_zero: Value, b: Value, *others: Value
    ) -> TensorType:
        b_scale, b_zero, _, y_zero = others
        _check_places(context, a, b, a_zero, b_zero)
        _check_places(context, a, b, a_scale, b_scale)
        return TensorType(y_zero.dtype, _product_shape(context, a, b))

    def evaluate(self, a: np.ndarray, a_scale: np.ndarray, a_zero: np.ndarray, *others: np.ndarray) -> np.ndarray:
        b, b_scale, b_zero, y_scale, y_zero = others
        of_rows = _of_rows(a_zero, a.ndim)
        if of_numpy(a.dtype) in _FLOAT8 or of_numpy(b.dtype) in _FLOAT8:
            wide = np.float32
            product = (a.astype(wide) - of_rows.astype(wide)) @ (b.astype(wide) - b_zero.astype(wide))
        else:
            product = _multiplied(_shifted(a, of_rows), _shifted(b, b_zero))
        scale = widen(_of_rows(a_scale, a.ndim)) * widen(b_scale) / widen(y_scale)
        quotient, result = product.astype(np.float32) * scale, of_numpy(y_zero.dtype)
        if result in _FLOAT8:
            return _to_narrow_float(quotient + y_zero.astype(np.float32), result, saturate=True)
        low, high = _RANGES[result]
        y = np.rint(quotient) + y_zero.astype(np.float32)
        return np.clip(np.where(np.isnan(y), low, y), low, high).astype(y_zero.dtype)

    def lower(self, to: Lowering, a: Value, a_scale: Value, a_zero: Value, *others: Value) -> Any:
        b, b_scale, b_zero, y_scale, y_zero = others
        if not {a.dtype, b.dtype, y_zero.dtype} <= _BYTES:
            return to.host(self, (a, a_scale, a_zero, *others))
        product = _multiply(to, a, _by_row(to, a_zero, a), b, b_zero)
        return _requantise(to, product, _by_row(to, a_scale, a), b_scale, y_scale, y_zero)


class _QuantisedConvolution(ConvolutionAttributes):
    """Convolutions of integers."""

    def _windows(self, context: InferenceContext, x: Shape, w: Shape) -> Windows:
        return slide(context, x[2:], w[2:], WindowAttributes.of(self))

    def _shape(self, context: InferenceContext, x: Value, w: Value) -> Shape:
        """The result's shape. InferenceError if x and w do not fit."""
        spatial_rank(x)
        if len(w.shape) != len(x.shape):
            raise InferenceError(f"w has rank {len(w.shape)} and x rank {len(x.shape)}: they must be equal")
        if self.kernel_shape and not all(map(context.demand_equal, self.kernel_shape, w.shape[2:])):
            raise InferenceError(f"kernel_shape {list(self.kernel_shape)} contradicts w ({w.type})")
        if not context.demand_equal(x.shape[1], w.shape[1] * self.group):
            raise InferenceError(f"x has {x.shape[1]} channels, but w and group {self.group} take {w.shape[1]} each")
        if not context.demand_divisible(w.shape[0], self.group):
            raise InferenceError(f"{w.shape[0]} output channels do not divide into {self.group} groups")
        return (x.shape[0], w.shape[0], *self._windows(context, x.shape, w.shape).output)

    def _sums(self, context: InferenceContext, x: np.ndarray, w: np.ndarray, x_zero: Any, w_zero: Any) -> np.ndarray:
        """The convolution in int32; padding counts as zeros."""
        shifted = _shifted(w, None if w_zero is None else _of_channels(w_zero, w.ndim))
        return convolve(_shifted(x, x_zero), shifted, self._windows(context, x.shape, w.shape), self.group)

    def _depthwise(self, x: Value, weights: np.ndarray) -> bool:
        """Whether each channel of an image has a kernel of its own, of few taps, which are spelled out."""
        one_each = weights.shape[:2] == (self.group, 1) and x.shape[1] == self.group > 1
        return one_each and len(weights.shape) == 4 and 0 < weights[0].size <= _MOST_TAPS

    def _lower_sums(self, to: Lowering, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None) -> Value:
        """What `_sums` gives, for a kernel of known size."""
        if w_zero is not None and len(w_zero.shape) == 1 and w_zero.shape[0] != 1:
            w_zero = to.reshape(w_zero, (w_zero.shape[0], *(1,) * (len(w.shape) - 1)))
        windows = self._windows(to.context, x.shape, w.shape)
        weights = _constant(w, w_zero)
        if weights is not None and self._depthwise(x, weights) and _fits_kernel(weights, x_zero):
            narrow, middle = _narrowed(weights)
            if not middle:
                return _convolve_bytes(to, x, narrow, x_zero, windows, depthwise=True)
        small = weights is not None and self.group == 1 and len(w.shape) in (3, 4) and _fits_kernel(weights, x_zero)
        if weights is not None and small:
            narrow, middle = _narrowed(weights)
            sums = _convolve_bytes(to, x, narrow, x_zero, windows)
            if not middle:
                return sums
            total = _convolve_bytes(to, x, np.ones_like(narrow[:1]), x_zero, windows)
            return _with_middle(to, sums, total, middle)
        if weights is not None:
            sizes = np.abs(weights).reshape(*weights.shape[:2], -1).sum(2)
            parts = _exact_parts(sizes, _largest(x.dtype, x_zero))
            if len(parts) == 1 or self.group == 1:
                numbers = _shift(to, x, x_zero, DType.FLOAT)
                return _convolve_exactly(to, numbers, weights, windows, self.group, parts)
        left, right = _shift(to, x, x_zero, DType.INT32), _shift(to, w, w_zero, DType.INT32)
        return convolve_unfolded(to, left, right, windows, self.group)


class ConvInteger(_QuantisedConvolution):
    """The convolution of x - x_zero_point with w - w_zero_point in int32. w_zero_point is a scalar, or one for each
    output channel."""

    def infer(
        self, context: InferenceContext, x: Value, w: Value, x_zero: Value | None = None, w_zero: Value | None = None
    ) -> TensorType:
        return TensorType(DType.INT32, self._shape(context, x, w))

    def evaluate(
        self, x: np.ndarray, w: np.ndarray, x_zero: np.ndarray | None = None, w_zero: np.ndarray | None = None
    ) -> np.ndarray:
        return self._sums(EXACT, x, w, x_zero, w_zero)

    def lower(self, to: Lowering, x: Value, w: Value, *zeros: Value | None) -> Any:
        if not known(w.shape[2:]):  # only a run tells how many taps there are
            return to.host(self, (x, w, *zeros))
        return self._lower_sums(to, x, w, *(*zeros, None, None)[:2])


class QLinearConv(_QuantisedConvolution):
    """ConvInteger's sums plus B, times x_scale * w_scale / y_scale, rounded, plus y_zero_point, as y_zero_point's
    type. w_scale and w_zero_point: scalars, or one for each output channel."""

    def infer(
        self, context: InferenceContext, x: Value, x_scale: Value, x_zero: Value, w: Value, *others: Value | None
    ) -> TensorType:
        y_zero = others[3]
        assert y_zero is not None
        return TensorType(y_zero.dtype, self._shape(context, x, w))

    def evaluate(
        self, x: np.ndarray, x_scale: np.ndarray, x_zero: np.ndarray, w: np.ndarray, *others: Any
    ) -> np.ndarray:
        w_scale, w_zero, y_scale, y_zero, bias = (*others, None)[:5]
        sums = self._sums(EXACT, x, w, x_zero, w_zero)
        if bias is not None:
            sums = sums + _of_channels(bias, x.ndim - 1)
        scale = x_scale * _of_channels(w_scale, x.ndim - 1) / y_scale
        low, high = _RANGES[of_numpy(y_zero.dtype)]
        y = np.rint(sums.astype(np.float32) * scale) + y_zero.astype(np.float32)
        return np.clip(y, low, high).astype(y_zero.dtype)

    def lower(self, to: Lowering, x: Value, x_scale: Value, x_zero: Value, w: Value, *others: Value | None) -> Any:
        if not known(w.shape[2:]):
            inputs = (x, x_scale, x_zero, w, *others)
            return to.host(self, inputs)
        w_scale, w_zero, y_scale, y_zero, bias = (*others, None)[:5]
        assert w_scale is not None and y_scale is not None and y_zero is not None
        sums, tail = self._lower_sums(to, x, w, x_zero, w_zero), (1,) * (len(x.shape) - 2)
        if bias is not None:
            total = e.operand(0, DType.INT32) + e.operand(1, DType.INT32)
            sums = to.map(total, sums, to.reshape(bias, (bias.shape[0], *tail)))
        if len(w_scale.shape) == 1 and w_scale.shape[0] != 1:
            w_scale = to.reshape(w_scale, (w_scale.shape[0], *tail))
        return _requantise(to, sums, x_scale, w_scale, y_scale, y_zero)


def _same_shape(context: InferenceContext, a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(map(context.demand_equal, a, b))


# ---------------------------------------------------------------- parts on NumPy


def _to_narrow_float(x: np.ndarray, dtype: DType, *, saturate: bool) -> np.ndarray:
    """Rounded to an 8- or 4-bit float; beyond its range its largest number if `saturate`, else what the type has."""
    import ml_dtypes

    if saturate:
        finfo: Any = ml_dtypes.finfo
        largest = float(finfo(dtype.numpy).max)
        x = np.where(np.isnan(x), x, np.clip(x, -largest, largest))
    return x.astype(dtype.numpy)


def _shifted(x: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    """x - zero in int32."""
    wide = x.astype(np.int32)
    return wide if zero is None else wide - zero.astype(np.int32)


def _of_rows(values: Any, rank: int) -> Any:
    """A value for each row, such that they broadcast to a matrix; a scalar as it is."""
    return values[:, None] if values is not None and values.ndim == 1 and rank > 1 else values


def _of_channels(values: np.ndarray, rank: int) -> np.ndarray:
    """A value for each channel, such that they broadcast to a tensor whose channel axis is the first of `rank`."""
    return values.reshape(()) if values.size == 1 else values.reshape(-1, *(1,) * (rank - 1))


def _multiplied(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of int32 matrices, which wraps around. Of integers below 2**9 it is exact in float64, and fast."""
    return np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64))).astype(np.int64).astype(np.int32)


# ---------------------------------------------------------------- parts in computations


def divides_by_factor(scale: np.ndarray | None) -> TypeGuard[np.ndarray]:
    """Whether a constant is one normal float32 with a normal reciprocal, away from where products underflow."""
    if scale is None or scale.size != 1 or scale.dtype != np.float32:
        return False
    return bool(1e-30 < scale.item() < 1e30)


def _one_zero_point(zero: Value | None, dtype: DType) -> np.ndarray | None:
    """The constant zero point of `dtype` as a scalar, 0 where none is given; None for others."""
    if zero is None:
        return np.zeros((), dtype.numpy)
    return None if zero.constant is None or zero.constant.size != 1 else zero.constant.reshape(())


def bounds_of_quotient(scale: np.ndarray, zero: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The operands of `bounded_quotient` behind the step: the least and the largest number whose quotients by `scale`,
    one that `divides_by_factor`, rounded and shifted by `zero` are of its type, and 1 / scale; float32 scalars."""
    step = scale.reshape(())
    low, high = (np.asarray(bound * step, np.float32) for bound in bounds_about(zero))
    return low, high, np.asarray(np.float32(1) / step, np.float32)


def bounded_quotient(number: e.Expr, step: e.Expr, low: e.Expr, high: e.Expr, factor: e.Expr) -> e.Expr:
    """number / step, rounded as a division is, of a number that is first brought within what can be told apart: so it
    is finite, and its quotient needs no bounds. NaN counts as `low`."""
    return e.quotient(e.within(number, low, high), step, factor)


def _quantised(number: e.Expr, zero: e.Expr | None, dtype: DType) -> e.Expr:
    """A float32 number rounded, shifted by `zero`, an int32, and saturated; NaN gives the least number."""
    low, high = _RANGES[dtype]
    if zero is None:
        return e.cast(e.nearest_low(e.within(number, low, high)), dtype)
    shifted = e.nearest(e.within(number, -_MOST, _MOST)) + zero
    return e.cast(e.minimum(e.maximum(shifted, low), high), dtype)


def bounds_about(zero: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest integer of a zero point's type, less the zero point, as float32 scalars."""
    low, high = _RANGES[of_numpy(zero.dtype)]
    return np.asarray(low - int(zero), np.float32), np.asarray(high - int(zero), np.float32)


def _shift(to: Lowering, x: Value, zero: Value | None, dtype: DType) -> Value:
    """x - zero as `dtype`, int32 or float32."""
    number = e.cast(e.operand(0, x.dtype), dtype)
    if zero is None or (zero.constant is not None and not zero.constant.any()):
        return to.map(number, x)
    if len(zero.shape) == 1 and zero.shape[0] == 1:
        zero = to.reshape(zero, ())
    return to.map(number - e.cast(e.operand(1, zero.dtype), dtype), x, zero)


def _product_shape(context: InferenceContext, a: Value, b: Value) -> Shape:
    """The shape of MatMul's result. InferenceError if the factors do not fit."""
    if not a.shape or not b.shape:
        raise InferenceError("a scalar has no matrix product: rank 1 at least expected")
    depth = b.shape[-2] if len(b.shape) > 1 else b.shape[0]
    batch = context.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if batch is None or not context.demand_equal(a.shape[-1], depth):
        raise InferenceError(f"{a.type} and {b.type} have no matrix product")
    return (*batch, *a.shape[-2:-1], *(b.shape[-1:] if len(b.shape) > 1 else ()))


def _by_row(to: Lowering, values: Value, matrix: Value) -> Value:
    """A value for each row of the matrix, such that they broadcast to it; a scalar as it is."""
    return to.reshape(values, (values.shape[0], 1)) if len(values.shape) == 1 and len(matrix.shape) > 1 else values


def _multiply(to: Lowering, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None) -> Value:
    """(a - a_zero) times (b - b_zero), in int32."""
    shape = _product_shape(to.context, a, b)
    weights = _constant(b, b_zero)
    if weights is None and min(len(a.shape), len(b.shape)) >= 2 and _one_zero(a_zero) and _one_zero(b_zero):
        zeros = [None if zero is None else _scalar(to, zero)[0] for zero in (a_zero, b_zero)]
        return to.emit(c.IntegerMatMul(), (a, b, *zeros), TensorType(DType.INT32, shape))
    if weights is None or not a.shape:
        left, right = _shift(to, a, a_zero, DType.INT32), _shift(to, b, b_zero, DType.INT32)
        return to.reshape(_rows_by_columns(to, left, right), shape)
    if len(b.shape) <= 2 and _fits_kernel(weights, a_zero):
        rows = to.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
        narrow, middle = _narrowed(weights if weights.ndim == 2 else weights[:, None])
        sums = _multiply_bytes(to, rows, narrow, a_zero)
        if middle:
            total = _multiply_bytes(to, rows, np.ones_like(narrow[:, :1]), a_zero)
            sums = _with_middle(to, sums, total, middle)
        return to.reshape(sums, shape)
    left = _shift(to, a, a_zero, DType.FLOAT)
    matrix = weights[:, None] if weights.ndim == 1 else weights
    sizes = np.abs(matrix.reshape(-1, *matrix.shape[-2:])).swapaxes(1, 2).reshape(-1, matrix.shape[-2])
    products = []
    for part in _exact_parts(sizes, _largest(a.dtype, a_zero)):
        starts, lead = (*(0,) * (len(a.shape) - 1), part.start), a.shape[:-1]
        some = to.slice(left, starts, (1,) * len(a.shape), (*lead, part.stop - part.start))
        columns = to.constant(np.ascontiguousarray(matrix[..., part, :], np.float32))
        products.append(to.cast(_rows_by_columns(to, some, columns), DType.INT32))
    return to.reshape(_total(to, products), shape)


def _rows_by_columns(to: Lowering, a: Value, b: Value) -> Value:
    """MatMul, whose vectors are a row on the left, a column on the right."""
    left = to.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    return to.matmul(left, to.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b)


def _total(to: Lowering, values: Sequence[Value]) -> Value:
    """The sum of int32 tensors."""
    total, *others = values
    for value in others:
        total = to.map(e.operand(0, DType.INT32) + e.operand(1, DType.INT32), total, value)
    return total


def _constant(weights: Value, zero: Value | None) -> np.ndarray | None:
    """weights - zero where both are constants; a zero for each output channel of a convolution broadcasts already."""
    if weights.constant is None or (zero is not None and zero.constant is None):
        return None
    return _shifted(weights.constant, None if zero is None else zero.constant)


def _largest(dtype: DType, zero: Value | None) -> int:
    """The largest size of a number of `dtype` less its zero point."""
    low, high = _RANGES[dtype]
    if zero is None or zero.constant is None or not zero.constant.size:
        return high - low if zero is not None else max(-low, high)
    zeros = zero.constant.astype(int)
    return int(max(high - zeros.min(), zeros.max() - low))


def _exact_parts(sizes: np.ndarray, largest: int) -> list[slice]:
    """Parts of the depth such that float32 holds all sums exactly of products of weights, whose sizes are given as
    [output, depth], with numbers up to `largest`."""
    if not sizes.size:
        return [slice(0, sizes.shape[1])]
    parts, start, sums, most = [], 0, np.zeros(sizes.shape[0], np.int64), _EXACT // max(largest, 1)
    for place in range(sizes.shape[1]):
        sums += sizes[:, place]
        if sums.max() > most and place > start:
            parts.append(slice(start, place))
            start, sums = place, sizes[:, place].astype(np.int64)
    return [*parts, slice(start, sizes.shape[1])]


def _fits_kernel(weights: np.ndarray, zero: Value | None) -> bool:
    """Whether weights less their zero points are int8 plus a number, and the others have one zero point."""
    low, high = _RANGES[DType.INT8]
    fits = not weights.size or int(weights.max()) - int(weights.min()) <= high - low
    return fits and _one_zero(zero)


def _one_zero(zero: Value | None) -> bool:
    """Whether all numbers have one zero point, or none."""
    return zero is None or zero.shape in ((), (1,))


def _narrowed(weights: np.ndarray) -> tuple[np.ndarray, int]:
    """Weights less their zero points as int8 and a number to add to each: 0 where they are int8 themselves. A kernel's
    sums are then those of the int8, plus that number times the sum of what a row holds."""
    if not weights.size:
        return weights.astype(np.int8), 0
    least, most = int(weights.min()), int(weights.max())
    low, high = _RANGES[DType.INT8]
    middle = 0 if low <= least and most <= high else (least + most + 1) // 2
    return (weights - middle).astype(np.int8), middle


def _with_middle(to: Lowering, sums: Value, total: Value, middle: int) -> Value:
    """sums + total * middle, an operand and not part of the code, so that kernels of other zero points are the same."""
    added, all_rows, times = (e.operand(place, DType.INT32) for place in range(3))
    return to.map(added + all_rows * times, sums, total, to.constant(np.asarray(middle, np.int32)))


def _multiply_bytes(to: Lowering, rows: Value, columns: np.ndarray, zero: Value | None) -> Value:
    """rows [..., m, k] less their zero point times int8 columns [k, n]."""
    operands = (rows, to.constant(np.ascontiguousarray(columns)), *_scalar(to, zero))
    return to.emit(c.IntegerWeightMatMul(), operands, TensorType(DType.INT32, (*rows.shape[:-1], columns.shape[1])))


def _scalar(to: Lowering, zero: Value | None) -> tuple[Value, ...]:
    """A zero point of all numbers as an operand of rank 0, if there is one."""
    return () if zero is None else (to.reshape(zero, ()) if zero.shape else zero,)


def _convolve_bytes(
    to: Lowering, x: Value, weights: np.ndarray, zero: Value | None, windows: Windows, *, depthwise: bool = False
) -> Value:
    """The convolution with int8 weights of an image or a signal, which is an image of one row."""
    lines = len(x.shape) == 3
    steps = (windows.strides, windows.dilations, windows.before, windows.after)
    if lines:
        x = to.reshape(x, (*x.shape[:2], 1, x.shape[2]))
        weights = weights[:, :, None]
        steps = ((1, *steps[0]), (1, *steps[1]), (0, *steps[2]), (0, *steps[3]))
    shape = (x.shape[0], weights.shape[0], *(1,) * lines, *windows.output)
    operands = (x, to.constant(np.ascontiguousarray(weights)), *_scalar(to, zero))
    sums = to.emit(c.IntegerConvolution(*steps, depthwise), operands, TensorType(DType.INT32, shape))
    return to.reshape(sums, (*shape[:2], shape[3])) if lines else sums


def _convolve_exactly(
    to: Lowering, x: Value, weights: np.ndarray, windows: Windows, group: int, parts: Sequence[slice]
) -> Value:
    """The convolution of whole numbers in float32, over parts of the input channels that make exact sums, in int32."""
    computation = c.Convolution(windows.strides, windows.dilations, windows.before, windows.after, group, exact=True)
    shape, sums = (x.shape[0], weights.shape[0], *windows.output), []
    for part in parts:
        some = x
        if len(parts) > 1:
            starts = (0, part.start, *(0,) * len(windows.output))
            size = (x.shape[0], part.stop - part.start, *x.shape[2:])
            some = to.slice(x, starts, (1,) * len(x.shape), size)
        kernel = to.constant(np.ascontiguousarray(weights[:, part], np.float32))
        sums.append(to.cast(to.emit(computation, (some, kernel), TensorType(DType.FLOAT, shape)), DType.INT32))
    return _total(to, sums)


def _requantise(to: Lowering, sums: Value, a_scale: Value, b_scale: Value, y_scale: Value, y_zero: Value) -> Value:
    """sums * (a_scale * b_scale / y_scale) rounded, plus y_zero, within the range of y_zero's type."""
    operands = [to.reshape(v, ()) if v.shape == (1,) else v for v in (a_scale, b_scale, y_scale, y_zero)]
    a, b, y = (e.cast(e.operand(i, v.dtype), DType.FLOAT) for i, v in enumerate(operands[:3], 1))
    number = e.cast(e.operand(0, DType.INT32), DType.FLOAT) * (a * b / y)
    zero = e.cast(e.operand(4, y_zero.dtype), DType.INT32)
    return to.map(_quantised(number, zero, y_zero.dtype), sums, *operands)
