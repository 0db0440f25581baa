"""`SearchOptions`: how the next token is chosen, and when an end is; and the choice itself, on rows of logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from jitonnx.errors import InvalidArgument

_LOWEST = np.finfo(np.float32).min


@dataclass
class SearchOptions:
    """onnxruntime-genai's search options, under their names, and `min_p`."""

    batch_size: int = 1
    chunk_size: int = 0
    """Tokens of a prompt that are read in one run; 0: all."""
    diversity_penalty: float = 0.0
    do_sample: bool = False
    early_stopping: bool | str = True
    """Whether beams end once num_beams have; False: once none can be better, by its sum so far. "never", which
    onnxruntime-genai lacks: once none can be better at all."""
    length_penalty: float = 1.0
    max_length: int = 0
    """The most tokens of a sequence, its prompt included."""
    min_length: int = 0
    min_p: float = 0.0
    """The least probability of a token that is sampled, over that of the most probable one."""
    no_repeat_ngram_size: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    past_present_share_buffer: bool = False
    random_seed: int = -1
    """Below 0: another one each time."""
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 0.0

    def set(self, name: str, value: Any) -> None:
        """Set an option by name. InvalidArgument for a name or a type that is unknown."""
        kinds: dict[str, Any] = {field.name: type(field.default) for field in fields(self)}
        if name not in kinds:
            if name == "blank_penalty":  # of speech models, which there are none of
                return
            raise InvalidArgument(f"{name!r} is no search option; these are: {', '.join(kinds)}")
        if (name, value) == ("early_stopping", "never"):
            self.early_stopping = "never"
            return
        if not isinstance(value, bool | int | float | np.number | np.bool_):
            raise InvalidArgument(f"search option {name} is {value!r}: a number is needed")
        kind = kinds[name]
        if kind is bool and not isinstance(value, bool | np.bool_):
            raise InvalidArgument(f"search option {name} is {value!r}: True or False is needed")
        if kind is int and not (abs(float(value)) < 1 << 31 and int(value) == value):
            raise InvalidArgument(f"search option {name} is {value!r}: a whole number of 32 bits is needed")
        setattr(self, name, kind(value))

    def check(self, context_length: int, vocabulary: int) -> None:
        """InvalidArgument for options that do not go together, or with the model."""
        if self.max_length < 1:
            raise InvalidArgument("search option max_length is 0: it is the length at which a sequence ends")
        if self.max_length > context_length:
            raise InvalidArgument(
                f"max_length ({self.max_length}) cannot be greater than model context_length ({context_length})"
            )
        if self.batch_size < 1:
            raise InvalidArgument(f"batch_size ({self.batch_size}) must be 1 or greater")
        if self.num_beams < 1:
            raise InvalidArgument(f"num_beams ({self.num_beams}) must be 1 or greater")
        if not 1 <= self.num_return_sequences <= self.num_beams:
            raise InvalidArgument(
                f"num_return_sequences ({self.num_return_sequences}) must be in [1, {self.num_beams}], as num_beams is"
            )
        if self.num_beams > 1 and vocabulary < 2:
            raise InvalidArgument(f"vocab_size ({vocabulary}) must be 2 or greater when using beam search")
        if self.num_beams > 1 and self.is_sampling:
            raise InvalidArgument(
                f"tokens cannot be drawn in a beam search: set do_sample to False, or num_beams ({self.num_beams}) to 1"
            )
        if not 0.0 <= self.top_p <= 1.0:
            raise InvalidArgument(f"top_p must be between 0.0 and 1.0, is {self.top_p}")
        if not 0.0 <= self.min_p <= 1.0:
            raise InvalidArgument(f"min_p must be between 0.0 and 1.0, is {self.min_p}")
        if self.top_k < 0:
            raise InvalidArgument(f"top_k must be 0 or greater, is {self.top_k}")
        if self.is_sampling and self.top_k > vocabulary:
            raise InvalidArgument(f"top_k ({self.top_k}) must be less than or equal to vocab_size ({vocabulary})")
        if not self.temperature >= 0.0:
            raise InvalidArgument(f"temperature must be 0 or greater, is {self.temperature}")
        if not self.repetition_penalty > 0.0:
            raise InvalidArgument(f"repetition_penalty must be greater than 0, is {self.repetition_penalty}")
        if self.chunk_size < 0:
            raise InvalidArgument(f"chunk_size must be 0 or greater, is {self.chunk_size}")

    @property
    def is_sampling(self) -> bool:
        """Whether tokens are drawn, and not always those of the greatest logit."""
        return self.do_sample and self.top_k != 1 and self.temperature != 0.0

    @property
    def changes_logits(self) -> bool:
        """Whether logits depend on what the sequences hold."""
        return self.min_length > 0 or self.repetition_penalty != 1.0 or self.no_repeat_ngram_size > 0


def penalise(logits: np.ndarray, sequences: Sequence[np.ndarray], options: SearchOptions, ends: Sequence[int]) -> None:
    """Change rows of logits [batch, vocabulary], in place, by what their sequences hold."""
    for row, sequence in zip(logits, sequences, strict=True):
        if len(sequence) < options.min_length:
            row[list(ends)] = _LOWEST
        known = sequence[(sequence >= 0) & (sequence < len(row))]
        if options.repetition_penalty != 1.0:
            seen = np.unique(known)
            chosen = row[seen]
            penalty = np.float32(options.repetition_penalty)
            with np.errstate(over="ignore"):  # of the lowest one
                row[seen] = np.where(chosen < 0, chosen * penalty, chosen / penalty)
        size = options.no_repeat_ngram_size
        if 0 < size <= len(sequence):
            runs = np.lib.stride_tricks.sliding_window_view(sequence, size)
            prefix = sequence[len(sequence) - size + 1 :]
            banned = runs[(runs[:, :-1] == prefix).all(1), -1]
            row[banned[(banned >= 0) & (banned < len(row))]] = _LOWEST


