"""Attention with the projections in front of it, as onnxruntime fuses BERT and GPT-2, also of 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.attention import MultiHeadAttention
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.microsoft.quantization import MatMulIntegerToFloat
from jitonnx.ops.onnx.arithmetic import Add
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import Range
from jitonnx.ops.onnx.logic import And, GreaterOrEqual, Less
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.shape import Expand, Shape, Squeeze, Unsqueeze
from jitonnx.ops.onnx.slice import Slice


class _SelfAttention(Contributed):
    """MultiHeadAttention of one product, which has queries, keys and values side by side.

    mask_index [B, T] or [B, S, T]: 0 where keys are padding; [B]: how many keys there are of each sequence; [2 * B]:
    where they end, and then where they begin. past and present [2, B, heads, T, H]: keys, and values.
    """

    num_heads: int
    do_rotary: bool = False
    mask_filter_value: float = -10000.0
    past_present_share_buffer: bool = False
    scale: float = 0.0
    unidirectional: bool = False

    def _attended(
        self,
        parts: Parts,
        x: Value,
        projected: Sequence[Value],
        mask: Value | None,
        past: Value | None,
        added: Value | None = None,
    ) -> Sequence[Value]:
        """The outputs for an input [B, S, ...] and its queries, keys and values."""
        if self.do_rotary or self.past_present_share_buffer:
            raise InferenceError("do_rotary and past_present_share_buffer are not supported")
        queries, keys, values = projected
        before: tuple[Value | None, ...] = (None, None)
        if past is not None:
            before = tuple(parts.add(Gather(axis=0), past, parts.constant(np.int64(n))) for n in (0, 1))
        attention = MultiHeadAttention(
            num_heads=self.num_heads,
            mask_filter_value=self.mask_filter_value,
            scale=self.scale,
            unidirectional=self.unidirectional,
        )
        if mask is not None and len(mask.shape) not in (1, 2, 3):
            raise InferenceError(f"mask_index is {mask.type}; [B], [2 * B], [B, T] or [B, S, T] is needed")
        if mask is not None and len(mask.shape) == 1:
            mask = self._kept(parts, mask, x, past)
        y, *caches = attention.compose(parts, queries, keys, values, None, mask, added, *before)
        if not parts.wanted(1):
            return [y]
        axis = parts.constant(np.zeros(1, np.int64))
        return [y, parts.add(Concat(axis=0), *(parts.add(Unsqueeze(), cache, axis) for cache in caches))]

    def _kept(self, parts: Parts, mask: Value, x: Value, past: Value | None) -> Value:
        """Which keys count, bool [B, T], by how many of a sequence there are, or where they end and begin."""
        total = parts.add(Shape(start=1, end=2), x)
        if past is not None:
            total = parts.add(Add(), total, parts.add(Shape(start=3, end=4), past))
        steps = (parts.constant(np.int64(0)), parts.add(Squeeze(), total), parts.constant(np.int64(1)))
        places, ones = parts.add(Range(), *steps), parts.constant(np.ones(1, np.int64))
        # Whether there are begins only a run may tell: behind ends alone, zeros are taken for them.
        batch, numbers = parts.add(Shape(start=0, end=1), x), parts.add(Cast(to=int(DType.INT64)), mask)
        zeros = parts.add(Expand(), parts.constant(np.zeros(1, np.int64)), batch)
        both, none = parts.add(Concat(axis=0), numbers, zeros), parts.constant(np.zeros(1, np.int64))
        ends = parts.add(Unsqueeze(), parts.add(Slice(), both, none, batch), ones)
        begins = parts.add(Unsqueeze(), parts.add(Slice(), both, batch, parts.add(Add(), batch, batch)), ones)
        return parts.add(And(), parts.add(Less(), places, ends), parts.add(GreaterOrEqual(), places, begins))


class Attention(_SelfAttention):
    """MultiHeadAttention of input @ weights + bias, which has queries, keys and values side by side.

    qkv_hidden_sizes: how wide the three are, where they are not alike. attention_bias is added to the scores
    [B, heads, S, T]; the other inputs and outputs are QAttention's.
    """

    qkv_hidden_sizes: tuple[int, ...] | None = None
    rotary_embedding_dim: int = 0

    def compose(  # noqa: PLR0913  (the operator's inputs)
        self,
        parts: Parts,
        x: Value,
        weights: Value,
        bias: Value | None = None,
        mask: Value | None = None,
        past: Value | None = None,
        added: Value | None = None,
        past_length: Value | None = None,
    ) -> Sequence[Value]:
        if len(x.shape) != 3 or len(weights.shape) != 2:
            raise InferenceError(
                f"input is {x.type}, weights {weights.type}; [B, S, size] and [size, widths] are needed"
            )
        if past_length is not None:
            raise InferenceError("past_sequence_length is for past_present_share_buffer, which is not supported")
        projected = parts.add(MatMul(), x, weights)
        if bias is not None:
            projected = parts.add(Add(), projected, bias)
        return self._attended(parts, x, self._three(parts, projected), mask, past, added)

    def _three(self, parts: Parts, projected: Value) -> Sequence[Value]:
        """Queries, keys and values."""
        widths = self.qkv_hidden_sizes
        if not widths:
            if not parts.context.demand_divisible(projected.shape[2], 3 * self.num_heads):
                raise InferenceError(
                    f"weights have {projected.shape[2]} columns; three times num_heads * size are needed"
                )
            return parts.add_many(Split(axis=2, num_outputs=3), (projected,), 3)
        fits = len(widths) == 3 and widths[0] == widths[1] and min(widths) > 0
        if not fits or any(width % self.num_heads for width in widths):
            raise InferenceError(
                f"qkv_hidden_sizes is {widths}; those of queries, keys and values are needed, the first two alike, all "
                f"multiples of {self.num_heads} heads"
            )
        if not parts.context.demand_equal(projected.shape[2], sum(widths)):
            raise InferenceError(f"qkv_hidden_sizes is {widths}; the weights have {projected.shape[2]} columns")
        return parts.add_many(Split(axis=2), (projected, parts.constant(np.array(widths, np.int64))), 3)


class QAttention(_SelfAttention):
    """MultiHeadAttention of input @ weight + bias [B, S, 3 * heads * H], which has queries, keys and values side by
    side: exact sums of integers, times input_scale * weight_scale. What follows is float32.
    """

    def compose(self, parts: Parts, x: Value, weight: Value, bias: Value, *others: Any) -> Sequence[Value]:
        x_scale, w_scale, mask, x_zero, w_zero, past = (*others, None, None, None, None)[:6]
        projected = MatMulIntegerToFloat().compose(parts, x, weight, x_scale, w_scale, x_zero, w_zero, bias)
        return self._attended(parts, x, parts.add_many(Split(axis=2, num_outputs=3), (projected,), 3), mask, past)
