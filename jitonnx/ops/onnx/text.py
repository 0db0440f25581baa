"""Operators on strings: normalised, joined, split, matched, and counted as n-grams. All are evaluated on the host."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from typing import Any

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.strings import strings_of
from jitonnx.ir.types import TensorType
from jitonnx.ops import re2

ODD_CASES = frozenset({"az", "lt", "tr"})
"""Languages whose upper and lower case are not those of Unicode's default."""


class StringNormalizer(Operator):
    """The strings that are no stop words, in another case.

    Of a vector [C] or a row [1, C]; where none is left, one string without characters. Stop words are compared whole,
    and with is_case_sensitive = 0 in lower case.
    """

    case_change_action: str = "NONE"
    is_case_sensitive: bool = False
    locale: str | None = None
    stopwords: tuple[str, ...] | None = None

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if len(x.shape) not in (1, 2) or (len(x.shape) == 2 and isinstance(x.shape[0], int) and x.shape[0] != 1):
            raise InferenceError(f"X has the type {x.type}; [C] or [1, C] expected")
        if self.case_change_action not in ("NONE", "LOWER", "UPPER"):
            raise InferenceError(f"case_change_action {self.case_change_action!r}: NONE, LOWER or UPPER expected")
        changes = self.case_change_action != "NONE" or not self.is_case_sensitive
        if changes and self.locale is not None and self.locale[:2].lower() in ODD_CASES:
            raise InferenceError(
                f"locale {self.locale!r}: upper and lower case of this language differ from Unicode's default, which "
                "is all that is known here"
            )
        if not self.stopwords:
            return x.type
        return TensorType(x.dtype, (*x.shape[:-1], None))  # type: ignore[arg-type]

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        if x.ndim == 2 and len(x) != 1:
            raise ValueError(f"X has the shape {list(x.shape)}; [C] or [1, C] expected")
        texts: list[str] = x.ravel().tolist()
        if self.stopwords and self.is_case_sensitive:
            texts = [text for text in texts if text not in self.stopwords]
        elif self.stopwords:
            stops = {word.lower() for word in self.stopwords}
            texts = [text for text in texts if text.lower() not in stops]
        if self.case_change_action == "LOWER":
            texts = [text.lower() for text in texts]
        elif self.case_change_action == "UPPER":
            texts = [text.upper() for text in texts]
        if self.stopwords and not texts:
            texts = [""]
        return strings_of(texts, (*x.shape[:-1], len(texts)))


class StringConcat(Operator):
    """Strings of two tensors joined element by element, broadcast."""

    def infer(self, context: InferenceContext, x: Value, y: Value) -> TensorType:
        return TensorType(DType.STRING, context.broadcast(x, y))

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.add(x, y), object)


class StringSplit(Operator):
    """The parts of each string between delimiters, along a new last axis filled up with "", and how many there are.

    Without a delimiter (or with "") at white space, however much of it. At most `maxsplit` times, from the left. With a
    delimiter "" is one part, as in onnx's reference; onnxruntime counts none.
    """

    delimiter: str | None = None
    maxsplit: int | None = None

    def infer(self, context: InferenceContext, x: Value) -> tuple[TensorType, TensorType]:
        return TensorType(x.dtype, (*x.shape, None)), TensorType(DType.INT64, x.shape)  # type: ignore[arg-type]

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        most = -1 if self.maxsplit is None else self.maxsplit
        parts = [text.split(self.delimiter or None, most) for text in x.ravel().tolist()]
        counts = [len(part) for part in parts]
        longest = max(counts, default=0)
        filled = [text for part in parts for text in (*part, *[""] * (longest - len(part)))]
        return strings_of(filled, (*x.shape, longest)), np.array(counts, np.int64).reshape(x.shape)


