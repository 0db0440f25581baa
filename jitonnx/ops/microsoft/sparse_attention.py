"""Attention to some blocks of a cache, as Phi-3-small has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.attention import GroupQueryAttention
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.arithmetic import Add, Div, Mod, Mul, Sub
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import Range
from jitonnx.ops.onnx.logic import Equal, Less, LessOrEqual, Where
from jitonnx.ops.onnx.reduction import ReduceSum
from jitonnx.ops.onnx.scatter import ScatterElements
from jitonnx.ops.onnx.shape import Expand, Reshape, Shape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.parts import as_type, numbers


class SparseAttention(Contributed):
    """GroupQueryAttention whose head h sees of the keys that come before a query those of some blocks of
    sparse_block_size: in layout h modulo the number of layouts.

    block_row_indices [layouts, blocks + 1] and block_col_indices [layouts, most of a layout]: the blocks of keys for
    each block of queries are columns[rows[n]] to columns[rows[n + 1] - 1]. total_sequence_length: a number, the most
    keys that a row of the batch has; key_total_sequence_lengths [B]: how many each has.
    """

    kv_num_heads: int
    num_heads: int
    sparse_block_size: int
    do_rotary: bool = False
    rotary_interleaved: bool = False
    scale: float = 0.0

    def compose(  # noqa: PLR0913  (the operator's inputs)
        self,
        parts: Parts,
        query: Value,
        key: Value | None,
        value: Value | None,
        past_key: Value,
        past_value: Value,
        rows: Value,
        columns: Value,
        total: Value,
        lengths: Value,
        cosines: Value | None = None,
        sines: Value | None = None,
    ) -> Sequence[Value]:
        if self.sparse_block_size < 1:
            raise InferenceError(f"sparse_block_size is {self.sparse_block_size}; at least 1 is needed")
        if len(rows.shape) != 2 or len(columns.shape) != 2 or len(query.shape) != 3:
            raise InferenceError(
                f"query is {query.type}, block_row_indices {rows.type}, block_col_indices {columns.type}; [B, S, "
                "width] and twice rank 2 are needed"
            )
        layouts = rows.shape[0]
        if not parts.context.demand_equal(columns.shape[0], layouts) or (
            isinstance(layouts, int) and (layouts < 1 or self.num_heads % layouts)
        ):
            raise InferenceError(
                f"block_row_indices is {rows.type}, block_col_indices {columns.type}; as many layouts are needed, of "
                f"which num_heads, {self.num_heads}, is a multiple"
            )
        bias = self._bias(parts, query, rows, columns, total, lengths)
        attention = GroupQueryAttention(
            num_heads=self.num_heads,
            kv_num_heads=self.kv_num_heads,
            do_rotary=self.do_rotary,
            rotary_interleaved=self.rotary_interleaved,
            scale=self.scale,
        )
        less = parts.add(Sub(), lengths, parts.constant(np.int32(1)))
        inputs = (query, key, value, past_key, past_value, less, total, cosines, sines, None, bias)
        return parts.add_many(attention, inputs, 3)

    def _bias(self, parts: Parts, query: Value, rows: Value, columns: Value, total: Value, lengths: Value) -> Value:
        """What is added to the scores [B, heads, S, total]: 0 where a head sees a key's block, else the lowest
        number."""
        zero, one = (parts.constant(np.int64(number)) for number in (0, 1))
        size = parts.constant(np.int64(self.sparse_block_size))
        steps = parts.add(Squeeze(), parts.add(Shape(start=1, end=2), query))
        most = as_type(parts, parts.add(Reshape(), total, numbers(parts)), DType.INT64)
        # A prompt's queries begin at 0, whatever is padding; others end where the keys do.
        before = parts.add(Sub(), as_type(parts, lengths, DType.INT64), steps)
        before = parts.add(Where(), parts.add(Equal(), most, steps), zero, before)
        position = parts.add(
            Add(), parts.add(Unsqueeze(), before, numbers(parts, 1)), parts.add(Range(), zero, steps, one)
        )
        of_query = parts.add(Div(), position, size)
        of_key = parts.add(Div(), parts.add(Range(), zero, most, one), size)
        layouts = parts.add(Squeeze(), parts.add(Shape(end=1), rows))
        layout = parts.add(Mod(), parts.constant(np.arange(self.num_heads)), layouts)
        of_heads = parts.add(Gather(axis=0), self._blocks(parts, rows, columns, query.dtype), layout)
        spread = parts.add(Gather(axis=1), parts.add(Gather(axis=2), of_heads, of_key), of_query)
        return parts.add(Transpose(perm=(1, 0, 2, 3)), spread)

    def _blocks(self, parts: Parts, rows: Value, columns: Value, dtype: DType) -> Value:
        """0 for the blocks of each layout, the lowest number of a type for the others:
        [layouts, blocks of queries, blocks of keys]."""
        zero, one = (parts.constant(np.int64(number)) for number in (0, 1))
        ones, most = numbers(parts, 1), numbers(parts, np.iinfo(np.int64).max)
        ends = as_type(parts, parts.add(Slice(), rows, ones, most, ones), DType.INT64)
        blocks = parts.add(Squeeze(), parts.add(Shape(start=1), ends))
        number = parts.add(Range(), zero, parts.add(Squeeze(), parts.add(Shape(start=1), columns)), one)
        passed = parts.add(
            LessOrEqual(), parts.add(Unsqueeze(), ends, ones), parts.add(Reshape(), number, numbers(parts, -1, 1))
        )
        row = parts.add(ReduceSum(keepdims=0), as_type(parts, passed, DType.INT64), numbers(parts, 2))
        # What stands behind the last block goes into a place of its own, which is cut off.
        place = parts.add(Add(), parts.add(Mul(), row, blocks), as_type(parts, columns, DType.INT64))
        area = parts.add(Mul(), blocks, blocks)
        place = parts.add(Where(), parts.add(Less(), row, blocks), place, area)
        layouts = parts.add(Shape(end=1), rows)
        shape = parts.add(Concat(axis=0), layouts, self._vector(parts, parts.add(Add(), area, one)))
        low = np.array([np.finfo(dtype.numpy).min if dtype is not DType.BFLOAT16 else -3e38], dtype.numpy)
        nothing = parts.add(Expand(), parts.constant(low), shape)
        there = parts.add(Expand(), parts.constant(np.zeros(1, dtype.numpy)), parts.add(Shape(), place))
        filled = parts.add(ScatterElements(axis=1), nothing, place, there)
        kept = parts.add(Slice(), filled, numbers(parts, 0), numbers(parts, -1), ones)
        square = parts.add(Concat(axis=0), layouts, *[self._vector(parts, blocks)] * 2)
        return parts.add(Reshape(), kept, square)

    @staticmethod
    def _vector(parts: Parts, x: Value) -> Value:
        return parts.add(Reshape(), x, numbers(parts, 1))
