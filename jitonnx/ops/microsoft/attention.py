"""Attention with caches of keys and values, as decoders have it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, floor_divide, maximum
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext, unnoted
from jitonnx.ir.operator import InferenceError, Operator, as_tuple
from jitonnx.ir.types import TensorType, contents_array
from jitonnx.ops.base import widen
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, of_type
from jitonnx.ops.microsoft.quantized_caches import GRANULARITIES, QuantizedCache
from jitonnx.ops.microsoft.sliding_caches import lower_bias, lower_slid, seen_rows, slid
from jitonnx.ops.onnx.arithmetic import Add, Sub
from jitonnx.ops.onnx.attention import Attention, RotaryEmbedding
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.generators import Range
from jitonnx.ops.onnx.logic import Less, Where
from jitonnx.ops.onnx.shape import Reshape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.shape import Shape as ShapeOf
from jitonnx.support.records import NamedTuple

BEFORE_SOFTMAX, AFTER_SOFTMAX = 1, 2
"""What output_qk of GroupQueryAttention is, by qk_output: scaled, capped and biased scores, or what they weigh with."""


class AttentionByHeads(Contributed):
    """What attention is given by com.microsoft: queries, keys and values with their heads side by side, a bias of them,
    and a mask of keys that are padding."""

    num_heads: int
    mask_filter_value: float = -10000.0
    scale: float = 0.0

    def _by_heads(
        self, parts: Parts, query: Value, key: Value | None, value: Value | None, bias: Value | None
    ) -> tuple[Value, Value, Value]:
        """Queries, keys and values as [B, heads, steps, H]."""
        if key is None or value is None or len(query.shape) != 3:
            raise InferenceError("packed queries, keys and values are not supported: give the three apart")
        wholes: list[Value] = [query, key, value]
        if bias is not None:
            side_by_side = [whole for whole in wholes if len(whole.shape) == 3]
            if len(side_by_side) == 2:
                raise InferenceError(
                    "a bias is for keys and values that both have their heads side by side, or neither"
                )
            # Keys and values that have their heads apart have had theirs; the bias has places for it all the same.
            lengths = [parts.add(ShapeOf(start=2), whole) for whole in side_by_side]
            if len(side_by_side) == 1:
                lengths.append(parts.add(Sub(), parts.add(ShapeOf(), bias), *lengths))
            biases = parts.add_many(Split(axis=0), (bias, parts.add(Concat(axis=0), *lengths)), len(lengths))
            wholes[: len(side_by_side)] = [
                parts.add(Add(), whole, one) for whole, one in zip(side_by_side, biases, strict=False)
            ]
        shape = parts.constant(np.array([0, 0, self.num_heads, -1], np.int64))
        query, key, value = (
            whole
            if len(whole.shape) == 4
            else parts.add(Transpose(perm=(0, 2, 1, 3)), parts.add(Reshape(), whole, shape))
            for whole in wholes
        )
        return query, key, value

    def _mask(self, parts: Parts, padding: Value | None, added: Value | None, query: Value) -> Value | None:
        """What is added to the scores [B, heads, S, T]."""
        if padding is None:
            return added
        axes = parts.constant(np.array([1, 2] if len(padding.shape) == 2 else [1], np.int64))
        kept = parts.add(Unsqueeze(), parts.add(Cast(to=int(DType.BOOL)), padding), axes)
        zero, low = (of_type(parts, number, query) for number in (0.0, self.mask_filter_value))
        mask = parts.add(Where(), kept, zero, low)
        return mask if added is None else parts.add(Add(), added, mask)


class MultiHeadAttention(AttentionByHeads):
    """ONNX's Attention with a bias of the projections, a mask of keys that are padding, and caches that it appends to.

    query [B, S, heads * H]; key and value [B, T, heads * H], or [B, heads, T, H]. key_padding_mask [B, T] or [B, S, T]:
    where it is 0, mask_filter_value is added to the scores; [B]: how many of the keys, from the first on, are not
    padding.
    """

    unidirectional: bool = False

    def compose(  # noqa: PLR0913  (the operator's inputs)
        self,
        parts: Parts,
        query: Value,
        key: Value | None = None,
        value: Value | None = None,
        bias: Value | None = None,
        padding: Value | None = None,
        added: Value | None = None,
        past_key: Value | None = None,
        past_value: Value | None = None,
        *buffers: Value | None,
    ) -> Sequence[Value]:
        if any(one is not None for one in buffers):
            raise InferenceError("past_sequence_length and cache_indirection are not supported")
        if parts.wanted(3):
            raise InferenceError("the output qk is not supported")
        query, keys, values = self._by_heads(parts, query, key, value, bias)
        if padding is not None and len(padding.shape) == 1:
            padding = self._counted(parts, padding, query, [keys, past_key])
        mask = self._mask(parts, padding, added, query)
        operator = Attention(is_causal=self.unidirectional, scale=self.scale or None)
        outputs = parts.add_many(operator, (query, keys, values, mask, past_key, past_value), 3)
        rows = parts.add(Transpose(perm=(0, 2, 1, 3)), outputs[0])
        return parts.add(Reshape(), rows, parts.constant(np.array([0, 0, -1], np.int64))), *outputs[1:]

    def _counted(self, parts: Parts, counts: Value, query: Value, keys: Sequence[Value | None]) -> Value:
        """Which keys are not padding, [B, T], of their numbers [B]. keys: all of them, [B, heads, T, H] in parts."""
        if not parts.context.demand_equal(counts.shape[0], query.shape[0]):
            raise InferenceError(f"key_padding_mask is {counts.type}; [batch] or [batch, keys] is needed")
        lengths = [parts.add(ShapeOf(start=2, end=3), part) for part in keys if part is not None]
        total = lengths[0] if len(lengths) == 1 else parts.add(Add(), *lengths)
        zero, one = (parts.constant(np.int64(number)) for number in (0, 1))
        steps = parts.add(Range(), zero, parts.add(Squeeze(), total), one)
        column = parts.add(Unsqueeze(), parts.add(Cast(to=int(DType.INT64)), counts), parts.constant(np.array([1])))
        return parts.add(Less(), steps, column)


class _Given(NamedTuple):
    """The inputs of a GroupQueryAttention."""

    query: Any
    key: Any = None
    value: Any = None
    past_key: Any = None
    past_value: Any = None
    lengths: Any = None
    total: Any = None
    cosines: Any = None
    sines: Any = None
    positions: Any = None
    bias: Any = None
    sink: Any = None
    key_scale: Any = None
    value_scale: Any = None
    query_norm: Any = None
    key_norm: Any = None
    query_lengths: Any = None


class _Sizes(NamedTuple):
    """batch, steps of this run, elements of a head, rows of the past and of the present, keys that are attended."""

    batch: Any
    steps: Any
    depth: Any
    past: Any
    rows: Any
    total: Any


class GroupQueryAttention(Operator):
    """Causal attention of num_heads heads of queries to kv_num_heads heads of keys and values, added to a cache.

    query [B, S, num_heads * H] with key and value [B, S, kv_num_heads * H], or without these all three side by side.
    past_key and past_value [B, kv_num_heads, C, H]; the present ones have max(C, total_sequence_length) rows, of which
    [past, past + S) are new. seqlens_k [B] is each row's number of keys less one; past is that number less S, or 0 for
    a prompt, whose S is total_sequence_length. With do_rotary, queries and keys are turned by cos_cache and sin_cache
    [positions, at most H / 2] at position_ids [B, S], or past + i. local_window_size: keys that a query sees, itself
    included. softcap c: c * tanh(score / c). smooth_softmax and head_sink add exp(0) or exp(sink[head]) to the sum that
    weights are divided by.

    Caches may be of another floating-point type than the rest: rows are rounded to it as they are added. With
    k_quant_type and v_quant_type they are integers, int8 or, with a kv_cache_bit_width of 4, two a byte (their
    rows then have H / 2 bytes), and new rows are quantised as they are added. PER_TENSOR: k_scale and v_scale have one
    element; PER_CHANNEL: kv_num_heads * H.

    With sliding_window_cache, C is at least local_window_size, and the present ones have C rows, too: those of the last
    positions, as `sliding_caches` says. attention_bias has columns for all positions nonetheless.

    qk_output: a fourth output has the scores [B, num_heads, S, total_sequence_length], before softmax (1) or behind it
    (2), 0 for keys that a query does not see. The node is evaluated by the host then.

    query_seqlens [B]: how many of a row's S tokens are there, those behind them being padding; past is then seqlens_k +
    1 less that. What the outputs have for padding is anything.

    Rows of the past that are not written stay in the present; onnxruntime has zeros there, unless both are one memory.
    """

    domain = "com.microsoft"

    kv_num_heads: int
    num_heads: int
    causal: bool = True
    do_rotary: bool = False
    k_norm_epsilon: float | None = None
    k_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    local_window_size: int = -1
    q_norm_epsilon: float | None = None
    qk_norm_epsilon: float = 1e-6
    qk_output: int = 0
    rotary_interleaved: bool = False
    scale: float = 0.0
    sliding_window_cache: int = 0
    smooth_softmax: int = -1
    softcap: float = 0.0
    v_quant_type: str = "NONE"

    # ------------------------------------------------------------ types

    def infer(self, context: InferenceContext, *inputs: Value | None) -> tuple[TensorType, ...]:
        given = _Given(*inputs)
        self._check(given)
        sizes = self._sizes(context, given, context.constant_of(given.total, "total_sequence_length")[0])
        for cache, scale in zip(self._quantized(), (given.key_scale, given.value_scale), strict=False):
            cache.check(context, scale, sizes.depth)
        return self._types(given, sizes)

    def infer_open(self, *inputs: Value | None) -> tuple[TensorType, ...]:
        given = _Given(*inputs)
        self._check(given)
        sizes = self._sizes(unnoted(), given, 0)
        rows: Any = None
        return self._types(given, sizes._replace(rows=rows, total=rows))

    def _types(self, given: _Given, sizes: _Sizes) -> tuple[TensorType, ...]:
        dtype, row = given.query.dtype if given.past_key is None else given.past_key.dtype, sizes.depth
        for cache in self._quantized():
            dtype, row = cache.dtype, cache.row(sizes.depth)
        present = TensorType(dtype, (sizes.batch, self.kv_num_heads, sizes.rows, row))
        y = (sizes.batch, sizes.steps, self.num_heads * sizes.depth)
        types = (TensorType(given.query.dtype, y), present, present)
        if not self.qk_output:
            return types
        scores = (sizes.batch, self.num_heads, sizes.steps, sizes.total)
        return *types, TensorType(given.query.dtype, scores)

    def _quantized(self) -> tuple[QuantizedCache, ...]:
        """The caches of keys and of values, if they are integers."""
        kinds = ((self.k_quant_type, "k_scale"), (self.v_quant_type, "v_scale"))
        if all(kind == "NONE" for kind, _ in kinds):
            return ()
        by_channel = [(kind == "PER_CHANNEL", name) for kind, name in kinds]
        return tuple(
            QuantizedCache(self.kv_cache_bit_width, each, self.kv_num_heads, name) for each, name in by_channel
        )

    def _check_quantized(self, given: _Given) -> None:
        """InferenceError unless both caches are integers, of which there are kernels, or neither."""
        kinds = {"k_quant_type": self.k_quant_type, "v_quant_type": self.v_quant_type}
        for name, kind in kinds.items():
            if kind not in GRANULARITIES:
                raise InferenceError(f"{name} is {kind!r}; {', '.join(GRANULARITIES)} are known")
        if "NONE" in kinds.values():
            if len(set(kinds.values())) > 1:
                raise InferenceError(
                    f"k_quant_type is {self.k_quant_type}, v_quant_type {self.v_quant_type}: both or neither are NONE"
                )
            if given.key_scale is not None or given.value_scale is not None:
                raise InferenceError(
                    "k_scale and v_scale are for caches of integers: k_quant_type and v_quant_type are NONE"
                )
            return
        if self.kv_cache_bit_width not in (4, 8):
            raise InferenceError(
                f"kv_cache_bit_width is {self.kv_cache_bit_width}: caches of integers have 4 or 8 bits"
            )
        for cache, past in zip(self._quantized(), (given.past_key, given.past_value), strict=True):
            if past is not None and past.dtype is not cache.dtype:
                raise InferenceError(
                    f"{past.name!r} is {past.type}: caches of {self.kv_cache_bit_width} bits are {cache.dtype.text}"
                )

    def _check(self, given: _Given) -> None:
        """InferenceError for what is not supported, or not allowed."""
        self._check_quantized(given)
        if self.sliding_window_cache and self.local_window_size < 1:
            raise InferenceError(
                f"sliding_window_cache is 1, local_window_size {self.local_window_size}: it is positive"
            )
        if self.sliding_window_cache and given.past_key is None:
            raise InferenceError("sliding_window_cache is 1: past_key and past_value are needed")
        if given.query_lengths is not None and (self.sliding_window_cache or given.past_key is None):
            raise InferenceError(
                "query_seqlens needs past_key and past_value, and is not supported with a sliding window"
            )
        if given.query_norm is not None or given.key_norm is not None:
            raise InferenceError("q_norm_weight and k_norm_weight are not supported: leave the norms before the node")
        if self.qk_output not in (0, BEFORE_SOFTMAX, AFTER_SOFTMAX):
            raise InferenceError(f"qk_output is {self.qk_output}: 0, {BEFORE_SOFTMAX} and {AFTER_SOFTMAX} are known")
        if self.qk_output and self.sliding_window_cache:
            raise InferenceError(f"qk_output is {self.qk_output}: output_qk is not supported with a sliding window")
        if self.num_heads < 1 or self.kv_num_heads < 1 or self.num_heads % self.kv_num_heads:
            raise InferenceError(f"{self.num_heads} heads of queries do not divide among {self.kv_num_heads}")
        if (given.key is None) != (given.value is None):
            raise InferenceError("key and value are given together, or neither, with all three in query")
        if (given.past_key is None) != (given.past_value is None):
            raise InferenceError("past_key and past_value are given together, or neither")
        if self.do_rotary and (given.cosines is None or given.sines is None):
            raise InferenceError("do_rotary is 1: cos_cache and sin_cache are needed")
        if self.local_window_size != -1 and (self.local_window_size < 1 or not self.causal):
            raise InferenceError(f"local_window_size is {self.local_window_size}: it is -1, or positive if causal is 1")

    def _sizes(self, context: InferenceContext, given: _Given, total: Any) -> _Sizes:
        query, key, past = given.query, given.key, given.past_key
        if len(query.shape) != 3:
            raise InferenceError(f"query is {query.type}; [batch, sequence, heads * size] is needed")
        batch, steps, width = query.shape
        heads = self.num_heads if key is not None else self.num_heads + 2 * self.kv_num_heads
        if not context.demand_divisible(width, heads):
            raise InferenceError(f"query is {query.type}; its last size is no multiple of {heads} heads")
        depth = floor_divide(width, heads)
        wanted: list[tuple[str, Any, tuple[DimLike, ...]]] = []
        if key is not None:
            rows = (batch, steps, self.kv_num_heads * depth)
            wanted += [("key", key, rows), ("value", given.value, rows)]
        if past is not None:
            row = depth
            for cache in self._quantized():
                row = cache.row(depth)
            for name, x in (("past_key", past), ("past_value", given.past_value)):
                if len(x.shape) == 4:
                    wanted.append((name, x, (batch, self.kv_num_heads, past.shape[2], row)))
                else:
                    raise InferenceError(f"{name} is {x.type}; [batch, heads, rows, size] is needed")
        if given.positions is not None:
            wanted.append(("position_ids", given.positions, (batch, steps)))
        if given.sink is not None:
            wanted.append(("head_sink", given.sink, (self.num_heads,)))
        if given.query_lengths is not None:
            wanted.append(("query_seqlens", given.query_lengths, (batch,)))
        for name, x, shape in wanted:
            fits = len(x.shape) == len(shape)
            if not fits or not all(context.demand_equal(a, b) for a, b in zip(x.shape, shape, strict=True)):
                raise InferenceError(f"{name} is {x.type}; {list(shape)} is needed")
        before: DimLike = 0 if past is None else past.shape[2]
        if self.sliding_window_cache:
            window = self.local_window_size
            if not context.demand_equal(maximum(before, window), before):
                raise InferenceError(
                    f"past_key has {before} rows; sliding_window_cache needs {window}, the local_window_size"
                )
            return _Sizes(batch, steps, depth, before, before, total)
        return _Sizes(batch, steps, depth, before, maximum(before, total), total)

    # ------------------------------------------------------------ evaluation

    def evaluate(self, *inputs: np.ndarray | None) -> tuple[np.ndarray, ...]:
        given = _Given(*inputs)
        batch, steps, width = given.query.shape
        total = int(given.total.reshape(-1)[0])
        if given.key is None:
            depth = width // (self.num_heads + 2 * self.kv_num_heads)
            cuts = [self.num_heads * depth, (self.num_heads + self.kv_num_heads) * depth]
            q, k, v = np.split(given.query, cuts, axis=2)
        else:
            q, k, v = given.query, given.key, given.value
            depth = width // self.num_heads
        q, k, v = (x.reshape(batch, steps, -1, depth).transpose(0, 2, 1, 3) for x in (q, k, v))
        lengths = given.lengths.reshape(-1).astype(np.int64)
        if given.query_lengths is not None:
            before = lengths + 1 - given.query_lengths
        else:
            before = np.zeros_like(lengths) if steps == total else lengths + 1 - steps
        if self.do_rotary:
            positions = before[:, None] + np.arange(steps) if given.positions is None else given.positions
            turned = RotaryEmbedding(
                interleaved=self.rotary_interleaved, rotary_embedding_dim=2 * given.cosines.shape[1]
            )
            q, k = (turned.evaluate(x, given.cosines, given.sines, positions) for x in (q, k))
        rows = max(total, 0 if given.past_key is None else given.past_key.shape[2])
        scales = (given.key_scale, given.value_scale)
        quantized = self._quantized()
        if quantized:
            k, v = (cache.quantized(x, scale) for cache, x, scale in zip(quantized, (k, v), scales, strict=True))
        elif given.past_key is not None:
            with np.errstate(over="ignore"):
                k, v = k.astype(given.past_key.dtype), v.astype(given.past_value.dtype)
        first, window = before, self.local_window_size  # where rows that are seen begin to be new
        if self.sliding_window_cache:
            first = np.minimum(before, window - 1)
            count = min(steps + window - 1, total)
            pairs = ((given.past_key, k), (given.past_value, v))
            seen, presents = zip(*(slid(past, new, before, window, count) for past, new in pairs), strict=True)
        else:
            presents = [_updated(past, new, before, rows) for past, new in ((given.past_key, k), (given.past_value, v))]
            seen = [x[:, :, :total] for x in presents]
        groups = self.num_heads // self.kv_num_heads
        if quantized:
            seen = [cache.widened(x, scale) for cache, x, scale in zip(quantized, seen, scales, strict=True)]
        keys, values = (np.repeat(widen(x), groups, 1) for x in seen)
        scores = widen(q) @ keys.swapaxes(2, 3) * np.float32(self.scale or 1 / math.sqrt(depth))
        if self.softcap > 0:
            scores = np.tanh(scores / np.float32(self.softcap)) * np.float32(self.softcap)
        if given.bias is not None:
            scores = scores + self._seen_bias(widen(given.bias), before - first, scores.shape[3])
        position = first[:, None, None] + np.arange(steps)[:, None]
        column = np.arange(scores.shape[3])
        allowed = column <= position if self.causal else column <= lengths[:, None, None]
        if self.local_window_size > 0:
            allowed = allowed & (column > position - self.local_window_size)
        shown = np.where(allowed[:, None], scores, 0)
        scores = np.where(allowed[:, None], scores, -np.inf)
        sink = self._sink(given)
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        sinks = None if sink is None else widen(np.asarray(sink)).reshape(1, -1, 1, 1)
        top = top if sinks is None else np.maximum(top, sinks)
        weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
        sums = weights.sum(-1, keepdims=True) + (0 if sinks is None else np.exp(sinks - top))
        weights = (weights / np.where(sums == 0, 1, sums)).astype(np.float32)
        y = (weights @ values).transpose(0, 2, 1, 3).reshape(batch, steps, -1)
        results = (y.astype(given.query.dtype), *presents)
        if not self.qk_output:
            return results
        return *results, (shown if self.qk_output == BEFORE_SOFTMAX else weights).astype(given.query.dtype)

    @staticmethod
    def _seen_bias(bias: np.ndarray, shift: np.ndarray, count: int) -> np.ndarray:
        """Columns shift[b] and on of a bias; the last again behind it, for rows that nothing sees."""
        places = np.minimum(shift[:, None] + np.arange(count), bias.shape[3] - 1)[:, None, None]
        whole = np.broadcast_to(bias, (len(shift), *bias.shape[1:]))
        return np.take_along_axis(whole, np.broadcast_to(places, (*whole.shape[:3], count)), 3)

    def _sink(self, given: _Given) -> Any:
        """What each head's sum of weights has besides; None: nothing."""
        if given.sink is not None:
            return given.sink
        return np.zeros(self.num_heads, np.float32) if self.smooth_softmax > 0 else None

    # ------------------------------------------------------------ lowering

    def lower(self, to: Lowering, *inputs: Value | None) -> tuple[Value, ...]:
        if self.qk_output:  # kernels never have all scores at a time
            return to.host(self, inputs)
        given = _Given(*inputs)
        total = to.context.constant_of(given.total, "total_sequence_length")[0]
        sizes = self._sizes(to.context, given, total)
        batch, steps, depth = sizes.batch, sizes.steps, sizes.depth
        before = self._lower_before(to, given, sizes)
        q, k, v = self._lower_heads(to, given, sizes)
        if self.do_rotary:
            positions = given.positions
            if positions is None:
                following = e.operand(0, DType.INT64) + e.index(1)
                positions = to.map(following, to.broadcast(to.reshape(before, (batch, 1)), (batch, steps)))
            turned = RotaryEmbedding(
                interleaved=self.rotary_interleaved,
                rotary_embedding_dim=2 * given.cosines.shape[1] if isinstance(given.cosines.shape[1], int) else 0,
            )
            q, k = (as_tuple(turned.lower(to, x, given.cosines, given.sines, positions))[0] for x in (q, k))
        q, quantized, presents = to.cast(q, DType.FLOAT), self._quantized(), []
        if quantized:
            keys, values = quantized
            k, v = keys.lower_quantized(to, k, given.key_scale), values.lower_quantized(to, v, given.value_scale)
            q = keys.lower_queries(to, q, given.key_scale)
        elif given.past_key is not None:
            k, v = to.cast(k, given.past_key.dtype), to.cast(v, given.past_value.dtype)
        window, seen = self.local_window_size, []
        count = seen_rows(window, steps, total) if self.sliding_window_cache else total
        for past, new in ((given.past_key, k), (given.past_value, v)):
            if self.sliding_window_cache:
                attended, present = lower_slid(to, past, new, before, window, count)
            else:
                type = TensorType(new.dtype, (batch, self.kv_num_heads, sizes.rows, new.shape[3]))
                present = to.emit(c.CacheUpdate(), (past, new, before), type)
                attended = to.slice(present, (0,) * 4, (1,) * 4, (*present.shape[:2], total, present.shape[3]))
            presents.append(present)
            seen.append(attended)
        bias = None if given.bias is None else to.cast(given.bias, DType.FLOAT)
        if self.sliding_window_cache:
            first = to.map(e.minimum(e.operand(0, DType.INT64), window - 1), before)
            if bias is not None:
                shift = to.map(e.operand(0, DType.INT64) - e.operand(1, DType.INT64), before, first)
                bias = lower_bias(to, bias, shift, (batch, self.num_heads, steps, count))
            before, sizes = first, sizes._replace(total=count)
        y = self._lower_attention(to, given._replace(bias=bias), sizes, q, seen, before)
        if quantized:
            y = values.lower_results(to, y, given.value_scale)
        y = to.reshape(to.transpose(y, (0, 2, 1, 3)), (batch, steps, self.num_heads * depth))
        return to.cast(y, given.query.dtype), *presents

    def _lower_before(self, to: Lowering, given: _Given, sizes: _Sizes) -> Value:
        """How many rows of the cache each row of the batch has, int64 [batch]."""
        lengths = to.cast(to.reshape(given.lengths, (sizes.batch,)), DType.INT64)
        length, steps, total = (e.operand(i, DType.INT64) for i in range(3))
        if given.query_lengths is not None:
            return to.map(length + 1 - steps, lengths, to.cast(given.query_lengths, DType.INT64))
        before = e.where(e.equal(steps, total), 0, length + 1 - steps)
        return to.map(before, lengths, _dimension(to, sizes.steps), _dimension(to, sizes.total))

    def _lower_heads(self, to: Lowering, given: _Given, sizes: _Sizes) -> tuple[Value, Value, Value]:
        """Queries, keys and values as [batch, heads, steps, size]."""
        batch, steps, depth = sizes.batch, sizes.steps, sizes.depth
        counts = (self.num_heads, self.kv_num_heads, self.kv_num_heads)
        if given.key is None:
            every = to.reshape(given.query, (batch, steps, sum(counts), depth))
            starts = (0, counts[0], counts[0] + counts[1])
            parts = [
                to.slice(every, (0, 0, start, 0), (1,) * 4, (batch, steps, count, depth))
                for start, count in zip(starts, counts, strict=True)
            ]
        else:
            given_parts = zip((given.query, given.key, given.value), counts, strict=True)
            parts = [to.reshape(x, (batch, steps, count, depth)) for x, count in given_parts]
        q, k, v = (to.transpose(x, (0, 2, 1, 3)) for x in parts)
        return q, k, v

    def _lower_attention(
        self, to: Lowering, given: _Given, sizes: _Sizes, q: Value, seen: list[Value], before: Value
    ) -> Value:
        """[batch, heads, steps, size], in float32. seen: keys and values [batch, heads, sizes.total, ...], of
        floating-point numbers, or integers as they lie in a cache; `before` of each row are not new."""
        keys, values = seen
        shape = (sizes.batch, self.num_heads, sizes.steps, sizes.depth)
        allowed = self._lower_allowed(to, given, sizes, before)
        sink = self._sink(given)
        scale = self.scale
        if not scale:
            if isinstance(sizes.depth, int):
                scale = 1 / math.sqrt(sizes.depth)
            else:  # only a run tells by how much: the queries are divided instead
                root = e.unary("sqrt", e.cast(e.operand(1, DType.INT64), DType.FLOAT))
                q, scale = to.map(e.operand(0, DType.FLOAT) / root, q, _dimension(to, sizes.depth)), 1.0
        bias = given.bias
        if bias is not None and bias.shape[3] != sizes.total:
            bias = to.slice(bias, (0,) * 4, (1,) * 4, (*bias.shape[:3], sizes.total))
        if self.softcap <= 0 and sink is None:
            mask = allowed
            if bias is not None:
                chosen = e.where(e.operand(0, DType.BOOL), e.operand(1, DType.FLOAT), -math.inf)
                mask = to.map(chosen, allowed, bias)
            computation = c.Attention(scale, causal=False, masked_rows_zero=True)
            return to.emit(computation, (q, keys, values, mask), TensorType(DType.FLOAT, shape))
        caches = self._quantized() or (None, None)
        keys, values = (
            to.cast(x, DType.FLOAT) if cache is None else cache.lower_widened(to, x)
            for cache, x in zip(caches, seen, strict=True)
        )
        groups = self.num_heads // self.kv_num_heads
        grouped = (sizes.batch, self.kv_num_heads, groups)
        inner = to.reshape(q, (*grouped, sizes.steps, sizes.depth))
        turned = to.reshape(
            to.transpose(keys, (0, 1, 3, 2)), (sizes.batch, self.kv_num_heads, 1, sizes.depth, sizes.total)
        )
        scores = to.reshape(to.matmul(inner, turned), (*shape[:3], sizes.total))
        x = e.operand(0, DType.FLOAT) * scale
        if self.softcap > 0:
            x = e.tanh(x / self.softcap) * self.softcap
        operands = [scores, allowed]
        if bias is not None:
            x, operands = x + e.operand(2, DType.FLOAT), [*operands, bias]
        masked = to.map(e.where(e.operand(1, DType.BOOL), x, -math.inf), *operands)
        weights = self._lower_weights(to, masked, sink)
        y = to.matmul(
            to.reshape(weights, (*grouped, sizes.steps, sizes.total)),
            to.reshape(values, (sizes.batch, self.kv_num_heads, 1, sizes.total, sizes.depth)),
        )
        return to.reshape(y, shape)

    def _lower_weights(self, to: Lowering, scores: Value, sink: Any) -> Value:
        """The softmax; with a sink, that of a column more, which is left out."""
        if sink is None:  # no row is masked as a whole: each query sees itself
            return to.emit(c.Softmax(3, log=False), [scores], scores.type)
        column = to.cast(to.constant(sink), DType.FLOAT) if isinstance(sink, np.ndarray) else to.cast(sink, DType.FLOAT)
        column = to.broadcast(to.reshape(column, (1, self.num_heads, 1, 1)), (*scores.shape[:3], 1))
        both = to.concat([scores, column], 3)
        return to.slice(to.emit(c.Softmax(3, log=False), [both], both.type), (0,) * 4, (1,) * 4, scores.shape)

    def _lower_allowed(self, to: Lowering, given: _Given, sizes: _Sizes, before: Value) -> Value:
        """Which keys a query sees, a bool [batch, 1, steps, total]."""
        column, row, first = (e.operand(i, DType.INT64) for i in range(3))
        position = row + first
        allowed = column <= position
        if self.local_window_size > 0:
            allowed = e.logical_and(allowed, column > position - self.local_window_size)
        columns = to.fill(e.index(3), (1, 1, 1, sizes.total))
        rows = to.fill(e.index(2), (1, 1, sizes.steps, 1))
        if not self.causal:
            allowed, before = column <= first, to.cast(to.reshape(given.lengths, (sizes.batch,)), DType.INT64)
        return to.map(allowed, columns, rows, to.reshape(before, (sizes.batch, 1, 1, 1)))


def _updated(past: np.ndarray | None, new: np.ndarray, before: np.ndarray, rows: int) -> np.ndarray:
    """A cache of `rows` rows with those of past, and new ones from row before[b] on. ValueError if they do not fit."""
    present = np.zeros((*new.shape[:2], rows, new.shape[3]), new.dtype)
    if past is not None:
        present[:, :, : past.shape[2]] = past
    for row, first in enumerate(before.tolist()):
        if first < 0 or first + new.shape[2] > rows:
            raise ValueError(f"rows {first} to {first + new.shape[2] - 1} do not fit into a cache of {rows}")
        present[row, :, first : first + new.shape[2]] = new[row]
    return present


def _dimension(to: Lowering, dim: DimLike) -> Value:
    """A size as an int64 vector of one element."""
    return to.constant(np.asarray([dim])) if isinstance(dim, int) else to.dimensions(contents_array([dim], (1,)))