class RegexFullMatch(Operator):
    """Whether each string as a whole matches `pattern`, a regular expression in RE2's syntax (see `re2`)."""

    pattern: str | None = None

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if self.pattern is None:
            raise InferenceError("it lacks the attribute 'pattern'")
        try:
            re2.compiled(self.pattern)
        except ValueError as error:
            raise InferenceError(str(error)) from error
        return TensorType(DType.BOOL, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        assert self.pattern is not None
        matches = re2.compiled(self.pattern).fullmatch
        return np.array([matches(text) for text in x.ravel().tolist()], bool).reshape(x.shape)


class TfIdfVectorizer(Operator):
    """How often each n-gram of a pool occurs in the input, or in each of its rows.

    The pool has all 1-grams, then all 2-grams and so on, `ngram_counts` where each kind begins; `ngram_indexes` says
    where in the output the count of each n-gram goes. The elements of an n-gram may lie up to max_skip_count + 1 apart,
    always equally far. mode: TF, the counts; IDF, the weight where the count is not 0; TFIDF, counts times weights.
    """

    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] | None = None
    pool_strings: tuple[str, ...] | None = None
    weights: tuple[float, ...] | None = None

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if len(x.shape) > 2:
            raise InferenceError(f"X has the type {x.type}; [C] or [N, C] expected")
        self._check()
        if (self.pool_strings is not None) != (x.dtype is DType.STRING):
            raise InferenceError(f"X is of type {x.dtype.text}: pool_strings are for strings, pool_int64s for integers")
        return TensorType(DType.FLOAT, (*x.shape[:-1], max(self.ngram_indexes) + 1))

    def _check(self) -> None:
        if self.mode not in ("TF", "IDF", "TFIDF"):
            raise InferenceError(f"mode {self.mode!r}: TF, IDF or TFIDF expected")
        if (self.pool_strings is None) == (self.pool_int64s is None):
            raise InferenceError("exactly one of pool_int64s and pool_strings is needed")
        if not 1 <= self.min_gram_length <= self.max_gram_length or self.max_skip_count < 0:
            raise InferenceError(
                f"min_gram_length {self.min_gram_length}, max_gram_length {self.max_gram_length}, max_skip_count "
                f"{self.max_skip_count}: 1 <= min <= max and no negative count expected"
            )
        if not self.ngram_indexes or min(self.ngram_indexes) < 0:
            raise InferenceError(f"ngram_indexes {list(self.ngram_indexes)}: places of the output, 0 or more, expected")
        count, given = _pool(self)[1], len(self.ngram_indexes)
        if count > given or (self.weights and len(self.weights) != given):
            raise InferenceError(
                f"the pool has {count} n-grams, ngram_indexes {given}, weights {len(self.weights or ())} elements: an "
                "index for each n-gram and a weight for each index are needed, or no weights"
            )

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        places = _pool(self)[0]
        rows = x if x.ndim == 2 else x.reshape(1, x.size)
        y = np.zeros((len(rows), max(self.ngram_indexes) + 1), np.float32)
        for number, row in enumerate(rows.tolist()):
            for gram, times in Counter(self._grams(row)).items():
                if gram not in places:
                    continue
                place = places[gram]
                weight = self.weights[place] if self.weights and self.mode != "TF" else 1
                if self.mode == "IDF":
                    y[number, self.ngram_indexes[place]] = weight
                else:
                    y[number, self.ngram_indexes[place]] += times * np.float32(weight)
        return y if x.ndim == 2 else y[0]

    def counted_strings(self) -> tuple[tuple[str, ...], np.ndarray, np.ndarray | None] | None:
        """Where only single strings of a pool are counted, each in a place of its own: these strings, for each of them
        its place in the output and behind the last -1 for all others, and the weights by place; else None."""
        if self.pool_strings is None or self.min_gram_length > 1:
            return None
        places = _pool(self)[0]
        columns = [self.ngram_indexes[place] for place in places.values()]
        if any(len(gram) > 1 for gram in places) or len(set(columns)) < len(columns):
            return None
        weights = None
        if self.weights and self.mode != "TF":
            weights = np.zeros(max(self.ngram_indexes) + 1, np.float32)
            weights[columns] = [self.weights[place] for place in places.values()]
        return tuple(text for (text,) in places), np.array([*columns, -1], np.int64), weights

    def _grams(self, row: list[Any]) -> list[tuple[Any, ...]]:
        """All n-grams of a row, of lengths that the pool has; single elements, which skipping does not change, once."""
        found: list[tuple[Any, ...]] = []
        for size in range(self.min_gram_length, min(self.max_gram_length, len(self.ngram_counts), len(row)) + 1):
            steps = min(self.max_skip_count + 1, (len(row) - 1) // (size - 1)) if size > 1 else 1
            for step in range(1, steps + 1):
                reach = step * (size - 1)
                found += [tuple(row[at : at + reach + 1 : step]) for at in range(len(row) - reach)]
        return found


@functools.lru_cache(maxsize=64)
def _pool(operator: TfIdfVectorizer) -> tuple[dict[tuple[Any, ...], int], int]:
    """Which place in the pool an n-gram has, of those of lengths that are asked for, and how many there are in all."""
    elements: tuple[Any, ...] = operator.pool_strings if operator.pool_strings is not None else operator.pool_int64s  # type: ignore[assignment]
    starts = (*operator.ngram_counts, len(elements))
    places: dict[tuple[Any, ...], int] = {}
    count = 0
    for size, (start, end) in enumerate(itertools.pairwise(starts), 1):
        if not 0 <= start <= end <= len(elements) or (end - start) % size:
            raise InferenceError(
                f"ngram_counts {list(operator.ngram_counts)} do not part a pool of {len(elements)} into n-grams"
            )
        for at in range(start, end, size):
            if operator.min_gram_length <= size <= operator.max_gram_length:
                places[elements[at : at + size]] = count
            count += 1
    return places, count
