"""Several streams of features instead of one residual: how branches read them and add to them, and their gate."""

from __future__ import annotations

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, of_type
from jitonnx.ops.onnx.activation import Sigmoid
from jitonnx.ops.onnx.arithmetic import Abs, Add, Div, Max, Mul, Sign, Sqrt
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.reduction import ReduceMean, ReduceSum
from jitonnx.ops.onnx.shape import Reshape, Shape, Transpose, Unsqueeze
from jitonnx.ops.parts import as_type, numbers


class _Mix(Contributed):
    """streams [..., C, H], or [..., C * H] with num_branches C. Everything is computed in float32."""

    num_branches: int = 0

    def _grouped(self, parts: Parts, streams: Value) -> Value:
        """The streams [..., C, H] in float32."""
        if len(streams.shape) < (1 if self.num_branches else 2) or self.num_branches < 0:
            raise InferenceError(
                f"streams is {streams.type}, num_branches {self.num_branches}: [..., C, H], or [..., C * H] with C for "
                "num_branches, is needed"
            )
        wide = as_type(parts, streams, DType.FLOAT)
        if not self.num_branches:
            return wide
        leading = parts.add(Shape(end=-1), streams)
        return parts.add(Reshape(), wide, parts.add(Concat(axis=0), leading, numbers(parts, self.num_branches, -1)))

    def _gates(self, parts: Parts, gates: Value, grouped: Value, name: str) -> Value:
        """[..., C, 1] or [..., C, H] of gates that may also be [..., C] or [..., C * H]."""
        rank = len(grouped.shape)
        if len(gates.shape) not in (rank - 1, rank):
            raise InferenceError(f"{name} is {gates.type}; [..., C], [..., C, 1] or [..., C, H] is needed")
        wide = as_type(parts, gates, DType.FLOAT)
        if len(gates.shape) == rank:
            return wide
        return parts.add(
            Reshape(), wide, parts.add(Concat(axis=0), parts.add(Shape(end=-1), grouped), numbers(parts, -1))
        )


class HyperConnectionPreMix(_Mix):
    """reduction_scale times the sum over the streams, each times its gate: [..., H]."""

    reduction_scale: float = 1.0

    def compose(self, parts: Parts, streams: Value, pre_mix: Value) -> Value:
        grouped = self._grouped(parts, streams)
        weighted = parts.add(Mul(), grouped, self._gates(parts, pre_mix, grouped, "pre_mix"))
        total = parts.add(ReduceSum(keepdims=False), weighted, numbers(parts, -2))
        if self.reduction_scale != 1:
            total = parts.add(Mul(), total, of_type(parts, self.reduction_scale, total))
        return as_type(parts, total, streams.dtype)


class HyperConnectionPostMix(_Mix):
    """Each stream k, or with stream_mix [..., C, C] the sum over c of stream_mix[c, k] * streams[c], plus its gate
    times block_output [..., H]."""

    def compose(
        self, parts: Parts, streams: Value, block: Value, post_mix: Value, stream_mix: Value | None = None
    ) -> Value:
        grouped = self._grouped(parts, streams)
        gates = self._gates(parts, post_mix, grouped, "post_mix")
        rank = len(grouped.shape)
        if len(block.shape) != rank - 1:
            raise InferenceError(f"block_output is {block.type}; [..., H] of streams {streams.type} is needed")
        mixed = grouped
        if stream_mix is not None:
            turned = Transpose(perm=(*range(rank - 2), rank - 1, rank - 2))
            mixed = parts.add(MatMul(), parts.add(turned, as_type(parts, stream_mix, DType.FLOAT)), grouped)
        added = parts.add(Unsqueeze(), as_type(parts, block, DType.FLOAT), numbers(parts, -2))
        y = as_type(parts, parts.add(Add(), mixed, parts.add(Mul(), gates, added)), streams.dtype)
        return parts.add(Reshape(), y, parts.add(Shape(), streams)) if self.num_branches else y


class EngramGate(Contributed):
    """value [B, S, H] times a gate for each of the C streams: [B, S, C, H]; and the RMS normalization of that.

    The gate is the sigmoid of the signed square root of the dot product of key and query [B, S, C, H], normalized and
    over the root of H; the root of at least 1e-6 is taken.
    """

    epsilon: float = 1e-5

    def compose(
        self,
        parts: Parts,
        key: Value,
        query: Value,
        value: Value,
        key_scale: Value,
        query_scale: Value,
        conv_scale: Value | None = None,
    ) -> tuple[Value, ...]:
        if len(key.shape) != 4 or len(query.shape) != 4 or len(value.shape) != 3:
            raise InferenceError(
                f"key is {key.type}, query {query.type}, value {value.type}; twice [B, S, C, H] and [B, S, H] are "
                "needed"
            )
        if conv_scale is None and parts.wanted(1):
            raise InferenceError("the output gated_value_normed needs the input conv_norm_scale")
        keys, queries = (self._normalized(parts, x, s) for x, s in ((key, key_scale), (query, query_scale)))
        products = parts.add(ReduceSum(keepdims=True), parts.add(Mul(), keys, queries), numbers(parts, -1))
        width = as_type(parts, parts.add(Shape(start=3), key), DType.FLOAT)
        dot = parts.add(Div(), products, parts.add(Sqrt(), width))
        size = parts.add(Sqrt(), parts.add(Max(), parts.add(Abs(), dot), of_type(parts, 1e-6, dot)))
        gate = parts.add(Sigmoid(), parts.add(Mul(), parts.add(Sign(), dot), size))
        values = parts.add(Unsqueeze(), as_type(parts, value, DType.FLOAT), numbers(parts, 2))
        gated = parts.add(Mul(), gate, values)
        y = as_type(parts, gated, value.dtype)
        if conv_scale is None:
            return y, y  # nobody reads the second
        return y, as_type(parts, self._normalized(parts, gated, conv_scale), value.dtype)

    def _normalized(self, parts: Parts, x: Value, scale: Value) -> Value:
        """x over the root of the mean of its squares over the last axis, times a scale [C, H], in float32."""
        wide = as_type(parts, x, DType.FLOAT)
        mean = parts.add(ReduceMean(keepdims=True), parts.add(Mul(), wide, wide), numbers(parts, -1))
        root = parts.add(Sqrt(), parts.add(Add(), mean, of_type(parts, self.epsilon, mean)))
        return parts.add(Mul(), parts.add(Div(), wide, root), as_type(parts, scale, DType.FLOAT))
