"""`Hypotheses`: the best of the sequences that a search of beams has found."""

from __future__ import annotations

import heapq
import itertools

import numpy as np


class Hypotheses:
    """The best `count` sequences that ended, of one element of a batch, by their scores over length ** penalty."""

    def __init__(self, count: int, penalty: float, *, early: bool) -> None:
        """early: there is nothing to wait for once there are `count`."""
        self._count, self._penalty, self._early = count, penalty, early
        self._numbers = itertools.count()
        self._found: list[tuple[np.float32, int, np.ndarray]] = []
        self.done = False

    def score(self, total: np.float32, length: int) -> np.float32:
        """The score of a sequence whose tokens' sum up to `total`."""
        return np.float32(total / np.float32(length) ** np.float32(self._penalty))

    def add(self, sequence: np.ndarray, total: np.float32, length: int) -> None:
        """Take a sequence in, unless there are enough that are better. length: what it is scored by."""
        score = self.score(total, length)
        if len(self._found) < self._count or score > self._found[0][0]:
            # Of equals the first stays longest.
            heapq.heappush(self._found, (score, -next(self._numbers), sequence))
            if len(self._found) > self._count:
                heapq.heappop(self._found)

    def settle(self, best: np.float32, length: int) -> None:
        """Set `done` if there are enough, and none that goes on with a sum of `best` can be better."""
        if len(self._found) == self._count:
            self.done = self._early or bool(self._found[0][0] >= self.score(best, length))

    def best(self, count: int) -> list[tuple[np.float32, np.ndarray]]:
        """The best `count`, from the best on."""
        ordered = sorted(self._found, reverse=True)
        return [(score, sequence) for score, _, sequence in ordered[:count]]
