"""Hashes of the n-grams of tokens, by which embeddings of n-grams are looked up (Engram)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.arithmetic import Add, Min, Mod, Mul, Sub
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import Range
from jitonnx.ops.onnx.logic import BitwiseXor, Equal, GreaterOrEqual, LessOrEqual, Not, Or, Where
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.reduction import ReduceSum
from jitonnx.ops.onnx.shape import Expand, Reshape, Shape, Squeeze, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.parts import as_type, numbers, scalar


class _Hashed(Contributed):
    """Hashes of each token and each n from 2 to max_ngram_size, n_head_per_ngram of them, of the token and the n - 1
    before it: the exclusive or of the ids, each times the multiplier for its distance, modulo the head's size of
    vocab_sizes, plus the head's offset.

    Tokens before the first are those of past_ids, or pad_id, or eos_token_id if that is given. With reset_on_eos a
    token of that number and all before it are taken for eos_token_id, behind the token itself. Those of another segment
    and all before them are taken for eos_token_id as well, or for pad_id.
    """

    max_ngram_size: int
    n_head_per_ngram: int
    pad_id: int
    reset_on_eos: bool = False

    @property
    def _history(self) -> int:
        """How many tokens before one count."""
        return self.max_ngram_size - 1

    def _check(self, parts: Parts, ids: Value, rank: int, multipliers: Value, vocabularies: Value) -> None:
        if self.max_ngram_size < 2 or self.n_head_per_ngram < 1:
            raise InferenceError(
                f"max_ngram_size is {self.max_ngram_size}, n_head_per_ngram {self.n_head_per_ngram}: at least 2 and 1 "
                "are needed"
            )
        heads = self._history * self.n_head_per_ngram
        if len(ids.shape) != rank or len(multipliers.shape) != 1 or len(vocabularies.shape) != 1:
            raise InferenceError(
                f"input_ids is {ids.type}, multipliers {multipliers.type}, vocab_sizes {vocabularies.type}; rank "
                f"{rank} and twice 1 are needed"
            )
        if not parts.context.demand_equal(vocabularies.shape[0], heads):
            raise InferenceError(f"vocab_sizes is {vocabularies.type}; [{heads}], a size for each head, is needed")

    def _filling(self, parts: Parts, ids: Value, eos: Value | None) -> Value:
        """The id that stands for tokens that are not there."""
        return scalar(parts, self.pad_id, ids) if eos is None else parts.add(Reshape(), eos, numbers(parts))

    def _hashes(
        self,
        parts: Parts,
        tokens: Sequence[Value],
        breaks: Sequence[Value] | None,
        multipliers: Value,
        vocabularies: Value,
        offsets: Value | None,
        eos: Value | None,
    ) -> Value:
        """The hashes [..., heads]. tokens [...]: the token itself, and those before it by distance. breaks: whether
        a segment begins there."""
        filling, axis = self._filling(parts, tokens[0], eos), numbers(parts, -1)
        mixed, gone, hashes = None, None, []
        for distance, token in enumerate(tokens):
            if distance:
                ends = []
                if eos is not None and self.reset_on_eos:
                    ends.append(parts.add(Equal(), token, filling))
                if breaks is not None:
                    ends.append(breaks[distance - 1])
                for end in ends:
                    gone = end if gone is None else parts.add(Or(), gone, end)
                token = token if gone is None else parts.add(Where(), gone, filling, token)
            factor = parts.add(Gather(), multipliers, parts.constant(np.int64(distance)))
            product = parts.add(Mul(), token, factor)
            mixed = product if mixed is None else parts.add(BitwiseXor(), mixed, product)
            if distance:
                first = (distance - 1) * self.n_head_per_ngram
                sizes = parts.add(
                    Slice(), vocabularies, numbers(parts, first), numbers(parts, first + self.n_head_per_ngram)
                )
                hashes.append(parts.add(Mod(), parts.add(Unsqueeze(), mixed, axis), sizes))
        y = parts.add(Concat(axis=-1), *hashes)
        return y if offsets is None else parts.add(Add(), y, offsets)


class NGramHashMapping(_Hashed):
    """The hashes of input_ids [B, S]: [B, S, heads]; and the last max_ngram_size - 1 of the past and these.

    Segments are told apart among input_ids alone.
    """

    def compose(  # noqa: PLR0913  (the operator's inputs)
        self,
        parts: Parts,
        ids: Value,
        multipliers: Value,
        vocabularies: Value,
        past: Value | None = None,
        offsets: Value | None = None,
        eos: Value | None = None,
        segments: Value | None = None,
    ) -> tuple[Value, ...]:
        self._check(parts, ids, 2, multipliers, vocabularies)
        history = self._history
        if past is None:
            shape = parts.add(Concat(axis=0), parts.add(Shape(end=1), ids), numbers(parts, history))
            past = parts.add(Expand(), self._filling(parts, ids, eos), shape)
        elif len(past.shape) != 2 or not parts.context.demand_equal(past.shape[1], history):
            raise InferenceError(f"past_ids is {past.type}; [batch, {history}] is needed")
        every = parts.add(Concat(axis=1), past, ids)
        breaks = None
        if segments is not None:
            breaks = [self._before(parts, self._begins(parts, segments), by) for by in range(self.max_ngram_size)]
        tokens = [self._before(parts, every, by) for by in range(self.max_ngram_size)]
        y = self._hashes(parts, tokens, breaks, multipliers, vocabularies, offsets, eos)
        most = numbers(parts, np.iinfo(np.int64).max)
        return y, parts.add(Slice(), every, numbers(parts, -history), most, numbers(parts, 1))

    def _before(self, parts: Parts, every: Value, distance: int) -> Value:
        """[B, S] of [B, history + S]: what is `distance` before each token."""
        end = -distance or np.iinfo(np.int64).max
        return parts.add(Slice(), every, *(numbers(parts, number) for number in (self._history - distance, end, 1)))

    def _begins(self, parts: Parts, segments: Value) -> Value:
        """Whether the segment is another than that of the token before: bool [B, history + S]."""
        one, most = numbers(parts, 1), numbers(parts, np.iinfo(np.int64).max)
        later = parts.add(Slice(), segments, one, most, one)
        earlier = parts.add(Slice(), segments, numbers(parts, 0), numbers(parts, -1), one)
        other = parts.add(Not(), parts.add(Equal(), later, earlier))
        whole = parts.add(Pad(), other, numbers(parts, 0, self.max_ngram_size, 0, 0), parts.constant(np.bool_(False)))
        length = parts.add(Add(), parts.add(Shape(start=1), segments), numbers(parts, self._history))
        return parts.add(Slice(), whole, numbers(parts, 0), length, one)


class VarlenNGramHashMapping(_Hashed):
    """The hashes of the tokens of several sequences, one behind the other: [tokens, heads].

    cumulative_sequence_length [B + 1]: where each begins, and the last ends. past_ids, past_segment_ids and what is
    given of them behind the tokens are [B, max_ngram_size - 1]. state_update [B, state_update_capacity,
    max_ngram_size - 1]: present_ids as they are behind each of the first capture_count tokens, pad_id for others.
    """

    state_update_capacity: int = 0

    def compose(  # noqa: PLR0913  (the operator's inputs)
        self,
        parts: Parts,
        ids: Value,
        multipliers: Value,
        vocabularies: Value,
        bounds: Value,
        past: Value | None = None,
        offsets: Value | None = None,
        eos: Value | None = None,
        segments: Value | None = None,
        past_segments: Value | None = None,
        captured: Value | None = None,
    ) -> tuple[Value, ...]:
        self._check(parts, ids, 1, multipliers, vocabularies)
        capacity = self.state_update_capacity
        if not 0 <= capacity <= 8 or (captured is None) != (capacity == 0):
            raise InferenceError(
                f"state_update_capacity is {capacity}: at most 8, and capture_count is given where it is not 0"
            )
        if segments is None and parts.wanted(2):
            raise InferenceError("the output present_segment_ids needs the input segment_ids")
        if captured is None and parts.wanted(3):
            raise InferenceError("the output state_update needs a state_update_capacity")
        zero, one = (parts.constant(np.int64(number)) for number in (0, 1))
        wide = as_type(parts, bounds, DType.INT64)
        starts = parts.add(Slice(), wide, numbers(parts, 0), numbers(parts, -1))
        ends = parts.add(Slice(), wide, numbers(parts, 1), numbers(parts, np.iinfo(np.int64).max))
        count = parts.add(Squeeze(), parts.add(Shape(), ids))
        place = parts.add(Range(), zero, count, one)
        behind = parts.add(GreaterOrEqual(), parts.add(Unsqueeze(), place, numbers(parts, 1)), ends)
        sequence = parts.add(ReduceSum(keepdims=0), as_type(parts, behind, DType.INT64), numbers(parts, 1))
        local = parts.add(Sub(), place, parts.add(Gather(), starts, sequence))
        batch = parts.add(Squeeze(), parts.add(Shape(), starts))

        def at(sequence: Value, local: Value) -> Value:
            """The place, among all that are known, of a token of a sequence, or of its past if the number is
            negative."""
            history = parts.constant(np.int64(self._history))
            own = parts.add(Add(), parts.add(Gather(), starts, sequence), local)
            own = parts.add(Add(), own, parts.add(Mul(), batch, history))
            earlier = parts.add(Add(), parts.add(Mul(), sequence, history), parts.add(Add(), local, history))
            return parts.add(Where(), parts.add(GreaterOrEqual(), local, zero), own, earlier)

        def known(past: Value | None, x: Value, filling: Value) -> Value:
            """Those of all pasts, and those that are given, in one row."""
            if past is None:
                shape = parts.add(Concat(axis=0), parts.add(Shape(), starts), numbers(parts, self._history))
                past = parts.add(Expand(), filling, shape)
            return parts.add(Concat(axis=0), parts.add(Reshape(), past, numbers(parts, -1)), x)

        before = [parts.add(Sub(), local, parts.constant(np.int64(by))) for by in range(self.max_ngram_size)]
        places = [at(sequence, each) for each in before]
        filling = self._filling(parts, ids, eos)
        every = known(past, ids, filling)
        breaks = None
        if segments is not None:
            # What is before the first token is of its segment, if nothing else is said.
            first = parts.add(Unsqueeze(), parts.add(Gather(), segments, starts), numbers(parts, 1))
            of_segments = known(past_segments, segments, first)
            told = [parts.add(Gather(), of_segments, each) for each in places]
            breaks = [parts.add(Not(), parts.add(Equal(), *pair)) for pair in itertools.pairwise(told)]
        tokens = [parts.add(Gather(), every, each) for each in places]
        y = self._hashes(parts, tokens, breaks, multipliers, vocabularies, offsets, eos)
        rows = parts.add(Reshape(), parts.add(Range(), zero, batch, one), numbers(parts, -1, 1))
        back = parts.constant(np.arange(-self._history, 0))
        lengths = parts.add(Unsqueeze(), parts.add(Sub(), ends, starts), numbers(parts, 1))
        last = at(rows, parts.add(Add(), lengths, back))
        results = [y, parts.add(Gather(), every, last), y, y]
        if segments is not None:
            results[2] = parts.add(Gather(), of_segments, last)
        if captured is not None:
            step = parts.constant(np.arange(1, capacity + 1).reshape(-1, 1))
            most = parts.add(
                Min(), as_type(parts, parts.add(Unsqueeze(), captured, numbers(parts, 1)), DType.INT64), lengths
            )
            taken = parts.add(LessOrEqual(), step, parts.add(Unsqueeze(), most, numbers(parts, 2)))
            then = parts.add(Where(), taken, step, parts.constant(np.int64(0)))
            state = at(parts.add(Unsqueeze(), rows, numbers(parts, 2)), parts.add(Add(), then, back))
            results[3] = parts.add(Where(), taken, parts.add(Gather(), every, state), scalar(parts, self.pad_id, ids))
        return tuple(results)
