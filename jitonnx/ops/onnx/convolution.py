"""Convolutions: Conv and ConvTranspose, with one to three spatial axes (evaluation takes any number)."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import known, maximum
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import Shape, TensorType
from jitonnx.ops.base import factor, lower_halves, widen
from jitonnx.ops.im2col import convolve_transposed_unfolded, convolve_unfolded
from jitonnx.ops.windows import WindowAttributes, Windows, extent, fold, padded, slide, spatial_rank, spread

KERNEL_AXES, TRANSPOSED_KERNEL_AXES = 3, 2
"""How many spatial axes the kernels for windows take at most; of float, with constant weights."""


class ConvolutionAttributes(Operator):
    """The attributes of every convolution: of numbers, of integers, and back."""

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


class _Convolution(ConvolutionAttributes):
    """What Conv and ConvTranspose share."""

    def _kernel(self, context: InferenceContext, x: Shape, w: Shape) -> Shape:
        """The kernel's spatial size, from W and checked against the attribute."""
        if len(w) != len(x):
            raise InferenceError(f"W has rank {len(w)} and X rank {len(x)}: they must be equal")
        given = self.kernel_shape
        if given and (len(given) != len(w) - 2 or not all(map(context.demand_equal, given, w[2:]))):
            raise InferenceError(f"kernel_shape {list(given)} contradicts W's spatial axes {list(map(str, w[2:]))}")
        return w[2:]

    def _check_channels(
        self, context: InferenceContext, x: Value, channels: object, bias: Value | None, out: object
    ) -> None:
        """X must have `channels` channels, and the bias one element for each of `out`."""
        if not context.demand_equal(x.shape[1], channels):  # type: ignore[arg-type]
            raise InferenceError(f"X has {x.shape[1]} channels, but W and group {self.group} take {channels}")
        if bias is not None and (len(bias.shape) != 1 or not context.demand_equal(bias.shape[0], out)):  # type: ignore[arg-type]
            raise InferenceError(f"B has the shape {bias.type}, but there are {out} output channels")


class Conv(_Convolution):
    """Convolution (cross-correlation) of X [N, C, spatial...] with W [M, C / group, kernel...], plus bias B [M]."""

    def _windows(self, context: InferenceContext, x: Shape, w: Shape) -> Windows:
        return slide(context, x[2:], self._kernel(context, x, w), WindowAttributes.of(self))

    def infer(self, context: InferenceContext, x: Value, w: Value, bias: Value | None = None) -> TensorType:
        spatial_rank(x)
        windows = self._windows(context, x.shape, w.shape)
        self._check_channels(context, x, w.shape[1] * self.group, bias, w.shape[0])
        if not context.demand_divisible(w.shape[0], self.group):
            raise InferenceError(f"{w.shape[0]} output channels do not divide into {self.group} groups")
        return TensorType(x.dtype, (x.shape[0], w.shape[0], *windows.output))

    def evaluate(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        y = convolve(widen(x), factor(w), self._windows(EXACT, x.shape, w.shape), self.group)
        return _add_bias(y, bias).astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value, w: Value, bias: Value | None = None) -> Value:
        windows = self._windows(to.context, x.shape, w.shape)
        if not known(w.shape[2:]):  # only a run tells how many taps there are: no code can be made for them
            return to.host(self, (x, w, bias))[0]
        if w.constant is None or x.dtype is not DType.FLOAT or len(windows.output) > KERNEL_AXES:
            return _plus_bias(to, convolve_unfolded(to, x, w, windows, self.group), bias)
        computation = c.Convolution(windows.strides, windows.dilations, windows.before, windows.after, self.group)
        shape = (x.shape[0], w.shape[0], *windows.output)
        return to.emit(computation, (x, w) if bias is None else (x, w, bias), TensorType(x.dtype, shape))


