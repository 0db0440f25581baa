"""Operators that ONNX had on trial until version 10 and then dropped, as onnxruntime has them.

Their docstrings follow onnxruntime, whose schemas are the only ones that are left.
"""

from __future__ import annotations

import numpy as np

from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Composite, Parts
from jitonnx.ops.onnx.activation import Softplus, Tanh
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.parts import as_type, numbers, scalar, widened


class _Activation(Composite):
    """A function of single elements, computed in float32 at least."""

    def compose(self, parts: Parts, x: Value) -> Value:
        return as_type(parts, self.activated(parts, widened(parts, x)), x.dtype)

    def activated(self, parts: Parts, x: Value) -> Value:
        """The function of a float or double."""
        raise NotImplementedError


def _times(parts: Parts, x: Value, factor: float) -> Value:
    return parts.add(Mul(), x, scalar(parts, factor, x))


class Affine(_Activation):
    """alpha * X + beta."""

    alpha: float = 1.0
    beta: float = 0.0

    def activated(self, parts: Parts, x: Value) -> Value:
        return parts.add(Add(), _times(parts, x, self.alpha), scalar(parts, self.beta, x))


class Crop(Composite):
    """The image [N, C, H, W] without as many pixels as `border` says: left, top, right, bottom; with `scale`, height
    and width, as many of them as that from left and top on."""

    border: tuple[int, ...] | None = None
    scale: tuple[int, ...] | None = None

    def compose(self, parts: Parts, x: Value) -> Value:
        if len(x.shape) != 4:
            raise InferenceError(f"{x.name!r} is {x.type}; an image [N, C, H, W] is needed")
        if self.border is None or len(self.border) != 4 or min(self.border) < 0:
            raise InferenceError(f"border is {self.border}; left, top, right and bottom, none negative, are needed")
        if self.scale is not None and (len(self.scale) != 2 or min(self.scale) < 0):
            raise InferenceError(f"scale is {self.scale}; height and width are needed")
        left, top, right, bottom = self.border
        starts, least = (top, left), self.scale or (bottom, right)
        for size, start, more in zip(x.shape[2:], starts, least, strict=True):
            if not parts.context.demand_not_negative(size - start - more):
                raise InferenceError(f"{x.name!r} is {x.type}: border {self.border} and scale {self.scale} do not fit")
        if self.scale is not None:
            ends = [start + size for start, size in zip(starts, self.scale, strict=True)]
        else:
            ends = [-end or np.iinfo(np.int64).max for end in (bottom, right)]
        return parts.add(Slice(), x, *(numbers(parts, *row) for row in (starts, ends, (2, 3))))


class DynamicSlice(Composite):
    """Slice as of version 10, without steps."""

    def compose(self, parts: Parts, data: Value, starts: Value, ends: Value, axes: Value | None = None) -> Value:
        return parts.add(Slice(), data, starts, ends, *([] if axes is None else [axes]))


class ImageScaler(Composite):
    """scale * input + bias of the channel, of images [N, C, H, W]."""

    bias: tuple[float, ...] | None = None
    scale: float = 1.0

    def compose(self, parts: Parts, x: Value) -> Value:
        if len(x.shape) != 4:
            raise InferenceError(f"{x.name!r} is {x.type}; images [N, C, H, W] are needed")
        if self.bias is None or not parts.context.demand_equal(x.shape[1], len(self.bias)):
            raise InferenceError(f"bias is {self.bias}; a number for each of the {x.shape[1]} channels is needed")
        wide = widened(parts, x)
        column = np.array(self.bias, wide.dtype.numpy).reshape(-1, 1, 1)
        return as_type(parts, parts.add(Add(), _times(parts, wide, self.scale), parts.constant(column)), x.dtype)


class ParametricSoftplus(_Activation):
    """alpha * log(exp(beta * X) + 1)."""

    alpha: float | None = None
    beta: float | None = None

    def activated(self, parts: Parts, x: Value) -> Value:
        alpha, beta = _both(self.alpha, self.beta)
        return _times(parts, parts.add(Softplus(), _times(parts, x, beta)), alpha)


class Scale(_Activation):
    """scale * input."""

    scale: float = 1.0

    def activated(self, parts: Parts, x: Value) -> Value:
        return _times(parts, x, self.scale)


class ScaledTanh(_Activation):
    """alpha * tanh(beta * input)."""

    alpha: float | None = None
    beta: float | None = None

    def activated(self, parts: Parts, x: Value) -> Value:
        alpha, beta = _both(self.alpha, self.beta)
        return _times(parts, parts.add(Tanh(), _times(parts, x, beta)), alpha)


def _both(alpha: float | None, beta: float | None) -> tuple[float, float]:
    """Two attributes that schemas call optional, and onnxruntime demands."""
    if alpha is None or beta is None:
        raise InferenceError(f"alpha is {alpha}, beta is {beta}: both are needed, as in onnxruntime")
    return alpha, beta
