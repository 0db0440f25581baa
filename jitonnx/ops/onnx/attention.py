"""Attention, and the rotary embedding of positions that goes with it."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, floor_divide, maximum, minimum, not_negative
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import Shape, TensorType
from jitonnx.ops.base import lower_halves, widen
from jitonnx.support.records import NamedTuple


class _Given(NamedTuple):
    """The inputs of an Attention: their values or arrays."""

    q: Any
    k: Any
    v: Any
    mask: Any = None
    past_key: Any = None
    past_value: Any = None
    lengths: Any = None


class _Heads(NamedTuple):
    """Shapes of an Attention by head: q [B, H, S, D], k [B, Hkv, T, D], v [B, Hkv, T, Dv], T without the past."""

    q: tuple[Any, ...]
    k: tuple[Any, ...]
    v: tuple[Any, ...]
    past: Any

    @property
    def total(self) -> Any:
        """The number of keys, those of the past included."""
        return self.k[2] + self.past


class Attention(Operator):
    """softmax(scale * Q Kᵀ, capped, + mask) V for each head; K and V are appended to those of the past.

    Inputs of rank 3 have their heads side by side in the last axis. A row in which everything is masked gives 0.
    """

    is_causal: bool = False
    kv_num_heads: int | None = None
    left_window_size: int = -1
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None

    # ------------------------------------------------------------ types

    def _heads(self, given: _Given) -> _Heads:
        q, k, v = given.q.shape, given.k.shape, given.v.shape
        if not len(q) == len(k) == len(v) or len(q) not in (3, 4):
            raise InferenceError(f"Q, K and V have the ranks {len(q)}, {len(k)} and {len(v)}: all 3 or all 4 expected")
        if len(q) == 3:
            if not self.q_num_heads or not self.kv_num_heads:
                raise InferenceError("inputs of rank 3 need the attributes q_num_heads and kv_num_heads")
            q, k, v = (
                (shape[0], heads, shape[1], floor_divide(shape[2], heads))
                for shape, heads in ((q, self.q_num_heads), (k, self.kv_num_heads), (v, self.kv_num_heads))
            )
        return _Heads(q, k, v, 0 if given.past_key is None else given.past_key.shape[2])

    def infer(self, context: InferenceContext, *inputs: Value | None) -> tuple[TensorType, ...]:
        q, k, v, mask, past_key, past_value, lengths = given = _Given(*inputs)
        if (past_key is None) != (past_value is None):
            raise InferenceError("past_key and past_value must be given together")
        if past_key is not None and lengths is not None:
            raise InferenceError("nonpad_kv_seqlen cannot be given together with past_key and past_value")
        if min(self.left_window_size, self.right_window_size) < -1:
            raise InferenceError("left_window_size and right_window_size must be -1 or more")
        heads = self._heads(given)
        batch, count, rows, depth = heads.q
        pairs = ((batch, heads.k[0]), (batch, heads.v[0]), (depth, heads.k[3]), (heads.k[2], heads.v[2]))
        if not all(context.demand_equal(a, b) for a, b in (*pairs, (heads.k[1], heads.v[1]))):
            raise InferenceError(f"Q {q.type}, K {k.type} and V {v.type} do not fit each other")
        if not context.demand_divisible(count, heads.k[1]):
            raise InferenceError(f"{count} heads of Q do not divide among {heads.k[1]} of K and V")
        if mask is not None and not context.demand_equal(minimum(mask.shape[-1], heads.total), mask.shape[-1]):
            raise InferenceError(f"the mask {mask.type} is for more than the {heads.total} keys that there are")
        around = () if mask is None else zip(mask.shape[-2::-1], (rows, count, batch), strict=False)
        if not all(
            dim == 1 or context.assume_equal(dim, wanted) or context.assume_equal(dim, 1) for dim, wanted in around
        ):
            raise InferenceError(
                f"the mask {mask and mask.type} does not broadcast to [{batch}, {count}, {rows}, keys]"
            )
        by_head = (batch, count, rows, heads.v[3])
        y = by_head if len(q.shape) == 4 else (batch, rows, count * heads.v[3])
        return (
            TensorType(q.dtype, y),
            TensorType(k.dtype, (batch, heads.k[1], heads.total, heads.k[3])),
            TensorType(v.dtype, (batch, heads.v[1], heads.total, heads.v[3])),
            TensorType(q.dtype, (batch, count, rows, heads.total)),
        )

    # ------------------------------------------------------------ evaluation

    def evaluate(self, *inputs: np.ndarray | None) -> tuple[np.ndarray, ...]:
        q, k, v, mask, past_key, past_value, lengths = given = _Given(*inputs)
        heads = self._heads(given)
        queries, keys, values = (_by_head(x, shape) for x, shape in ((q, heads.q), (k, heads.k), (v, heads.v)))
        if past_key is not None:
            keys, values = np.concatenate((past_key, keys), 2), np.concatenate((past_value, values), 2)
        wide = widen(queries)
        repeats = wide.shape[1] // keys.shape[1]
        factor = wide.dtype.type(math.sqrt(self._scale(heads)))
        logits = (wide * factor) @ (np.repeat(widen(keys), repeats, 1) * factor).swapaxes(2, 3)
        capped = np.tanh(logits / self.softcap) * wide.dtype.type(self.softcap) if self.softcap > 0 else logits
        bias = self._bias(mask, lengths, heads, wide.dtype)
        biased = capped + bias
        weights = _masked_softmax(self._precise(biased), np.isneginf(bias.max(axis=-1, keepdims=True, initial=-np.inf)))
        weights = weights.astype(wide.dtype, copy=False)
        y = weights @ np.repeat(widen(values), repeats, 1)
        if q.ndim == 3:
            y = y.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[1], -1)
        stage = (logits, capped, biased, weights)[self.qk_matmul_output_mode]
        return y.astype(q.dtype, copy=False), keys, values, stage.astype(q.dtype, copy=False)

    def _scale(self, heads: _Heads) -> float:
        return self.scale if self.scale is not None else 1 / math.sqrt(max(int(heads.q[3]), 1))

    def _precise(self, logits: np.ndarray) -> np.ndarray:
        if self.softmax_precision is None:
            return logits
        return widen(logits.astype(DType(self.softmax_precision).numpy))

    def _bias(self, mask: np.ndarray | None, lengths: np.ndarray | None, heads: _Heads, dtype: np.dtype) -> np.ndarray:
        """What is added to the logits: -inf where a key is not attended. Broadcasts to [B, H, S, T]."""
        rows, total = int(heads.q[2]), int(heads.total)
        allowed = np.ones((rows, total), bool)
        column = np.arange(total)
        offset: Any = heads.past
        if lengths is not None:
            offset = (lengths.reshape(-1) - rows).reshape(-1, 1, 1, 1)
            allowed = allowed & (column < lengths.reshape(-1, 1, 1, 1))
        position = np.arange(rows)[:, None] + offset
        if self.is_causal:
            allowed = allowed & (column <= position)
        if self.left_window_size >= 0:
            allowed = allowed & (column >= position - self.left_window_size)
        if self.right_window_size >= 0:
            allowed = allowed & (column <= position + self.right_window_size)
        if mask is None:
            return np.where(allowed, 0, -np.inf).astype(dtype)
        added = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask.astype(dtype)
        short = total - added.shape[-1]
        added = np.pad(added, [(0, 0)] * (added.ndim - 1) + [(0, max(short, 0))], constant_values=-np.inf)
        return np.where(allowed, added, -np.inf).astype(dtype)

    # ------------------------------------------------------------ lowering

    def _in_cache(self, to: Lowering) -> bool:
        """Whether one kernel does all, which keeps the scores in cache: they are not given out, capped or rounded on
        the way. For inputs of float32 or half precision."""
        return to.wanted <= 3 and self.softcap <= 0 and self.softmax_precision in (None, DType.FLOAT)

    def _caches(self, to: Lowering, *inputs: Value | None) -> tuple[int, ...]:
        """Keys, values and their past where they are caches of half precision, which the kernel widens as it reads
        them. What no earlier run left comes from products, as float32."""
        _, k, v, _, past_key, past_value, lengths = _Given(*inputs)
        given = [value for value in (k, v, past_key, past_value) if value is not None]
        is_cache = past_key is not None or lengths is not None
        alike = given[0].dtype in HALVES and all(value.dtype is given[0].dtype for value in given)
        return (1, 2, 4, 5) if is_cache and alike and self._in_cache(to) else ()

    @functools.partial(lower_halves, keeps=_caches)
    def lower(self, to: Lowering, *inputs: Value | None) -> tuple[Value, ...]:
        q, k, v, mask, past_key, past_value, lengths = given = _Given(*inputs)
        heads = self._heads(given)
        whole = self._in_cache(to) and q.dtype is DType.FLOAT
        queries, keys, values = (_lower_by_head(to, x, s) for x, s in ((q, heads.q), (k, heads.k), (v, heads.v)))
        if past_key is not None and past_value is not None:
            keys, values = to.concat([past_key, keys], 2), to.concat([past_value, values], 2)
        plain = whole and past_key is None and lengths is None  # query i then attends keys 0 to i if causal
        if mask is not None and mask.dtype is not DType.BOOL:
            mask = to.cast(mask, q.dtype)
        bias = self._lower_mask(to, mask, lengths, heads, q.dtype, plain=plain)
        scale = 1.0
        if self.scale is not None or isinstance(heads.q[3], int):
            scale = self._scale(heads)
        else:  # only a run tells by how much: the queries are divided instead
            root = e.unary("sqrt", e.cast(e.operand(1, DType.INT64), q.dtype))
            queries = to.map(e.operand(0, q.dtype) / root, queries, _dimension(to, maximum(heads.q[3], 1)))
        weighted = values if keys.dtype in HALVES else to.cast(values, q.dtype)
        if whole:
            computation = c.Attention(scale, bool(self.is_causal) and plain, masked_rows_zero=True)
            operands = (queries, keys, weighted) if bias is None else (queries, keys, weighted, bias)
            y = to.emit(computation, operands, TensorType(q.dtype, (*heads.q[:3], heads.v[3])))
            stages: list[Value] = []
        else:
            y, stages = self._lower_parts(to, (queries, keys, weighted), bias, scale)
        if len(q.shape) == 3:
            y = to.reshape(to.transpose(y, (0, 2, 1, 3)), (q.shape[0], q.shape[1], heads.q[1] * heads.v[3]))
        return (y, keys, values, *stages[self.qk_matmul_output_mode :][:1])

    def _lower_parts(
        self, to: Lowering, operands: tuple[Value, Value, Value], bias: Value | None, scale: float
    ) -> tuple[Value, list[Value]]:
        """Attention by head as products and a softmax between them; and the stages of the scores: as they are, capped,
        masked, and as weights."""
        q, k, v = operands
        x = e.operand(0, q.dtype)
        logits = to.map(x * scale, _lower_grouped(to, q, to.transpose(k, (0, 1, 3, 2))))
        capped = logits if self.softcap <= 0 else to.map(e.tanh(x / self.softcap) * self.softcap, logits)
        added = None
        if bias is not None:
            is_bool = bias.dtype is DType.BOOL
            added = (
                to.map(e.where(e.operand(0, DType.BOOL), e.constant(0.0, q.dtype), -math.inf), bias)
                if is_bool
                else bias
            )
        biased = capped if added is None else to.map(x + e.operand(1, q.dtype), capped, added)
        precise = q.dtype if self.softmax_precision is None else DType(self.softmax_precision)
        rounded = to.cast(to.cast(biased, precise), DType.FLOAT if precise in HALVES else precise)
        weights = to.cast(to.emit(c.Softmax(3, log=False), [rounded], rounded.type), q.dtype)
        if added is not None:  # a row in which everything is masked gives 0
            top = to.reduce("max", added, (len(added.shape) - 1,), keepdims=True)
            weights = to.map(e.where(e.equal(e.operand(1, q.dtype), -math.inf), 0.0, x), weights, top)
        return _lower_grouped(to, weights, v), [logits, capped, biased, weights]

    def _lower_mask(
        self, to: Lowering, mask: Value | None, lengths: Value | None, heads: _Heads, dtype: DType, *, plain: bool
    ) -> Value | None:
        """The mask with everything in it that c.Attention does not know: offsets, windows, lengths. None: no mask."""
        mask = _padded_mask(to, mask, heads.total)
        allowed = self._lower_allowed(to, lengths, heads, plain=plain)
        if allowed is None:
            return mask
        condition = e.operand(0, DType.BOOL)
        if mask is None:
            return allowed
        if mask.dtype is DType.BOOL:
            return to.map(e.logical_and(condition, e.operand(1, DType.BOOL)), allowed, mask)
        return to.map(e.where(condition, e.operand(1, dtype), -math.inf), allowed, mask)

    def _lower_allowed(self, to: Lowering, lengths: Value | None, heads: _Heads, *, plain: bool) -> Value | None:
        """Which keys a query may attend by position, a bool that broadcasts to [B, H, S, T]; None: all, or causal."""
        rows = heads.q[2]
        column, row, offset = (e.operand(i, DType.INT64) for i in range(3))
        conditions: list[e.Expr] = []
        position = row + offset
        if self.is_causal and not plain:
            conditions.append(column <= position)
        if self.left_window_size >= 0:
            conditions.append(column >= position - self.left_window_size)
        if self.right_window_size >= 0:
            conditions.append(column <= position + self.right_window_size)
        if lengths is not None:  # the offset is the number of keys less that of queries
            conditions.append(column < offset + e.operand(3, DType.INT64))
        if not conditions:
            return None
        condition = conditions[0]
        for other in conditions[1:]:
            condition = e.logical_and(condition, other)
        columns = to.fill(e.index(3), (1, 1, 1, heads.total))
        positions = to.fill(e.index(2), (1, 1, rows, 1))
        size = _dimension(to, rows)
        if lengths is None:
            return to.map(condition, columns, positions, _dimension(to, heads.past))
        valid = to.reshape(to.cast(lengths, DType.INT64), (heads.q[0], 1, 1, 1))
        shift = to.map(e.operand(0, DType.INT64) - e.operand(1, DType.INT64), valid, size)
        return to.map(condition, columns, positions, shift, size)


def _lower_grouped(to: Lowering, a: Value, b: Value) -> Value:
    """The product of a [B, H, S, K] with b [B, Hkv, K, N], of which several heads of `a` in a row share one."""
    if a.shape[1] == b.shape[1]:
        return to.matmul(a, b)
    shared = b.shape[1]
    groups = floor_divide(a.shape[1], shared)
    by_group = to.reshape(a, (a.shape[0], shared, groups, *a.shape[2:]))
    product = to.matmul(by_group, to.reshape(b, (b.shape[0], shared, 1, *b.shape[2:])))
    return to.reshape(product, (*a.shape[:3], b.shape[3]))


def _dimension(to: Lowering, dim: DimLike) -> Value:
    """A size as an int64 vector of one element."""
    return to.constant(np.asarray([dim])) if isinstance(dim, int) else to.dimensions(np.asarray([dim], object))


def _by_head(x: np.ndarray, shape: tuple[Any, ...]) -> np.ndarray:
    """[B, S, H * D] as [B, H, S, D]."""
    if x.ndim == 4:
        return x
    batch, heads, rows, depth = shape
    return x.reshape(batch, rows, heads, depth).transpose(0, 2, 1, 3)


def _lower_by_head(to: Lowering, x: Value, shape: Shape) -> Value:
    if len(x.shape) == 4:
        return x
    batch, heads, rows, depth = shape
    return to.transpose(to.reshape(x, (batch, rows, heads, depth)), (0, 2, 1, 3))


def _masked_softmax(logits: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, 0 in the rows in which everything is masked."""
    top = logits.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(logits - np.where(np.isneginf(top), 0, top))
    total = exponentials.sum(axis=-1, keepdims=True)
    return np.where(masked, 0, exponentials / np.where(total == 0, 1, total)).astype(logits.dtype)


