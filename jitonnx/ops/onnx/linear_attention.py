"""Layers that keep a state in the place of all keys: linear attention, and the short convolution in front of it."""

from __future__ import annotations

import math

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, floor_divide
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import Shape, TensorType
from jitonnx.ops.base import lower_halves, widen
from jitonnx.ops.onnx.convolution import convolve
from jitonnx.ops.windows import WindowAttributes, slide


def linear_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    state: np.ndarray | None = None,
    factor: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    scale: float,
) -> tuple[np.ndarray, np.ndarray]:
    """A state for each head, updated step by step and read by the queries; and the last states."""
    batch, steps, heads, depth = k.shape
    s = np.zeros((batch, heads, depth, v.shape[3]), q.dtype) if state is None else state.astype(q.dtype)
    y = np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    for t in range(steps):
        if factor is not None:
            s = s * factor[:, t, :, :, None]
        new = v[:, t]
        if beta is not None:
            new = beta[:, t] * (new - (k[:, t, :, None] @ s)[:, :, 0])
        s = s + k[:, t, :, :, None] * new[:, :, None]
        queries = q[:, t].reshape(batch, heads, -1, depth)
        y[:, t] = (queries @ s).reshape(batch, -1, v.shape[3])
    return y * q.dtype.type(scale), s


