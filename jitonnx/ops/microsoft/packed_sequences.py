"""Layers with a state over requests of different lengths, whose tokens lie one behind the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import DataDependentError, InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, of_type
from jitonnx.ops.onnx.activation import Sigmoid, Softplus, Swish
from jitonnx.ops.onnx.arithmetic import Add, Clip, Div, Exp, Min, Mul, Neg, Sqrt, Sub
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import ConstantOfShape, Range
from jitonnx.ops.onnx.linear_attention import LinearAttention
from jitonnx.ops.onnx.logic import Equal, GreaterOrEqual, Less, LessOrEqual, Not, Where
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.reduction import ReduceMax, ReduceProd, ReduceSum, ReduceSumSquare
from jitonnx.ops.onnx.shape import Expand, Flatten, Reshape, Shape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.parts import as_type, numbers, widened

LAST = np.iinfo(np.int64).max
NORM_EPSILON = 1e-12
"""What onnxruntime adds to the squares of a head's elements before it divides by their root."""
MOST_CAPTURED = 8
"""The largest state_update_capacity."""


class _Requests:
    """The bounds of the requests of packed tokens, of their prefix sums [B + 1]; all of it is int64.

    start, length [B]: of each request. of [tokens]: the request that a token is of. local [tokens]: its place there.
    """

    def __init__(self, parts: Parts, sums: Value, tokens: Value) -> None:
        """tokens: a value whose first axis the tokens are."""
        if len(sums.shape) != 1:
            raise InferenceError(f"the prefix sums of lengths are {sums.type}; [B + 1] is needed")
        self._parts = parts
        every = as_type(parts, sums, DType.INT64)
        self.start = parts.add(Slice(), every, numbers(parts, 0), numbers(parts, -1))
        self.end = parts.add(Slice(), every, numbers(parts, 1), numbers(parts, LAST))
        self.length = parts.add(Sub(), self.end, self.start)
        self.count = parts.add(Shape(), self.start)
        self.tokens = parts.add(Squeeze(), parts.add(Shape(end=1), tokens), numbers(parts, 0))
        position = self.counted(self.tokens)
        ended = parts.add(LessOrEqual(), parts.add(Unsqueeze(), self.end, numbers(parts, 1)), position)
        self.of = parts.add(ReduceSum(keepdims=False), as_type(parts, ended, DType.INT64), numbers(parts, 0))
        self.local = parts.add(Sub(), position, parts.add(Gather(), self.start, self.of))

    def counted(self, end: Value) -> Value:
        """0, 1, ... below a scalar."""
        parts = self._parts
        return parts.add(Range(), parts.constant(np.int64(0)), end, parts.constant(np.int64(1)))

    def column(self, of_requests: Value) -> Value:
        """[B] as [B, 1]."""
        return self._parts.add(Unsqueeze(), of_requests, numbers(self._parts, 1))

    def first(self, steps: Value, limit: Value) -> tuple[Value, Value]:
        """The places of each request's first tokens, by steps [T]: [B, T], 0 where there is none; and where there is
        one: those below limit [B]."""
        parts = self._parts
        there = parts.add(Less(), steps, self.column(limit))
        places = parts.add(Add(), self.column(self.start), steps)
        return parts.add(Where(), there, places, parts.constant(np.int64(0))), there


def _rows(parts: Parts, x: Value, places: Value, there: Value) -> Value:
    """Rows of x at places [B, T], zeros where `there` is false."""
    axes = numbers(parts, *range(2, len(x.shape) + 1))
    kept = parts.add(Unsqueeze(), there, axes) if len(x.shape) > 1 else there
    return parts.add(Where(), kept, parts.add(Gather(), x, places), of_type(parts, 0, x))


def _captured(parts: Parts, requests: _Requests, count: Value, capacity: int) -> Value:
    """How many of each request's first tokens are captured [B]: as many as asked for, as there are, and may be."""
    asked = parts.add(
        Clip(), as_type(parts, count, DType.INT64), parts.constant(np.int64(0)), parts.constant(np.int64(capacity))
    )
    return parts.add(Min(), asked, requests.length)


