"""Blocks of images, put back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, floor_divide, maximum, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import count_of, integers_of, lower_halves, widen
from jitonnx.ops.windows import Windows, extent, fold, per_axis, split_pads
from jitonnx.support.records import NamedTuple


class _Blocks(NamedTuple):
    """The values stand by axis of the image, the last three as attributes say."""

    image: tuple[Any, ...]
    kernel: tuple[int, ...]
    blocks: tuple[Any, ...]
    """How many there are."""
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


class Col2Im(Operator):
    """Images [N, C, image_shape...] of blocks input [N, C * taps, L], which are added up where they overlap."""

    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, context: InferenceContext, x: Value, image_shape: Value, block_shape: Value) -> TensorType:
        found = self._blocks(context.constant_of(image_shape, "image_shape"), integers_of(block_shape, "block_shape"))
        if len(x.shape) != 3:
            raise InferenceError(f"{x.name!r} is {x.type}; [N, C * taps, blocks] expected")
        taps = math.prod(found.kernel)
        if not context.demand_divisible(x.shape[1], taps):
            raise InferenceError(f"{x.name!r} is {x.type}, but a block has {taps} elements")
        if not context.demand_equal(x.shape[2], product(found.blocks)):
            raise InferenceError(f"{x.name!r} is {x.type}, but there are {list(found.blocks)} blocks")
        return TensorType(x.dtype, (x.shape[0], floor_divide(x.shape[1], taps), *found.image))

    def infer_open(self, x: Value, image_shape: Value, block_shape: Value) -> TensorType:
        sizes = (None,) * count_of(image_shape)
        return TensorType(x.dtype, (x.shape[0], None, *sizes))  # type: ignore[arg-type]

    def _blocks(self, image: Sequence[Any], kernel: Sequence[int]) -> _Blocks:
        rank = len(image)
        if len(kernel) != rank or not rank:
            raise InferenceError(f"image_shape {list(image)} and block_shape {list(kernel)} have different lengths")
        if min(kernel) < 1:
            raise InferenceError(f"block_shape {list(kernel)} has a size below 1")
        strides = per_axis(self.strides, rank, 1, "strides")
        dilations, (before, after) = per_axis(self.dilations, rank, 1, "dilations"), split_pads(self.pads, rank)
        blocks: tuple[DimLike, ...] = tuple(
            maximum(floor_divide(size + front + back - cover, step) + 1, 0)
            for size, front, back, cover, step in zip(
                image, before, after, extent(kernel, dilations), strides, strict=True
            )
        )
        return _Blocks(tuple(image), tuple(kernel), blocks, strides, dilations, before, after)

    def evaluate(self, x: np.ndarray, image_shape: np.ndarray, block_shape: np.ndarray) -> np.ndarray:
        found = self._blocks(image_shape.tolist(), block_shape.tolist())
        taps = widen(x).reshape(x.shape[0], x.shape[1] // math.prod(found.kernel), *found.kernel, *found.blocks)
        windows = Windows(found.kernel, found.strides, found.dilations, found.before, found.after, found.image)
        return fold(taps, windows, found.blocks).astype(x.dtype)

    def lower(self, to: Lowering, x: Value, image_shape: Value, block_shape: Value) -> Value:
        if x.dtype is not DType.BOOL:
            return self._folded(to, x, image_shape, block_shape)
        count = self._folded(to, to.cast(x, DType.INT32), image_shape, block_shape)  # of truth values: whether any is
        return to.map(e.not_equal(e.operand(0, DType.INT32), 0), count)

    @lower_halves
    def _folded(self, to: Lowering, x: Value, image_shape: Value, block_shape: Value) -> Value:
        found = self._blocks(
            to.context.constant_of(image_shape, "image_shape"), integers_of(block_shape, "block_shape")
        )
        images, channels, rank = x.shape[0], floor_divide(x.shape[1], math.prod(found.kernel)), len(found.image)
        by_tap = to.reshape(x, (images, channels, *found.kernel, *found.blocks))
        if _side_by_side(found):
            order = [axis for at in range(rank) for axis in (2 + rank + at, 2 + at)]
            return to.reshape(to.transpose(by_tap, (0, 1, *order)), (images, channels, *found.image))
        computation = c.Fold(found.kernel, found.blocks, found.strides, found.dilations, found.before)
        return to.emit(computation, (by_tap,), TensorType(x.dtype, (images, channels, *found.image)))


def _side_by_side(found: _Blocks) -> bool:
    """Whether each element of the image is that of one block."""
    whole = all(
        size == count * length for size, count, length in zip(found.image, found.blocks, found.kernel, strict=True)
    )
    plain = all(dilation == 1 for dilation in found.dilations) and not any((*found.before, *found.after))
    return whole and plain and found.strides == found.kernel
