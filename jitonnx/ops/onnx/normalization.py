"""Normalisations: over the batch, a layer, groups of channels, neighbouring channels, or by a norm."""

from __future__ import annotations

from math import prod

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, floor_divide
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import lower_halves, normalize_axis, widen
from jitonnx.ops.composite import Composite, Parts


class BatchNormalization(Operator):
    """(X - mean) / sqrt(variance + epsilon) * scale + B for each channel, with the given statistics.

    In training mode with X's own, and further outputs: the running statistics; before version 14 also X's own.
    """

    epsilon: float = 1e-5
    momentum: float = 0.9
    training_mode: bool = False
    spatial: bool = internal(default=True)  # False: statistics for each position too, not for channels only

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 14:
            test = node.attributes.pop("is_test", 0)
            node.attributes["training_mode"] = int(not test and any(node.outputs[1:]))

    def infer(self, context: InferenceContext, x: Value, *parameters: Value) -> tuple[TensorType, ...]:
        if not x.shape:
            raise InferenceError("X is a scalar: [N, C, spatial...] expected")
        shape = (x.shape[1] if len(x.shape) > 1 else 1,) if self.spatial else x.shape[1:]
        for name, value in zip(("scale", "B", "input_mean", "input_var"), parameters, strict=True):
            if len(value.shape) != len(shape) or not all(map(context.demand_equal, value.shape, shape)):
                raise InferenceError(f"{name} has the type {value.type}, expected the shape {list(map(str, shape))}")
        if not self.training_mode:
            return (x.type,)
        statistics = parameters[-1].dtype
        return (x.type, *(TensorType(statistics, shape),) * 4)

    def evaluate(
        self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        wide = widen(x)
        if not self.training_mode:
            return self._normalize(wide, scale, bias, mean, variance).astype(x.dtype, copy=False)
        axes = (0, *range(2, x.ndim)) if self.spatial else (0,)
        own_mean, own_variance = wide.mean(axis=axes), wide.var(axis=axes)
        momentum = wide.dtype.type(self.momentum)
        running_mean = widen(mean) * momentum + own_mean * (1 - momentum)
        running_variance = widen(variance) * momentum + own_variance * (1 - momentum)
        y = self._normalize(wide, scale, bias, own_mean, own_variance).astype(x.dtype, copy=False)
        statistics = (running_mean, running_variance, own_mean, own_variance)
        return (y, *(array.reshape(mean.shape).astype(mean.dtype, copy=False) for array in statistics))

    def _normalize(self, x: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
        shape = (-1, *(1,) * (x.ndim - 2)) if self.spatial and x.ndim > 1 else x.shape[1:]
        scale, bias, mean, variance = (widen(array).astype(x.dtype, copy=False).reshape(shape) for array in parameters)
        return scale * ((x - mean) / np.sqrt(variance + x.dtype.type(self.epsilon))) + bias

    @lower_halves
    def lower(self, to: Lowering, x: Value, *parameters: Value) -> Value | tuple[Value, ...]:
        if self.training_mode:
            return to.host(self, (x, *parameters))
        scale, shift = self._scale_and_shift(to, x.dtype, parameters)
        if self.spatial and len(x.shape) > 2:
            shape = (x.shape[1], *(1,) * (len(x.shape) - 2))
            scale, shift = to.reshape(scale, shape), to.reshape(shift, shape)
        element, factor, summand = (e.operand(i, x.dtype) for i in range(3))
        return to.map(element * factor + summand, x, scale, shift)

    def _scale_and_shift(self, to: Lowering, dtype: DType, parameters: tuple[Value, ...]) -> tuple[Value, Value]:
        """The normalisation as x * scale + shift: two constants where the parameters are constants."""
        arrays = [value.constant for value in parameters]
        if not any(array is None for array in arrays):
            scale, bias, mean, variance = (array.astype(np.float64) for array in arrays)  # type: ignore[union-attr]
            factor = scale / np.sqrt(variance + self.epsilon)
            shift = bias - mean * factor
            return to.constant(factor.astype(dtype.numpy)), to.constant(shift.astype(dtype.numpy))
        scale_, bias_, mean_, variance_ = (to.cast(value, dtype) for value in parameters)
        a, b, d = (e.operand(i, dtype) for i in range(3))
        factor_ = to.map(a / e.sqrt(b + self.epsilon), scale_, variance_)
        return factor_, to.map(a - b * d, bias_, mean_, factor_)


def _check_channels(context: InferenceContext, x: Value, parameters: dict[str, Value], size: DimLike) -> None:
    """InferenceError unless each parameter is a vector with `size` elements."""
    for name, value in parameters.items():
        if len(value.shape) != 1 or not context.demand_equal(value.shape[0], size):
            raise InferenceError(f"{name} has the type {value.type}; X ({x.type}) needs a vector of {size}")


def group_normalize(
    x: np.ndarray,
    scale: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    groups: int | None,
    epsilon: float,
    outside: bool = False,
) -> np.ndarray:
    """Each group of channels of each image normalised, each channel by itself if `groups` is None, over the root of the
    variance and epsilon, which stands `outside` of it or under it; then channels are scaled and shifted."""
    groups = x.shape[1] if groups is None else groups
    grouped = x.reshape(x.shape[0], groups, prod(x.shape[1:]) // max(groups, 1))
    grouped = grouped - grouped.mean(axis=2, keepdims=True)
    variance = (grouped * grouped).mean(axis=2, keepdims=True)
    small = x.dtype.type(epsilon)
    y = (grouped / (np.sqrt(variance) + small if outside else np.sqrt(variance + small))).reshape(x.shape)
    channels = (-1, *(1,) * (x.ndim - 2))
    y = y if scale is None else y * scale.reshape(channels)
    return y if bias is None else y + bias.reshape(channels)


class InstanceNormalization(Operator):
    """Each channel of each image [N, C, spatial...] normalised over its spatial axes, then scaled and shifted."""

    epsilon: float = 1e-5

    def infer(self, context: InferenceContext, x: Value, scale: Value, bias: Value) -> TensorType:
        if len(x.shape) < 3:
            raise InferenceError(f"{x} has no spatial axes: [N, C, spatial...] expected")
        _check_channels(context, x, {"scale": scale, "B": bias}, x.shape[1])
        return x.type

    def evaluate(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
        y = group_normalize(widen(x), widen(scale), widen(bias), groups=None, epsilon=self.epsilon)
        return y.astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value, scale: Value, bias: Value) -> Value:
        return to.emit(c.GroupNormalize(None, self.epsilon), (x, scale, bias), x.type)


class GroupNormalization(Operator):
    """Groups of adjacent channels of each image normalised together, then each channel scaled and shifted.

    Before version 21 scale and bias had one element a group.
    """

    num_groups: int
    epsilon: float = 1e-5
    stash_type: int = 1
    by_group: bool = internal(default=False)

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.attributes["by_group"] = 1

    def infer(self, context: InferenceContext, x: Value, scale: Value, bias: Value) -> TensorType:
        if len(x.shape) < 2:
            raise InferenceError(f"{x} has no channels: [N, C, spatial...] expected")
        channels = x.shape[1]
        if self.num_groups < 1 or not context.demand_divisible(channels, self.num_groups):
            raise InferenceError(f"{channels} channels do not divide into {self.num_groups} groups")
        _check_channels(context, x, {"scale": scale, "bias": bias}, self.num_groups if self.by_group else channels)
        return x.type

    def evaluate(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
        repeats = x.shape[1] // self.num_groups if self.by_group else 1
        of_channels = (np.repeat(widen(array), repeats) for array in (scale, bias))
        y = group_normalize(widen(x), *of_channels, groups=self.num_groups, epsilon=self.epsilon)
        return y.astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value, scale: Value, bias: Value) -> Value:
        if self.by_group:
            scale, bias = self._by_channel(to, scale, x.shape[1]), self._by_channel(to, bias, x.shape[1])
        return to.emit(c.GroupNormalize(self.num_groups, self.epsilon), (x, scale, bias), x.type)

    def _by_channel(self, to: Lowering, value: Value, channels: DimLike) -> Value:
        size = floor_divide(channels, self.num_groups)
        if value.constant is not None and isinstance(size, int):
            return to.constant(np.repeat(value.constant, size))
        column = to.reshape(value, (self.num_groups, 1))
        return to.reshape(to.broadcast(column, (self.num_groups, size)), (channels,))


class _OverTrailingAxes(Operator):
    """Normalised over the axes from `axis` on, in float32 at least."""

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1

    def _statistics(self, dtype: DType) -> DType:
        """The type in which the mean and the variance are computed, and that in which they are given out."""
        if self.stash_type not in (DType.FLOAT, DType.BFLOAT16, DType.DOUBLE, DType.FLOAT16):
            raise InferenceError(f"stash_type {self.stash_type} is no floating-point element type (1: float)")
        return dtype if dtype is DType.DOUBLE and self.stash_type == DType.FLOAT else DType(self.stash_type)

    def _check(self, context: InferenceContext, x: Value, *parameters: Value) -> int:
        axis = normalize_axis(self.axis, len(x.shape))
        for value in parameters:
            if len(value.shape) > len(x.shape) or not all(
                dim == 1 or context.assume_equal(dim, other) or context.assume_equal(dim, 1)
                for dim, other in zip(value.shape[::-1], x.shape[::-1], strict=False)
            ):
                raise InferenceError(f"{value} does not broadcast to X ({x.type})")
        return axis

    def _lower(
        self, to: Lowering, kind: c.NormalizationKind, x: Value, scale: Value, bias: Value | None
    ) -> tuple[Value, ...]:
        """The normalisation with as many results as are wanted; a scale of another shape than the axes' comes after."""
        axis = normalize_axis(self.axis, len(x.shape))
        simple = all(value is None or value.shape == x.shape[axis:] for value in (scale, bias))
        operands = [x, *(value for value in (scale, bias) if value is not None and simple)]
        y = to.emit(c.Normalize(kind, axis, self.epsilon), operands, x.type)
        if not simple:
            element, factor, summand = (e.operand(i, x.dtype) for i in range(3))
            y = (
                to.map(element * factor, y, scale)
                if bias is None
                else to.map(element * factor + summand, y, scale, bias)
            )
        return (y, *self._lower_statistics(to, x, axis)) if to.wanted > 1 else (y,)

    def _lower_statistics(self, to: Lowering, x: Value, axis: int) -> tuple[Value, Value]:
        """The mean, and 1 / sqrt(variance + epsilon): reductions of their own, which few models ask for."""
        over = range(axis, len(x.shape))
        mean = to.reduce("mean", x, over, keepdims=True)
        element, other = e.operand(0, x.dtype), e.operand(1, x.dtype)
        variance = to.reduce("mean", to.map((element - other) * (element - other), x, mean), over, keepdims=True)
        return mean, to.map(e.constant(1.0, x.dtype) / e.unary("sqrt", element + self.epsilon), variance)


class LayerNormalization(_OverTrailingAxes):
    """(X - mean) / sqrt(variance + epsilon) * Scale + B over the axes from `axis` on; Mean and InvStdDev of them."""

    def infer(
        self, context: InferenceContext, x: Value, scale: Value, bias: Value | None = None
    ) -> tuple[TensorType, ...]:
        axis = self._check(context, x, *(value for value in (scale, bias) if value is not None))
        shape = (*x.shape[:axis], *(1,) * (len(x.shape) - axis))
        return (x.type, *(TensorType(self._statistics(x.dtype), shape),) * 2)

    def evaluate(
        self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        wide = widen(x)
        axes = tuple(range(normalize_axis(self.axis, x.ndim), x.ndim))
        mean = wide.mean(axis=axes, keepdims=True)
        deviation = wide - mean
        variance = (deviation * deviation).mean(axis=axes, keepdims=True)
        inverse = 1 / np.sqrt(variance + wide.dtype.type(self.epsilon))
        y = deviation * inverse * widen(scale)
        if bias is not None:
            y = y + widen(bias)
        kind = self._statistics(DType.DOUBLE if wide.dtype == np.float64 else DType.FLOAT).numpy
        return y.astype(x.dtype, copy=False), mean.astype(kind, copy=False), inverse.astype(kind, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value, scale: Value, bias: Value | None = None) -> tuple[Value, ...]:
        y, *statistics = self._lower(to, "layer", x, scale, bias)
        return (y, *(to.cast(value, self._statistics(x.dtype)) for value in statistics))


class RMSNormalization(_OverTrailingAxes):
    """X / sqrt(mean of X ** 2 + epsilon) * scale over the axes from `axis` on."""

    def infer(self, context: InferenceContext, x: Value, scale: Value) -> TensorType:
        self._statistics(x.dtype)
        self._check(context, x, scale)
        return TensorType(scale.dtype, x.shape)

    def evaluate(self, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        wide = widen(x)
        axes = tuple(range(normalize_axis(self.axis, x.ndim), x.ndim))
        squares = (wide * wide).mean(axis=axes, keepdims=True)
        y = wide / np.sqrt(squares + wide.dtype.type(self.epsilon))
        return (y * widen(scale)).astype(scale.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value, scale: Value) -> Value:
        return to.cast(self._lower(to, "rms", x, to.cast(scale, x.dtype), None)[0], scale.dtype)


class SimplifiedLayerNormalization(Composite):
    """RMSNormalization under the name that onnxruntime gave it, in ONNX's own domain, before ONNX had it."""

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1

    def compose(self, parts: Parts, x: Value, scale: Value) -> Value:
        if parts.wanted(1):
            raise InferenceError("inv_std_var is an output for training, which is not supported")
        normalization = RMSNormalization(axis=self.axis, epsilon=self.epsilon, stash_type=self.stash_type)
        return parts.add(normalization, x, scale)


_DEVIATION_EPSILON = 1e-9
"""What MeanVarianceNormalization adds to the standard deviation."""


class MeanVarianceNormalization(Operator):
    """(X - mean) / (standard deviation + 1e-9) over `axes`.

    Version 1, onnxruntime's, of images [N, C, H, W]: over all axes with across_channels, and without normalize_variance
    the mean is subtracted alone.
    """

    axes: tuple[int, ...] = (0, 2, 3)
    only_mean: bool = internal(default=False)

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version >= 9:
            return
        if node.attributes.pop("across_channels", 0):
            node.attributes["axes"] = (0, 1, 2, 3)
        node.attributes["only_mean"] = int(not node.attributes.pop("normalize_variance", 1))

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(sorted({normalize_axis(axis, rank, "axes") for axis in self.axes}))

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        self._axes(len(x.shape))
        return x.type

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        wide, axes = widen(x), self._axes(x.ndim)
        deviation = wide - wide.mean(axis=axes, keepdims=True)
        if self.only_mean:
            return deviation.astype(x.dtype, copy=False)
        spread = np.sqrt((deviation * deviation).mean(axis=axes, keepdims=True))
        return (deviation / (spread + wide.dtype.type(_DEVIATION_EPSILON))).astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> Value:
        axes = self._axes(len(x.shape))
        # Images by themselves: an axis of one element may be among the axes or not.
        images = {axis for axis in axes if axis != 0 or x.shape[0] != 1}
        for groups, normalized in ((None, set(range(2, len(x.shape)))), (1, set(range(1, len(x.shape))))):
            if len(x.shape) > 2 and images == normalized and not self.only_mean:
                return to.emit(c.GroupNormalize(groups, _DEVIATION_EPSILON, outside=True), (x, None, None), x.type)
        a, b = e.operand(0, x.dtype), e.operand(1, x.dtype)
        deviation = to.map(a - b, x, to.reduce("mean", x, axes, keepdims=True))
        if self.only_mean:
            return deviation
        variance = to.reduce("mean", to.map(a * a, deviation), axes, keepdims=True)
        return to.map(a / (e.sqrt(b) + _DEVIATION_EPSILON), deviation, variance)


class LpNormalization(Operator):
    """Divided by its p-norm along `axis`; 0 where the norm is 0."""

    axis: int = -1
    p: int = 2

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        normalize_axis(self.axis, len(x.shape))
        if self.p not in (1, 2):
            raise InferenceError(f"p is {self.p}: only 1 and 2 are allowed")
        return x.type

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        wide = widen(x)
        sizes = np.abs(wide) if self.p == 1 else wide * wide
        norm = sizes.sum(axis=self.axis, keepdims=True)
        norm = norm if self.p == 1 else np.sqrt(norm)
        return np.where(norm == 0, wide.dtype.type(0), wide / norm).astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> Value:
        axis = normalize_axis(self.axis, len(x.shape))
        norm = to.reduce("l1" if self.p == 1 else "l2", x, (axis,), keepdims=True)
        element, size = e.operand(0, x.dtype), e.operand(1, x.dtype)
        return to.map(e.where(e.equal(size, 0), 0.0, element / size), x, norm)


def local_response_normalize(x: np.ndarray, *, size: int, alpha: float, beta: float, bias: float) -> np.ndarray:
    """Each element divided by what the squares in `size` neighbouring channels come to."""
    before, channels = (size - 1) // 2, x.shape[1]
    squares = np.zeros((x.shape[0], channels + size - 1, *x.shape[2:]), x.dtype)
    squares[:, before : before + channels] = x * x
    total = sum(squares[:, shift : shift + channels] for shift in range(size))
    kind = x.dtype.type
    return x / (kind(bias) + kind(alpha / size) * total) ** kind(beta)


class LRN(Operator):
    """X [N, C, spatial...] / (bias + alpha / size * sum of squares over `size` neighbouring channels) ** beta."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if len(x.shape) < 2:
            raise InferenceError(f"{x} has no channels: [N, C, spatial...] expected")
        if self.size < 1:
            raise InferenceError(f"size is {self.size}: at least 1 expected")
        return x.type

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        y = local_response_normalize(widen(x), size=self.size, alpha=self.alpha, beta=self.beta, bias=self.bias)
        return y.astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> Value:
        if x.dtype is DType.FLOAT and len(x.shape) in (3, 4):
            return to.emit(c.LocalResponseNormalize(self.size, self.alpha, self.beta, self.bias), (x,), x.type)
        element, rank = e.operand(0, x.dtype), len(x.shape)  # double, or other axes: a sum of shifted squares
        before = (self.size - 1) // 2
        edges = [(0, side, *(0,) * (rank - 2)) for side in (before, self.size - 1 - before)]
        shape = (x.shape[0], x.shape[1] + self.size - 1, *x.shape[2:])
        squares = to.map(element * element, x)
        around = to.emit(c.Pad(edges[0], edges[1], "constant"), (squares,), TensorType(x.dtype, shape))
        parts = [to.slice(around, (0, at, *(0,) * (rank - 2)), (1,) * rank, x.shape) for at in range(self.size)]
        total = e.operand(1, x.dtype)
        for place in range(2, self.size + 1):
            total = total + e.operand(place, x.dtype)
        scaled = e.power(total * (self.alpha / self.size) + self.bias, e.constant(self.beta, x.dtype))
        return to.map(element / scaled, x, *parts)