class Random:
    """Draws as onnxruntime-genai does: the same seed gives the same numbers, those of C++'s std::mt19937."""

    def __init__(self, seed: int) -> None:
        """seed: below 0, another one each time."""
        bits = np.random.RandomState(seed if seed >= 0 else None)._bit_generator
        self._raw = bits.random_raw

    def place(self, weights: np.ndarray) -> int:
        """A place by its weight, as std::discrete_distribution draws it."""
        weights = weights.astype(np.float64)
        sums = np.cumsum(weights / weights.sum())
        sums[-1] = 1.0
        return int(np.searchsorted(sums, self._uniform()))

    def rank(self, weights: np.ndarray) -> int:
        """`place`, as if weights were in falling order, which they need not be."""
        places, missing = np.arange(len(weights)), self._uniform() * float(weights.sum(dtype=np.float64))
        while len(places) > 1:
            half = len(places) // 2
            places = places[np.argpartition(-weights[places], half - 1)]
            front = float(weights[places[:half]].sum(dtype=np.float64))
            if missing <= front:
                places = places[:half]
            else:
                places, missing = places[half:], missing - front
        return int(places[0])

    def _uniform(self) -> float:
        """A number in [0, 1), as std::generate_canonical makes it."""
        low, high = int(self._raw()), int(self._raw())
        return min((low + high * 2.0**32) / 2.0**64, float(np.nextafter(1.0, 0.0)))


def choose(logits: np.ndarray, options: SearchOptions, random: Random, ended: np.ndarray) -> np.ndarray:
    """The next token of each row of logits [batch, vocabulary]: that of the greatest logit, or one that is drawn.

    ended [batch]: of rows for which nothing is drawn.
    """
    if not options.is_sampling:
        best: np.ndarray = logits.argmax(1).astype(np.int32)
        return best
    return np.array(
        [0 if end else _drawn(row, options, random) for row, end in zip(logits, ended, strict=True)], np.int32
    )


def _drawn(row: np.ndarray, options: SearchOptions, random: Random) -> int:
    """A token by its probability among those that are kept: the top_k greatest, of these the first ones that make up
    top_p, of these those that are not less probable than min_p of the first."""
    if not np.isfinite(row.max()):
        raise InvalidArgument(f"the greatest logit is {row.max()}: the model gave it, and nothing can be drawn by it")
    inverse = np.float32(1.0) / np.float32(options.temperature)
    if options.top_k > 1:
        tokens = greatest(row, options.top_k)
        if 0.0 < options.top_p < 1.0:
            weights = _weights(row[tokens], inverse)
            tokens = tokens[: _reach(weights / weights.sum(), options.top_p)]
    elif options.top_p < 1.0:
        tokens = _nucleus(row, np.float32(options.top_p), inverse)
    else:
        tokens = np.arange(len(row))
    weights = _weights(row[tokens], inverse)
    if options.min_p > 0.0:
        is_kept = weights >= np.float32(options.min_p)
        tokens, weights = tokens[is_kept], weights[is_kept]
    is_sorted = options.top_k > 1 or options.top_p < 1.0
    return int(tokens[random.place(weights) if is_sorted else random.rank(weights)])


def _weights(logits: np.ndarray, inverse: np.float32) -> np.ndarray:
    """Probabilities over the greatest one."""
    made: np.ndarray = np.exp((logits - logits.max()) * inverse)
    return made


def _reach(weights: np.ndarray, part: float) -> int:
    """How many of the first weights make up a part."""
    return min(int(np.searchsorted(np.cumsum(weights), np.float32(part))) + 1, len(weights))


def _nucleus(row: np.ndarray, part: np.float32, inverse: np.float32) -> np.ndarray:
    """The fewest tokens whose probabilities make up a part, the most probable ones first.

    As onnxruntime-genai finds them, which never sums up the whole vocabulary unless it is small: the greatest 16, 64,
    ... logits are sorted, until those behind cannot keep the sum below the part, though each were as the last one.
    """
    count, size = min(16, len(row)), len(row)
    while True:
        tokens = greatest(row, count)
        weights = _weights(row[tokens], inverse)
        sums = np.cumsum(weights)
        behind = np.arange(size - 1, size - 1 - count, -1).astype(np.float32) * weights
        is_enough = sums >= part * (sums + behind)
        if is_enough.any() or count == size:
            break
        count = min(4 * count, size)
    if size <= 64:
        tokens = greatest(row, size)
        weights = _weights(row[tokens], inverse)
        return tokens[: _reach(weights, float(part * np.cumsum(weights)[-1]))]
    return tokens[: int(is_enough.argmax()) + 1] if is_enough.any() else tokens


def greatest(row: np.ndarray, count: int) -> np.ndarray:
    """The tokens of the `count` greatest logits, in falling order; equal ones are in the order of their tokens."""
    begin = len(row) - count
    places = np.sort(np.argpartition(row, begin)[begin:]) if begin > 0 else np.arange(len(row))
    made: np.ndarray = places[np.argsort(-row[places], kind="stable")]
    return made
