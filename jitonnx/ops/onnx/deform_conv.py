"""Convolutions whose windows are deformed: each tap is read where an offset says, between pixels."""

from __future__ import annotations

import math

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.computation.sampling import sample
from jitonnx.ir.dims import DimLike, floor_divide, integers, known, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import lower_halves, widen
from jitonnx.ops.windows import WindowAttributes, Windows, slide, spatial_rank


class DeformConv(Operator):
    """Conv of X with W, whose taps are read `offset` away from their places and multiplied by `mask`.

    offset [N, offset_group * taps * axes, out...] moves a tap along each axis, for the channels of an offset group;
    mask [N, offset_group * taps, out...]. Between pixels X is interpolated linearly, outside it is 0.
    """

    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    offset_group: int = 1
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(
        self,
        context: InferenceContext,
        x: Value,
        w: Value,
        offset: Value,
        bias: Value | None = None,
        mask: Value | None = None,
    ) -> TensorType:
        windows = self._windows(context, x, w)
        axes, taps, (images, channels) = len(windows.output), product(windows.kernel), x.shape[:2]
        if not context.demand_equal(channels, w.shape[1] * self.group):
            raise InferenceError(f"W {w.type} takes {w.shape[1]} channels in {self.group} groups, X is {x.type}")
        for what, size, groups in (("X", channels, self.offset_group), ("W", w.shape[0], self.group)):
            if groups < 1 or not context.demand_divisible(size, groups):
                raise InferenceError(f"the {size} channels of {what} are not divisible into {groups} groups")
        moved = (images, self.offset_group * taps * axes, *windows.output)
        factors = (images, self.offset_group * taps, *windows.output)
        for value, expected in ((offset, moved), (mask, factors), (bias, (w.shape[0],))):
            if value is None:
                continue
            if len(value.shape) != len(expected) or not all(map(context.demand_equal, value.shape, expected)):
                raise InferenceError(f"{value} should have the shape {list(expected)}")
        return TensorType(x.dtype, (images, w.shape[0], *windows.output))

    @property
    def _attributes(self) -> WindowAttributes:
        return WindowAttributes(self.strides, self.dilations, self.pads)

    def _windows(self, context: InferenceContext, x: Value, w: Value) -> Windows:
        rank = spatial_rank(x)
        if len(w.shape) != len(x.shape):
            raise InferenceError(f"W {w.type} and X {x.type} have different ranks")
        kernel = w.shape[2:]
        if self.kernel_shape is not None:
            if len(self.kernel_shape) != rank or not all(map(context.demand_equal, kernel, self.kernel_shape)):
                raise InferenceError(f"kernel_shape is {list(self.kernel_shape)}, but W is {w.type}")
            kernel = self.kernel_shape
        return slide(context, x.shape[2:], kernel, self._attributes)

    def evaluate(
        self,
        x: np.ndarray,
        w: np.ndarray,
        offset: np.ndarray,
        bias: np.ndarray | None = None,
        mask: np.ndarray | None = None,
    ) -> np.ndarray:
        wide = widen(x)
        windows = slide(EXACT, x.shape[2:], w.shape[2:], self._attributes)
        images, channels = x.shape[:2]
        out, taps, axes = offset.shape[2:], math.prod(w.shape[2:]), len(windows.output)
        groups, places = self.offset_group, math.prod(out)
        moved = widen(offset).reshape(images, groups, taps, axes, *out)
        fixed = np.array(windows.taps()).reshape(taps, axes) * windows.dilations - windows.before
        grid = np.stack([n * step for n, step in zip(np.indices(out), windows.strides, strict=True)])
        coordinates = moved + fixed.reshape(taps, axes, *(1,) * axes).astype(wide.dtype) + grid.astype(wide.dtype)
        by_group = np.moveaxis(coordinates, 3, 2).reshape(images * groups, axes, taps * places)
        image = wide.reshape(images * groups, channels // groups, *x.shape[2:])
        columns = sample(image, by_group, "linear", "zeros", aligned=False)
        if mask is not None:
            columns = columns * widen(mask).reshape(images * groups, 1, taps * places)
        columns = columns.reshape(images, self.group, channels // self.group * taps, places)
        weights = widen(w).reshape(self.group, w.shape[0] // self.group, -1)
        y = (weights @ columns).reshape(images, w.shape[0], *out)
        if bias is not None:
            y = y + widen(bias).reshape(-1, *(1,) * axes)
        return y.astype(x.dtype)

    @lower_halves
    def lower(
        self,
        to: Lowering,
        x: Value,
        w: Value,
        offset: Value,
        bias: Value | None = None,
        mask: Value | None = None,
    ) -> Value:
        """The product of what all taps of a place read, with the channels of each side by side, and the weights."""
        windows = self._windows(to.context, x, w)
        if not known(windows.kernel):  # how many taps a place has is part of the code
            return to.host(self, (x, w, offset, bias, mask))[0]
        images, channels, out = x.shape[0], w.shape[1] * self.group, windows.output
        taps, groups, places = math.prod(windows.kernel), self.offset_group, product(out)
        own, outputs = floor_divide(channels, groups), w.shape[0]
        image = to.reshape(x, (images * groups, own, *x.shape[2:]))
        operands: list[Value] = [image, self._coordinates(to, offset, windows)]
        if mask is not None:
            by_tap = to.reshape(mask, (images * groups, taps, places))
            operands.append(to.reshape(to.transpose(by_tap, (0, 2, 1)), (images * groups, places * taps)))
        shape = (images * groups, own, places * taps)
        read = to.emit(c.Sample("linear", "zeros", aligned=False), operands, TensorType(x.dtype, shape))
        by_channel = to.reshape(read, (images, groups, own, places, taps))
        if self.group == 1:
            rows = to.reshape(to.transpose(by_channel, (0, 3, 4, 1, 2)), (images, places, taps * channels))
            y = to.matmul(rows, _matrices(to, w, 1, taps, (taps * channels, outputs)))
            if bias is not None:
                y = to.map(e.operand(0, x.dtype) + e.operand(1, x.dtype), y, bias)
            pixels = to.reshape(y, (images, *out, outputs))
            return to.transpose(pixels, (0, 1 + len(out), *range(1, 1 + len(out))))
        each, made = floor_divide(channels, self.group), floor_divide(outputs, self.group)
        columns = to.reshape(by_channel, (images, self.group, each, places, taps))
        rows = to.reshape(to.transpose(columns, (0, 1, 3, 4, 2)), (images, self.group, places, taps * each))
        y = to.matmul(rows, _matrices(to, w, self.group, taps, (1, self.group, taps * each, made)))
        if bias is not None:
            own_bias = to.reshape(bias, (self.group, 1, made))
            y = to.map(e.operand(0, x.dtype) + e.operand(1, x.dtype), y, own_bias)
        return to.reshape(to.transpose(y, (0, 1, 3, 2)), (images, outputs, *out))

    def _coordinates(self, to: Lowering, offset: Value, windows: Windows) -> Value:
        """The coordinates that all taps of all places read: [N * groups, axes, places * taps], in elements."""
        images, groups, dtype = offset.shape[0], self.offset_group, offset.dtype
        out, taps, axes = windows.output, len(windows.taps()), len(windows.output)
        moved = to.reshape(offset, (images, groups, taps * axes, *out))
        fixed = np.array(windows.taps()).reshape(taps, axes) * windows.dilations - windows.before
        place, operands = e.operand(0, dtype) + e.operand(1, dtype), [moved, _column(to, fixed, axes, dtype)]
        for axis, stride in enumerate(windows.strides):
            steps = np.where(np.arange(axes) == axis, stride, 0) + np.zeros((taps, 1), np.int64)
            place = place + e.cast(e.index(3 + axis), dtype) * e.operand(len(operands), dtype)
            operands.append(_column(to, steps, axes, dtype))
        coordinates = to.reshape(to.map(place, *operands), (images, groups, taps, axes, product(out)))
        by_axis = to.transpose(coordinates, (0, 1, 3, 4, 2))
        return to.reshape(by_axis, (images * groups, axes, product(out) * taps))


def _column(to: Lowering, numbers: np.ndarray, axes: int, dtype: DType) -> Value:
    """A number for each tap and axis, the same at all places."""
    return to.constant(numbers.reshape(-1, *(1,) * axes).astype(dtype.numpy))


def _matrices(to: Lowering, w: Value, groups: int, taps: int, shape: tuple[DimLike, ...]) -> Value:
    """Weights [M, C / groups, kernel...] as the second factor of products, of `shape`: taps first, then channels."""
    outputs, channels = w.shape[:2]
    apart, order = (groups, floor_divide(outputs, groups), channels, taps), (0, 3, 2, 1)
    if w.constant is None:
        return to.reshape(to.transpose(to.reshape(w, apart), order), shape)
    by_tap = w.constant.reshape(integers(apart)).transpose(order)
    return to.constant(by_tap.reshape(integers(shape)))  # no work for a run
