"""Attention of one new step to caches that beams share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.attention import AttentionByHeads
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.attention import Attention
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import Range
from jitonnx.ops.onnx.logic import Less, Where
from jitonnx.ops.onnx.scatter import TensorScatter
from jitonnx.ops.onnx.shape import Expand, Reshape, Shape, Squeeze, Transpose
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.parts import as_type, numbers


class DecoderMaskedMultiHeadAttention(AttentionByHeads):
    """MultiHeadAttention of one step [B, 1, heads * H] to caches [B, heads, rows, H], of which past_sequence_length
    rows are those of earlier steps, and the one behind these becomes this step's.

    cache_indirection [sequences, beams, rows]: the beam whose row a beam attends to, where B is sequences * beams. The
    query may hold the three side by side. qk: the scores with what is added to them [B, heads, 1, rows attended].
    Without a past, keys and values are attended to as they are, and there are no presents.
    """

    output_qk: bool = False
    past_present_share_buffer: bool = False

    def compose(  # noqa: PLR0913  (the operator's inputs)
        self,
        parts: Parts,
        query: Value,
        key: Value | None = None,
        value: Value | None = None,
        padding: Value | None = None,
        added: Value | None = None,
        past_key: Value | None = None,
        past_value: Value | None = None,
        past_length: Value | None = None,
        beams: Value | None = None,
        indirection: Value | None = None,
        bias: Value | None = None,
    ) -> Sequence[Value]:
        if len(query.shape) != 3 or not parts.context.demand_equal(query.shape[1], 1):
            raise InferenceError(f"query is {query.type}; [batch, 1, heads * size] is needed")
        if padding is not None and len(padding.shape) != 2:
            raise InferenceError(f"mask_index is {padding.type}; [batch, keys] is needed")
        if key is None and value is None:
            query, key, value = parts.add_many(Split(axis=2, num_outputs=3), (query,), 3)
        if past_key is None or past_value is None:
            return self._across(parts, query, key, value, padding, added, bias)
        if not self.past_present_share_buffer or past_length is None:
            raise InferenceError(
                "past_present_share_buffer is 0, or past_sequence_length is not given: caches have rows for steps to "
                "come, and the number of rows so far is needed"
            )
        if beams is not None and indirection is None and parts.context.constant_of(beams, "beam_width")[0] > 1:
            raise InferenceError("beam_width is more than 1: cache_indirection is needed")
        queries, keys, values = self._by_heads(parts, query, key, value, bias)
        before = as_type(parts, parts.add(Reshape(), past_length, numbers(parts, 1)), DType.INT64)
        place = parts.add(Expand(), before, parts.add(Shape(end=1), query))
        presents = [
            parts.add(TensorScatter(axis=2), past, new, place) for past, new in ((past_key, keys), (past_value, values))
        ]
        attended = presents
        if indirection is not None:
            rows = self._rows(parts, indirection, presents[0], before)
            attended = [self._of_beams(parts, present, rows) for present in presents]
        total = parts.add(Add(), before, numbers(parts, 1))
        lengths = parts.add(Add(), place, numbers(parts, 1))
        mask = self._mask(parts, padding, added, queries)
        return (*self._attended(parts, (queries, *attended), mask, lengths, presents, total),)

    def _attended(
        self,
        parts: Parts,
        heads: Sequence[Value],
        mask: Value | None,
        lengths: Value | None,
        presents: Sequence[Value],
        total: Value | None,
    ) -> list[Value]:
        """The outputs. lengths [B]: how many keys count, all if None; total [1]: how many that are at most."""
        with_scores = parts.wanted(3)
        operator = Attention(scale=self.scale or None, qk_matmul_output_mode=2)
        inputs = (*heads, mask, None, None, lengths)
        results = parts.add_many(operator, inputs, 4 if with_scores else 1)
        turned = parts.add(Transpose(perm=(0, 2, 1, 3)), results[0])
        y = parts.add(Reshape(), turned, numbers(parts, 0, 0, -1))
        scores = y
        if with_scores:
            scores = results[3]
            if total is not None:
                scores = parts.add(Slice(), scores, numbers(parts, 0), total, numbers(parts, 3))
        return [y, *presents, scores]

    def _across(
        self,
        parts: Parts,
        query: Value,
        key: Value | None,
        value: Value | None,
        padding: Value | None,
        added: Value | None,
        bias: Value | None,
    ) -> list[Value]:
        """The outputs of attention to keys and values that are there as a whole."""
        if key is None or value is None or len(key.shape) != 4 or len(value.shape) != 4 or added is not None:
            raise InferenceError(
                "without past_key and past_value, key and value are [batch, heads, keys, size], and there is no "
                "attention_bias"
            )
        if parts.wanted(1) or parts.wanted(2):
            raise InferenceError("present_key and present_value need past_key and past_value")
        if bias is not None:
            query = parts.add(
                Add(), query, parts.add(Slice(), bias, numbers(parts, 0), parts.add(Shape(start=2), query))
            )
        heads = self._by_heads(parts, query, key, value, None)
        mask = self._mask(parts, padding, None, query)
        return self._attended(parts, heads, mask, None, (query, query), None)  # nobody reads the two

    def _rows(self, parts: Parts, indirection: Value, present: Value, before: Value) -> Value:
        """The places of each beam's rows in a cache that is seen as [B * rows, heads, H]: [B, rows]."""
        if len(indirection.shape) != 3 or not parts.context.demand_equal(indirection.shape[2], present.shape[2]):
            raise InferenceError(
                f"cache_indirection is {indirection.type}, and the past has {present.shape[2]} rows; as many are needed"
            )
        zero, one = (parts.constant(np.int64(number)) for number in (0, 1))
        rows, sequences, beams, batch = (
            parts.add(Squeeze(), size)
            for size in (
                parts.add(Shape(start=2, end=3), present),
                parts.add(Shape(end=1), indirection),
                parts.add(Shape(start=1, end=2), indirection),
                parts.add(Shape(end=1), present),
            )
        )
        first = parts.add(Mul(), parts.add(Range(), zero, sequences, one), beams)
        theirs = parts.add(
            Add(), parts.add(Reshape(), first, numbers(parts, -1, 1, 1)), as_type(parts, indirection, DType.INT64)
        )
        shape = parts.add(Concat(axis=0), parts.add(Shape(end=1), present), parts.add(Shape(start=2, end=3), present))
        own = parts.add(Reshape(), parts.add(Range(), zero, batch, one), numbers(parts, -1, 1))
        step = parts.add(Range(), zero, rows, one)
        beam = parts.add(Where(), parts.add(Less(), step, before), parts.add(Reshape(), theirs, shape), own)
        return parts.add(Add(), parts.add(Mul(), beam, rows), step)

    def _of_beams(self, parts: Parts, present: Value, rows: Value) -> Value:
        """The cache that each beam attends to."""
        by_row = parts.add(Transpose(perm=(0, 2, 1, 3)), present)
        shape = parts.add(Concat(axis=0), numbers(parts, -1), parts.add(Shape(start=2), by_row))
        chosen = parts.add(Gather(axis=0), parts.add(Reshape(), by_row, shape), rows)
        return parts.add(Transpose(perm=(0, 2, 1, 3)), chosen)
