"""Things that one run has at a time, such as chains: lent to runs, and made up to a number for those that overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from jitonnx.support import fork_safety

_T = TypeVar("_T")


class Lent(Generic[_T]):
    """Things that are alike. make: makes one more, or gives None where there can be none yet. most: so many at most;
    runs beyond do without."""

    def __init__(self, make: Callable[[], _T | None], most: int) -> None:
        self._make, self._most = make, most
        self._free: list[_T] = []
        self._making = fork_safety.WorkLock()
        """Held where `_made` changes."""
        self._made = 0

    def take(self) -> _T | None:
        """One that no other run has, until `give` takes it back; None if others have all. Raises what `make` does."""
        try:
            return self._free.pop()  # at once: one that is seen to be free may be taken by another thread
        except IndexError:
            if self._made >= self._most:
                return None
        with self._making:
            if self._made >= self._most:
                return None
            made = self._make()
            self._made += made is not None
        return made

    def give(self, thing: _T) -> None:
        """Take one back from a run that is over."""
        self._free.append(thing)
