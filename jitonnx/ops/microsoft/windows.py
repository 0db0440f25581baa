"""Windows over axes: their maxima under a mask or of channels that come last, and the windows themselves."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError, shared_attributes
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, of_type
from jitonnx.ops.onnx.arithmetic import Add, Div, Max, Mod, Mul, Sub
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import Range
from jitonnx.ops.onnx.logic import And, Equal, Greater, Not, Or, Where
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.pooling import MaxPool
from jitonnx.ops.onnx.reduction import ReduceProd
from jitonnx.ops.onnx.shape import Reshape, Shape, Squeeze, Transpose
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.parts import numbers


class NhwcMaxPool(Contributed):
    """MaxPool of X [N, spatial..., C]."""

    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def compose(self, parts: Parts, x: Value) -> Value:
        rank = len(x.shape)
        if rank < 3:
            raise InferenceError(f"x is {x.type}; [N, spatial..., C] is needed")
        first = parts.add(Transpose(perm=(0, rank - 1, *range(1, rank - 1))), x)
        y = parts.add(MaxPool(**shared_attributes(self, MaxPool)), first)
        return parts.add(Transpose(perm=(0, *range(2, rank), 1)), y)


class UnfoldTensor(Contributed):
    """The windows of `size` elements along an axis, one each `step` elements: they become the last axis."""

    size: int
    dim: int = -1
    step: int = 1

    def compose(self, parts: Parts, x: Value) -> Value:
        rank = len(x.shape)
        if not -rank <= self.dim < rank or self.size < 1 or self.step < 1:
            raise InferenceError(
                f"input is {x.type}, dim {self.dim}, size {self.size}, step {self.step}: an axis of it, and numbers of "
                "at least 1 are needed"
            )
        axis = self.dim % rank
        length = parts.add(Squeeze(), parts.add(Shape(start=axis, end=axis + 1), x))
        zero, one, step = (parts.constant(np.int64(number)) for number in (0, 1, self.step))
        spare = parts.add(Sub(), length, parts.constant(np.int64(self.size)))
        count = parts.add(Add(), parts.add(Div(), spare, step), one)
        starts = parts.add(
            Reshape(), parts.add(Mul(), parts.add(Range(), zero, count, one), step), numbers(parts, -1, 1)
        )
        places = parts.add(Add(), starts, parts.constant(np.arange(self.size)))
        windows = parts.add(Gather(axis=axis), x, places)
        return parts.add(Transpose(perm=(*range(axis + 1), *range(axis + 2, rank + 1), axis + 1)), windows)


class MaxpoolWithMask(Contributed):
    """MaxPool of X [N, C, spatial...], where each row of a window, along the last axis, ends in front of the first
    element whose mask M is 0; the lowest number where nothing is left.

    The channels of M, over all its batch, are taken in turns. The first element of a channel is there whatever its mask
    says, unless there is one axis alone.
    """

    auto_pad: str = "NOTSET"
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    storage_order: int = 0
    strides: tuple[int, ...] | None = None

    def compose(self, parts: Parts, x: Value, mask: Value) -> Value:
        axes = len(x.shape) - 2
        if axes < 1 or len(mask.shape) != axes + 2:
            raise InferenceError(f"X is {x.type}, M {mask.type}; [N, C, spatial...] is needed, and a mask of that rank")
        if self.auto_pad != "NOTSET":
            raise InferenceError(f"auto_pad is {self.auto_pad!r}; pads are needed")
        kernel = self.kernel_shape or ()
        pads, strides = self.pads or (0,) * (2 * axes), self.strides or (1,) * axes
        if (len(kernel), len(pads), len(strides)) != (axes, 2 * axes, axes):
            raise InferenceError(
                f"kernel_shape is {list(kernel)}, pads {list(pads)}, strides {list(strides)}; X has {axes} axes"
            )
        there = self._there(parts, x, mask, axes)
        lowest = of_type(parts, float(np.finfo(np.float32).min), x)
        around = numbers(parts, 0, 0, *pads[:axes], 0, 0, *pads[axes:])
        # Beside X nothing counts, and nothing ends.
        padded = parts.add(Pad(), x, around, lowest)
        begun = parts.add(Pad(), there, around, parts.constant(np.bool_(True)))
        best, unbroken = None, None
        for tap in range(kernel[-1]):
            values, kept = (self._tap(parts, one, tap, axes) for one in (padded, begun))
            unbroken = kept if unbroken is None else parts.add(And(), unbroken, kept)
            counts = parts.add(And(), unbroken, parts.add(Greater(), values, lowest))
            seen = parts.add(Where(), counts, values, lowest)
            best = seen if best is None else parts.add(Max(), best, seen)
        if best is None:
            raise InferenceError("kernel_shape has a 0")
        if axes == 1:
            return best
        return parts.add(MaxPool(kernel_shape=(*kernel[:-1], 1), strides=(*strides[:-1], 1)), best)

    def _there(self, parts: Parts, x: Value, mask: Value, axes: int) -> Value:
        """Which elements of X the mask leaves, a bool of its shape.

        That of channel n of all begins at element n * size modulo the number of channels of M, as onnxruntime has it,
        where size is the number of elements of a channel.
        """
        zero, one = (parts.constant(np.int64(number)) for number in (0, 1))
        size, planes, channels = (
            parts.add(ReduceProd(keepdims=0), shape)
            for shape in (
                parts.add(Shape(start=2), x),
                parts.add(Shape(end=2), x),
                parts.add(Shape(end=2), mask),
            )
        )
        starts = parts.add(Mod(), parts.add(Mul(), parts.add(Range(), zero, planes, one), size), channels)
        places = parts.add(
            Add(), parts.add(Reshape(), starts, numbers(parts, -1, 1)), parts.add(Range(), zero, size, one)
        )
        elements = parts.add(Gather(), parts.add(Reshape(), mask, numbers(parts, -1)), places)
        kept = parts.add(Not(), parts.add(Equal(), elements, parts.constant(np.int32(0))))
        if axes > 1:
            first = parts.add(Equal(), parts.add(Range(), zero, size, one), zero)
            kept = parts.add(Or(), kept, first)
        return parts.add(Reshape(), kept, parts.add(Shape(), x))

    def _tap(self, parts: Parts, x: Value, tap: int, axes: int) -> Value:
        """Element `tap` of the rows of all windows."""
        assert self.kernel_shape is not None
        behind = self.kernel_shape[-1] - 1 - tap
        end = -behind or np.iinfo(np.int64).max
        step = self.strides[-1] if self.strides else 1
        return parts.add(Slice(), x, *(numbers(parts, number) for number in (tap, end, axes + 1, step)))
