"""Beam search: of each sequence some go on beside each other, those with the greatest sums of logarithms of
probabilities, until enough have ended.

There are two ways, which differ in what is said of a sequence's length, in when enough have ended and in what penalties
change: onnxruntime-genai's, for programs that are written for it, and transformers', for `LanguageModel.generate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.genai.search import SearchOptions, greatest, penalise
from jitonnx.support.hypotheses import Hypotheses

_UNLIKELY = np.float32(-1e9)
"""The sum of the beams that a sequence does not begin with, as all begin alike."""


class Beams(ABC):
    """The beams of some sequences, those of each behind each other."""

    def __init__(self, options: SearchOptions, ends: Sequence[int], pad: int, start: int) -> None:
        """start: the tokens that the sequences begin with."""
        self._options, self._ends, self._pad, self._start = options, frozenset(ends), pad, start
        self._count = options.num_beams
        self._sums = np.full((options.batch_size, self._count), _UNLIKELY, np.float32)
        self._sums[:, 0] = 0.0
        self.tokens = np.zeros(self._sums.size, np.int32)
        """What was chosen last, by beams."""
        self.sources = np.arange(self._sums.size)
        """The beams that these go on from."""
        self._found = [
            Hypotheses(self._count, options.length_penalty, early=options.early_stopping is True) for _ in self._sums
        ]
        self._is_closed = False

    @property
    def is_done(self) -> bool:
        """Whether enough of each sequence have ended."""
        return all(found.done for found in self._found)

    @abstractmethod
    def choose(self, logits: np.ndarray, sequences: np.ndarray) -> None:
        """Choose `tokens` and `sources` by logits, float32 [beams, vocabulary], which are changed, of what comes behind
        sequences, int32 [beams, length]."""

    def sequence(self, index: int, sequences: np.ndarray) -> np.ndarray:
        """The tokens of a sequence: of each as many as there are to return, the best ones first.

        sequences, int32 [beams, length]: as they are now. Beams that have not ended end with the first call.
        """
        if not self._is_closed:
            self._is_closed = True
            for number, found in enumerate(self._found):
                for beam in range(0 if found.done else self._count):
                    row = sequences[number * self._count + beam].copy()
                    found.add(row, self._sums[number, beam], len(row))
        number, place = divmod(index, self._options.num_return_sequences)
        return self._found[number].best(self._count)[place][1]

    def _ranked(self, scores: np.ndarray, shifts: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The `count` greatest sums of each sequence in falling order, each with its beam, counted in the batch, and
        its token: [sequences, count].

        scores [beams, vocabulary] less shifts [beams] are logarithms of probabilities.
        """
        each = min(count, scores.shape[1])
        tokens = np.stack([greatest(row, each) for row in scores])
        sums = np.take_along_axis(scores, tokens, 1) - shifts[:, None] + self._sums.reshape(-1, 1)
        sums, tokens = sums.reshape(len(self._sums), -1), tokens.reshape(len(self._sums), -1)
        order = np.argsort(-sums, 1, kind="stable")[:, :count]
        beams = order // each + np.arange(len(sums))[:, None] * self._count
        return np.take_along_axis(sums, order, 1), beams, np.take_along_axis(tokens, order, 1)

    def _go_on(self, number: int, rank: int, sum_: np.float32, beam: int, token: int) -> None:
        """Have a sequence's beam of that rank be another one with a token behind it."""
        place = number * self._count + rank
        self._sums[number, rank], self.sources[place], self.tokens[place] = sum_, beam, token


class GenaiBeams(Beams):
    """As onnxruntime-genai searches: penalties change logits, and a sequence is as long as all its tokens, but for the
    one that ends it.

    Also in what is peculiar there: without early_stopping a sequence of a batch goes by sums of the one before it, and
    if more tokens end sequences than one, beams may be left with what they had the step before.
    """

    def choose(self, logits: np.ndarray, sequences: np.ndarray) -> None:
        options, count = self._options, self._count
        if options.changes_logits:
            penalise(logits, list(sequences), options, sorted(self._ends))
        sums, beams, tokens = self._ranked(logits, _logarithms(logits), 2 * count)
        self.sources, length = self.sources.copy(), sequences.shape[1]
        for number, found in enumerate(self._found):
            if found.done:
                for rank in range(count):
                    # Its sums tell when the next sequence ends, unless with early_stopping.
                    source = number * count + rank if options.early_stopping else 0
                    self._go_on(number, rank, np.float32(0.0), source, self._pad)
                continue
            taken = 0
            for rank in range(sums.shape[1]):
                beam, token = int(beams[number, rank]), int(tokens[number, rank])
                if token not in self._ends:
                    self._go_on(number, taken, sums[number, rank], beam, token)
                    taken += 1
                elif rank < count:
                    found.add(sequences[beam].copy(), sums[number, rank], length)
                if taken == count:
                    break
            found.settle(sums.reshape(-1)[number * count :][: 2 * count].max(), length)


class TransformersBeams(Beams):
    """As the library transformers searches: penalties change logarithms of probabilities, and a sequence is as long as
    what is generated, with the token that ends it.

    early_stopping "never": what goes on is compared by the greatest length that it may come to.
    """

    def choose(self, logits: np.ndarray, sequences: np.ndarray) -> None:
        options, count, length = self._options, self._count, sequences.shape[1] + 1 - self._start
        logits -= _logarithms(logits)[:, None]
        if options.changes_logits:
            penalise(logits, list(sequences), options, sorted(self._ends))
        none = np.zeros(len(logits), np.float32)
        sums, beams, tokens = self._ranked(logits, none, max(2, 1 + len(self._ends)) * count)
        is_last = sequences.shape[1] + 1 >= options.max_length
        longest = length
        if options.early_stopping == "never" and options.length_penalty > 0.0:
            longest = options.max_length - self._start
        for number, found in enumerate(self._found):
            taken = 0
            for rank in range(sums.shape[1]):
                sum_, beam, token = sums[number, rank], int(beams[number, rank]), int(tokens[number, rank])
                is_end = token in self._ends
                if (is_end or is_last) and rank < count and not found.done:
                    ended = sequences[beam] if is_end else np.append(sequences[beam], np.int32(token))
                    found.add(ended.copy(), sum_, length)
                if not is_end and taken < count:
                    self._go_on(number, taken, sum_, beam, token)
                    taken += 1
            found.settle(self._sums[number, 0], longest)
            found.done = found.done or is_last


def _logarithms(logits: np.ndarray) -> np.ndarray:
    """The logarithms of the sums of the exponentials of rows, float32 [rows].

    InvalidArgument for a row without a greatest one.
    """
    most = logits.max(1)
    if not np.isfinite(most).all():
        raise InvalidArgument(
            f"the greatest logit of a beam is {most[~np.isfinite(most)][0]}: the model gave it, and nothing can be "
            "chosen by it"
        )
    made: np.ndarray = most + np.log(np.exp(logits - most[:, None]).sum(1))
    return made
