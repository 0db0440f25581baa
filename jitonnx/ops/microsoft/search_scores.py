"""What searches for text do to the scores of the next token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitonnx.support.records import NamedTuple

LOWEST = np.finfo(np.float32).min


class Rules(NamedTuple):
    """What scores [rows, vocabulary] are changed by, where it is not the default.

    repetition_penalty: divides the scores of tokens that are there already, if they are positive, else multiplies them.
    no_repeat_ngram_size: no n-gram of that size comes twice. vocabulary [vocabulary] and first_vocabulary [rows,
    vocabulary]: 0 where a token is not to come, and not to come first. Before min_length tokens none is eos_token_id.
    temperature divides the scores, presence [rows, vocabulary] is taken from them. timestamps: Whisper's rules.
    """

    eos_token_id: int
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    vocabulary: np.ndarray | None = None
    first_vocabulary: np.ndarray | None = None
    min_length: int = 0
    temperature: float = 1.0
    presence: np.ndarray | None = None
    timestamps: Timestamps | None = None

    def apply(self, scores: np.ndarray, sequences: np.ndarray, *, first: bool) -> None:
        """Change the scores of the token behind sequences [rows, length], in place. first: it is the first one."""
        if self.repetition_penalty != 1:
            for row, sequence in zip(scores, sequences, strict=True):
                there = np.unique(sequence)
                given = row[there]
                penalty = np.float32(self.repetition_penalty)
                row[there] = np.where(given < 0, given * penalty, given / penalty)
        if 0 < self.no_repeat_ngram_size <= sequences.shape[1]:
            grams = np.lib.stride_tricks.sliding_window_view(sequences, self.no_repeat_ngram_size, 1)
            last = sequences[:, sequences.shape[1] - self.no_repeat_ngram_size + 1 :]
            repeated = (grams[:, :, :-1] == last[:, None]).all(2)
            for row, ngrams, again in zip(scores, grams, repeated, strict=True):
                row[ngrams[again, -1]] = LOWEST
        if self.vocabulary is not None:
            scores[:, self.vocabulary == 0] = LOWEST
        if self.first_vocabulary is not None and first:
            scores[self.first_vocabulary == 0] = LOWEST
        if sequences.shape[1] < self.min_length:
            scores[:, self.eos_token_id] = LOWEST
        if self.temperature not in (0, 1):
            scores /= np.float32(self.temperature)
        if self.presence is not None:
            scores -= self.presence
        if self.timestamps is not None:
            for row, sequence in zip(scores, sequences, strict=True):
                self.timestamps.apply(row, sequence)


class Timestamps(NamedTuple):
    """The rules of Whisper for tokens that are times, which are those from `begin` on.

    They come in pairs and do not fall, the first is one of the `most` first, and one comes where they together are
    likelier than each other token. suppressed: tokens that never come; later: those that come before a time only.
    """

    begin: int
    eos_token_id: int
    suppressed: Sequence[int]
    later: Sequence[int]
    most: int = 50

    def apply(self, scores: np.ndarray, sequence: np.ndarray) -> None:
        """Change the scores [vocabulary] of the token behind a sequence, in place."""
        times = np.flatnonzero(sequence >= self.begin)
        start = int(times[0]) + 1 if len(times) else len(sequence)
        self._forbid(scores, self.suppressed)
        if len(sequence) > start:
            self._forbid(scores, self.later)
        last = len(sequence) > 0 and sequence[-1] >= self.begin
        paired = len(sequence) <= start or sequence[-2] >= self.begin
        if last and paired:
            scores[self.begin :] = LOWEST
        elif last:
            scores[: self.eos_token_id] = LOWEST
        if len(times):
            least = int(sequence[times[-1]]) + (0 if last and not paired else 1)
            scores[self.begin : least] = LOWEST
        if len(sequence) == start:
            scores[self.begin + self.most + 1 :] = LOWEST
        of_times = scores[self.begin :]
        likely = of_times[of_times > LOWEST]
        if len(likely) and _sum(likely) > scores[: self.begin].max():
            scores[: self.begin] = LOWEST

    @staticmethod
    def _forbid(scores: np.ndarray, tokens: Sequence[int]) -> None:
        scores[[token for token in tokens if 0 <= token < len(scores)]] = LOWEST


def _sum(scores: np.ndarray) -> np.float32:
    """The logarithm of a sum of probabilities, of their logarithms."""
    most = scores.max()
    return np.float32(np.log(np.exp(scores - most).sum()) + most)


class MinimalStandard:
    """The numbers of C++'s std::minstd_rand0, by which onnxruntime draws tokens."""

    MODULUS = 2**31 - 1

    def __init__(self, seed: int) -> None:
        self._state = seed % self.MODULUS or 1

    def uniform(self) -> float:
        """A number from 0 to 1, of two draws, as libstdc++'s generate_canonical makes it."""
        total, factor, span = 0.0, 1.0, float(self.MODULUS - 1)
        for _ in range(2):
            self._state = self._state * 16807 % self.MODULUS
            total += (self._state - 1) * factor
            factor *= span
        return min(total / factor, float(np.nextafter(1.0, 0.0)))


def log_softmax(x: np.ndarray) -> np.ndarray:
    """The logarithm of the softmax over the last axis, float32."""
    shifted = x - x.max(-1, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def largest(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of the `count` largest of each row, from the largest on; of equals the first comes first, NaN last."""
    count = min(count, scores.shape[1])
    known = np.where(np.isnan(scores), -np.inf, scores)
    least = np.partition(known, known.shape[1] - count, 1)[:, known.shape[1] - count]
    places = np.empty((len(known), count), np.int64)
    for row, bound, chosen in zip(known, least, places, strict=True):
        above = np.flatnonzero(row > bound)
        found = np.concatenate([above, np.flatnonzero(row == bound)[: count - len(above)]])
        chosen[:] = found[np.lexsort((found, -row[found]))]
    return places