def _check_capacity(capacity: int, count: Value | None) -> None:
    if not 0 <= capacity <= MOST_CAPTURED:
        raise InferenceError(f"state_update_capacity is {capacity}: 0 to {MOST_CAPTURED} are possible")
    if (capacity > 0) != (count is not None):
        raise InferenceError("capture_count is needed with a state_update_capacity, and is not taken without")


class VarlenCausalConvWithState(Contributed):
    """CausalConvWithState of packed tokens [tokens, C], of which request i has those from cumulative_sequence_length[i]
    to [i + 1]; its state [B, C, (k - 1) * dilation] is what is before the first of them.

    state_update [B, state_update_capacity, C]: each request's first capture_count tokens, behind them zeros.
    """

    activation: str = "none"
    delta_offset: int = 0
    dilation: int = 1
    group_size: int = 1
    state_update_capacity: int = 0

    def compose(  # noqa: PLR0913  (the operator's inputs)
        self,
        parts: Parts,
        x: Value,
        weight: Value,
        sums: Value,
        bias: Value | None,
        state: Value,
        count: Value | None = None,
        delta: Value | None = None,
        mask: Value | None = None,
    ) -> tuple[Value, ...]:
        taps = self._checked_taps(x, weight, state, delta, mask)
        _check_capacity(self.state_update_capacity, count)
        requests, reach = _Requests(parts, sums, x), (taps - 1) * self.dilation
        if not parts.context.demand_equal(state.shape[2], reach):
            raise InferenceError(f"initial_state is {state.type}; [B, C, {reach}] is needed")
        joined = x
        if reach:  # behind all tokens the states of all requests, so that each element of a window is a row of it
            before = parts.add(Transpose(perm=(0, 2, 1)), state)
            width = parts.add(Shape(start=1), x)
            rows = parts.add(Reshape(), before, parts.add(Concat(axis=0), numbers(parts, -1), width))
            joined = parts.add(Concat(axis=0), x, rows)
        y = None
        for tap in range(taps):
            window = parts.add(Gather(), joined, self._places(parts, requests, reach, (taps - 1 - tap) * self.dilation))
            factor = parts.add(Gather(axis=1), parts.add(Squeeze(), weight, numbers(parts, 1)), numbers(parts, tap))
            row = widened(parts, parts.add(Squeeze(), factor, numbers(parts, 1)))
            product = parts.add(Mul(), widened(parts, window), row)
            y = product if y is None else parts.add(Add(), y, product)
        assert y is not None
        if bias is not None:
            y = parts.add(Add(), y, widened(parts, bias))
        if self.activation != "none":
            y = parts.add(Swish(), y)
        return (
            as_type(parts, y, x.dtype),
            self._final(parts, requests, joined, state, reach),
            self._update(parts, requests, x, count),
        )

    def _checked_taps(self, x: Value, weight: Value, state: Value, delta: Value | None, mask: Value | None) -> int:
        if delta is not None or mask is not None:
            raise InferenceError("kernel_delta and previous_mask are not supported, as by onnxruntime on CPUs")
        if self.activation not in ("none", "silu", "swish"):
            raise InferenceError(f"activation {self.activation!r}: none, silu or swish expected")
        if self.dilation < 1:
            raise InferenceError(f"dilation is {self.dilation}; at least 1 is needed")
        if len(x.shape) != 2 or len(weight.shape) != 3 or len(state.shape) != 3:
            raise InferenceError(
                f"input {x.type}, weight {weight.type}, initial_state {state.type}: [tokens, C], [C, 1, k] and "
                "[B, C, (k - 1) * dilation] are needed"
            )
        taps = weight.shape[2]
        if not isinstance(taps, int):
            raise DataDependentError(f"what the window spans depends on {weight.type}")
        return taps

    def _places(self, parts: Parts, requests: _Requests, reach: int, back: int) -> Value:
        """The row of what is `back` tokens before each token [tokens]."""
        if back == 0:
            return requests.counted(requests.tokens)
        local = requests.local
        here = parts.add(Sub(), requests.counted(requests.tokens), parts.constant(np.int64(back)))
        states = parts.add(Mul(), requests.of, parts.constant(np.int64(reach)))
        there = parts.add(Add(), parts.add(Add(), states, requests.tokens), local)
        there = parts.add(Add(), there, parts.constant(np.int64(reach - back)))
        inside = parts.add(GreaterOrEqual(), local, parts.constant(np.int64(back)))
        return parts.add(Where(), inside, here, there)

    def _final(self, parts: Parts, requests: _Requests, joined: Value, state: Value, reach: int) -> Value:
        """Each request's last `reach` rows, those of its state where it is shorter: [B, C, reach]."""
        if not reach:
            return state
        place = numbers(parts, *range(reach))
        length = requests.column(requests.length)
        local = parts.add(Add(), parts.add(Sub(), length, parts.constant(np.int64(reach))), place)
        inside = parts.add(GreaterOrEqual(), local, parts.constant(np.int64(0)))
        here = parts.add(Add(), requests.column(requests.start), local)
        which = requests.counted(parts.add(Squeeze(), requests.count, numbers(parts, 0)))
        states = parts.add(Mul(), which, parts.constant(np.int64(reach)))
        old = parts.add(Add(), parts.add(Add(), requests.column(states), requests.tokens), place)
        there = parts.add(Add(), old, length)
        rows = parts.add(Gather(), joined, parts.add(Where(), inside, here, there))
        return parts.add(Transpose(perm=(0, 2, 1)), rows)

    def _update(self, parts: Parts, requests: _Requests, x: Value, count: Value | None) -> Value:
        steps = numbers(parts, *range(self.state_update_capacity))
        captured = requests.length if count is None else _captured(parts, requests, count, self.state_update_capacity)
        return _rows(parts, x, *requests.first(steps, captured))


