"""What programs that generate text do beside the model: to scores, to predicted tokens, and to find where words are."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator
from jitonnx.ir.types import TensorType
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


class BifurcationDetector(Operator):
    """cur_tokens with those of pred_tokens that are as src_tokens are from prev_suffix_match_idx on, and the one behind
    these; and where in src_tokens the one place ends that has their last tokens, at least min_ngram_size and at most
    max_ngram_size of them; -1 if there are none, or several."""

    domain = "com.microsoft"

    max_ngram_size: int = 3
    min_ngram_size: int = 1

    def infer(
        self, context: InferenceContext, source: Value, current: Value, place: Value, predicted: Value | None = None
    ) -> tuple[TensorType, ...]:
        if not 1 <= self.min_ngram_size <= self.max_ngram_size:
            raise InferenceError(
                f"min_ngram_size is {self.min_ngram_size}, max_ngram_size {self.max_ngram_size}: 1 and more, and no "
                "less than that, are needed"
            )
        for name, x in (("src_tokens", source), ("cur_tokens", current), ("pred_tokens", predicted)):
            if x is not None and len(x.shape) != 1:
                raise InferenceError(f"{name} is {x.type}; a vector is needed")
        if predicted is not None:
            raise DataDependentError("how many tokens are taken depends on what they are")
        return current.type, place.type

    def infer_open(
        self, source: Value, current: Value, place: Value, predicted: Value | None = None
    ) -> tuple[TensorType, ...]:
        taken: tuple[None, ...] = (None,)
        return TensorType(DType.INT64, taken), place.type  # type: ignore[arg-type]

    def evaluate(
        self, source: np.ndarray, current: np.ndarray, place: np.ndarray, predicted: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        tokens = current
        if predicted is not None:
            start = int(place.reshape(-1)[0])
            if not 0 <= start <= len(source) or len(predicted) != len(source) + 1 - start:
                raise ValueError(
                    f"prev_suffix_match_idx is {start}, and there are {len(source)} src_tokens and {len(predicted)} "
                    "pred_tokens: one more is needed than are from that place on"
                )
            alike = predicted[:-1] == source[start:]
            tokens = np.concatenate([current, predicted[: int(np.append(~alike, True).argmax()) + 1]])
        return tokens, np.full(place.shape, self._match(source, tokens), np.int64)

    def _match(self, source: np.ndarray, tokens: np.ndarray) -> int:
        found = -1
        for size in range(self.min_ngram_size, min(self.max_ngram_size, len(tokens)) + 1):
            windows = (
                np.lib.stride_tricks.sliding_window_view(source, size) if size <= len(source) else source[:0, None]
            )
            places = np.flatnonzero((windows == tokens[len(tokens) - size :]).all(1))
            if not len(places):
                break
            found = int(places[0]) + size
            if found >= len(source):
                break
            if len(places) > 1:
                found = -1
        return found


class DynamicTimeWarping(Operator):
    """The cheapest path through costs [M, N] or [1, M, N] from the first element to the last, each step one row, one
    column or both further: its rows and its columns, int32 [2, steps]."""

    domain = "com.microsoft"

    def infer(self, context: InferenceContext, costs: Value) -> TensorType:
        rank = len(costs.shape)
        if rank not in (2, 3) or (rank == 3 and not context.demand_equal(costs.shape[0], 1)):
            raise InferenceError(f"input is {costs.type}; [M, N] or [1, M, N] is needed")
        raise DataDependentError("how long the path is depends on the costs")

    def infer_open(self, costs: Value) -> TensorType:
        return TensorType(DType.INT32, (2, None))  # type: ignore[arg-type]

    def evaluate(self, costs: np.ndarray) -> np.ndarray:
        rows, columns = costs.shape[-2:]
        grid = costs.reshape(rows, columns)
        total = np.full((rows + 1, columns + 1), np.inf, np.float32)
        total[0, 0] = 0
        came = np.zeros(total.shape, np.int8)
        for diagonal in range(2, rows + columns + 1):  # of which no element depends on another
            i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
            j = diagonal - i
            both, down, across = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            step = np.where((both < down) & (both < across), 0, np.where((down < both) & (down < across), 1, 2))
            came[i, j] = step
            total[i, j] = np.choose(step, (both, down, across)) + grid[i - 1, j - 1]
        path, (row, column) = [], (rows, columns)
        while row > 0 and column > 0:
            path.append((row - 1, column - 1))
            step = came[row, column]
            row, column = row - (step != 2), column - (step != 1)
        return np.array(path[::-1], np.int32).reshape(-1, 2).T.copy()