def convolve(x: np.ndarray, w: np.ndarray, windows: Windows, group: int) -> np.ndarray:
    """Conv without bias in x's element type: for each image a matrix product of W with the unfolded input."""
    images = x.shape[0]
    y = np.zeros((images, group, w.shape[0] // group, *windows.output), x.dtype)
    if not y.size or not w.size:
        return y.reshape(images, w.shape[0], *windows.output)
    rank = len(windows.output)
    axes = tuple(range(2, 2 + rank))
    view = np.lib.stride_tricks.sliding_window_view(
        padded(x, windows, 0), extent(windows.kernel, windows.dilations), axis=axes
    )
    starts = tuple(
        slice(0, (out - 1) * stride + 1, stride) for out, stride in zip(windows.output, windows.strides, strict=True)
    )
    view = view[(slice(None), slice(None), *starts, *(slice(None, None, step) for step in windows.dilations))]
    order = (0, *range(1 + rank, 1 + 2 * rank), *range(1, 1 + rank))  # of one image: channel, tap, output position
    matrices = w.reshape(group, w.shape[0] // group, -1)
    for image in range(images):
        columns = view[image].transpose(order).reshape(group, matrices.shape[2], -1)
        np.matmul(matrices, columns, out=y[image].reshape(group, matrices.shape[1], -1))
    return y.reshape(images, w.shape[0], *windows.output)


def _plus_bias(to: Lowering, y: Value, bias: Value | None) -> Value:
    if bias is None:
        return y
    column = to.reshape(bias, (bias.shape[0], *(1,) * (len(y.shape) - 2)))
    return to.map(e.operand(0, y.dtype) + e.operand(1, y.dtype), y, column)


def _add_bias(y: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return y if bias is None else y + widen(bias).reshape(-1, *(1,) * (y.ndim - 2))


class ConvTranspose(_Convolution):
    """The transpose (gradient) of Conv: each element of X [N, C, spatial...] spreads W [C, M / group, kernel...]."""

    output_padding: tuple[int, ...] | None = None
    output_shape: tuple[int, ...] | None = None

    def _windows(self, context: InferenceContext, x: Shape, w: Shape) -> Windows:
        kernel = self._kernel(context, x, w)
        return spread(x[2:], kernel, WindowAttributes.of(self), self.output_padding, self.output_shape)

    def infer(self, context: InferenceContext, x: Value, w: Value, bias: Value | None = None) -> TensorType:
        spatial_rank(x)
        windows = self._windows(context, x.shape, w.shape)
        if not all(context.demand_equal(maximum(out, 0), out) for out in windows.output):
            raise InferenceError(f"pads {list(self.pads or ())} leave nothing of the output: {list(windows.output)}")
        channels = w.shape[1] * self.group
        self._check_channels(context, x, w.shape[0], bias, channels)
        if not context.demand_divisible(w.shape[0], self.group):
            raise InferenceError(f"{w.shape[0]} input channels do not divide into group {self.group}")
        return TensorType(x.dtype, (x.shape[0], channels, *windows.output))

    def evaluate(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        y = convolve_transposed(widen(x), factor(w), self._windows(EXACT, x.shape, w.shape), self.group)
        return _add_bias(y, bias).astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value, w: Value, bias: Value | None = None) -> Value:
        windows = self._windows(to.context, x.shape, w.shape)
        if not known(w.shape[2:]):  # as for Conv
            return to.host(self, (x, w, bias))[0]
        if w.constant is None or x.dtype is not DType.FLOAT or len(windows.output) > TRANSPOSED_KERNEL_AXES:
            return _plus_bias(to, convolve_transposed_unfolded(to, x, w, windows, self.group), bias)
        computation = c.TransposedConvolution(
            windows.strides, windows.dilations, windows.before, windows.output, self.group
        )
        shape = (x.shape[0], w.shape[1] * self.group, *windows.output)
        return to.emit(computation, (x, w) if bias is None else (x, w, bias), TensorType(x.dtype, shape))


def convolve_transposed(x: np.ndarray, w: np.ndarray, windows: Windows, group: int) -> np.ndarray:
    """ConvTranspose without bias in x's element type: a matrix product, whose columns are added where they overlap."""
    images, channels, *size = x.shape
    out_channels, own = w.shape[1] * group, channels // group
    y = np.zeros((images, out_channels, *windows.output), x.dtype)
    if not y.size or not x.size:
        return y
    matrices = w.reshape(group, own, -1).transpose(0, 2, 1)
    for image in range(images):
        spreads = np.matmul(matrices, x[image].reshape(group, own, -1))
        y[image] = fold(spreads.reshape(1, out_channels, *windows.kernel, *size), windows, size)[0]
    return y
