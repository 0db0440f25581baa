"""Linear attention and the convolution in front of it, as decoders of Qwen3.5 and LFM2 have them."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import DataDependentError, InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx import linear_attention as of_onnx
from jitonnx.ops.onnx.activation import Sigmoid, Softplus, Swish
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import ConstantOfShape
from jitonnx.ops.onnx.shape import Reshape, Shape, Transpose
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.parts import as_type, numbers, widened


class CausalConvWithState(Contributed):
    """ONNX's CausalConvWithState, also with gaps of `dilation` between the elements of a window, and, by channels_last,
    of an input [B, L, channels...] with states [B, (k - 1) * dilation, channels...]."""

    activation: str = "none"
    channels_last: bool = False
    dilation: int = 1
    input_channel_offset: int = 0
    input_channels: int = 0
    ndim: int = 1
    state_channels_last: int = -1
    state_length: int = 0
    state_update_capacity: int = 0
    state_window: int = 0

    def compose(
        self, parts: Parts, x: Value, weight: Value, bias: Value | None = None, past: Value | None = None
    ) -> tuple[Value, ...]:
        if self.ndim != 1 or self.state_window:
            raise InferenceError(
                f"ndim is {self.ndim}, state_window {self.state_window}: one axis and one state are supported, as by "
                "onnxruntime on CPUs"
            )
        extended = (self.input_channel_offset, self.input_channels, self.state_length, self.state_update_capacity)
        if any(extended) or self.state_channels_last != -1:
            raise InferenceError(
                "input_channels, input_channel_offset, state_length, state_channels_last and state_update_capacity are "
                "not supported, as by onnxruntime on CPUs"
            )
        if self.dilation < 1:
            raise InferenceError(f"dilation is {self.dilation}; at least 1 is needed")
        if len(weight.shape) != 3 or len(x.shape) < 3:
            raise InferenceError(f"input {x.type}, weight {weight.type}: [B, C, L] and [C, 1, k] are needed")
        if not self.channels_last:
            return self._convolved(parts, x, weight, bias, past)
        others = parts.add(Shape(start=2), x)
        first = [self._turned(parts, one) for one in (x, past) if one is not None]
        results = self._convolved(parts, first[0], weight, bias, first[1] if past is not None else None)
        return tuple(self._back(parts, one, others) for one in results)

    def _turned(self, parts: Parts, x: Value) -> Value:
        """[B, L, channels...] as [B, C, L]."""
        flat = parts.add(Reshape(), x, parts.add(Concat(axis=0), parts.add(Shape(end=2), x), numbers(parts, -1)))
        return parts.add(Transpose(perm=(0, 2, 1)), flat)

    def _back(self, parts: Parts, x: Value, others: Value) -> Value:
        """[B, C, L] as [B, L, channels...]."""
        turned = parts.add(Transpose(perm=(0, 2, 1)), x)
        return parts.add(Reshape(), turned, parts.add(Concat(axis=0), parts.add(Shape(end=2), turned), others))

    def _convolved(
        self, parts: Parts, x: Value, weight: Value, bias: Value | None, past: Value | None
    ) -> tuple[Value, ...]:
        if self.dilation == 1:
            operator = of_onnx.CausalConvWithState(activation=self.activation)
            return parts.add_many(operator, (x, weight, bias, past), 2)
        channels, taps = weight.shape[0], weight.shape[2]
        if not isinstance(taps, int) or not isinstance(channels, int):
            raise DataDependentError(f"what the window spans depends on {weight.type}")
        reach = (taps - 1) * self.dilation
        if past is None:
            shape = parts.add(Concat(axis=0), parts.add(Shape(end=2), x), numbers(parts, reach))
            past = as_type(parts, parts.add(ConstantOfShape(), shape), x.dtype)
        elif not parts.context.demand_equal(past.shape[2], reach):
            raise InferenceError(f"past_state is {past.type}; [B, C, {reach}] is needed")
        joined = parts.add(Concat(axis=2), past, x)
        convolution = Conv(group=channels, dilations=(self.dilation,))
        y = parts.add(convolution, joined, weight, *([] if bias is None else [bias]))
        if self.activation in ("silu", "swish"):
            y = parts.add(Swish(), y)
        elif self.activation != "none":
            raise InferenceError(f"activation {self.activation!r}: none, silu or swish expected")
        length, end = parts.add(Shape(start=2), x), numbers(parts, np.iinfo(np.int64).max)
        return y, parts.add(Slice(), joined, length, end, numbers(parts, 2))


class LinearAttention(Contributed):
    """ONNX's LinearAttention, where there may also be several times as many heads of values as of queries, or as of
    keys, whose heads are as wide as those of the queries; inputs that the update_rule does not read are passed over."""

    kv_num_heads: int
    q_num_heads: int
    chunk_size: int = 64
    scale: float = 0.0
    state_window: int = 0
    update_rule: str = "gated_delta"

    def compose(
        self,
        parts: Parts,
        query: Value,
        key: Value,
        value: Value,
        past: Value | None = None,
        decay: Value | None = None,
        beta: Value | None = None,
    ) -> tuple[Value, ...]:
        if self.state_window:
            raise InferenceError(
                f"state_window is {self.state_window}: one state is supported, as by onnxruntime on CPUs"
            )
        heads = self.q_num_heads
        keys = self._heads_of_keys(query, key)
        if keys != self.kv_num_heads:
            key = self._repeated(parts, "key", key, keys)
        if self.kv_num_heads > heads:
            query, heads = self._repeated(parts, "query", query, heads), self.kv_num_heads
        operator = of_onnx.LinearAttention(
            kv_num_heads=self.kv_num_heads, q_num_heads=heads, scale=self.scale, update_rule=self.update_rule
        )
        decay = decay if "gated" in self.update_rule else None
        beta = beta if "delta" in self.update_rule else None
        return parts.add_many(operator, (query, key, value, past, decay, beta), 2)

    def _heads_of_keys(self, query: Value, key: Value) -> int:
        """How many heads `key` has: as many as make them as wide as the query's; kv_num_heads where none do."""
        if len(query.shape) != 3 or len(key.shape) != 3:
            return self.kv_num_heads
        queries, keys = query.shape[2], key.shape[2]
        if not isinstance(queries, int) or not isinstance(keys, int):
            if self.kv_num_heads <= self.q_num_heads:
                return self.kv_num_heads
            raise DataDependentError(f"how many heads keys have depends on {query.type} and {key.type}")
        heads = keys * self.q_num_heads // max(queries, 1)
        return heads if heads * queries == keys * self.q_num_heads and heads else self.kv_num_heads

    def _repeated(self, parts: Parts, name: str, x: Value, heads: int) -> Value:
        """Each of the heads of x, the input `name`, as often as there are heads of values for it."""
        if self.kv_num_heads % heads or len(x.shape) != 3:
            raise InferenceError(
                f"{name} is {x.type} of {heads} heads, kv_num_heads {self.kv_num_heads}: a multiple of the fewer is "
                "needed"
            )
        apart = parts.add(Reshape(), x, numbers(parts, 0, 0, heads, -1))
        places = numbers(parts, *np.repeat(np.arange(heads), self.kv_num_heads // heads))
        return parts.add(Reshape(), parts.add(Gather(axis=2), apart, places), numbers(parts, 0, 0, -1))


class LinearAttentionGate(Contributed):
    """decay_scale * softplus(a + dt_bias), and sigmoid(b): what LinearAttention takes as decay and beta."""

    def compose(
        self, parts: Parts, a: Value, dt_bias: Value, decay_scale: Value, b: Value | None = None
    ) -> tuple[Value, ...]:
        if b is None and parts.wanted(1):
            raise InferenceError("the output beta needs the input b")
        total = parts.add(Add(), as_type(parts, a, DType.FLOAT), dt_bias)
        decay = as_type(parts, parts.add(Mul(), parts.add(Softplus(), total), decay_scale), a.dtype)
        if b is None:
            return (decay, decay)  # nobody reads the second
        return decay, as_type(parts, parts.add(Sigmoid(), widened(parts, b)), b.dtype)