def _padded_mask(to: Lowering, mask: Value | None, total: DimLike) -> Value | None:
    """A mask for fewer keys than there are allows none of the others."""
    if mask is None or not_negative(mask.shape[-1] - total):
        return mask
    nothing = (0,) * (len(mask.shape) - 1)
    fill: Any = False if mask.dtype is DType.BOOL else -math.inf
    value = to.constant(np.asarray(fill, mask.dtype.numpy))
    pad = c.Pad((*nothing, 0), (*nothing, total - mask.shape[-1]), "constant")
    return to.emit(pad, (mask, value), TensorType(mask.dtype, (*mask.shape[:-1], total)))


class RotaryEmbedding(Operator):
    """Pairs of elements of each head turned by an angle that depends on the position.

    X is [B, H, S, D], or [B, S, H * D] with num_heads; the caches hold cosines and sines by position, or by batch and
    step where there are no position_ids. The pairs are neighbours if `interleaved`, else one in each half.
    """

    interleaved: bool = False
    num_heads: int | None = None
    rotary_embedding_dim: int = 0

    def _shape(self, x: Shape) -> Shape:
        """[B, H, S, D] for an input of either rank."""
        if len(x) == 4:
            return x
        if len(x) != 3 or not self.num_heads:
            raise InferenceError(f"X has rank {len(x)}: 4 expected, or 3 with the attribute num_heads")
        return (x[0], self.num_heads, x[1], floor_divide(x[2], self.num_heads))

    def _turned(self, context: InferenceContext, shape: Shape) -> DimLike:
        """How many elements of a head are turned."""
        turned, depth = self.rotary_embedding_dim or shape[3], shape[3]
        if not (context.demand_divisible(turned, 2) and context.demand_equal(minimum(turned, depth), turned)):
            raise InferenceError(f"{turned} elements of a head of {depth} cannot be turned in pairs")
        return turned

    def infer(
        self, context: InferenceContext, x: Value, cosines: Value, sines: Value, positions: Value | None = None
    ) -> TensorType:
        shape = self._shape(x.shape)
        half = floor_divide(self._turned(context, shape), 2)
        rank = 3 if positions is None else 2
        for name, cache in (("cos_cache", cosines), ("sin_cache", sines)):
            if len(cache.shape) != rank or not context.demand_equal(cache.shape[-1], half):
                raise InferenceError(f"{name} has the type {cache.type}: rank {rank} and {half} columns expected")
        if positions is not None and context.broadcast_shapes(positions.shape, (shape[0], shape[2])) is None:
            raise InferenceError(f"position_ids has the type {positions.type}: [batch, sequence] expected")
        return x.type

    def evaluate(
        self, x: np.ndarray, cosines: np.ndarray, sines: np.ndarray, positions: np.ndarray | None = None
    ) -> np.ndarray:
        shape = self._shape(x.shape)
        turned = self._turned(EXACT, shape)
        heads = widen(_by_head(x, shape))
        cos, sin = (widen(cache if positions is None else cache[positions])[:, None] for cache in (cosines, sines))
        first, second = (slice(*bounds) for bounds in self._pairs(turned))
        y = heads.copy()
        y[..., first] = cos * heads[..., first] - sin * heads[..., second]
        y[..., second] = sin * heads[..., first] + cos * heads[..., second]
        if x.ndim == 3:
            y = y.transpose(0, 2, 1, 3).reshape(x.shape)
        return np.ascontiguousarray(y).astype(x.dtype, copy=False)

    def _pairs(self, turned: DimLike) -> tuple[tuple[DimLike, DimLike, int], ...]:
        """Start, end and step of the first and of the second elements of the pairs."""
        if self.interleaved:
            return (0, turned, 2), (1, turned, 2)
        half = floor_divide(turned, 2)
        return (0, half, 1), (half, turned, 1)

    @lower_halves
    def lower(self, to: Lowering, x: Value, cosines: Value, sines: Value, positions: Value | None = None) -> Value:
        shape = self._shape(x.shape)
        turned, depth = self._turned(to.context, shape), shape[3]
        half = floor_divide(turned, 2)
        batch, count, rows, _ = shape
        heads = _lower_by_head(to, x, shape)
        cos, sin = (self._lower_cache(to, cache, positions, half) for cache in (cosines, sines))
        firsts, seconds = (
            to.slice(heads, (0, 0, 0, start), (1, 1, 1, step), (batch, count, rows, half))
            for start, _, step in self._pairs(turned)
        )
        a, b, u, w = (e.operand(i, x.dtype) for i in range(4))
        real = to.map(u * a - w * b, firsts, seconds, cos, sin)
        imaginary = to.map(w * a + u * b, firsts, seconds, cos, sin)
        if self.interleaved:
            columns = [to.reshape(part, (batch, count, rows, half, 1)) for part in (real, imaginary)]
            y = to.reshape(to.concat(columns, 4), (batch, count, rows, turned))
        else:
            y = to.concat([real, imaginary], 3)
        if depth != turned:
            kept = to.slice(heads, (0, 0, 0, turned), (1,) * 4, (batch, count, rows, depth - turned))
            y = to.concat([y, kept], 3)
        if len(x.shape) == 3:
            y = to.reshape(to.transpose(y, (0, 2, 1, 3)), x.shape)
        return y

    def _lower_cache(self, to: Lowering, cache: Value, positions: Value | None, half: DimLike) -> Value:
        """Cosines or sines as [B, 1, S, half]."""
        if positions is not None:
            cache = to.emit(c.Gather(0), (cache, positions), TensorType(cache.dtype, (*positions.shape, half)))
        return to.reshape(cache, (cache.shape[0], 1, cache.shape[1], half))
