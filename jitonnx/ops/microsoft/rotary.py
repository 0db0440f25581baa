"""Rotary embeddings of positions: of one number a step, and of three, as models of images and text have them."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.graph import Value
from jitonnx.ir.operator import DataDependentError, InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, of_type
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.attention import RotaryEmbedding as _RotaryEmbedding
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import Range
from jitonnx.ops.onnx.logic import Where
from jitonnx.ops.onnx.shape import Shape as ShapeOf
from jitonnx.ops.onnx.shape import Squeeze, Unsqueeze


class RotaryEmbedding(Contributed):
    """ONNX's RotaryEmbedding, with its inputs in another order, and times `scale`.

    position_ids [1] is the position of the first step of all rows, which the others follow.
    """

    interleaved: bool = False
    is_packed_batching: bool = False
    num_heads: int = 0
    rotary_embedding_dim: int = 0
    scale: float = 1.0

    def compose(self, parts: Parts, x: Value, positions: Value, cosines: Value, sines: Value) -> Value:
        if self.is_packed_batching:
            raise InferenceError("is_packed_batching is 1: only batches of rows of one length are supported")
        heads = self.num_heads
        if len(x.shape) == 3 and not heads:  # a head is turned as a whole
            size, half = x.shape[2], cosines.shape[-1]
            if not isinstance(size, int) or not isinstance(half, int):
                raise DataDependentError(f"how many heads there are depends on {size} and {half}")
            if not half or size % (2 * half):
                raise InferenceError(f"num_heads is 0, and {size} elements are no whole number of heads of 2 * {half}")
            heads = size // (2 * half)
        if len(positions.shape) == 1:
            axis = len(x.shape) - 2
            zero, one = (parts.constant(np.int64(number)) for number in (0, 1))
            length = parts.add(Squeeze(), parts.add(ShapeOf(start=axis, end=axis + 1), x))
            following = parts.add(Add(), positions, parts.add(Range(), zero, length, one))
            positions = parts.add(Unsqueeze(), following, parts.constant(np.array([0], np.int64)))
        operator = _RotaryEmbedding(
            interleaved=self.interleaved, num_heads=heads or None, rotary_embedding_dim=self.rotary_embedding_dim
        )
        y = parts.add(operator, x, cosines, sines, positions)
        return y if self.scale == 1 else parts.add(Mul(), y, of_type(parts, self.scale, y))


class MRotaryEmbedding(Contributed):
    """ONNX's RotaryEmbedding by three positions of each step, position_ids [3, B, S]: of time, height and width.

    Each of the columns of cos_cache and sin_cache goes by one of them. mrope_layout 0: the first mrope_section[0] by
    time, the next mrope_section[1] by height, the last by width; 1: of each three columns one by time, one by height
    and one by width, up to 3 * mrope_section[1] and 3 * mrope_section[2], and those behind by time.
    """

    mrope_section: tuple[int, ...]
    interleaved: bool = False
    is_packed_batching: bool = False
    mrope_layout: int = 0
    num_heads: int = 0
    rotary_embedding_dim: int = 0
    scale: float = 1.0

    def compose(self, parts: Parts, x: Value, positions: Value, cosines: Value, sines: Value) -> Value:
        sections, half = self.mrope_section, sum(self.mrope_section)
        if len(sections) != 3 or min(sections) < 0 or not half or self.mrope_layout not in (0, 1):
            raise InferenceError(
                f"mrope_section is {list(sections)}, mrope_layout {self.mrope_layout}: three sizes that are not "
                "negative, and 0 or 1, are needed"
            )
        if self.is_packed_batching:
            raise InferenceError("is_packed_batching is 1: only batches of rows of one length are supported")
        if len(positions.shape) != 3 or not parts.context.demand_equal(positions.shape[0], 3):
            raise InferenceError(f"position_ids is {positions.type}; [3, batch, sequence] is needed")
        for name, cache in (("cos_cache", cosines), ("sin_cache", sines)):
            if len(cache.shape) != 2 or not parts.context.demand_equal(cache.shape[1], half):
                raise InferenceError(f"{name} is {cache.type}; {half} columns, the sum of mrope_section, are needed")
        if len(x.shape) == 3 and self.num_heads < 1:
            raise InferenceError(f"num_heads is {self.num_heads}, and input {x.type}: [batch, sequence, heads * size]")
        columns = self._columns(half)
        caches = [self._chosen(parts, cache, positions, columns) for cache in (cosines, sines)]
        operator = _RotaryEmbedding(
            interleaved=self.interleaved, num_heads=self.num_heads or None, rotary_embedding_dim=2 * half
        )
        y = parts.add(operator, x, *caches)
        return y if self.scale == 1 else parts.add(Mul(), y, of_type(parts, self.scale, y))

    def _columns(self, half: int) -> np.ndarray:
        """Which of the three positions each column goes by."""
        _, height, width = self.mrope_section
        if not self.mrope_layout:
            return np.repeat(np.arange(3), self.mrope_section)
        columns = np.zeros(half, np.int64)
        for place, count in ((1, height), (2, width)):
            columns[place : 3 * count : 3] = place
        return columns

    def _chosen(self, parts: Parts, cache: Value, positions: Value, columns: np.ndarray) -> Value:
        """The rows of a cache [B, S, half], each column by its position."""
        chosen = None
        for place in range(3):
            of_one = parts.add(Gather(axis=0), positions, parts.constant(np.int64(place)))
            rows = parts.add(Gather(axis=0), cache, of_one)
            chosen = rows if chosen is None else parts.add(Where(), parts.constant(columns == place), rows, chosen)
        assert chosen is not None
        return chosen
