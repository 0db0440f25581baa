"""Hashes of the n-grams of tokens, by which embeddings of n-grams are looked up (Engram)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.arithmetic import Add, Mod, Mul
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.logic import BitwiseXor, Equal, Not, Or, Where
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.shape import Expand, Reshape, Shape, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.parts import numbers, scalar


class _Hashed(Contributed):
    """For each token and each n from 2 to max_ngram_size, n_head_per_ngram hashes of the token and the n - 1 before it:
    the exclusive or of the ids, each times the multiplier for its distance, modulo the head's size of vocab_sizes, plus
    the head's offset.

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

    def compose(
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
        """Where the segment is another than that of the token before, bool [B, history + S]."""
        one, most = numbers(parts, 1), numbers(parts, np.iinfo(np.int64).max)
        later = parts.add(Slice(), segments, one, most, one)
        earlier = parts.add(Slice(), segments, numbers(parts, 0), numbers(parts, -1), one)
        other = parts.add(Not(), parts.add(Equal(), later, earlier))
        whole = parts.add(Pad(), other, numbers(parts, 0, self.max_ngram_size, 0, 0), parts.constant(np.bool_(False)))
        length = parts.add(Add(), parts.add(Shape(start=1), segments), numbers(parts, self._history))
        return parts.add(Slice(), whole, numbers(parts, 0), length, one)


OPERATORS = (NGramHashMapping,)