class LinearAttention(Operator):
    """A state of keys by values for each head, to which every step adds and which its query reads.

    query [B, T, Hq * K], key [B, T, Hkv * K], value [B, T, Hkv * V]; the state is [B, Hkv, K, V]. update_rule: linear,
    S = S + k vᵀ; gated, S is multiplied by exp(decay) before; delta, beta (v - Sᵀ k) is added in the place of v;
    gated_delta, both. The output is scale Sᵀ q, scale 0 standing for 1 / sqrt(K). All of it is computed in float32.
    """

    chunk_size: int = 64
    kv_num_heads: int
    q_num_heads: int
    scale: float = 0.0
    update_rule: str = "gated_delta"

    def _check(self, decay: object, beta: object) -> None:
        rules = {"linear": (), "gated": ("decay",), "delta": ("beta",), "gated_delta": ("decay", "beta")}
        if self.update_rule not in rules:
            raise InferenceError(f"update_rule {self.update_rule!r}: one of {', '.join(rules)} expected")
        for name, given in (("decay", decay), ("beta", beta)):
            if (given is not None) != (name in rules[self.update_rule]):
                how = "needs" if given is None else "does not take"
                raise InferenceError(f"update_rule {self.update_rule!r} {how} the input {name}")
        if self.kv_num_heads < 1 or self.q_num_heads < 1 or self.q_num_heads % self.kv_num_heads:
            raise InferenceError(
                f"q_num_heads {self.q_num_heads}, kv_num_heads {self.kv_num_heads}: a multiple of the latter expected"
            )

    def _split(self, context: InferenceContext, shape: Shape, heads: int, name: str) -> Shape:
        """[B, T, H * D] as [B, T, H, D]."""
        if len(shape) != 3 or not context.demand_divisible(shape[2], heads):
            raise InferenceError(f"{name} has the shape {list(map(str, shape))}; [B, T, {heads} * size] expected")
        return (shape[0], shape[1], heads, floor_divide(shape[2], heads))

    def _shapes(self, context: InferenceContext, query: Shape, key: Shape, value: Shape) -> tuple[Shape, Shape, Shape]:
        q = self._split(context, query, self.q_num_heads, "query")
        k = self._split(context, key, self.kv_num_heads, "key")
        v = self._split(context, value, self.kv_num_heads, "value")
        pairs = ((q[0], k[0]), (q[0], v[0]), (q[1], k[1]), (q[1], v[1]), (q[3], k[3]))
        if not all(context.demand_equal(a, b) for a, b in pairs):
            raise InferenceError("query, key and value do not fit each other")
        return q, k, v

    def _decay(self, context: InferenceContext, shape: Shape, k: Shape) -> Shape:
        """decay as [B, T, Hkv, K], or [B, T, Hkv, 1] where all keys of a head have one."""
        batch, steps, heads, depth = k
        fits = len(shape) == 3 and context.demand_equal(shape[0], batch) and context.demand_equal(shape[1], steps)
        if fits and context.assume_equal(shape[2], heads * depth):
            return k
        if fits and context.assume_equal(shape[2], heads):
            return (batch, steps, heads, 1)
        raise InferenceError(
            f"decay has the shape {list(map(str, shape))}; [B, T, kv_num_heads] or [B, T, kv_num_heads * size] expected"
        )

    def _beta(self, context: InferenceContext, shape: Shape, k: Shape) -> Shape:
        """beta as [B, T, Hkv, 1], or [B, T, 1, 1] where all heads have one."""
        batch, steps, heads, _ = k
        fits = len(shape) == 3 and context.demand_equal(shape[0], batch) and context.demand_equal(shape[1], steps)
        if fits and context.assume_equal(shape[2], heads):
            return (batch, steps, heads, 1)
        if fits and context.assume_equal(shape[2], 1):
            return (batch, steps, 1, 1)
        raise InferenceError(f"beta has the shape {list(map(str, shape))}; [B, T, kv_num_heads] or [B, T, 1] expected")

    def infer(
        self,
        context: InferenceContext,
        query: Value,
        key: Value,
        value: Value,
        past: Value | None = None,
        decay: Value | None = None,
        beta: Value | None = None,
    ) -> tuple[TensorType, TensorType]:
        self._check(decay, beta)
        q, k, v = self._shapes(context, query.shape, key.shape, value.shape)
        if decay is not None:
            self._decay(context, decay.shape, k)
        if beta is not None:
            self._beta(context, beta.shape, k)
        state = (k[0], k[2], k[3], v[3])
        if past is not None and (len(past.shape) != 4 or not all(map(context.demand_equal, past.shape, state))):
            raise InferenceError(f"past_state has the type {past.type}; {list(map(str, state))} expected")
        y = (q[0], q[1], q[2] * v[3])
        return TensorType(query.dtype, y), TensorType(query.dtype if past is None else past.dtype, state)

    def _scale(self, depth: DimLike) -> float | None:
        """The factor of the output; None where it follows from a size that only a run tells."""
        if self.scale != 0.0:
            return self.scale
        return 1 / math.sqrt(max(depth, 1)) if isinstance(depth, int) else None

    def evaluate(
        self,
        query: np.ndarray,
        key: np.ndarray,
        value: np.ndarray,
        past: np.ndarray | None = None,
        decay: np.ndarray | None = None,
        beta: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        shapes = self._shapes(EXACT, query.shape, key.shape, value.shape)
        q, k, v = (widen(x).reshape(shape) for x, shape in zip((query, key, value), shapes, strict=True))
        factor = None if decay is None else np.exp(widen(decay).reshape(self._decay(EXACT, decay.shape, k.shape)))
        rate = None if beta is None else widen(beta).reshape(self._beta(EXACT, beta.shape, k.shape))
        scale = self._scale(int(k.shape[3]))
        assert scale is not None
        y, state = linear_attention(q, k, v, widen(past), factor, rate, scale=scale)
        y = y.reshape(*query.shape[:2], self.q_num_heads * v.shape[3])
        return y.astype(query.dtype), state.astype(query.dtype if past is None else past.dtype)

    def lower(
        self,
        to: Lowering,
        query: Value,
        key: Value,
        value: Value,
        past: Value | None = None,
        decay: Value | None = None,
        beta: Value | None = None,
    ) -> tuple[Value, ...]:
        q, k, v = self._shapes(to.context, query.shape, key.shape, value.shape)

        def wide(x: Value, shape: Shape) -> Value:
            return to.reshape(to.cast(x, DType.FLOAT), shape)

        scale, queries = self._scale(q[3]), wide(query, q)
        if scale is None:  # the queries are divided instead
            root = e.sqrt(e.cast(e.operand(1, DType.INT64), DType.FLOAT))
            depth = to.dimensions(np.asarray([q[3]], object))
            queries, scale = to.map(e.operand(0, DType.FLOAT) / root, queries, depth), 1.0
        state = None if past is None else to.cast(past, DType.FLOAT)
        factor = None
        if decay is not None:
            spread = self._decay(to.context, decay.shape, k)
            factor = to.map(e.exp(e.operand(0, DType.FLOAT)), wide(decay, spread))
        rate = None if beta is None else to.broadcast(wide(beta, self._beta(to.context, beta.shape, k)), (*k[:3], 1))
        if factor is not None:
            factor = to.broadcast(factor, k)
        inner = [TensorType(DType.FLOAT, shape) for shape in ((*q[:3], v[3]), (k[0], k[2], k[3], v[3]))]
        operands = (queries, wide(key, k), wide(value, v), state, factor, rate)
        y, present = to.emit_many(c.LinearAttention(scale), operands, inner)
        y = to.reshape(y, to.shape)
        return to.cast(y, query.dtype), to.cast(present, query.dtype if past is None else past.dtype)


class CausalConvWithState(Operator):
    """A convolution of each channel with a window that ends at each element, behind the elements that `past_state` has.

    input [B, C, L], weight [C, 1, k], bias [C], past_state [B, C, k - 1] (zeros if absent); the present state is the
    last k - 1 elements of past and input. activation: none, or silu (also called swish).
    """

    activation: str = "none"

    def infer(
        self, context: InferenceContext, x: Value, weight: Value, bias: Value | None = None, past: Value | None = None
    ) -> tuple[TensorType, TensorType]:
        if self.activation not in ("none", "silu", "swish"):
            raise InferenceError(f"activation {self.activation!r}: none, silu or swish expected")
        if len(x.shape) != 3 or len(weight.shape) != 3:
            raise InferenceError(f"input {x.type}, weight {weight.type}: three axes each expected")
        batch, channels, _ = x.shape
        if not (context.demand_equal(weight.shape[0], channels) and context.demand_equal(weight.shape[1], 1)):
            raise InferenceError(f"weight has the type {weight.type}; [{channels}, 1, k] expected")
        state = (batch, channels, weight.shape[2] - 1)
        for name, value, shape in (("bias", bias, (channels,)), ("past_state", past, state)):
            fits = value is None or (
                len(value.shape) == len(shape) and all(map(context.demand_equal, value.shape, shape))
            )
            if value is not None and not fits:
                raise InferenceError(f"{name} has the type {value.type}; {list(map(str, shape))} expected")
        return x.type, TensorType(x.dtype, state)

    def evaluate(
        self,
        x: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray | None = None,
        past: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        reach = weight.shape[2] - 1
        before = np.zeros((*x.shape[:2], reach), x.dtype) if past is None else past
        joined = np.concatenate([before, x], 2)
        windows = slide(EXACT, joined.shape[2:], weight.shape[2:], WindowAttributes())
        y = convolve(widen(joined), widen(weight), windows, x.shape[1]) if x.size else np.zeros(x.shape, np.float32)
        if bias is not None:
            y = y + widen(bias)[:, None]
        if self.activation != "none":
            y = y / (1 + np.exp(-y))
        return y.astype(x.dtype), joined[:, :, joined.shape[2] - reach :]

    @lower_halves
    def lower(
        self, to: Lowering, x: Value, weight: Value, bias: Value | None = None, past: Value | None = None
    ) -> tuple[Value, ...]:
        batch, channels, length = x.shape
        reach = weight.shape[2] - 1
        if not isinstance(reach, int):  # only a run tells how many taps there are: no code can be made for them
            return to.host(self, (x, weight, bias, past))
        joined = x
        if reach != 0:
            nothing = to.fill(e.constant(0.0, x.dtype), (batch, channels, reach))
            joined = to.concat([nothing if past is None else past, x], 2)
        y = self._convolved(to, joined, weight, length)
        if bias is not None:
            y = to.map(e.operand(0, x.dtype) + e.operand(1, x.dtype), y, to.reshape(bias, (channels, 1)))
        if self.activation != "none":
            y = to.map(e.silu(e.operand(0, x.dtype)), y)
        present = to.slice(joined, (0, 0, length), (1, 1, 1), (batch, channels, reach))
        return y, present

    def _convolved(self, to: Lowering, joined: Value, weight: Value, length: DimLike) -> Value:
        batch, channels, _ = joined.shape
        type = TensorType(joined.dtype, (batch, channels, length))
        if weight.constant is not None and isinstance(channels, int):
            return to.emit(c.Convolution((1,), (1,), (0,), (0,), channels), (joined, weight), type)
        parts, taps = [], weight.shape[2]
        assert isinstance(taps, int)
        for tap in range(taps):  # weights of the run: a sum of as many products
            window = to.slice(joined, (0, 0, tap), (1, 1, 1), (batch, channels, length))
            factor = to.reshape(to.slice(weight, (0, 0, tap), (1, 1, 1), (channels, 1, 1)), (channels, 1))
            parts += [window, factor]
        total: e.Expr = e.operand(0, joined.dtype) * e.operand(1, joined.dtype)
        for tap in range(1, taps):
            total = total + e.operand(2 * tap, joined.dtype) * e.operand(2 * tap + 1, joined.dtype)
        return to.map(total, *parts)
