"""Texts at which an answer ends."""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """Takes an answer piece by piece, and finds the first of some texts in it."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        """What may be the beginning of a stop."""
        self.matched: int | None = None
        """Which of the stops was found."""

    def push(self, piece: str) -> str:
        """Take a piece; what is sure to be in front of any stop, and was not given yet. Behind a stop nothing is."""
        if self.matched is not None:
            return ""
        held = self._held + piece
        found = [(place, index) for index, stop in enumerate(self._stops) if (place := held.find(stop)) >= 0]
        if found:
            place, self.matched = min(found)
            self._held = ""
            return held[:place]
        count = max((overlap(held, stop) for stop in self._stops), default=0)
        self._held = held[len(held) - count :]
        return held[: len(held) - count]

    def rest(self) -> str:
        """What was held back, where no more comes."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text begin a stop."""
    return next((count for count in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:count])), 0)