class GatedDeltaNet(Contributed):
    """LinearAttention of packed tokens, whose states are [B, heads of values, V, K] and float32.

    query and key [tokens, Hk, K], value [tokens, Hv, V], Hv a multiple of Hk; or query has all three side by side,
    [tokens, 2 * Hk * K + Hv * V], and initial_state tells the sizes. cu_seqlens [B + 1]: prefix sums of the requests'
    lengths; without, all have the same. Rank 4 stands for [B, S, heads, size]. decay [tokens, Hv] or [tokens, Hv, K],
    beta [tokens, Hv].

    gate_activation: softplus, the decay is -exp(a_log) * softplus(decay + dt_bias); sigmoid (or kda), gate_lower_bound
    * sigmoid(exp(a_log) * (decay + dt_bias)). beta_activation: none, sigmoid. qk_l2_norm: heads of queries and keys are
    divided by their length.

    state_update [B, C * (decays + Hk * K + Hv * V)], C state_update_capacity: factors, keys and what is added of the
    first capture_count steps of each request, behind them zeros; zeros alone where state_update_active is 0.
    """

    beta_activation: str = "none"
    chunk_size: int = 64
    gate_activation: str = "none"
    gate_lower_bound: float = -5.0
    qk_l2_norm: bool = False
    scale: float = 0.0
    state_update_capacity: int = 0
    update_rule: str = "gated_delta"

    def compose(  # noqa: PLR0913  (the operator's inputs)
        self,
        parts: Parts,
        query: Value,
        key: Value | None = None,
        value: Value | None = None,
        sums: Value | None = None,
        decay: Value | None = None,
        beta: Value | None = None,
        state: Value | None = None,
        a_log: Value | None = None,
        dt_bias: Value | None = None,
        count: Value | None = None,
        active: Value | None = None,
    ) -> tuple[Value, ...]:
        self._check(query, sums, decay, beta, state)
        _check_capacity(self.state_update_capacity, count)
        like = query
        if key is None or value is None:
            if key is not None or value is not None or state is None:
                raise InferenceError("packed queries, keys and values need initial_state, and neither key nor value")
            query, key, value = self._apart(parts, query, state)
        if not len(query.shape) == len(key.shape) == len(value.shape):
            raise InferenceError(f"query {query.type}, key {key.type}, value {value.type}: one rank is needed")
        heads, depth = key.shape[-2:]
        others = value.shape[-2]
        if not (isinstance(heads, int) and isinstance(depth, int) and isinstance(others, int)):
            raise DataDependentError(f"how many heads there are depends on {key.type} and {value.type}")
        if heads < 1 or others % heads:
            raise InferenceError(f"{heads} heads of keys and {others} of values: a multiple of the former is needed")
        key, query = (self._normal(parts, as_type(parts, one, DType.FLOAT)) for one in (key, query))
        whole = as_type(parts, value, DType.FLOAT)
        steps = [query, key, whole, *self._gates(parts, query, decay, beta, a_log, dt_bias, others)]
        requests = None
        if sums is not None:
            requests = _Requests(parts, sums, query)
            everything = requests.counted(parts.add(ReduceMax(keepdims=False), requests.length))
            rows = requests.first(everything, requests.length)
            steps = [None if one is None else _rows(parts, one, *rows) for one in steps]
        elif len(query.shape) == 3:
            assert state is not None
            steps = [self._in_batches(parts, one, state) for one in steps]
        y, present = self._attended(parts, steps, state, heads, others)
        if requests is not None:
            length = parts.add(Shape(start=1, end=2), y)
            flat = parts.add(Reshape(), y, self._behind(parts, y, 2))
            places = parts.add(Add(), parts.add(Mul(), requests.of, length), requests.local)
            y = parts.add(Gather(), flat, places)
        elif len(value.shape) == 3:
            y = parts.add(Reshape(), y, self._behind(parts, y, 2))
        if count is None:
            shape = parts.add(Concat(axis=0), parts.add(Shape(end=1), present), numbers(parts, 0))
            update = parts.add(ConstantOfShape(), shape)
        else:
            update = self._update(parts, steps, state, requests, count, active, others // heads)
        return as_type(parts, y, like.dtype), present, update

    def _check(
        self, query: Value, sums: Value | None, decay: Value | None, beta: Value | None, state: Value | None
    ) -> None:
        for name, value, choices in (
            ("update_rule", self.update_rule, ("linear", "gated", "delta", "gated_delta")),
            ("gate_activation", self.gate_activation, ("none", "softplus", "qwen", "sigmoid", "kda")),
            ("beta_activation", self.beta_activation, ("none", "sigmoid")),
        ):
            if value not in choices:
                raise InferenceError(f"{name} is {value!r}; one of {', '.join(choices)} expected")
        for name, given, needed in (
            ("decay", decay, "gated" in self.update_rule),
            ("beta", beta, "delta" in self.update_rule),
        ):
            if (given is not None) != needed:
                how = "needs" if needed else "does not take"
                raise InferenceError(f"update_rule {self.update_rule!r} {how} the input {name}")
        if sums is None and state is None and len(query.shape) != 4:
            raise InferenceError("without cu_seqlens, initial_state is needed: it tells how many requests there are")
        if sums is not None and len(query.shape) == 4:
            raise InferenceError(f"cu_seqlens is for packed tokens, and query is {query.type}")

    def _apart(self, parts: Parts, whole: Value, state: Value) -> tuple[Value, Value, Value]:
        """Queries, keys and values of what has them side by side."""
        others, size, depth = state.shape[1:]
        width = whole.shape[-1]
        if not all(isinstance(one, int) for one in (others, size, depth, width)):
            raise DataDependentError(f"what of {whole.type} is a query depends on {state.type}")
        assert isinstance(others, int) and isinstance(size, int) and isinstance(depth, int) and isinstance(width, int)
        heads, rest = divmod(width - others * size, 2 * depth)
        if rest or heads < 1:
            raise InferenceError(
                f"query is {whole.type}, initial_state {state.type}: 2 * heads * {depth} + {others} * {size} columns "
                "are needed"
            )
        bounds = (0, heads * depth, 2 * heads * depth, width)
        cut = (
            parts.add(Slice(), whole, *(numbers(parts, number) for number in (first, end, -1)))
            for first, end in itertools.pairwise(bounds)
        )
        shapes = ((heads, depth), (heads, depth), (others, size))
        query, key, value = (
            parts.add(Reshape(), one, numbers(parts, *(0,) * (len(whole.shape) - 1), *shape))
            for one, shape in zip(cut, shapes, strict=True)
        )
        return query, key, value

    def _normal(self, parts: Parts, x: Value) -> Value:
        """Heads of queries or keys, divided by their length if asked to."""
        if not self.qk_l2_norm:
            return x
        squares = parts.add(ReduceSumSquare(), x, numbers(parts, -1))
        return parts.add(Div(), x, parts.add(Sqrt(), parts.add(Add(), squares, of_type(parts, NORM_EPSILON, x))))

    def _gates(
        self,
        parts: Parts,
        query: Value,
        decay: Value | None,
        beta: Value | None,
        a_log: Value | None,
        dt_bias: Value | None,
        heads: int,
    ) -> tuple[Value | None, Value | None]:
        """decay and beta as they are meant, float32 [tokens..., Hv, K or 1] and [tokens..., Hv]."""
        if beta is not None:
            beta = as_type(parts, beta, DType.FLOAT)
            beta = parts.add(Sigmoid(), beta) if self.beta_activation == "sigmoid" else beta
        if decay is None:
            return None, beta
        decay = as_type(parts, decay, DType.FLOAT)
        if len(decay.shape) == len(query.shape) - 1:
            decay = parts.add(Unsqueeze(), decay, numbers(parts, -1))
        if self.gate_activation == "none":
            return decay, beta
        if a_log is None or dt_bias is None:
            raise InferenceError(f"gate_activation {self.gate_activation!r} needs the inputs a_log and dt_bias")
        raw = parts.add(Add(), decay, parts.add(Reshape(), dt_bias, numbers(parts, heads, -1)))
        rate = parts.add(Exp(), parts.add(Reshape(), a_log, numbers(parts, heads, 1)))
        if self.gate_activation in ("softplus", "qwen"):
            return parts.add(Mul(), parts.add(Neg(), rate), parts.add(Softplus(), raw)), beta
        bounded = parts.add(Sigmoid(), parts.add(Mul(), rate, raw))
        return parts.add(Mul(), bounded, of_type(parts, self.gate_lower_bound, bounded)), beta

    def _behind(self, parts: Parts, x: Value, axes: int) -> Value:
        """The shape of x with its first axes as one."""
        return parts.add(Concat(axis=0), numbers(parts, -1), parts.add(Shape(start=axes), x))

    def _in_batches(self, parts: Parts, x: Value | None, state: Value) -> Value | None:
        """[B * T, ...] as [B, T, ...]."""
        if x is None:
            return None
        shape = parts.add(Concat(axis=0), parts.add(Shape(end=1), state), self._behind(parts, x, 1))
        return parts.add(Reshape(), x, shape)

    def _attended(
        self, parts: Parts, steps: list[Value | None], state: Value | None, heads: int, others: int
    ) -> tuple[Value, Value]:
        """The output [B, T, Hv, V] and the states of [B, T, ...]."""
        query, key, value, decay, beta = steps
        assert query is not None and key is not None and value is not None
        flat = [
            self._flat(parts, one)
            for one in (self._spread(parts, query, others // heads), self._spread(parts, key, others // heads), value)
        ]
        rate = None if decay is None else self._flat(parts, decay)
        past = None if state is None else parts.add(Transpose(perm=(0, 1, 3, 2)), state)
        operator = LinearAttention(
            kv_num_heads=others, q_num_heads=others, scale=self.scale, update_rule=self.update_rule
        )
        y, present = parts.add_many(operator, (*flat, past, rate, beta), 2)
        shape = parts.add(Concat(axis=0), parts.add(Shape(end=2), y), parts.add(Shape(start=2), value))
        return parts.add(Reshape(), y, shape), parts.add(Transpose(perm=(0, 1, 3, 2)), present)

    def _flat(self, parts: Parts, x: Value) -> Value:
        """[B, T, heads, size] as [B, T, heads * size]."""
        width = parts.add(ReduceProd(keepdims=True), parts.add(Shape(start=2), x), numbers(parts, 0))
        return parts.add(Reshape(), x, parts.add(Concat(axis=0), parts.add(Shape(end=2), x), width))

    def _spread(self, parts: Parts, x: Value, times: int) -> Value:
        """Each head of [B, T, Hk, K] as often as there are heads of values for it."""
        if times == 1:
            return x
        heads: Any = x.shape[2]
        return parts.add(Gather(axis=2), x, numbers(parts, *np.repeat(np.arange(heads), times)))

    def _update(
        self,
        parts: Parts,
        steps: list[Value | None],
        state: Value | None,
        requests: _Requests | None,
        count: Value,
        active: Value | None,
        times: int,
    ) -> Value:
        """Factors, keys and what is added of the first steps, [B, capacity * ...]."""
        _, keys, values, decay, beta = steps
        assert keys is not None and values is not None
        steps_there = parts.add(Squeeze(), parts.add(Shape(start=1, end=2), keys), numbers(parts, 0))
        limit = as_type(parts, count, DType.INT64)
        limit = parts.add(Min(), limit, steps_there if requests is None else requests.length)
        if active is not None:
            idle = parts.add(Equal(), as_type(parts, active, DType.INT64), parts.constant(np.int64(0)))
            limit = parts.add(Mul(), limit, as_type(parts, parts.add(Not(), idle), DType.INT64))
        size = parts.add(Shape(start=2), values)
        if state is None:
            shape = parts.add(Concat(axis=0), parts.add(Shape(end=1), keys), size, parts.add(Shape(start=3), keys))
            state = parts.add(ConstantOfShape(), shape)
        factors: list[Value] = []
        captured: list[Value] = []
        added: list[Value] = []
        one = parts.constant(np.float32(1))
        highest = parts.add(Sub(), steps_there, parts.constant(np.int64(1)))
        for step in range(self.state_update_capacity):
            place = parts.add(Min(), parts.constant(np.int64(step)), highest)
            k, v = (parts.add(Gather(axis=1), one, place) for one in (keys, values))
            wide = self._spread(parts, parts.add(Unsqueeze(), k, numbers(parts, 1)), times)
            column = parts.add(Unsqueeze(), parts.add(Squeeze(), wide, numbers(parts, 1)), numbers(parts, -1))
            if decay is not None:
                factor = parts.add(Exp(), parts.add(Gather(axis=1), decay, place))
                state = parts.add(Mul(), state, parts.add(Unsqueeze(), factor, numbers(parts, -2)))
            else:
                factor = parts.add(
                    Expand(), one, parts.add(Concat(axis=0), parts.add(Shape(end=2), v), numbers(parts, 1))
                )
            if beta is not None:
                seen = parts.add(Squeeze(), parts.add(MatMul(), state, column), numbers(parts, -1))
                rate = parts.add(Unsqueeze(), parts.add(Gather(axis=1), beta, place), numbers(parts, -1))
                v = parts.add(Mul(), rate, parts.add(Sub(), v, seen))
            row = parts.add(Transpose(perm=(0, 1, 3, 2)), column)
            state = parts.add(Add(), state, parts.add(Mul(), parts.add(Unsqueeze(), v, numbers(parts, -1)), row))
            there = parts.add(Less(), parts.constant(np.int64(step)), limit)
            for all_of, each in ((factors, factor), (captured, k), (added, v)):
                kept = parts.add(Unsqueeze(), there, numbers(parts, *range(1, len(each.shape))))
                zeroed = parts.add(Where(), kept, each, of_type(parts, 0.0, each))
                all_of.append(parts.add(Flatten(), zeroed))
        return parts.add(Concat(axis=1), *factors, *captured, *added)
