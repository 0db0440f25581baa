"""What a loop that generates text does to scores."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.logic import And, Equal, Where
from jitonnx.ops.onnx.scatter import ScatterElements
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.parts import numbers


class NGramRepeatBlock(Contributed):
    """scores [B, vocabulary], -inf for tokens that would make the last ngram_size - 1 of input_ids [B, L] an n-gram
    that is there already."""

    ngram_size: int

    def compose(self, parts: Parts, ids: Value, scores: Value) -> Value:
        if self.ngram_size < 1:
            raise InferenceError(f"ngram_size is {self.ngram_size}; at least 1 is needed")
        if (
            len(ids.shape) != 2
            or len(scores.shape) != 2
            or not parts.context.demand_equal(ids.shape[0], scores.shape[0])
        ):
            raise InferenceError(f"input_ids {ids.type}, scores {scores.type}: [B, L] and [B, vocabulary] are needed")
        before = self.ngram_size - 1
        tokens = self._columns(parts, ids, before, 0)
        repeated = parts.add(Equal(), tokens, tokens)
        for place in range(before):
            there = self._columns(parts, ids, place, before - place)
            last = self._columns(parts, ids, place - before, before - place - 1)
            repeated = parts.add(And(), repeated, parts.add(Equal(), there, last))
        low, high = (parts.constant(np.float32(number)) for number in (-np.inf, np.inf))
        least = parts.add(Where(), repeated, low, high)
        return parts.add(ScatterElements(axis=1, reduction="min"), scores, tokens, least)

    def _columns(self, parts: Parts, ids: Value, start: int, left: int) -> Value:
        """Those from `start` on but for the last `left`."""
        end = -left or np.iinfo(np.int64).max
        return parts.add(Slice(), ids, *(numbers(parts, number) for number in (start, end, 1)))


OPERATORS = (NGramRepeatBlock,)
